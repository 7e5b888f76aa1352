"""The agent's browser on a small internet: what its guard lets out, and what waits for a yes."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.support.browser.sites import Page, Sites
from tests.support.scratch import SCRATCH

pytestmark = [
    pytest.mark.browser,
    pytest.mark.node,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("guarded_browser"),
]

SERVER: Final = Path(__file__).parents[1] / "support/node/node_modules/.bin/playwright-mcp"
SHOP, OTHER = "http://shop.localhost", "http://other.localhost"
HTML: Final = {"Content-Type": "text/html"}
SCRIPT: Final = {"Content-Type": "text/javascript"}
FILE: Final = {"Content-Type": "text/csv", "Content-Disposition": "attachment; filename=prices.csv"}

SENDING: Final = f"""<title>Sending</title><img src=/x><p id=done>busy</p>
<iframe src="{OTHER}/frame"></iframe>
<form id=f method=post action="{SHOP}/by-itself" target=inner></form><iframe name=inner></iframe>
<script>
const send = (name) => fetch("{SHOP}/" + name, {{method: "POST", body: name}}).catch(() => 0);
send("fetch");
fetch("{SHOP}/keepalive", {{method: "PUT", keepalive: true, body: "x"}}).catch(() => 0);
fetch("{OTHER}/cross", {{method: "DELETE"}}).catch(() => 0);
navigator.sendBeacon("{SHOP}/beacon", "x");
const x = new XMLHttpRequest(); x.open("POST", "{SHOP}/xhr"); x.send("x");
const code = (n) => `fetch("{SHOP}/${{n}}", {{method: "POST"}}).catch(() => 0);
  new WebSocket("ws://shop.localhost/${{n}}")`;
const blob = (n) => URL.createObjectURL(new Blob([code(n)], {{type: "text/javascript"}}));
new Worker(blob("worker"));
new SharedWorker(blob("shared"));
new WebSocket("ws://shop.localhost/page");
addEventListener("load", () => setTimeout(() => document.getElementById("f").submit()));
const ping = document.createElement("a");
ping.href = "#x"; ping.ping = "{SHOP}/ping"; document.body.append(ping); ping.click();
navigator.serviceWorker.register("/sw.js").then(() => navigator.serviceWorker.ready).then(() => {{
  const has = typeof RTCPeerConnection === "undefined" ? "all" : "rtc";
  document.getElementById("done").textContent = has;
}});
</script>"""

PAGES: Final = {
    f"{SHOP}/": Page(f'<title>Shop</title><a href="{OTHER}/page">Elsewhere</a>'),
    f"{OTHER}/page": Page("<title>Elsewhere</title><h1>Arrived</h1>"),
    f"{SHOP}/order": Page(
        "<title>Order</title><form method=post action=/ordered>"
        "<input name=what aria-label=What><button>Buy</button></form>"
    ),
    f"{SHOP}/ordered": Page("<title>Ordered</title><h1>Thank you</h1>"),
    f"{SHOP}/move": Page(
        "<form method=post action=/moved target=_blank><button>Move</button></form>"
    ),
    f"{SHOP}/talking": Page(
        "<p id=p>x</p><script>const s = new WebSocket('ws://shop.localhost/talk');"
        "const say = (t) => document.getElementById('p').textContent = t;"
        "s.onmessage = (e) => say('heard ' + e.data); s.onerror = () => say('not heard');</script>"
    ),
    f"{SHOP}/moved": Page("", {"Location": f"{OTHER}/moved-here"}, 307),
    f"{SHOP}/sending": Page(
        SENDING,
        HTML | {"Content-Security-Policy-Report-Only": f"img-src 'none'; report-uri {SHOP}/report"},
    ),
    f"{OTHER}/frame": Page(
        f"<script>fetch('{SHOP}/frame', {{method: 'POST', mode: 'no-cors'}})</script><img src=x>"
    ),
    f"{SHOP}/sw.js": Page(
        f"fetch('{SHOP}/service', {{method: 'POST'}}); new WebSocket('ws://shop.localhost/sw');",
        SCRIPT,
    ),
    f"{SHOP}/prices": Page("<title>Prices</title><a href=/prices.csv>All prices</a>"),
    f"{SHOP}/prices.csv": Page("apple,1", FILE),
    f"{SHOP}/login": Page("<title>In</title>", HTML | {"Set-Cookie": "who=me; Max-Age=9999"}),
}


class Browser:
    """Our program, spoken to as the agent does."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._number = 0

    def kill(self) -> None:
        self._process.kill()

    async def ask(self, method: str, params: Any = None) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        self._number += 1
        asked = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params or {}}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        while line := await self._process.stdout.readline():
            if (said := json.loads(line)).get("id") == self._number:
                return said["result"]
        raise EOFError

    async def call(self, tool: str, session: str = "s", **arguments: Any) -> str:
        params = {"name": tool, "arguments": arguments, "_meta": {"oxydra/session": session}}
        result = await self.ask("tools/call", params)
        return "\n".join(each.get("text", each["type"]) for each in result["content"])

    async def open(self, url: str, session: str) -> str:
        return await self.call("navigate", session, url=url)

    async def reference(self, what: str, session: str) -> str:
        """By which a snapshot names an element."""
        shown = await self.call("snapshot", session)
        return str(re.findall(rf"{re.escape(what)}.*?\[ref=(\w+)\]", shown)[0])

    async def click(self, what: str, session: str) -> str:
        return await self.call("click", session, target=await self.reference(what, session))


