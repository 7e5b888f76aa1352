"""What the browser's guard keeps, and what it takes for a site."""

from collections.abc import Mapping
from typing import Any, Final

import pytest
from wire.errors import WireError

from shell_daemon.browser import HELD_MAX, Guard, site_of
from shell_daemon.program import Programs

SHOP: Final = "http://shop.localhost"


def test_the_guard_holds_no_more_than_it_can() -> None:
    sent: list[tuple[str, Mapping[str, Any]]] = []
    guard = Guard(lambda method, given: sent.append((method, given)))
    for number in range(HELD_MAX + 2):
        request = {
            "method": "POST",
            "url": f"{SHOP}/{number}",
            "postData": "x" * 10_000,
            "headers": {},
        }
        guard.paused({"requestId": str(number), "request": request})
    failed = [given["requestId"] for method, given in sent if method == "Fetch.failRequest"]
    assert failed == ["0", "1"]
    assert len(guard.held) == HELD_MAX
    assert len(guard.news()) < HELD_MAX * 1_000
    assert not guard.news()


@pytest.mark.parametrize(
    "url",
    [
        "data:text/html,x",
        "blob:http://shop.localhost/1",
        "file:///x",
        "http://[",
        "x",
        f"{SHOP}@evil.example",
    ],
)
def test_what_is_of_no_site_cannot_be_allowed(url: str) -> None:
    assert site_of(url) == ""


def test_the_browser_is_a_program_that_servers_may_name() -> None:
    assert Programs().find("", ["oxydra-browser"]).file.endswith("/oxydra-browser")
    with pytest.raises(WireError, match="no such program"):
        Programs().find("", ["oxydra-nobody"])
