"""Every page of the console, for everybody: with a keyboard, a screen reader, in the dark, on a
phone; and what the operator does there."""

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect
from playwright.sync_api import Request as Asked

from tests.e2e.browser.conftest import NewWindow
from tests.support.browser import tour
from tests.support.browser.console import Console
from tests.support.browser.contrast import SCHEMES, Contrast
from tests.support.browser.window import go, window
from tests.support.servers.scripted_provider import Script, calls, says

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("console_pages")]

ROOT = Path(__file__).resolve().parents[3]


def dialog(page: Page) -> Locator:
    return page.get_by_role("dialog")


@pytest.fixture(scope="module")
def furnished(browser: Browser, console: Console, script: Script) -> Console:
    """The console, where alice has something on every page."""
    with window(browser, console) as made:
        tour.furnish(console, script, made.enter())
    return console


@pytest.mark.node
def test_every_page_can_be_used_by_everybody(
    new_window: NewWindow, browser: Browser, furnished: Console
) -> None:
    console = furnished
    axe = (ROOT / tour.AXE).read_text()
    contrast = Contrast(browser)
    page = new_window().enter()
    found = []
    for place in tour.PLACES:
        tour.visit(console, page, place)
        found += [f"{place}: {fault}" for fault in faults_in_all_colours(page, axe, contrast)]
        page.set_viewport_size({"width": 390, "height": 780})
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            found.append(f"{place}: wider than a phone")
        found += [f"{place} on a phone: {fault}" for fault in tour.faults(page, axe)]
        page.set_viewport_size({"width": 1200, "height": 800})
    for place, name in (
        ("memory", "Write a note"),
        ("note", "Edit"),
        ("note", "Undo the last change"),
        ("note", "Forget"),
        ("schedules", "Make a schedule"),
        ("schedule", "Delete"),
        ("users", "Stop"),
        ("users", "Make a token"),
        ("users", "Add a person"),
        ("users", "Make a link"),
        ("users", "Remove"),
    ):
        tour.visit(console, page, place)
        button = page.get_by_role("button", name=name).first
        button.click()
        expect(dialog(page).locator(".loading")).to_have_count(0)
        found += [f"{name}: {fault}" for fault in faults_in_all_colours(page, axe, contrast)]
        page.keyboard.press("Escape")
        expect(dialog(page)).to_have_count(0)
        expect(button).to_be_focused()
    assert found == []
    for seen in contrast.seen.values():
        kinds = {"primary", "danger", "plain", "checkbox", "SELECT", "TEXTAREA", "SUMMARY"}
        assert kinds <= set(" ".join(seen).split())


def faults_in_all_colours(page: Page, axe: str, contrast: Contrast) -> list[str]:
    found = contrast.faults(page)
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        found += [f"{scheme}: {fault}" for fault in tour.faults(page, axe)]
    return found


def test_notes_are_read_and_written_with_keys_alone(new_window: NewWindow) -> None:
    page = new_window().enter("bob", "#/chat")
    page.get_by_role("heading").first.wait_for()
    page.get_by_role("button", name="Theme").click()  # now the keys of pages come after the chat's
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("g")
    page.keyboard.press("m")
    expect(page.get_by_role("heading", name="Memory")).to_be_visible()
    for text in ("first of two", "second of two"):
        page.keyboard.press("n")
        expect(dialog(page).get_by_label("Text")).to_be_focused()
        page.keyboard.type(text)
        dialog(page).get_by_role("button", name="Save").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("article", name="The note")).to_contain_text(text)
    page.keyboard.press("j")
    expect(page.get_by_role("article", name="The note")).to_contain_text("first of two")
    page.keyboard.press("k")
    expect(page.get_by_role("article", name="The note")).to_contain_text("second of two")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()


AT_ONCE = """new MutationObserver((_, observer) => {
  if (document.querySelector("h1")?.textContent !== "Memory") return;
  observer.disconnect();
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "n", bubbles: true }));
}).observe(document, { childList: true, subtree: true });"""
"""Presses a key before the browser has painted what came into the page."""


def test_a_page_works_from_the_moment_that_it_is_there(new_window: NewWindow) -> None:
    window = new_window()
    window.page.add_init_script(AT_ONCE)
    page = window.enter("bob", "#/memory")
    expect(dialog(page).get_by_label("Text")).to_be_focused()