async def begun(home: Path, way_out: str, *options: str) -> asyncio.subprocess.Process:
    for name in ("scratch", "downloads"):
        (home / name).mkdir(exist_ok=True)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shell_daemon.browser", "--server", str(SERVER), *options),
        cwd=home / "downloads",
        env={
            **{name: each for name, each in os.environ.items() if "proxy" not in name.lower()},
            "HTTPS_PROXY": way_out,
            "HOME": str(home),
            "TMPDIR": str(home / "scratch"),
        },
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=2**24,
    )


@asynccontextmanager
async def started(sites: Sites, home: Path, *options: str) -> AsyncIterator[Browser]:
    process = await begun(home, sites.proxy, *options)
    browser = Browser(process)
    try:
        client = {"name": "test", "version": "1"}
        asked = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        await browser.ask("initialize", asked)
        yield browser
    finally:
        await process.communicate(b"")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sites() -> AsyncIterator[Sites]:
    async with Sites(PAGES) as found:
        yield found


def short() -> Iterator[Path]:
    """A directory in which the path of a socket is short enough."""
    with TemporaryDirectory(dir=SCRATCH) as made:
        yield Path(made)


home = pytest.fixture(short, scope="module")
another_home = pytest.fixture(short)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser(sites: Sites, home: Path) -> AsyncIterator[Browser]:
    async with started(sites, home) as found:
        yield found


async def test_links_are_followed_and_a_screenshot_is_a_picture(
    browser: Browser, home: Path
) -> None:
    assert "Shop" in await browser.open(f"{SHOP}/", "reading")
    assert "Elsewhere" in await browser.click('link "Elsewhere"', "reading")
    assert 'heading "Arrived"' in await browser.call("snapshot", "reading")
    said, *rest = (await browser.call("take_screenshot", "reading")).splitlines()
    assert "image" in rest
    (kept,) = (home / "downloads").glob("*.jpeg")
    assert said == f"[Screenshot of viewport]({kept})"


async def test_tools_that_run_programs_are_not_there(browser: Browser) -> None:
    tools = {each["name"] for each in (await browser.ask("tools/list"))["tools"]}
    assert {"navigate", "click", "snapshot", "allow"} <= tools
    assert not {name for name in tools if "run_code" in name or "evaluate" in name}
    assert "there is no tool" in await browser.call("browser_run_code_unsafe", code="1")
    assert "there is no tool" in await browser.call("run_code_unsafe", code="1")
    assert "Error" in await browser.open("file:///etc/passwd", "reading")


async def test_what_listens_beside_it_is_not_reached(browser: Browser, sites: Sites) -> None:
    await browser.open("http://127.0.0.1:4444/x", "reading")
    await sites.until("GET", "http://127.0.0.1:4444/x")  # by the way that egress decides about


async def test_a_form_waits_for_a_yes_to_its_site(browser: Browser, sites: Sites) -> None:
    await browser.open(f"{SHOP}/order", "form")
    field = await browser.reference('textbox "What"', "form")
    await browser.call("type", "form", target=field, text="green tea")
    said = await browser.click('button "Buy"', "form")
    assert f"held, not sent: POST {SHOP}/ordered with 14 characters: 'what=green+tea'" in said
    assert not sites.got("POST", f"{SHOP}/ordered")
    assert "nothing was held" in await browser.call("allow", "form", url=f"{OTHER}/x")
    assert not sites.got("POST", f"{SHOP}/ordered")
    assert "let go: POST" in await browser.call("allow", "form", url=SHOP)
    assert (await sites.until("POST", f"{SHOP}/ordered")).body == "what=green+tea"
    assert "Ordered" in await browser.call("wait_for", "form", text="Thank you")


