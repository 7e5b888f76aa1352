"""An MCP server that means harm. Whatever it does harms one call: another server is called
meanwhile, and has to answer at once."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from guest.tools.base import Tool, ToolContext, ToolResult
from tests.support.attempts import attempt
from tests.support.guests.shell_backends import Daemon, left_behind, ready_daemon
from tests.support.servers.mcp_servers import Served, served, settings

AT_ONCE_S = 20
BOUNDED = "its calls have a time limit, and a server that does not answer is started again"
HUNG_UP = "what a server says unasked is counted, and too much of it ends the connection"


@pytest.fixture
async def daemon() -> AsyncIterator[Daemon]:
    async with ready_daemon() as running:
        yield running
        assert running.stop() == 0
        assert left_behind(running.root) == []


async def harmed(
    daemon: Daemon, directory: Path, way: str, said: str = ""
) -> tuple[Served, ToolResult]:
    """The result of a call to a server of that way, after another server has answered at once.
    Where `said` is that it did not answer, it has a second to do so."""
    bad = settings(way, **({"timeout_s": 1} if said.startswith("did not answer") else {}))
    async with served(daemon, directory, bad=bad, good=settings("server")) as servers:
        await servers.until("bad_echo")
        await servers.until("good_echo")
        calling = asyncio.create_task(servers.call("bad_echo", text="x"))
        for _ in range(5):
            result, seconds = await servers.took("good_echo", text="y")
            assert not result.is_error
            assert seconds < AT_ONCE_S
            await asyncio.sleep(0.05)
        first = await calling
        await servers.until("bad_echo")
        return servers, first


WAYS = [
    attempt("ending in the middle of a call", ("dying", "went away"), stopped_by=BOUNDED),
    attempt("never answering a call", ("hanging", "did not answer within 1 s"), stopped_by=BOUNDED),
    attempt("reading nothing of what it is asked", ("deaf", "did not answer"), stopped_by=BOUNDED),
    attempt(
        "answering a byte at a time, for ever", ("dripping", "did not answer"), stopped_by=BOUNDED
    ),
    attempt("flooding the agent with messages", ("flooding", "went away"), stopped_by=HUNG_UP),
    attempt(
        "answering with ten megabytes",
        ("huge", "the answer is longer than 1024 KiB"),
        stopped_by="a message has at most 1 MiB; the rest of a longer one is thrown away",
    ),
    attempt(
        "writing a line that never ends",
        ("endless", "went away"),
        stopped_by="after 32 MiB of one line the server is ended, and started again later",
    ),
    attempt(
        "answering with what is no JSON, or nested too deeply",
        ("garbled", "did not answer"),
        stopped_by="what is no message is passed over and counted",
    ),
    attempt(
        "answering calls that nobody made",
        ("mistaken", "did not answer"),
        stopped_by="an answer has to belong to an open request",
    ),
]


@pytest.mark.parametrize("way", WAYS)
async def test_it_harms_one_call(daemon: Daemon, tmp_path: Path, way: tuple[str, str]) -> None:
    _, result = await harmed(daemon, tmp_path, *way)
    assert result.is_error
    assert way[1] in result.text


@pytest.mark.attempt(
    "writing lines that are too long, whose ends come apart",
    stopped_by="what is thrown away counts as well; " + HUNG_UP,
)
async def test_lines_that_are_too_long_are_counted_whole(daemon: Daemon, tmp_path: Path) -> None:
    async with served(daemon, tmp_path, bad=settings("wide")) as servers:
        await servers.until("bad_echo")
        result = await servers.call("bad_echo", text="x")
        assert "the answer is longer than 1024 KiB" in result.text
        await servers.notice("it said too much that nobody had asked for")


@pytest.mark.attempt(
    "flooding standard error", stopped_by="it is read slowly, and only its end is kept"
)
async def test_standard_error_is_read_slowly(daemon: Daemon, tmp_path: Path) -> None:
    _, result = await harmed(daemon, tmp_path, "shouting")
    assert "done" in result.text or "did not answer" in result.text


@pytest.mark.attempt(
    "asking the user's model, the user and the agent's files for more",
    stopped_by="sampling, elicitation and roots are refused",
)
async def test_what_a_server_asks_for_is_refused(daemon: Daemon, tmp_path: Path) -> None:
    async with served(daemon, tmp_path, bad=settings("asking")) as servers:
        await servers.until("bad_echo")
        assert await servers.said("bad_echo", text="x") == "refused refused refused"


@pytest.mark.attempt(
    "names that move the cursor or reorder text, and ten thousand tools",
    stopped_by="names are letters, digits and ._/:@-; at most 100 tools of a server are offered",
)
async def test_deceiving_and_endless_names_are_not_offered(daemon: Daemon, tmp_path: Path) -> None:
    async with served(daemon, tmp_path, bad=settings("naming")) as servers:
        await servers.until("bad_t00000")
        assert len(servers.names) < 100
        assert all(name.removeprefix("bad_t").isdigit() for name in servers.names)
        shown = await servers.notice("not offered")
        assert "a\\x1b[2J, b\\u202ec" in shown
        assert shown.isprintable()
        assert await servers.notice("it lists 10005 tools; only 100 are offered")


@pytest.mark.attempt(
    "descriptions with instructions and hidden characters, schemas that take years to check or "
    "fetch an address",
    stopped_by="descriptions are bounded and made visible; of schemas only what is cheap to check "
    "stays",
)
async def test_descriptions_and_schemas_are_tamed(daemon: Daemon, tmp_path: Path) -> None:
    async with served(daemon, tmp_path, bad=settings("luring")) as servers:
        await servers.until("bad_long")
        assert servers.names == {"bad_long", "bad_slow", "bad_away", "bad_round"}
        assert "years, wide are not offered" in await servers.notice("not offered")
        for tool in servers.pipeline.tools():
            shown = tool.description + str(tool.arguments.model_json_schema())
            assert tool.description.startswith("A tool of the MCP server bad, which describes it")
            assert len(shown) < 4_000
            assert not {"\u202e", "\0", "\x1b"} & set(shown)
            given = {} if tool.name == "bad_round" else {"text": "a" * 60 + "!"}
            result, seconds = await servers.took(tool.name, **given)
            assert (result.is_error, seconds < AT_ONCE_S) == (False, True), tool.name


@pytest.mark.attempt(
    "tools that become others after they were approved",
    stopped_by="a tool whose description or schema has changed is refused until it is approved",
)
async def test_a_changed_tool_is_refused_until_it_is_approved(
    daemon: Daemon, tmp_path: Path
) -> None:
    bad = settings("changing", str(daemon.root / "mark"))
    async with served(daemon, tmp_path, bad=bad) as servers:
        await servers.until("bad_echo")
        assert servers.names == {"bad_echo", "bad_same"}
    async with served(daemon, tmp_path, bad=bad) as servers:
        await servers.until("bad_same")
        assert servers.names == {"bad_same"}
        refused = await servers.call("bad_echo", text="x")
        assert "there is no tool 'bad_echo'" in refused.text
        notice = await servers.notice("echo, fresh are not offered: not what was approved")
    approved = notice.split('approved = "')[1].split('"')[0]
    async with served(daemon, tmp_path, bad={**bad, "approved": approved}) as servers:
        await servers.until("bad_fresh")
        assert servers.names == {"bad_echo", "bad_same", "bad_fresh"}
        assert servers.servers.notices() == []


async def test_while_it_is_away_its_tools_say_why(daemon: Daemon, tmp_path: Path) -> None:
    async with served(daemon, tmp_path, bad=settings("dying")) as servers:
        await servers.until("bad_echo")
        said = ""
        async with asyncio.timeout(60):
            while "is away: it ended with exit code 1: out of luck" not in said:
                said = (await servers.call("bad_echo", text="x")).text
                await asyncio.sleep(0.01)
        assert "bad_echo" in servers.names


@pytest.mark.parametrize(
    ("approval", "allowed", "said"),
    [
        ("ask", True, ""),
        ("ask", False, "was not approved by the user"),
        ("deny", True, "is not permitted by the operator"),
        ("auto", False, ""),
    ],
)
async def test_a_server_has_an_approval_of_its_own(
    daemon: Daemon, tmp_path: Path, approval: str, allowed: bool, said: str
) -> None:
    asked = []

    async def approve(_: ToolContext, tool: Tool, arguments: str) -> bool:
        asked.append((tool.name, arguments))
        return allowed

    server = settings("server", approval=approval)
    async with served(daemon, tmp_path, one=server, other=settings("server")) as servers:
        await servers.until("other_echo")
        async with asyncio.timeout(60):
            while servers.servers.notices():
                await asyncio.sleep(0.01)
        assert ("one_echo" in servers.names) is (approval != "deny")
        result = await servers.call("one_echo", approve, text="x")
        assert (result.is_error, said in result.text) == (bool(said), True)
        assert asked == ([("one_echo", '{"text": "x"}')] if approval == "ask" else [])
        assert not (await servers.call("other_echo", approve, text="x")).is_error


@pytest.mark.attempt(
    "a server with the name of a tool of the agent",
    stopped_by="names of servers that would hide our tools are refused; ours come first",
)
@pytest.mark.parametrize("name", ["memory", "file", "shell", "search", "write", "scratch"])
def test_no_server_can_hide_a_tool_of_ours(name: str) -> None:
    from wire.settings import UserSettings, from_json

    document = f'{{"servers": {{"{name}": {{"command": "x"}}}}}}'
    with pytest.raises(Exception, match="would hide tools of our own"):
        from_json({"mcp": document})
    assert UserSettings().mcp.servers == {}


@pytest.mark.attempt(
    "answering with values nested hundreds and thousands deep",
    stopped_by="what cannot be read is a failed call that says so, and the connection goes on",
)
@pytest.mark.parametrize("where", ["structured", "parts", "error"])
async def test_deeply_nested_answers_fail_clearly(
    daemon: Daemon, tmp_path: Path, where: str
) -> None:
    bad = settings("nested", timeout_s=5 if where == "structured" else 1)  # only that can succeed
    async with served(daemon, tmp_path, bad=bad) as servers:
        await servers.until(f"bad_{where}")
        for depth in (3, 90, 300, 900, 5_000, 100_000):
            result = await servers.call(f"bad_{where}", text=str(depth))
            assert result.is_error == (depth > 100 or where != "structured"), depth
            assert "went away" not in result.text
            if where == "structured" and 100 < depth < 1_000:
                assert "the answer is nested too deeply" in result.text
        assert servers.servers.notices() == []