def test_no_button_moves_away_when_more_of_the_page_arrives(new_window: NewWindow) -> None:
    window = new_window()
    late: list[Route] = []
    window.page.route("**/MemoryStatistics", lambda route: late.append(route))
    page = window.enter("bob", "#/chat")
    with page.expect_request("**/MemoryStatistics"):
        go(page, f"{window.console.url}/#/memory?view=transfer")
    places = "[...document.querySelectorAll('main button')].map(each => each.offsetTop)"
    before = page.evaluate(places)
    late.pop().continue_()
    expect(page.get_by_role("button", name="Export to a file")).to_be_visible()
    expect(page.locator("main .figures")).to_be_visible()
    assert page.evaluate(places)[: len(before)] == before


CONTROLS = """() => [...document.querySelectorAll("main :is(a, button, input, select, summary)")]
  .filter((each) => each.checkVisibility())
  .map((each) => `${each.textContent || each.name} at ${each.getBoundingClientRect().y}`)"""

LOADED = f"() => !document.querySelector('main .loading') && ({CONTROLS})()"


def test_nothing_moves_once_a_page_says_no_more_that_it_loads(
    new_window: NewWindow, furnished: Console
) -> None:
    """Else a person clicks beside what they mean, and what is measured is no more there."""
    page = new_window().enter()
    asked: list[Asked] = []
    page.on("request", lambda request: asked.append(request))
    slow = {"offline": False, "latency": 300, "downloadThroughput": -1, "uploadThroughput": -1}
    page.context.new_cdp_session(page).send("Network.emulateNetworkConditions", slow)
    moved = []
    for place, address in tour.PLACES.items():
        if place == "chat":
            continue  # it moves up as its turns and answers come
        go(page, f"{furnished.url}/{address}")
        first = page.wait_for_function(LOADED).json_value()
        page.evaluate(NEXT_FRAME)
        while asked:
            asked.pop().response()
        page.evaluate(NEXT_FRAME)
        then = page.evaluate(CONTROLS)
        moved += [f"{place}: {each}" for each in first if each not in then]
    assert moved == []


NEXT_FRAME = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"


def test_no_page_shows_that_a_network_changed_while_it_read(
    new_window: NewWindow, furnished: Console
) -> None:
    """Chromium drops what is on its way then. What follows a turn begins again by itself."""
    page = new_window().enter()
    dropped: set[str] = set()

    def drop_the_first(route: Route) -> None:
        url = route.request.url
        if url in dropped or url.endswith("/FollowTurn"):
            route.continue_()
        else:
            dropped.add(url)
            route.abort()

    page.route("**/api/**", drop_the_first)
    for place in tour.PLACES:
        tour.visit(furnished, page, place)
        expect(page.locator(".failure, .banner")).to_have_count(0)
    assert len(dropped) > len(tour.PLACES)


def test_a_change_that_a_network_dropped_is_not_made_twice(new_window: NewWindow) -> None:
    page = new_window().enter("bob", "#/memory")
    expect(page.locator("main .loading")).to_have_count(0)
    tried: list[Route] = []

    def drop(route: Route) -> None:
        tried.append(route)
        route.abort()

    page.route("**/SaveNote", drop)
    page.keyboard.press("n")
    dialog(page).get_by_label("Text").fill("a note that is saved once")
    dialog(page).get_by_role("button", name="Save").click()
    expect(dialog(page).get_by_role("alert")).to_contain_text("the server cannot be reached")
    assert len(tried) == 1


def test_a_note_is_shown_as_saved_once_keys_lead_on_from_it(new_window: NewWindow) -> None:
    page = new_window().enter("bob", "#/memory")
    expect(page.locator("main .loading")).to_have_count(0)
    late: list[Route] = []
    page.route("**/ListNotes", lambda route: late.append(route))
    page.keyboard.press("n")
    dialog(page).get_by_label("Text").fill("a note with neighbours")
    with page.expect_request("**/ListNotes"):
        dialog(page).get_by_role("button", name="Save").click()
    expect(dialog(page).get_by_role("button", name="Save")).to_be_disabled()
    expect(page.get_by_role("article", name="The note")).to_have_count(0)
    late.pop().continue_()
    expect(page.get_by_role("article", name="The note")).to_contain_text("with neighbours")
    expect(dialog(page)).to_have_count(0)


