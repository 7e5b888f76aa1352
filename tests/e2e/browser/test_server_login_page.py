"""A person logs in at an MCP server from the console, at a real authorization server."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser.console import Console
from tests.support.browser.window import go, window
from tests.support.commands.household import Household, soon
from tests.support.servers.oidc_server import OidcServer, oidc_server
from tests.support.servers.scripted_provider import Script, calls, says

SETTINGS = """
[embedder]
backend = "none"
[mcp.servers.docs]
url = "{url}"
safety = "read_only"
[agent]
provider = "openai"
model = "m"
base_url = "{model}"
"""

pytestmark = pytest.mark.node


@pytest.fixture
def server() -> Iterator[OidcServer]:
    with oidc_server(3600) as running:
        yield running


@pytest.fixture
def alone(script: Script, server: OidcServer) -> Iterator[Console]:
    """A console whose operator has one agent, with one server that wants a login."""
    household = Household()
    try:
        made = Console.fresh(household)
        settings = SETTINGS.format(url=server.url, model=script.base_url)
        (household.working_directory / "runner.toml").write_text(settings)
        made.serve()
        household.works("start", "--detach")
        yield made
        made.stop_serving()
    finally:
        household.run("stop")
        household.remove()


def log_in(page: Page) -> None:
    """Log in and agree, as ann, at the provider's pages."""
    page.get_by_placeholder("Enter any login").fill("ann")
    page.get_by_placeholder("and password").fill("of ann")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()


def test_a_person_logs_in_where_the_console_says_so(
    browser: Browser, alone: Console, script: Script, server: OidcServer
) -> None:
    with window(browser, alone) as made:
        page = made.enter("default", "#/safe")
        servers = page.get_by_role("listitem").filter(has_text=server.url)
        expect(servers).to_contain_text("wants you to log in")
        servers.get_by_role("button", name="Log in").click()
        log_in(page)
        expect(page.get_by_text("You are logged in at docs.")).to_be_visible()
        assert page.url == f"{alone.url}/#/safe"
        expect(servers.get_by_role("button", name="Log out")).to_be_visible()
        assert soon(lambda: " is away" not in alone.household.works("status"))
        script.play(calls("docs_word"), says("It is xyzzy."))
        ask(page, "Which is the word?")
        expect(page.get_by_text("It is xyzzy.", exact=True)).to_be_visible()

        go(page, f"{alone.url}/#/safe")
        servers.get_by_role("button", name="Log out").click()
        expect(servers.get_by_role("button")).to_have_count(0)
        script.play(calls("docs_word"), says("I am not let in."))
        ask(page, "And now?")
        expect(page.get_by_text("I am not let in.", exact=True)).to_be_visible()
        page.get_by_role("link", name="Log in at docs in this browser").click()
        expect(servers).to_contain_text("wants you to log in")


def ask(page: Page, text: str) -> None:
    page.get_by_role("link", name="Chat").click()
    page.get_by_role("textbox", name="Message").fill(text)
    page.keyboard.press("Enter")
