"""A scripted model, a guard over it and notes in a list."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from wire.settings import AgentSettings
from wire.v1 import gateway_pb2

from guest.agent.turn import Outcome, TurnRequest
from guest.agent.turn_loop import TurnLoop
from guest.errors import StorageError
from guest.tools.base import Arguments, Safety, Tool, ToolContext, ToolOutput
from tests.unit.guest.agent.context_fakes import FakeMemory, builder
from tests.unit.guest.agent.turn_fakes import FakePipeline, FakeStore, Watcher, tool


class Content(Arguments):
    content: str
    key: str = ""
    mode: str = ""


class Anything(Arguments):
    note_id: str = ""
    memory_id: str = ""
    key: str = ""
    path: str = ""
    content: str = ""
    command: str = ""
    mode: str = ""
    offset: int = 1
    limit: int = 0


class House:
    """A scripted model with notes in a list; `failures` are what the next saves answer."""

    def __init__(self, *replies: Any, tools: Sequence[str] = ("memory_save",)) -> None:
        self.saved: list[str] = []
        self.contexts: list[ToolContext] = []
        self.failures: list[Exception | None] = []
        self.replies = list(replies)
        self.store = FakeStore()
        self.memory = FakeMemory()
        self.watcher = Watcher()
        self.shown_when_saving = ""
        self.others: list[Tool] = []
        self._tools = tools
        self._turns = 0

    async def say(self, text: str) -> Outcome:
        self._turns += 1
        context = ToolContext("alice", "s1", f"t{self._turns}", "test")
        self.pipeline = FakePipeline([*map(self._saver, self._tools), *self.others])
        speaker, settings = FunctionModel(stream_function=self._model), AgentSettings()
        loop = TurnLoop(
            model=speaker,
            pipeline=self.pipeline,
            store=self.store,
            context=builder(self.pipeline, speaker, settings, self.memory),
            settings=settings,
            redact=str,
        )
        self.watcher = Watcher()
        return await loop.run(TurnRequest(context, text), self.watcher)

    async def answer(self, text: str) -> str:
        """The turn's answer, which is what was streamed and what is stored."""
        outcome = await self.say(text)
        assert isinstance(outcome, gateway_pb2.TurnCompleted)
        assert self.watcher.text.endswith(outcome.text)
        assert self.store.texts("assistant")[-1] == outcome.text
        return outcome.text

    @property
    def payloads(self) -> str:
        return "".join(event.payload for event in self.store.events["alice", "s1"])

    async def _model(self, _: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        for piece in reply if isinstance(reply, list) else [reply]:
            yield piece

    def _saver(self, name: str) -> Tool:
        async def run(context: ToolContext, arguments: Content) -> ToolOutput:
            self.shown_when_saving = self.watcher.text
            failure = self.failures.pop(0) if self.failures else None
            if isinstance(failure, StorageError):
                raise failure
            if failure is not None:
                return ToolOutput(failure)
            self.contexts.append(context)
            known = arguments.content in self.saved
            if not known:
                self.saved.append(arguments.content)
            note_id = f"note-{self.saved.index(arguments.content) + 1}"
            return ToolOutput({"note_id": note_id}, summary=f"Stored: [id: {note_id}]")

        return tool(name, run, Safety.SIDE_EFFECTING, Content)


def doing(name: str, data: Any = "ok", *, safety: Safety = Safety.SIDE_EFFECTING) -> Tool:
    async def run(_: ToolContext, arguments: Anything) -> Any:
        return data(arguments) if callable(data) else data

    return tool(name, run, safety, Anything)


def calls(*named: tuple[str, dict[str, Any]]) -> dict[int, DeltaToolCall]:
    return {
        number: DeltaToolCall(name, json.dumps(arguments), tool_call_id=f"c{number}")
        for number, (name, arguments) in enumerate(named)
    }


def save(content: str) -> tuple[str, dict[str, Any]]:
    return "memory_save", {"content": content}


def letters(text: str) -> list[str]:
    return list(text)
