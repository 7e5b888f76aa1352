"""Schedules in a real browser, over alice's agent."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.browser.conftest import NewWindow
from tests.support.servers.scripted_provider import Script, says

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("console_pages")]


def form(page: Page) -> Locator:
    return page.get_by_role("dialog")


def field(page: Page, name: str) -> Locator:
    return form(page).get_by_role("textbox", name=re.compile(f"^{name}"))


def test_a_schedule_is_made_run_paused_changed_and_deleted(
    new_window: NewWindow, script: Script
) -> None:
    page = new_window().enter("alice", "#/schedules")
    expect(page.get_by_text("tell me only if it is red")).to_be_visible()
    page.get_by_role("button", name="Make a schedule").click()
    field(page, "When").fill("soon")
    field(page, "What a run is to do").fill("look at the <b>build</b>")
    field(page, "Name").fill("build")
    form(page).get_by_text("More", exact=True).click()
    field(page, "Only these tools").fill("memory_save, memory_search")
    field(page, "Commands that runs may call").fill("git pull")
    form(page).get_by_role("button", name="Make it").click()
    expect(form(page).get_by_text("'soon' is not a time such as")).to_be_visible()
    field(page, "When").fill("0 7 * * 1-5")
    form(page).get_by_role("button", name="Make it").click()
    expect(page.get_by_role("heading", name="build")).to_be_visible()
    facts = page.locator("dl.facts")
    expect(facts).to_contain_text("look at the <b>build</b>")
    expect(facts.locator("li")).to_have_count(3)
    expect(facts).to_contain_text("git pull")
    script.play(says("It is **red**."))
    page.get_by_role("button", name="Run now").click()
    runs = page.get_by_role("list", name="Runs, newest first").get_by_role("listitem")
    expect(runs).to_contain_text(re.compile("done at .*, sent 1 notice"))
    expect(runs.locator("strong")).to_have_text("red")
    runs.get_by_role("link", name="The conversation").click()
    receipt = page.get_by_text(re.compile("A run of a schedule: ran at .*, sent 1 notice"))
    expect(receipt).to_be_visible()
    page.reload()
    receipt.get_by_role("link").click()
    page.get_by_role("button", name="Pause").click()
    expect(facts.get_by_text("paused")).to_be_visible()
    page.get_by_role("button", name="Change").click()
    field(page, "Name").fill("nightly")
    form(page).get_by_text("More", exact=True).click()
    field(page, "Only these tools").fill("")
    form(page).get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="nightly")).to_be_visible()
    expect(facts.get_by_text("memory_search")).to_have_count(0)
    expect(facts.get_by_text("paused")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(facts.locator("li")).to_have_count(3)
    page.get_by_role("button", name="Delete").click()
    form(page).get_by_role("button", name="Delete it").click()
    expect(page.get_by_text("tell me only if it is red")).to_be_visible()


def test_a_schedule_is_made_and_paused_with_keys_alone_on_a_phone(new_window: NewWindow) -> None:
    page = new_window(viewport={"width": 400, "height": 780}).enter("bob", "#/chat")
    page.get_by_role("heading").first.wait_for()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("g")
    page.keyboard.press("w")
    page.get_by_role("button", name="Make a schedule").focus()
    page.keyboard.press("Enter")
    page.keyboard.type("every 2 hours")
    page.keyboard.press("Tab")
    page.keyboard.type("look at the build")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="look at the build")).to_be_visible()
    page.get_by_role("button", name="Pause").focus()
    page.keyboard.press("Enter")
    expect(page.locator("dl.facts").get_by_text("paused")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("link", name="All schedules").click()
    expect(page.get_by_role("row", name="look at the build")).to_contain_text("paused")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
