"""The chat in a real browser."""

import base64
import json
import re
import tempfile
import time
from pathlib import Path

import pytest
from playwright.sync_api import JSHandle, Locator, Page, Route, expect

from guest.tools.arguments import arguments_text, asked_text
from tests.e2e.browser.conftest import NewWindow
from tests.support.browser.console import Console
from tests.support.browser.window import go
from tests.support.memory import exports
from tests.support.servers import openai_server as provider
from tests.support.servers.scripted_provider import Script, calls, says

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("chat_page")]

TURNS = 5_000
DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNg+M/wHwAEAQH/7yMK/gAAAABJRU5ErkJggg=="
)
"""An image of one pixel."""

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def ask(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="Message").fill(text)
    page.keyboard.press("Enter")


def answered(page: Page, text: str) -> Locator:
    """What the agent says that has `text`."""
    return page.locator(".answer").get_by_text(text)


def test_an_answer_is_shown_as_markdown_and_its_session_is_there_again(
    new_window: NewWindow, script: Script
) -> None:
    script.play(
        says("# Tea\n\nat **five**, says [us](https://a.test/b)", "\n\n```python\n1\n```\n")
    )
    window = new_window()
    page = window.enter("alice", "#/chat")
    ask(page, "When is tea?")
    expect(page.get_by_role("heading", name="Tea")).to_be_visible()
    expect(page.locator("strong", has_text="five")).to_be_visible()
    expect(page.get_by_role("button", name="Copy", exact=True)).to_be_visible()
    link = page.get_by_role("link", name="us (a.test)")
    assert link.get_attribute("rel") == "noopener noreferrer"
    expect(page.locator("#announcements")).to_contain_text("Answer: # Tea")
    page = window.reopen("#/chat")
    page.get_by_role("link", name="When is tea?").click()
    expect(page.get_by_role("heading", name="Tea")).to_be_visible()


def test_a_conversation_begins_once_where_a_network_changes(
    new_window: NewWindow, script: Script
) -> None:
    script.play(says("At five."))
    page = new_window().enter("alice", "#/chat")
    page.get_by_role("textbox", name="Message").wait_for()
    made: list[str] = []

    def lose_the_first_answer(route: Route) -> None:
        answer = route.fetch()
        made.append(answer.json()["session_id"])
        route.fulfill(response=answer) if made[1:] else route.abort()

    page.route("**/CreateSession", lose_the_first_answer)
    ask(page, "When is the tea that one asks for once?")
    expect(answered(page, "At five.")).to_be_visible()
    assert len(made) == 2
    assert len(set(made)) == 1


RICH = r"""| what | costs |
|---|--:|
| tea | 2 |

It costs $5 or $6, with $HOME/$USER and $E = mc^2$; see \(x_1\) and $\undefined$.

$$
- \frac{1}{2}
$$

```python
def tea(): return "five"
```
"""


def test_tables_formulas_and_code_are_set_and_an_answer_is_copied(
    new_window: NewWindow, script: Script
) -> None:
    """No breach of the page's policy: the window has an eye on that."""
    script.play(says(RICH))
    window = new_window()
    window.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = window.enter("alice", "#/chat")
    ask(page, "What does tea cost?")
    expect(page.locator("td", has_text="2")).to_have_css("text-align", "end")
    expect(page.locator("math")).to_have_count(3)
    expect(page.locator("math mfrac")).to_have_count(1)
    expect(answered(page, "It costs $5 or $6, with $HOME/$USER and")).to_be_visible()
    expect(page.locator("code.math")).to_have_text([r"\undefined"])
    expect(page.locator("pre .hljs-keyword")).to_have_text(["def", "return"])
    expect(page.locator("pre code")).to_have_text('def tea(): return "five"')
    page.get_by_role("button", name="Copy answer").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == RICH


