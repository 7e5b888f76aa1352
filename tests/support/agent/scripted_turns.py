"""One user's turns over a real memory, real tools and a scripted model."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from wire.settings import AgentSettings, MemorySettings
from wire.tools import TOOLS, offered
from wire.v1 import gateway_pb2

from guest import composition
from guest.agent.receipts.second_chance import NOTHING_TO_ADD
from guest.agent.turn import Progress, TurnRequest
from guest.agent.turn_loop import TurnLoop
from guest.memory.memory import Memory
from guest.memory.models import Note
from guest.tools.base import Safety, Tool, ToolContext, ToolOutput
from guest.tools.files import file_tools
from guest.tools.files.roots import Roots
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from tests.support.agent.turn_fakes import only
from tests.support.settings import memory_config

Change = Callable[[ToolContext, Any], Awaitable[ToolOutput]]
Wrapped = Callable[[Tool, Change], Change]
"""Makes another `run` of a tool from its own."""


def calls(*named: tuple[str, dict[str, Any]]) -> dict[int, DeltaToolCall]:
    """An answer that calls these tools."""
    return {
        number: DeltaToolCall(name, json.dumps(arguments), tool_call_id=f"c{number}")
        for number, (name, arguments) in enumerate(named)
    }


def save(content: str) -> dict[int, DeltaToolCall]:
    """An answer that saves `content`."""
    return calls(("memory_save", {"content": content}))


class ScriptedTurns:
    """Alice's session s1.

    Attributes:
        replies: What the model answers next: a text, pieces of one, calls, or an error. Once
            there are none left, it has nothing to add.
        asked: What the model was sent as a user's message, request by request.
        events: The progress of the last turn, in order.
        text: What was streamed in it.
        results: What the model was told of its calls, in order.
        questions: What a person was asked, as JSON; `approved` is the answer.
    """

    def __init__(
        self, memory: Memory, pipeline: ToolPipeline, replies: list[Any], settings: AgentSettings
    ) -> None:
        self.memory = memory
        self.replies = replies
        self.asked: list[str] = []
        self.events: list[Progress] = []
        self.approved = True
        self.questions: list[str] = []
        self.results: list[str] = []
        self._turns = 0
        self._loop = TurnLoop(
            only(FunctionModel(stream_function=self._model)),
            memory,
            pipeline,
            settings,
            MemorySettings().context_tokens,
            str,
        )

    async def say(
        self, text: str, turn_id: str = ""
    ) -> gateway_pb2.TurnCompleted | gateway_pb2.TurnFailed:
        """Run a turn to its end; no answer of the script is cut."""
        self._turns += 1
        self.events = []
        context = ToolContext("alice", "s1", turn_id or f"t{self._turns}", "test")
        outcome = await self._loop.run(TurnRequest(context, text), self._watch, self._approve)
        assert not isinstance(outcome, gateway_pb2.TurnIncomplete)
        return outcome

    async def answer(self, text: str) -> gateway_pb2.TurnCompleted:
        """Run a turn that completes."""
        outcome = await self.say(text)
        assert isinstance(outcome, gateway_pb2.TurnCompleted), outcome
        return outcome

    @property
    def text(self) -> str:
        texts = (each for each in self.events if isinstance(each, gateway_pb2.TextDelta))
        return "".join(each.text for each in texts)

    @property
    def receipts(self) -> list[gateway_pb2.MemoryReceipt]:
        """The receipts that were events of the last turn."""
        return [each for each in self.events if isinstance(each, gateway_pb2.MemoryReceipt)]

    async def notes(self) -> list[Note]:
        """All of Alice's notes, oldest first."""
        found, _ = await self.memory.list(100, include_superseded=True)
        return list(reversed(found))

    async def _watch(self, progress: Progress) -> None:
        self.events.append(progress)

    async def _approve(self, _: ToolContext, __: Tool, question: str) -> bool:
        self.questions.append(question)
        return self.approved

    async def _model(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if not info.function_tools:
            yield "a summary of what was said"
            return
        last = messages[-1]
        prompts = [part for part in last.parts if isinstance(part, UserPromptPart)]
        if isinstance(last, ModelRequest) and prompts:
            self.asked.append(str(prompts[-1].content))
        returned = [part for part in last.parts if isinstance(part, ToolReturnPart)]
        self.results += [str(part.content) for part in returned]
        reply = self.replies.pop(0) if self.replies else NOTHING_TO_ADD
        if isinstance(reply, Exception):
            raise reply
        if callable(reply):
            reply = await reply()
        for piece in reply if isinstance(reply, list) else [reply]:
            yield piece


@asynccontextmanager
async def scripted_turns(
    path: Path,
    *replies: Any,
    off: tuple[str, ...] = (),
    wrap: Wrapped | None = None,
    ask_for: tuple[str, ...] = (),
    agent: AgentSettings | None = None,
    foreign: Callable[[], Mapping[str, Tool]] = dict,
    **settings: Any,
) -> AsyncIterator[ScriptedTurns]:
    """Turns that are answered by `replies`.

    Args:
        path: Where the memory and the user's files are.
        replies: See `ScriptedTurns`.
        off: Tools that are switched off.
        wrap: Replaces what tools that change memory do.
        ask_for: Tools that a person has to approve.
        agent: Settings of the agent.
        foreign: Tools of others, besides the agent's own.
        settings: Settings of the memory.
    """
    for name in ("shared", "tmp", "vault"):
        (path / name).mkdir(exist_ok=True)
    config = memory_config(path / "memory.db", **settings)
    memory = await Memory.open(config, None, "alice")
    roots = Roots({name: path / name for name in ("shared", "tmp", "vault")})
    tools = [*composition.tools_of_memory(memory, config.settings.typed_scope), *file_tools(roots)]
    if wrap is not None:
        tools = [
            replace(tool, run=wrap(tool, tool.run)) if tool.changes else tool for tool in tools
        ]
    tools = [
        replace(tool, safety=Safety.PRIVILEGED) if tool.name in ask_for else tool for tool in tools
    ]
    on = offered((), off)
    try:
        await memory.conversations.create("s1")
        pipeline = ToolPipeline(
            Registry(tools, foreign=foreign),
            disabled=set(TOOLS) - on,
            approval="ask",
            scrubber=Scrubber(),
        )
        yield ScriptedTurns(memory, pipeline, list(replies), agent or AgentSettings())
    finally:
        roots.close()
        await memory.close()


async def until(event: asyncio.Event) -> None:
    """Wait for `event`, and not for ever."""
    await asyncio.wait_for(event.wait(), 30)