async def test_what_was_allowed_counts_for_no_other_site_or_session(
    browser: Browser, sites: Sites
) -> None:
    sites.asked.clear()
    for session, moved in (("one", 1), ("another", 1)):
        if session == "one":
            await browser.call("allow", session, url=SHOP)
        await browser.open(f"{SHOP}/move", session)
        assert "held, not sent: POST" in await browser.click('button "Move"', session)
        assert len(sites.got("POST", f"{SHOP}/moved")) == moved
    assert not sites.got("POST", OTHER)


@pytest.mark.parametrize("bad", ["shop.localhost", "ws://shop.localhost", "https://", "http://x:y"])
async def test_only_a_site_can_be_allowed(browser: Browser, bad: str) -> None:
    assert "url is a site" in await browser.call("allow", url=bad)


WAYS: Final = {
    **dict.fromkeys(("fetch", "beacon", "xhr", "worker", "shared", "ping"), f"POST {SHOP}"),
    **dict.fromkeys(("service", "report", "by-itself"), f"POST {SHOP}"),
    "keepalive": f"PUT {SHOP}",
    "cross": f"OPTIONS {OTHER}",
}
"""By which a page sends by itself, and what is held then."""


async def test_what_a_page_sends_by_itself_waits(browser: Browser, sites: Sites) -> None:
    sites.asked.clear()
    told = await browser.open(f"{SHOP}/sending", "sending")
    wanted = {f"held, not sent: {what}/{way}" for way, what in WAYS.items()}
    strange = f"POST {SHOP}/frame by a page of {OTHER}, which must be allowed too"
    wanted |= {f"held, not sent: {strange}"}
    wanted.add("refused: a WebSocket to shop.localhost:80")
    async with asyncio.timeout(20):
        while not all(each in told for each in wanted):
            told += await browser.call("wait_for", "sending", time=0.1)
    assert "all" in await browser.call("snapshot", "sending")  # no WebRTC, and four WebSockets
    assert {each.method for each in sites.asked} == {"GET"}
    assert "/frame" not in await browser.call("allow", "sending", url=SHOP)
    assert f"let go: {strange}" in await browser.call("allow", "sending", url=OTHER)
    await sites.until("POST", f"{SHOP}/frame")
    for way, what in WAYS.items():
        await sites.until(what.partition(" ")[0], f"{what.partition(' ')[2]}/{way}")


async def test_a_websocket_is_open_after_a_yes(browser: Browser, sites: Sites) -> None:
    sites.asked.clear()
    assert "refused: a WebSocket" in await browser.open(f"{SHOP}/talking", "talking")
    assert "not heard" in await browser.call("wait_for", "talking", text="not heard")
    assert not sites.got("CONNECT")
    await browser.call("allow", "talking", url=SHOP)
    await browser.open(f"{SHOP}/talking", "talking")
    assert "heard hello" in await browser.call("wait_for", "talking", text="heard hello")
    assert sites.got("CONNECT", "shop.localhost:80")


async def test_a_download_arrives(browser: Browser, home: Path) -> None:
    await browser.open(f"{SHOP}/prices", "download")
    said = await browser.click('link "All prices"', "download")
    async with asyncio.timeout(20):
        while f"downloaded: {home / 'downloads/prices.csv'}" not in said:
            said += await browser.call("wait_for", "download", time=0.1)
    assert (home / "downloads/prices.csv").read_text() == "apple,1"


async def test_cookies_are_kept_only_by_name(sites: Sites, another_home: Path) -> None:
    for options in (("--keep", "../shop"), ("killed",), (), ("--keep", "../shop")):
        kept = [each for each in options if each != "killed"]
        async with started(sites, another_home, *kept) as found:
            assert "Title: In" in await found.open(f"{SHOP}/login", "cookies")
            if kept != [*options]:
                found.kill()
    cookies = [each.cookie for each in sites.got("GET", f"{SHOP}/login")]
    assert cookies == ["", "", "", "who=me"]
    assert not [*(another_home / "scratch").iterdir()]


@pytest.mark.parametrize(
    ("options", "way_out", "path", "why"),
    [
        ((), "", "", "the browser has no way out"),
        ((), "http://127.0.0.1:9", "/none", "runner images build --role shell --with chromium-he"),
        (("--server", "/bin/true"), "http://127.0.0.1:9", "", "Playwright's server has ended"),
    ],
)
async def test_it_says_why_it_does_not_start(
    tmp_path: Path,
    options: Sequence[str],
    way_out: str,
    path: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", path or os.environ["PATH"])
    process = await begun(tmp_path, way_out, *options)
    assert process.stderr
    assert why in (await process.stderr.read()).decode()
    assert await process.wait()
