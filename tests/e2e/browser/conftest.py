"""One browser and one running console for the tests of a module."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.support.browser.console import Console, served
from tests.support.browser.window import Window, chromium, window
from tests.support.servers.scripted_provider import Script, scripted

NewWindow = Callable[..., Window]

expect.set_options(timeout=120_000)  # a guard against hanging: starting an agent takes a while


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def script() -> Iterator[Script]:
    """What alice's model answers."""
    with scripted() as running:
        yield running


@pytest.fixture(scope="module")
def console(script: Script) -> Iterator[Console]:
    with served(script.base_url) as running:
        yield running


@pytest.fixture
def new_window(browser: Browser, console: Console) -> Iterator[NewWindow]:
    """Opens windows; whatever went wrong in one of them fails the test."""
    with ExitStack() as stack:

        def made(**options: Any) -> Window:
            return stack.enter_context(window(browser, console, **options))

        yield made
