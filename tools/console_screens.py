"""Screens of every page of the console, for the guide.

`python tools/console_screens.py` takes the tour that the tests take, tests/support/browser/tour.py,
and writes `docs/screens/*.webp`: each page in light and dark colours and on a phone. Do it again
when pages have changed. Needs Debian's `chromium-headless-shell`.
"""

import base64
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Page  # noqa: E402

from tests.support.browser.console import served  # noqa: E402
from tests.support.browser.tour import PLACES, furnish, visit  # noqa: E402
from tests.support.browser.window import chromium, window  # noqa: E402
from tests.support.servers.scripted_provider import scripted  # noqa: E402

SCREENS: Final = ROOT / "docs" / "screens"
SHOWN: Final = ("login", *PLACES)
LOOKS: Final = {
    "light": ("light", 1200, 800),
    "dark": ("dark", 1200, 800),
    "phone": ("light", 390, 780),
}


def main() -> None:
    SCREENS.mkdir(exist_ok=True)
    with (
        scripted() as script,
        served(script.base_url) as console,
        chromium() as browser,
        window(browser, console) as made,
    ):
        made.page.goto(console.url)
        made.page.get_by_label("Access token").wait_for()
        take(made.page, "login")
        page = made.enter()
        furnish(console, script, page)
        for place in PLACES:
            visit(console, page, place)
            take(page, place)


def take(page: Page, name: str) -> None:
    """Write the screens of what the tab shows."""
    session = page.context.new_cdp_session(page)
    for look, (scheme, width, height) in LOOKS.items():
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # one of its literals
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(200)
        taken = session.send("Page.captureScreenshot", {"format": "webp", "quality": 70})
        (SCREENS / f"{name}-{look}.webp").write_bytes(base64.b64decode(taken["data"]))
    page.set_viewport_size({"width": 1200, "height": 800})


if __name__ == "__main__":
    main()
