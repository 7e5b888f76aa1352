"""Why an answer came out so, and a conversation that is erased, in the console."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.browser.conftest import NewWindow
from tests.support.browser.console import Console
from tests.support.browser.tour import AXE, faults
from tests.support.browser.window import go
from tests.support.servers.scripted_provider import Script, says

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("chat_page")]


def ask(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Message").fill(text)
    page.keyboard.press("Enter")


@pytest.mark.node
def test_the_notes_of_an_answer_and_what_it_took_and_one_that_is_wrong(
    new_window: NewWindow, script: Script, console: Console
) -> None:
    console.household.works("--user", "alice", "memory", "save", "the boat is called Fram")
    script.play(says("She is called Fram."))
    window = new_window()
    page = window.enter("alice", "#/chat")
    ask(page, "what is the boat called?")
    page.get_by_role("button", name="Why this answer").click()
    dialog = page.get_by_role("dialog", name="Why this answer")
    note = dialog.get_by_role("listitem").filter(has_text="the boat is called Fram")
    expect(note).to_contain_text("found by words and meaning")
    expect(dialog.get_by_role("row", name="Tools")).to_be_visible()
    expect(dialog).to_contain_text("of 64,000 tokens")
    assert faults(page, Path(AXE).read_text()) == []
    note.get_by_role("button", name="This is wrong").click()
    dialog.get_by_role("textbox", name="What is right").fill("the boat is called Gjøa")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("status")).to_contain_text("✓ Updated this note, by you (version 2)")
    found = console.household.works("--user", "alice", "memory", "search", "boat")
    assert "Gjøa" in found
    dialog.get_by_role("button", name="This is wrong").first.click()
    dialog.get_by_role("button", name="Forget it …").click()
    page.get_by_role("button", name="Forget for good").click()
    expect(page.get_by_role("dialog", name="Why this answer")).to_contain_text("✓ Forgot this note")
    assert "Gjøa" not in console.household.works("--user", "alice", "memory", "list")


def test_a_temporary_conversation_is_erased_with_a_receipt(
    new_window: NewWindow, script: Script, console: Console
) -> None:
    script.play(says("I will not keep it."))
    window = new_window()
    page = window.enter("alice", "#/chat")
    page.get_by_role("button", name="Temporary", exact=True).click()
    expect(page.get_by_text("It reads what is remembered, changes nothing")).to_be_visible()
    page.get_by_role("textbox", name="Message").fill("half a secret")
    assert "secret" not in page.evaluate("JSON.stringify(sessionStorage)")
    ask(page, "jqxwzvky is my secret")
    expect(page.locator(".answer")).to_contain_text("I will not keep it.")
    expect(page.locator(".session").filter(has_text="jqxwzvky")).to_have_count(0)
    address = page.url
    page.get_by_role("button", name="End and erase").click()
    expect(page.get_by_role("status").filter(has_text="✓ Erased: 1 turn")).to_be_visible()
    go(page, address)
    expect(page.get_by_role("alert")).to_contain_text("not found")
    page.get_by_role("button", name="End and erase").click()
    expect(page.get_by_role("status").filter(has_text="✓ Erased before")).to_be_visible()
    for file in console.household.workspaces.rglob("*"):
        if file.is_file():
            assert b"jqxwzvky" not in file.read_bytes(), file
