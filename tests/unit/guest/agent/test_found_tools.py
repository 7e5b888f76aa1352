"""Tools that are offered once they are found, and to the end of the session."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from tool_snapshot import all_tools
from wire.errors import Code
from wire.settings import AgentSettings
from wire.v1 import gateway_pb2 as pb

from guest.agent.deferred import FIND_TOOLS, OFFERED_MAX, FoundTools
from guest.agent.turn import ClientTool, FromClient, TurnRequest
from guest.errors import StorageError
from guest.tools.base import Tool
from tests.support.agent.prompt_fakes import FakeMemory, loop_on
from tests.support.agent.turn_fakes import CONTEXT, FakePipeline, FakeStore, Watcher, tool


async def nothing(*_: object) -> str:
    return "done"


def named(name: str, description: str = "") -> Tool:
    made = tool(name, nothing)
    return replace(made, description=description) if description else made


HANDOFF = named("write_session_handoff", "Leaves a note for the next session.")
REMEMBER = named("remember", "Keeps what you have learnt, with a type and a rationale.")
WANTED = Path(__file__).with_name("wanted_tools.txt")
CORE = (named("memory_search"), named("file_read"))


class House:
    """An agent with `tools`, whose model answers with `steps`; a new one each time it starts."""

    def __init__(self, *tools: Tool) -> None:
        self.tools = list(tools)
        self.memory, self.store = FakeMemory(), FakeStore()
        self.offered: list[list[str]] = []
        self.turns = 0

    async def say(self, *steps: Any, client: Sequence[str] = ()) -> Watcher:
        replies = [*steps, "ok"]

        async def answer(_: list[ModelMessage], info: AgentInfo) -> Any:
            self.offered.append([each.name for each in info.function_tools])
            yield replies.pop(0)

        model = FunctionModel(stream_function=answer)
        settings = AgentSettings.model_construct()
        loop = loop_on(model, FakePipeline(self.tools), self.store, settings, self.memory)
        self.turns += 1
        context = replace(CONTEXT, turn_id=f"t{self.turns}")
        own = tuple(ClientTool(name, "A client's.", {"type": "object"}) for name in client)
        watcher = Watcher()
        request = TurnRequest(context, "hi", client=FromClient(tools=own))
        outcome = await loop.run(request, watcher)
        assert isinstance(outcome, pb.TurnCompleted)
        return watcher


def find(query: str) -> Any:
    return {0: DeltaToolCall(FIND_TOOLS, json.dumps({"query": query}))}


def call(name: str) -> Any:
    return {0: DeltaToolCall(name, "{}")}


async def test_what_is_found_stays_offered_in_the_order_of_finding_also_after_a_restart() -> None:
    house = House(REMEMBER, *CORE, HANDOFF)
    await house.say(find("a handoff"), find("with a rationale"))
    first = ["memory_search", "file_read", FIND_TOOLS]
    assert house.offered == [
        first,
        [*first, "write_session_handoff"],
        [*first, "write_session_handoff", "remember"],
    ]
    await house.say()
    assert house.offered[-1] == house.offered[2]


async def test_a_tool_that_is_called_by_its_name_is_run_and_counts_as_found() -> None:
    house = House(*CORE, REMEMBER)
    watcher = await house.say(call("remember"))
    finished = [each for each in watcher.seen if isinstance(each, pb.ToolCallFinished)]
    assert [(each.tool, each.ok) for each in finished] == [("remember", True)]
    assert house.offered[1] == ["memory_search", "file_read", FIND_TOOLS, "remember"]


async def test_without_further_tools_there_is_nothing_to_find() -> None:
    house = House(*CORE)
    await house.say()
    assert house.offered == [["memory_search", "file_read"]]


async def test_where_nothing_fits_all_are_named() -> None:
    house = House(*CORE, REMEMBER, HANDOFF)
    watcher = await house.say(find("xyzzy"))
    (finished,) = [each for each in watcher.seen if isinstance(each, pb.ToolCallFinished)]
    assert finished.summary == "No tool fits. There are: remember, write_session_handoff"
    assert house.offered[0] == house.offered[1]


async def test_of_too_many_the_one_that_was_not_used_for_longest_goes() -> None:
    many = [named(f"mcp_{number}", f"Does number{number}.") for number in range(OFFERED_MAX)]
    house = House(*CORE, *many)
    await house.say(*(call(each.name) for each in many[:10]))
    await house.say(*(call(each.name) for each in many[10:20]))
    await house.say(*(call(each.name) for each in many[20:30]))
    await house.say(*(call(each.name) for each in many[30:37]), call("mcp_0"))
    assert len(house.offered[-1]) == OFFERED_MAX
    await house.say(call("mcp_37"), client=["weather"])
    last = house.offered[-1]
    assert len(last) == OFFERED_MAX
    assert {"weather", "mcp_0", "mcp_37"} <= set(last)
    assert not {"mcp_1", "mcp_2"} & set(last)


async def test_a_session_whose_state_is_away_finds_for_the_turn() -> None:
    house = House(*CORE, REMEMBER)
    house.memory.state_of.fail = StorageError(Code.UNAVAILABLE, "away")
    await house.say(find("rationale"))
    assert house.offered[1][-1] == "remember"


async def test_a_tool_is_among_the_first_three_for_the_plain_words_of_a_person() -> None:
    foreign = [
        named("github_search_code", "Search for code across GitHub repositories."),
        named("calendar_list_events", "List events on the user's calendar between two dates."),
        named("mail_send", "Send an e-mail."),
        named("notion_create_page", "Create a page in a Notion database."),
    ]
    state: Any = FakeMemory().state_of
    found = FoundTools("s", state, lambda: [*all_tools(), *foreign])
    wanted = [each.split(": ") for each in WANTED.read_text().splitlines() if each[0] != "#"]
    best = [json.loads(await found.find(query))[:3] for _, query in wanted]
    pairs = zip(wanted, best, strict=True)
    missed = [each for each, found in pairs if each[0] not in [tool["name"] for tool in found]]
    assert len(missed) <= len(wanted) // 10, missed