def test_a_turn_goes_on_without_its_tab_and_another_browser_approves(
    new_window: NewWindow, script: Script
) -> None:
    script.play(
        calls("memory_save", content="tea is at five"),
        calls("shell_exec", command="echo its\u202e output"),
        says("It printed that."),
    )
    window, other = new_window(), new_window()
    page = window.enter("alice", "#/chat")
    ask(page, "Run it")
    asked = page.get_by_role("region", name="Call that needs your approval")
    expect(asked).to_contain_text("echo its<U+202E> output")
    session = page.evaluate("location.hash")
    window.page.close()

    there = other.enter("alice", "#/chat")
    expect(there.get_by_text("waits for you")).to_be_visible()
    there.get_by_role("button", name="Allow").click()
    expect(there.get_by_text("waits for you")).to_be_hidden()

    page = window.reopen(session)
    expect(answered(page, "It printed that.")).to_be_visible()
    expect(page.get_by_text("Allowed (console).")).to_be_visible()
    page.locator("summary", has_text="echo").click()
    expect(page.locator("pre.output")).to_contain_text("its\\u202e output")
    receipt = page.get_by_role("list", name="What this turn did to memory").get_by_role("listitem")
    expect(receipt).to_contain_text("Saved a note")
    expect(receipt).to_contain_text("“tea is at five”")
    receipt.get_by_role("link", name="undo or forget").click()
    expect(page.get_by_text("tea is at five").first).to_be_visible()


def test_what_is_allowed_for_a_conversation_is_not_asked_again(
    new_window: NewWindow, script: Script
) -> None:
    script.play(
        calls("shell_exec", command="ls -l"),
        calls("shell_exec", command="ls -a"),
        says("Both ran."),
        calls("shell_exec", command="ls -a"),
        says("Not again."),
    )
    page = new_window().enter("alice", "#/chat")
    ask(page, "Look")
    beginning = "commands that begin with `ls` in /shared"
    asked = page.get_by_role("region", name="Call that needs your approval")
    asked.get_by_role("button", name=beginning).click()
    expect(answered(page, "Both ran.")).to_be_visible()
    expect(page.get_by_text(f"; in this conversation also {beginning}")).to_be_visible()
    expect(page.get_by_text(re.compile("exit code 0; allowed by your word of "))).to_be_visible()
    page.get_by_text("Allowed in this conversation: 1").click()
    page.get_by_role("button", name="Withdraw").click()
    expect(page.get_by_text("Allowed in this conversation")).to_be_hidden()
    ask(page, "Again")
    asked.get_by_role("button", name="Refuse").click()
    expect(answered(page, "Not again.")).to_be_visible()


def test_the_sub_agents_of_a_turn_stand_below_it(new_window: NewWindow, script: Script) -> None:
    script.play(
        calls("delegate", task="Find the price of tea"), says("Five dollars."), says("It is five.")
    )
    page = new_window().enter("alice", "#/chat")
    ask(page, "What does tea cost?")
    expect(answered(page, "It is five.")).to_be_visible()
    sub_agents = page.get_by_role("list", name="Sub-agents of this turn").get_by_role("listitem")
    expect(sub_agents).to_contain_text("completed")
    sub_agents.get_by_role("link", name="Find the price of tea").click()
    expect(page.get_by_text("Five dollars.").first).to_be_visible()


def test_an_answer_that_is_made_of_marks_does_not_freeze_its_conversation(
    new_window: NewWindow, script: Script
) -> None:
    script.play(says("a" + "\u0301" * 90_000 + "\n\nThe end."))
    page = new_window().enter("alice", "#/chat")
    ask(page, "Say it with marks")
    expect(answered(page, "The end.")).to_be_visible()
    page.reload()
    expect(answered(page, "The end.")).to_be_visible()
    expect(page.get_by_text("[89980 more marks]").first).to_be_visible()


EXACTLY = (
    '{"number": 9007199254740997, "until": null, "a": 1, "a": 2, "f": 1e300, "z": -0.0, '
    '"deep": {"10": [[[{"9": null}]]], "2": 0.1}, "hidden": "a\\u202eb\\ufe0f\\u2800c", '
    '"__proto__": {"x": 123456789012345678901}, "long": "%s\\nfor ever"}'
) % ("x" * 500)


