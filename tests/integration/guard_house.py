"""One user's turns over a real memory, real tools and a scripted model; in a child process
it can be killed between the guard's save and the recording of the answer."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel
from wire.settings import AgentSettings, MemorySettings
from wire.tools import TOOLS, offered

from guest import composition
from guest.agent.turn import Outcome, Progress, TurnRequest
from guest.memory.memory import Memory
from guest.memory.models import Note
from guest.tools.base import ToolContext
from guest.tools.files import file_tools
from guest.tools.files.roots import Roots
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from tests.support.settings import memory_config

ASKED = "My wife is Ana. Please remember that."
LIE = "I have saved that."


class GuardHouse:
    """`seen` is the text that was streamed in the last turn."""

    def __init__(self, memory: Memory, pipeline: ToolPipeline, replies: list[Any]) -> None:
        self.memory = memory
        self.seen = ""
        self._replies = replies
        self._turns = 0
        settings = AgentSettings()
        self._loop = composition.turn_loop(
            FunctionModel(stream_function=self._model),
            memory,
            pipeline,
            settings,
            MemorySettings().context_tokens,
            Scrubber(),
        )

    async def say(self, text: str, turn_id: str = "") -> Outcome:
        self._turns += 1
        self.seen = ""
        context = ToolContext("alice", "s1", turn_id or f"t{self._turns}", "test")
        return await self._loop.run(TurnRequest(context, text), self._watch)

    async def notes(self) -> list[Note]:
        found, _ = await self.memory.list("alice", 100)
        return list(found)

    async def _watch(self, progress: Progress) -> None:
        self.seen += getattr(progress, "text", "")

    async def _model(self, _: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        reply = self._replies.pop(0)
        for piece in reply if isinstance(reply, str) else [reply]:
            yield piece


@asynccontextmanager
async def guard_house(path: Path, *replies: Any, **settings: Any) -> AsyncIterator[GuardHouse]:
    """Turns of alice in her session s1, which are answered by `replies` in turn."""
    for name in ("shared", "tmp", "vault"):
        (path / name).mkdir(exist_ok=True)
    config = memory_config(path / "memory.db", **settings)
    memory = await Memory.open(config, None)
    roots = Roots({name: path / name for name in ("shared", "tmp", "vault")})
    try:
        await memory.conversations.create("alice", "s1")
        pipeline = ToolPipeline(
            Registry(
                [
                    *composition.tools_of_memory(memory, config.settings.typed_scope),
                    *file_tools(roots),
                ]
            ),
            disabled=set(TOOLS) - offered((), ()),
            scrubber=Scrubber(),
        )
        yield GuardHouse(memory, pipeline, list(replies))
    finally:
        roots.close()
        await memory.close()


def killed_before_recording(path: str) -> None:
    """Ask for a save, and die when the answer that tells of it is about to be stored."""
    asyncio.run(_killed(Path(path)))


async def _killed(path: Path) -> None:
    async with guard_house(path, LIE) as house:
        said = house.memory.conversations.append

        async def append(*place: str, **event: str) -> int:
            if event["role"] == "assistant":
                os.kill(os.getpid(), signal.SIGKILL)
            return await said(*place, **event)

        house.memory.conversations.append = append  # type: ignore[method-assign]
        await house.say(ASKED, "killed")
