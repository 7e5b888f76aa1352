"""A real browser, and windows in it that notice what must not happen on any page."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    sync_playwright,
)

from tests.support.browser import apart
from tests.support.browser.console import Console

_UNREACHED = re.compile(r"^Failed to load resource: ")
"""What Chromium says of every answer that is an error, also of those that a page expects."""


class Window:
    """A browser of somebody's own: its cookies and storage are shared with no other window.

    Attributes:
        page: The tab.
        problems: Breaches of the policy, errors in the console, exceptions that nobody caught.
    """

    def __init__(self, browser: Browser, console: Console, **options: Any) -> None:
        self.console = console
        self.context: BrowserContext = browser.new_context(**options)
        self.context.set_default_timeout(120_000)
        self.problems: list[str] = []
        self.page = self.open_tab()

    def open_tab(self) -> Page:
        page = self.context.new_page()
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.problems.append(f"{error}\n{error.stack}"))
        page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        return page

    def reopen(self, path: str = "") -> Page:
        """Close the tab, and open another one at `path`."""
        self.page.close()
        self.page = self.open_tab()
        go(self.page, f"{self.console.url}/{path}")
        return self.page

    def enter(self, user: str = "alice", path: str = "") -> Page:
        """Log in by a link, as `user`, and go to `path`, such as `#/chat`."""
        go(self.page, self.console.link(user))
        self.page.get_by_role("banner").wait_for()
        if path:
            go(self.page, f"{self.console.url}/{path}")
        return self.page

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not _UNREACHED.match(message.text):
            self.problems.append(message.text)


def go(page: Page, url: str) -> None:
    """Go to `url`, also while the page loads itself again because a part of it did not arrive."""
    for pause_ms in (100, 300, 1_000, 0):
        try:
            page.goto(url)
        except Error as error:
            if pause_ms and "interrupted by another navigation" in error.message:
                page.wait_for_timeout(pause_ms)
                continue
            raise
        return


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium without a screen."""
    with apart.options() as options, sync_playwright() as driver:
        browser = driver.chromium.launch(**options)
        yield browser
        browser.close()


@contextmanager
def window(browser: Browser, console: Console, **options: Any) -> Iterator[Window]:
    """A window in which nothing goes wrong. `options`: of Playwright's `new_context`."""
    made = Window(browser, console, **options)
    yield made
    reports = made.context.request.get(f"{console.url}/api/csp-report").json()
    made.context.close()
    assert made.problems == []
    assert reports == {"reports": 0}