LEFT_ENDS = """each => {
  const all = document.createRange();
  all.selectNodeContents(each);
  return [...all.getClientRects()].map(({ left }) => left);
}"""


def test_what_is_asked_is_what_is_called(new_window: NewWindow, script: Script) -> None:
    def call(_: object) -> provider.Reply:
        return provider.calls(("c1", "ledger_take", EXACTLY))

    script.play(
        lambda _: provider.calls(("c0", "ledger_take", '{"n": 1e400}')), call, says("Done.")
    )
    page = new_window().enter("alice", "#/chat")
    ask(page, "Book it")
    asked = page.get_by_role("region", name="Call that needs your approval")
    text = asked.locator("pre").inner_text()
    assert text == asked_text("ledger_take", EXACTLY)
    for line in ("number 9007199254740997", "until null", "a 2", "│ a<U+202E>b<U+FE0F><U+2800>c"):
        assert f"  {line}\n" in text
    assert asked.locator("pre").evaluate("each => each.scrollWidth <= each.clientWidth")
    begins, *goes_on = asked.locator(".line", has_text="xxx").evaluate(LEFT_ENDS)
    assert min(goes_on, default=0) > begins, "a line that goes on looks like one that begins"
    asked.get_by_role("button", name="Allow").click()
    expect(answered(page, "Done.")).to_be_visible()
    assert "no infinite number" in script.seen[-2].results[-1]
    assert json.loads(script.seen[-1].result()["content"]) == json.loads(EXACTLY)
    assert "9007199254740997" in script.seen[-1].results[-1]
    shown = page.locator("pre.call-text").all_text_contents()
    assert shown[-2:] == [arguments_text(EXACTLY), asked_text("ledger_take", EXACTLY)]


def test_a_host_that_a_command_wants_to_reach_is_asked_about(
    new_window: NewWindow, script: Script
) -> None:
    script.play(
        calls("shell_exec", command="curl -s http://files.example.org/a; echo done"),
        lambda seen: provider.says(seen.result()["stdout"]),
    )
    page = new_window().enter("alice", "#/chat")
    ask(page, "Fetch it")
    page.get_by_role("button", name="Allow").click()
    asked = page.get_by_role("region", name="Call that needs your approval")
    expect(asked).to_contain_text("allow http://files.example.org for this session?")
    expect(asked).to_contain_text("a command")
    asked.get_by_role("button", name="Refuse").click()
    expect(answered(page, "a person said no").last).to_be_visible()
    expect(page.get_by_text("Refused (console). allow http://files.example.org")).to_be_visible()


def test_what_happens_while_the_network_is_away_is_there_afterwards(
    new_window: NewWindow, script: Script
) -> None:
    script.play(calls("shell_exec", command="true"), says("Done in the meantime."))
    window, other = new_window(), new_window()
    page = window.enter("alice", "#/chat")
    ask(page, "Go on without me")
    expect(page.get_by_role("button", name="Allow")).to_be_visible()
    there = other.enter("alice", page.evaluate("location.hash"))
    window.context.set_offline(True)
    expect(page.get_by_text("The server cannot be reached. What runs")).to_be_visible()
    page.get_by_role("textbox", name="Message").fill("not lost")
    there.get_by_role("button", name="Refuse").click()
    expect(answered(there, "Done in the meantime.")).to_be_visible()
    window.context.set_offline(False)
    expect(answered(page, "Done in the meantime.")).to_be_visible()
    expect(page.get_by_text("The server cannot be reached. What runs")).to_be_hidden()
    expect(page.get_by_text("Refused (console).")).to_be_visible()
    page.reload()
    expect(page.get_by_role("textbox", name="Message")).to_have_value("not lost")