def test_a_host_is_stopped_and_started(new_window: NewWindow) -> None:
    page = new_window().enter("alice", "#/users/bob")
    guests = page.get_by_role("group", name="Guests")
    expect(guests.get_by_role("row").filter(has_text="agent")).to_contain_text("ready")
    notice = page.locator(".notice", has_text="runner init sets up a real one")
    expect(notice.get_by_role("link", name="Settings")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(dialog(page)).to_contain_text("what the agent is doing is cut off")
    told = {"error": {"code": "internal", "brief": "it failed", "resolution": "runner logs"}}
    page.route("**/host/Stop", lambda route: route.fulfill(status=500, json=told), times=1)
    dialog(page).get_by_role("button", name="Stop").click()
    expect(dialog(page).get_by_role("alert")).to_contain_text("--user bob logs")
    dialog(page).get_by_role("button", name="Stop").click()
    expect(page.get_by_text("No agent runs for bob.")).to_be_visible(timeout=20_000)
    page.get_by_role("button", name="Start").click()
    expect(dialog(page).get_by_role("checkbox")).to_be_checked()
    dialog(page).get_by_role("button", name="Start").click()
    expect(guests.get_by_role("row").filter(has_text="agent")).to_contain_text(
        "ready", timeout=30_000
    )


@pytest.fixture
def directory(console: Console) -> Iterator[Path]:
    """A directory that the settings name as bob's project `plans` since his host has started."""
    settings = console.household.path / "home" / "config" / "oxydra" / "runner.toml"
    before = settings.read_text()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        table = f'\n[users.bob.workspace.projects.plans]\npath = "{made}"\nwrite = true\n'
        settings.write_text(before + table)
        yield Path(made)
    settings.write_text(before)


@pytest.mark.bubblewrap
def test_a_project_of_the_settings_is_opened_and_closed(
    new_window: NewWindow, console: Console, directory: Path
) -> None:
    page = new_window().enter("alice", "#/users/bob")
    row = page.get_by_role("group", name="Projects").get_by_role("row").filter(has_text="plans")
    theirs = new_window().page
    go(theirs, f"{console.url}/#/safe")
    theirs.get_by_label("Access token").fill(console.token("bob", "chat", "memory"))
    theirs.get_by_role("button", name="Log in").click()
    expect(row).to_contain_text("closed")
    row.get_by_role("button", name="Open").click()
    expect(dialog(page)).to_contain_text(f"get {directory}, to read and write")
    expect(dialog(page)).to_contain_text("commands and MCP servers that run there end")
    dialog(page).get_by_role("button", name="Open").click()
    expect(row).to_contain_text("read-write", timeout=60_000)
    console.household.works("--user", "bob", "restart")  # now its host knows the settings, too
    theirs.reload()
    reach = theirs.get_by_role("region", name="Reach")
    expect(reach).to_contain_text("/projects/plans: read-write")
    expect(reach).not_to_contain_text(str(directory))
    row.get_by_role("button", name="Close").click()
    dialog(page).get_by_role("button", name="Close", exact=True).last.click()
    expect(row).to_contain_text("closed", timeout=60_000)
    console.household.works("--user", "bob", "restart")
    assert "projects open DIR" in console.household.works("--user", "bob", "projects", "list")


def test_a_block_of_a_readme_is_told_and_then_added(
    new_window: NewWindow, console: Console
) -> None:
    page = new_window().enter("alice", "#/settings")
    page.get_by_role("combobox", name="For").select_option("bob")
    pasted = page.get_by_label("Add a tool server")
    pasted.fill("{")
    page.get_by_role("button", name="What would it reach?").click()
    expect(page.get_by_role("alert")).to_contain_text("no block of MCP servers")
    server = {"command": "npx", "args": ["it@1.0.0"], "env": {"IT_TOKEN": "key-of-it-0123456789"}}
    pasted.fill(json.dumps({"mcpServers": {"it": server}}))
    page.get_by_role("button", name="What would it reach?").click()
    told = page.get_by_role("list", name="What it means")
    expect(told).to_contain_text("it: may reach npm (https://registry.npmjs.org)")
    expect(told).not_to_contain_text("key-of-it")
    page.get_by_role("button", name="Add it and restart").click()
    expect(page.get_by_text("The agent answers with the new settings.")).to_be_visible()
    expect(pasted).to_have_value("")
    assert "it: runs npx -y it@1.0.0" in console.household.works("--user", "bob", "tools", "list")
    console.household.works("--user", "bob", "tools", "remove", "it")


def test_a_token_is_shown_once_lets_one_user_in_and_is_revoked(new_window: NewWindow) -> None:
    page = new_window().enter("bob", "#/users/bob")
    page.get_by_role("button", name="Make a token").click()
    dialog(page).get_by_label("Name").fill("tablet")
    dialog(page).get_by_label("chat").uncheck()
    dialog(page).get_by_label("Ends after").fill("999999w")
    dialog(page).get_by_role("button", name="Make it").click()
    expect(dialog(page).get_by_role("alert")).to_be_visible()
    expect(dialog(page).get_by_label("chat")).not_to_be_checked()  # what was chosen stays
    expect(dialog(page).get_by_label("Ends after")).to_have_value("999999w")
    dialog(page).get_by_label("Ends after").fill("30d")
    dialog(page).get_by_role("button", name="Make it").click()
    secret = dialog(page).locator("code").inner_text()
    dialog(page).get_by_role("button", name="I have it").click()
    tokens = page.get_by_role("region", name="Access tokens")
    expect(tokens.get_by_role("row").filter(has_text="tablet")).to_contain_text("memory")
    assert secret not in page.content()
    other = new_window()
    go(other.page, other.console.url)
    other.page.get_by_label("Access token").fill(secret)
    other.page.get_by_role("button", name="Log in").click()
    pages = other.page.get_by_role("navigation", name="Pages").get_by_role("link")
    expect(pages).to_have_text(["Memory"])
    tokens.get_by_role("button", name="Revoke tablet").click()
    dialog(page).get_by_role("button", name="Revoke").click()
    expect(tokens.get_by_role("row").filter(has_text="tablet")).to_have_count(0)
    other.page.reload()
    expect(other.page.get_by_label("Access token")).to_be_visible()


def test_a_link_works_in_a_tab_that_shows_the_login_already(
    new_window: NewWindow, console: Console
) -> None:
    window = new_window()
    go(window.page, console.url)
    window.page.get_by_label("Access token").wait_for()
    window.enter("bob")


@pytest.mark.attempt(
    "using the cookie that a browser has brought to another port of this machine",
    stopped_by="a second secret is kept where only pages of the server's own port read it",
)
def test_a_login_holds_in_tabs_bookmarks_and_after_a_restart_and_at_no_other_port(
    new_window: NewWindow, console: Console
) -> None:
    window = new_window()
    page = window.enter("alice", "#/memory")
    second = window.open_tab()
    second.goto(f"{console.url}/#/users")  # as from a bookmark
    console.stop_serving()
    console.serve()
    for tab in (page, second):
        tab.reload()
        tab.get_by_role("navigation", name="Pages").wait_for()
    brought: list[str] = []

    class Neighbour(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            brought.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Neighbour) as neighbour:
        threading.Thread(target=neighbour.serve_forever, daemon=True).start()
        other = window.open_tab()
        other.goto(f"http://127.0.0.1:{neighbour.server_port}/")
        assert other.evaluate("localStorage.length") == 0
        neighbour.shutdown()
    name = f"oxydra-{console.url.rpartition(':')[2]}"
    assert name in brought[0]
    request = Request(f"{console.url}/api/me", headers={"Cookie": brought[0], "X-Oxydra": "1"})
    with pytest.raises(HTTPError, match="401"):
        urlopen(request)
    enter = new_window().page
    enter.goto(console.url)
    enter.get_by_label("Access token").fill(console.token("bob", "chat"))
    enter.get_by_role("button", name="Log in").click()
    enter.get_by_role("navigation", name="Pages").wait_for()
    enter.reload()
    enter.get_by_role("navigation", name="Pages").wait_for()


def test_calls_of_tools_are_followed_and_filtered(
    new_window: NewWindow, console: Console, script: Script
) -> None:
    page = new_window().enter("alice", "#/activity")
    listed = page.get_by_role("list", name="Tool calls, newest first")
    page.get_by_role("heading", name="Activity").wait_for()
    script.play(calls("memory_save", content="the ibis is at home"), says("Saved."))
    console.household.works("--user", "alice", "ask", "remember that the ibis is at home")
    saved = listed.get_by_role("listitem").filter(has_text="memory_save").first
    expect(saved).to_contain_text("done")
    assert "ibis" not in listed.inner_text()
    page.get_by_role("textbox", name="Tool").fill("file_read")
    expect(page.get_by_text("No tool was called like that.")).to_be_visible()
    page.get_by_role("textbox", name="Tool").fill("memory_save")
    saved.get_by_role("link", name="note").click()
    expect(page.get_by_role("article", name="The note")).to_contain_text("the ibis is at home")


def test_what_an_agent_can_reach_and_did_is_told_and_its_boundary_probed_now(
    new_window: NewWindow, script: Script
) -> None:
    page = new_window().enter("alice", "#/chat")
    script.play(calls("shell_exec", command="true"), says("It is done."))
    page.get_by_role("textbox", name="Message").fill("Run it")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Refuse").click()
    expect(page.locator(".answer").get_by_text("It is done.")).to_be_visible()
    page.get_by_role("link", name="Is it safe?").click()
    reach = page.get_by_role("region", name="Reach")
    expect(reach).to_contain_text("openai: http://127.0.0.1")
    expect(reach).to_contain_text("Its commands: nothing; for anything else you are asked.")
    week = page.get_by_role("region", name="This week").get_by_role("listitem")
    expect(week.filter(has_text="Asked")).to_contain_text("1 refused")
    expect(week.filter(has_text="Reached").first).to_contain_text("127.0.0.1")
    page.get_by_role("button", name="Probe now").click()
    expect(page.get_by_text("The boundary was probed.")).to_have_count(1)
    probes = page.get_by_role("region", name="Boundary").get_by_role("listitem")
    expect(probes.filter(has_text="held").nth(30)).to_be_visible()


def test_usage_and_findings_are_shown_with_figures_and_fixes(
    new_window: NewWindow, console: Console, script: Script
) -> None:
    script.play(says("Hello."))
    console.household.works("--user", "alice", "ask", "hello")
    page = new_window().enter("alice", "#/usage")
    figures = page.get_by_role("group", name="The figures")
    today = datetime.now(UTC).date().isoformat()
    expect(figures.get_by_role("row").filter(has_text=today)).to_have_count(1)
    page.get_by_role("combobox", name="By").select_option("model")
    expect(figures).to_contain_text("openai:m")
    go(page, f"{console.url}/#/doctor")
    expect(page.locator(".findings li").nth(3)).to_be_visible()


PARTS = ("src/store.js", "src/pages/chat/turn.js", "styles/layout.css", "src/main.js")


@pytest.mark.parametrize("part", [*(f"assets/{part}" for part in PARTS), "api/me", "api/login"])
def test_a_part_that_does_not_arrive_is_fetched_again(new_window: NewWindow, part: str) -> None:
    """Chromium drops what it is fetching when an interface of the machine comes or goes."""
    window = new_window()
    dropped: list[Route] = []

    def drop_the_first(route: Route) -> None:
        if dropped:
            route.continue_()
        else:
            dropped.append(route)
            route.abort()

    window.page.route(f"**/{part}", drop_the_first)
    page = window.enter("bob", "#/chat")
    page.get_by_role("textbox", name="Message").wait_for()
    assert dropped
    expect(page.get_by_role("banner")).to_have_css("display", "flex")  # by layout.css
    assert page.evaluate("sessionStorage.getItem('oxydra.reloads')") is None


def test_a_page_that_never_arrives_is_not_tried_for_ever(new_window: NewWindow) -> None:
    window = new_window()
    starts: list[str] = []
    window.page.on("load", lambda page: starts.append(page.url))
    window.page.route("**/assets/src/pages/chat/turn.js", lambda route: route.abort())
    page = window.enter("bob", "#/chat")
    deadline = time.monotonic() + 60
    while len(starts) < 5 and time.monotonic() < deadline:
        page.wait_for_timeout(100)
    page.wait_for_timeout(6000)
    assert len(starts) == 5
    expect(page.get_by_role("alert")).to_be_visible()


def test_a_part_that_never_arrives_is_told(new_window: NewWindow, console: Console) -> None:
    page = new_window().page
    page.route("**/assets/src/store.js", lambda route: route.abort())
    go(page, console.url)
    expect(page.get_by_text("Parts of the console did not arrive")).to_be_visible()
