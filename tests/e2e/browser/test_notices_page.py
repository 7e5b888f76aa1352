"""Notices and reminders in a real browser, over alice's agent."""

import re
import time

import pytest
from playwright.sync_api import expect

from tests.e2e.browser.conftest import NewWindow
from tests.support.browser.console import Console

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("console_pages")]


def test_a_reminder_comes_while_the_page_is_open_and_is_snoozed_done_and_read(
    new_window: NewWindow, console: Console
) -> None:
    page = new_window().enter("alice", "#/notices")
    page.get_by_label("Remind me of").fill("<b>call Ada</b>")
    page.get_by_label("When").fill("yesterday")
    page.get_by_role("button", name="Set a reminder").click()
    expect(page.get_by_text("is not a time such as")).to_be_visible()
    soon = time.strftime("%Y-%m-%d %H:%M:%S+00:00", time.gmtime(time.time() + 3))
    page.get_by_label("When").fill(soon)
    page.get_by_role("button", name="Set a reminder").click()
    expect(page.get_by_label("Remind me of")).to_have_value("")
    listed = page.get_by_role("list", name="Notices, newest first").get_by_role("listitem")
    expect(listed).to_have_count(1)
    expect(listed).to_contain_text("<b>call Ada</b>")
    listed.get_by_role("button", name="Tomorrow").click()
    expect(listed.get_by_role("button")).to_have_count(0)
    due = console.household.works("--user", "alice", "memory", "list", "--due")
    assert re.search(r"due \d\d \w{3} 09:00", due)
    again = time.strftime("%Y-%m-%d %H:%M:%S+00:00", time.gmtime(time.time() + 3))
    (note,) = re.findall(r"note-[0-9a-f]{8}", due)
    console.household.works("--user", "alice", "memory", "remind", again, "--note", note)
    expect(listed).to_have_count(2)
    page.reload()
    expect(page.get_by_role("link", name=re.compile("Notices.*1 unread"))).to_be_visible()
    listed.first.get_by_role("button", name="Done").click()
    expect(page.get_by_role("link", name="Notices", exact=True)).to_be_visible()
    due = console.household.works("--user", "alice", "memory", "list", "--due")
    assert "no notes" in due