def test_an_answer_is_stopped_and_asked_for_again(new_window: NewWindow, script: Script) -> None:
    script.play(lambda _: provider.says("The beginning", then="hang"), says(" and the end."))
    page = new_window().enter("alice", "#/chat")
    ask(page, "Tell me all")
    expect(answered(page, "The beginning")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(answered(page, "Stopped.")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    page.get_by_role("button", name="try again").click()
    expect(answered(page, "and the end.")).to_be_visible()


def test_what_the_provider_says_is_shown_with_the_fix(
    new_window: NewWindow, script: Script
) -> None:
    script.play(lambda _: provider.error("404 Not Found", "model 'm' not found, <b>pull</b> it"))
    page = new_window().enter("alice", "#/chat")
    ask(page, "Hello?")
    notice = page.get_by_role("alert")
    expect(notice).to_contain_text("knows no model")
    expect(notice).to_contain_text("the provider says: \"model 'm' not found, pull it\"")
    expect(notice).to_contain_text("To fix it: correct model")


def test_an_agent_that_is_killed_in_mid_turn_says_so_and_recovers(
    new_window: NewWindow, script: Script, console: Console
) -> None:
    script.play(lambda _: provider.says("It begins", then="hang"), says("It is back."))
    page = new_window().enter("alice", "#/chat")
    ask(page, "Be killed")
    expect(answered(page, "It begins")).to_be_visible()
    console.kill_agent("alice")
    expect(page.get_by_role("alert").get_by_text("stopped in the middle")).to_be_visible(
        timeout=60_000
    )
    ask(page, "And now?")
    expect(answered(page, "It is back.")).to_be_visible()


def test_an_agent_that_does_not_run_is_waited_for_and_the_operator_starts_it(
    new_window: NewWindow, console: Console
) -> None:
    page = new_window().page
    page.goto(console.url)
    page.get_by_label("Access token").fill(console.token("bob", "chat"))
    page.get_by_role("button", name="Log in").click()
    ask(page, "what can you do?")
    expect(answered(page, "Commands")).to_be_visible()
    console.household.works("--user", "bob", "stop")
    page.reload()
    expect(page.get_by_label("Conversation", exact=True)).to_contain_text("no agent runs for bob")
    operators = new_window().enter("bob", "#/chat")
    agent = operators.get_by_label("The agent")
    for place in ("chat", "memory", "usage", "activity", "doctor"):
        go(operators, f"{console.url}/#/{place}")
        expect(agent).to_contain_text("No agent runs for bob.")
    agent.get_by_role("button", name="Start").click()
    expect(agent).to_have_count(0, timeout=60_000)
    expect(answered(page, "Commands")).to_be_visible(timeout=30_000)
    expect(page.get_by_text("no agent runs for bob")).to_have_count(0)


def test_nothing_of_others_acts(new_window: NewWindow, script: Script) -> None:
    script.play(
        calls("shell_exec", command=f"echo '{HOSTILE}'"),
        says(
            f"{HOSTILE} <b>no</b> ![pixel](https://a.test/x.png) [do](javascript:alert(3)) "
            r"$\href{javascript:alert(4)}{x}$ $\includegraphics{https://a.test/y.png}$ $x^2$"
            f"\n```html\n{HOSTILE}\n```\n"
        ),
    )
    page = new_window().enter("alice", "#/chat")
    ask(page, HOSTILE)
    page.get_by_role("button", name="Allow").click()
    expect(page.get_by_role("link", name="Image: pixel (a.test)")).to_be_visible()
    page.locator("summary", has_text="echo").click()
    expect(page.locator("pre.output")).to_contain_text(HOSTILE)
    expect(page.locator("math msup")).to_have_count(1)
    expect(page.locator("pre .hljs-tag").first).to_be_visible()
    expect(page.locator("main img, main script, math [href]")).to_have_count(0)
    expect(page.locator("a[href^=javascript]")).to_have_count(0)

    page.get_by_role("button", name=f"More about {HOSTILE}").click()
    page.get_by_role("textbox", name="Title").fill(f"{HOSTILE}2")
    page.get_by_role("button", name="Rename").click()
    expect(page.get_by_role("link", name=f"{HOSTILE}2")).to_be_visible()


def test_two_users_do_not_see_each_other(
    new_window: NewWindow, script: Script, console: Console
) -> None:
    script.play(says("Alice's answer"))
    pages = {}
    for user in ("alice", "bob"):
        page = pages[user] = new_window().page
        go(page, console.url)
        page.get_by_label("Access token").fill(console.token(user, "chat", "memory"))
        page.get_by_role("button", name="Log in").click()
        ask(page, f"I am {user}")
        expect(page.locator(".answer .markdown")).to_be_visible()
    expect(pages["bob"].get_by_role("link", name="I am").first).to_contain_text("I am bob")
    expect(pages["bob"].get_by_role("link", name="I am alice")).to_have_count(0)
    expect(pages["alice"].get_by_role("link", name="I am bob")).to_have_count(0)
    pages["bob"].goto(f"{console.url}/{pages['alice'].evaluate('location.hash')}")
    pages["bob"].reload()
    expect(pages["bob"].get_by_role("alert")).to_be_visible()
    expect(answered(pages["bob"], "Alice's answer")).to_have_count(0)


def test_a_conversation_is_found_by_what_was_said_in_it(
    new_window: NewWindow, script: Script
) -> None:
    script.play(says("Marmalade, made of oranges from Seville."))
    page = new_window().enter("alice", "#/chat")
    ask(page, "What is on the bread?")
    expect(answered(page, "Marmalade")).to_be_visible()
    search = page.get_by_role("searchbox")
    search.fill("oranges séville")
    listed = page.get_by_role("list", name="Conversations").get_by_role("listitem")
    expect(listed).to_have_count(1)
    expect(listed).to_contain_text("What is on the bread?")
    expect(listed).to_contain_text("made of oranges from Seville.")
    search.fill("oranges from Peru, by ship")
    expect(page.get_by_text("No conversation has “oranges from Peru, by ship”")).to_be_visible()
    expect(listed).to_have_count(0)


def test_sessions_are_found_archived_and_forgotten_by_keyboard(
    new_window: NewWindow, script: Script
) -> None:
    script.play(says("Marmalade."))
    page = new_window().enter("bob", "#/chat")
    ask(page, "help")
    expect(page.locator(".answer .markdown")).to_be_visible()
    page.locator("h1, main").first.focus()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("New conversation")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
    page.keyboard.press("/")
    page.keyboard.type("xyzzy")
    expect(page.get_by_role("link", name="help")).to_have_count(0)
    page.get_by_role("searchbox").fill("help")
    more = page.get_by_role("button", name="More about help")
    more.click()
    page.get_by_role("button", name="Archive", exact=True).click()
    expect(more).to_be_hidden()
    page.get_by_label("Show archived").check()
    more.click()
    page.get_by_role("button", name="Forget …").click()
    page.get_by_role("button", name="Forget it").click()
    expect(more).to_be_hidden()
    expect(page.get_by_role("heading", name="What shall we do?")).to_be_visible()


def test_files_go_in_and_out_and_images_are_shown(new_window: NewWindow, script: Script) -> None:
    name = "<img src=x onerror=alert(1)>.png"
    script.play(
        says("Here: ![the dot](/shared/dot.png)"),
        calls("file_read", path="/shared/dot.png"),
        says("It is a dot."),
    )
    page = new_window().enter("alice", "#/chat")
    for given in (name, "dot.png"):
        page.locator("form input[type=file]").set_input_files(
            {"name": given, "mimeType": "image/png", "buffer": DOT}
        )
        attached = page.get_by_role("list", name="Files for this message")
        expect(attached).to_contain_text(given.replace("/", "_"))
    expect(attached.get_by_role("progressbar")).to_have_count(0)
    page.get_by_role("button", name="Leave out dot.png").click()
    page.locator("form.composer").dispatch_event("drop", {"dataTransfer": dropped(page)})
    expect(attached).to_contain_text("dot-2.png")
    ask(page, "What is in it?")
    shown = page.get_by_role("article").get_by_role("img")
    expect(shown).to_have_count(3)
    for image in shown.all():
        expect(image).to_have_js_property("naturalWidth", 1)
    assert str(script.seen[-1].messages).count("'type': 'image_url'") == 2
    page.reload()
    expect(shown).to_have_count(3)

    ask(page, "Look at it again.")
    expect(answered(page, "It is a dot.")).to_be_visible()
    page.get_by_role("button", name="dot.png", exact=True).last.press("Enter")
    large = page.get_by_role("dialog", name="dot.png")
    expect(large.get_by_role("img", name="dot.png")).to_have_js_property("naturalWidth", 1)
    page.keyboard.press("Escape")
    expect(large).to_have_count(0)

    page.get_by_role("button", name="Shared files").click()
    files = page.get_by_role("dialog", name="Shared files")
    with page.expect_download() as taken:
        files.get_by_role("button", name="dot-2.png (download)").click()
    assert taken.value.path().read_bytes() == DOT
    files.get_by_role("button", name="Attach dot.png").click()
    expect(attached).to_contain_text("dot.png")


def dropped(page: Page) -> JSHandle:
    """What a browser hands over when a file is dropped."""
    return page.evaluate_handle(
        """(data) => {
          const given = new DataTransfer();
          const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
          given.items.add(new File([bytes], "dot.png", { type: "image/png" }));
          return given;
        }""",
        base64.b64encode(DOT).decode(),
    )


def test_a_conversation_of_five_thousand_turns_is_read_with_few_of_them_drawn(
    new_window: NewWindow, console: Console
) -> None:
    asked = (
        exports.event("long", number + 1, f"question {number}", turn_id=f"t{number}")
        for number in range(TURNS)
    )
    file = console.household.path / "long.jsonl"
    file.write_bytes(
        exports.sealed(exports.session("long", title="Long", turns=TURNS), *asked, user_id="bob")
    )
    console.household.works("--user", "bob", "memory", "import", str(file))
    page = new_window().enter("bob", "#/chat/long")
    turns = page.get_by_role("feed", name="Turns")
    expect(turns.get_by_text(f"question {TURNS - 1}", exact=True)).to_be_visible()
    first = turns.get_by_text("question 0", exact=True)
    most, deadline = 0, time.monotonic() + 120
    while not first.count() and time.monotonic() < deadline:
        turns.evaluate("list => { list.scrollTop = 0; }")
        most = max(most, turns.get_by_role("article").count())
        page.wait_for_timeout(20)
    expect(first).to_be_visible()
    assert most < 100
    assert page.evaluate("document.querySelectorAll('*').length") < 3_000


@pytest.mark.bubblewrap
def test_what_a_turn_changed_is_shown_and_taken_back(
    new_window: NewWindow, console: Console
) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        place = Path(made)
        (place / "plan.txt").write_text("one\n")
        console.household.works("--user", "bob", "projects", "open", made, "--name", "plans")
        page = new_window().enter("bob", "#/chat")
        ask(page, "write /projects/plans/plan.txt: two")
        receipt = page.get_by_role("list", name="What this turn did to files")
        expect(receipt).to_contain_text("Changed 1 file, +1 −1: plans/plan.txt")
        page.reload()
        expect(receipt).to_contain_text("plans/plan.txt")
        receipt.get_by_role("button", name="Show changes").click()
        shown = page.get_by_role("dialog")
        expect(shown.locator("del", has_text="one")).to_be_visible()
        expect(shown.locator("ins", has_text="two")).to_be_visible()
        shown.get_by_label("File").select_option("plans/plan.txt")
        expect(shown.locator("ins", has_text="two")).to_be_visible()
        page.keyboard.press("Escape")
        (place / "plan.txt").write_text("mine\n")
        receipt.get_by_role("button", name="Take back").click()
        shown.get_by_role("button", name="Take back").click()
        expect(shown.get_by_role("heading", name="Put these back, too?")).to_be_visible()
        expect(shown).to_contain_text("plans/plan.txt")
        assert (place / "plan.txt").read_text() == "mine\n"
        shown.get_by_role("button", name="Put back").click()
        expect(shown).to_have_count(0)
        assert (place / "plan.txt").read_text() == "one\n"
        console.household.works("--user", "bob", "projects", "close", "plans")
