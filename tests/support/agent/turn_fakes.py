"""Small stand-ins for the store, the tools and the pipeline, enough to run turns."""

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_ai.models import Model
from wire.errors import WireError
from wire.settings import AgentSettings

from guest.agent.models.models import Models
from guest.agent.turn import Outcome, Progress
from guest.memory.models import Event, Receipt
from guest.memory.usage import Amount, Cap, Measure, ModelRequest, Usage
from guest.tools.base import Approve, Arguments, Safety, Tool, ToolContext, ToolOutput, ToolResult
from guest.tools.files.roots import VirtualPaths

CONTEXT = ToolContext("alice", "s1", "t1", "test")


def only(model: Model, settings: AgentSettings | None = None) -> Models:
    """Models of which every one is `model`."""
    return Models(settings or AgentSettings(), build=lambda _settings, _key: model)


class FakeStore:
    """Conversation events in a list per session; `fail` raises on the next append.

    Each of `notices` is said once, about a session that is not being stored."""

    def __init__(self) -> None:
        self.user_id = CONTEXT.user_id
        self.events: dict[str, list[Event]] = {}
        self.titles: dict[str, str] = {}
        self.fail: WireError | None = None
        self.notices: list[str] = []

    async def history(self, session_id: str, limit: int) -> list[Event]:
        return self.events.get(session_id, [])[-limit:]

    async def append(
        self, session_id: str, *, turn_id: str, role: Any, text: str, payload: str, title: str = ""
    ) -> int:
        if self.fail is not None:
            raise self.fail
        lines = self.events.setdefault(session_id, [])
        if not lines:
            self.titles[session_id] = title
        lines.append(Event(len(lines) + 1, turn_id, role, text, payload, "now"))
        return len(lines)

    def unstored(self, session_id: str) -> str:
        return self.notices.pop() if self.notices else ""

    def roles(self, session_id: str = "s1") -> list[str]:
        return [event.role for event in self.events.get(session_id, [])]

    def texts(self, role: str, session_id: str = "s1") -> list[str]:
        lines = self.events.get(session_id, [])
        return [event.text for event in lines if event.role == role]


class FakeReceipts:
    """Knows of no more than it is told."""

    async def settle(self, session_id: str, turn_id: str, told: Sequence[Receipt]) -> list[Receipt]:
        return list(told)


class FakeUsage(Usage):
    """Counts nothing, and refuses nothing."""

    def __init__(self) -> None:
        pass

    async def reserve(
        self, request: ModelRequest, most: Amount, caps: Sequence[Cap], session_id: str = ""
    ) -> None:
        pass

    async def settle(self, request: ModelRequest, amount: Amount, measure: Measure) -> None:
        pass

    async def release(self, request: ModelRequest) -> None:
        pass


class FakePipeline:
    """Looks up, validates and runs; `spans` is who ran when."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self.paths, self.rules = VirtualPaths(), None
        self.spans: list[tuple[str, float, float]] = []
        self.calls: list[tuple[ToolContext, str, Any]] = []

    def shown(self, user_id: str, session_id: str, text: str) -> str:
        return text

    def forget(self, user_id: str, session_id: str) -> None:
        """It shows no secrets."""

    def tools(self) -> list[Tool]:
        return list(self._tools.values())

    async def call(
        self,
        ctx: ToolContext,
        name: str,
        arguments: str | Mapping[str, object],
        approve: Approve | None = None,
    ) -> ToolResult:
        tool = self._tools[name]
        self.calls.append((ctx, name, arguments))
        try:
            values = json.loads(arguments) if isinstance(arguments, str) else arguments
            checked = tool.arguments.model_validate(values)
        except (ValueError, ValidationError) as error:
            return ToolResult(f"bad arguments: {error}", True, "bad arguments", 0)
        asks = tool.safety is Safety.PRIVILEGED and approve is not None
        if asks and not await approve(ctx, tool, json.dumps(values)):  # type: ignore[misc]
            return ToolResult("the user said no", True, "refused", 0)
        began = time.monotonic()
        try:
            output = await tool.run(ctx, checked)
        finally:
            self.spans.append((name, began, time.monotonic()))
        if isinstance(output.data, Exception):
            return ToolResult(str(output.data), True, str(output.data), 0)
        text = "\n".join((json.dumps(output.data), *(f"Note: {note}" for note in output.notes)))
        return ToolResult(text, False, output.summary or text[:80], 1, output.material)


class Text(Arguments):
    text: str


class Nothing(Arguments):
    pass


def tool(
    name: str,
    run: Callable[[ToolContext, Any], Awaitable[Any]],
    safety: Safety = Safety.READ_ONLY,
    arguments: type[Arguments] = Nothing,
) -> Tool:
    """A tool that answers with what `run` returns; a returned exception is a tool error."""

    async def answer(ctx: ToolContext, values: Any) -> ToolOutput:
        data = await run(ctx, values)
        return data if isinstance(data, ToolOutput) else ToolOutput(data)

    return Tool(name, f"The {name} tool.", arguments, safety, 10.0, answer)


class Watcher:
    """Collects the progress of a turn."""

    def __init__(self) -> None:
        self.seen: list[Progress] = []

    async def __call__(self, progress: Progress) -> None:
        self.seen.append(progress)

    @property
    def text(self) -> str:
        return "".join(getattr(event, "text", "") for event in self.seen)

    def names(self) -> list[str]:
        return [type(event).__name__ for event in self.seen]


def code(outcome: Outcome) -> str:
    return getattr(outcome, "code", "completed")
