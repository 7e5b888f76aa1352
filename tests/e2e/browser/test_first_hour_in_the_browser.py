"""With a browser alone: set up a model of this machine, talk to it, and let somebody in."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser.console import Console
from tests.support.browser.window import Window, go, window
from tests.support.commands.household import Household
from tests.support.servers.model_servers import ollama, serving, tag

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("first_hour")]

MODEL = "qwen3:4b"


@pytest.fixture
def console() -> Iterator[Console]:
    """Of a host that nobody has set up, on a machine where Ollama runs."""
    household = Household()
    with ExitStack() as stack:
        stack.callback(household.remove)
        stack.callback(household.run, "stop", "--all")
        models = stack.enter_context(
            serving(
                ollama(
                    tag(MODEL, "completion", "tools", size=2.6),
                    tag("nomic-embed-text", "embedding", size=0.3),
                )
            )
        )
        household.environment["OLLAMA_HOST"] = f"127.0.0.1:{models.port}"
        household.environment["OXYDRA_EMBEDDER__BACKEND"] = "hashing"
        console = Console.fresh(household)
        console.serve()
        stack.callback(console.stop_serving)
        yield console


def ask(page: Page, text: str, answer: str) -> None:
    page.get_by_role("textbox", name="Message").fill(text)
    page.keyboard.press("Enter")
    expect(page.locator(".answer").get_by_text(answer)).to_be_visible()


def set_up(page: Page, console: Console) -> None:
    agent = page.get_by_label("The agent")
    agent.get_by_role("button", name="Start").click()
    expect(page.get_by_text("This is a demo.")).to_be_visible(timeout=60_000)
    page.get_by_role("link", name="Set up a real model").click()
    expect(page.get_by_role("button", name="nomic")).to_have_count(0)
    page.get_by_role("button", name=MODEL).click()
    page.get_by_role("button", name="List the models").click()
    expect(page.get_by_text("1 model found: choose in the field above.")).to_be_visible()
    page.get_by_role("button", name="Try it").click()
    expect(page.get_by_role("status").get_by_text("It answered in")).to_be_visible()
    page.get_by_label("US dollars a day").fill("-1")
    page.evaluate("document.querySelector('form').noValidate = true")
    page.get_by_role("button", name="Save and restart").click()
    expect(page.get_by_role("alert")).to_contain_text("agent.budget.day_usd")
    page.get_by_label("US dollars a day").fill("0")
    page.get_by_label("asks you before it runs a command").check()
    page.get_by_role("button", name="Save and restart").click()
    expect(page.get_by_text("The agent answers with the new settings.")).to_be_visible(
        timeout=90_000
    )
    file = console.household.path / "home" / "config" / "oxydra" / "runner.toml"
    assert f'model = "{MODEL}"' in file.read_text()
    assert 'approval = "ask"' in file.read_text()


def invite(page: Page, console: Console, user: str) -> str:
    go(page, f"{console.url}/#/users")
    page.get_by_role("button", name="Add a person").click()
    page.get_by_label("Name").fill(user)
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_text(f"Whoever opens it first is {user}")).to_be_visible(timeout=90_000)
    expect(page.get_by_role("button", name="Copy the link")).to_be_focused()
    link = page.locator("code.secret").inner_text()
    page.get_by_role("button", name="I have it").click()
    return link


def pages(page: Page) -> list[str]:
    page.get_by_role("navigation", name="Pages").wait_for()
    return page.get_by_role("navigation", name="Pages").get_by_role("link").all_inner_texts()


def remove(page: Page, user: str) -> None:
    page.get_by_role("button", name="Remove").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("what the agent remembers, with backups")
    button = dialog.get_by_role("button", name="Remove")
    expect(button).to_be_disabled()
    dialog.get_by_label("type the name").fill(user)
    button.click()
    expect(dialog).to_have_count(0, timeout=60_000)
    expect(page.get_by_role("navigation", name="Users")).not_to_contain_text(user)


def test_the_first_hour_with_a_browser_alone(browser: Browser, console: Console) -> None:
    with ExitStack() as stack:

        def opened() -> Window:
            return stack.enter_context(window(browser, console))

        page = opened().enter("default", "#/chat")
        set_up(page, console)
        go(page, f"{console.url}/#/chat")
        expect(page.get_by_text(f"{MODEL} answers, by ollama.")).to_be_visible()
        ask(page, "remember that my name is Ada", "I will keep that in mind.")
        page.get_by_role("link", name="New conversation").click()
        expect(page.get_by_text(f"{MODEL} answers, by ollama.")).to_be_visible()
        ask(page, "what is my name?", "Your name is Ada.")
        link = invite(page, console, "bob")
        theirs, again = opened().page, opened().page
        theirs.goto(link)
        assert pages(theirs) == ["Chat", "Memory", "Notices", "Schedules", "Usage", "Is it safe?"]
        expect(theirs.get_by_text(f"{MODEL} answers, by ollama.")).to_be_visible()
        for place in ("settings", "users/default", "doctor"):
            go(theirs, f"{console.url}/#/{place}")
            expect(theirs.get_by_text(f"{MODEL} answers, by ollama.")).to_be_visible()
        ask(theirs, "what is my name?", "I do not know.")
        theirs.get_by_role("link", name="Is it safe?").click()
        theirs.get_by_role("button", name="Probe now").click()
        expect(theirs.get_by_text("The boundary was probed.")).to_have_count(1)
        theirs.get_by_role("link", name="Chat").click()
        again.goto(link)
        expect(again.get_by_role("alert")).to_contain_text("each link works once")
        remove(page, "bob")
        expect(theirs.get_by_role("button", name="Log in")).to_be_visible()
        assert not (console.household.workspaces / "bob").exists()
