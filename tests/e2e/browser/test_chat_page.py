"""The chat in a real browser."""

import pytest
from playwright.sync_api import expect

from tests.e2e.browser.conftest import NewWindow
from tests.support.servers.scripted_provider import Script, says

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("chat_page")]


def test_an_answer_is_shown_as_markdown_and_its_session_is_there_again(
    new_window: NewWindow, script: Script
) -> None:
    script.play(says("# Tea\n\nat **five**", "\n\n```python\nprint(1)\n```\n"))
    window = new_window()
    page = window.enter("alice", "#/chat")
    page.get_by_role("textbox", name="Message").fill("When is tea?")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Tea")).to_be_visible()
    expect(page.locator("strong", has_text="five")).to_be_visible()
    expect(page.get_by_role("button", name="Copy")).to_be_visible()
    page = window.reopen("#/chat")
    page.get_by_role("link", name="When is tea?").click()
    expect(page.get_by_role("heading", name="Tea")).to_be_visible()
