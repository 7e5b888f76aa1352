"""The program that `test_summary_crash.py` kills: it talks in one session, whose earlier turns
are summarised all the time, and says what it does before and after.

Every line that it writes is one JSON object.
"""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel
from wire.settings import AgentSettings

from guest.agent.turn import TurnRequest
from guest.agent.turn_loop import TurnLoop
from guest.memory.memory import Memory
from guest.tools.base import ToolContext
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from tests.support.agent.turn_fakes import Watcher, only
from tests.support.memory.store import opened

USER_ID, SESSION_ID = "alice", "s1"
SUMMARY_S = 0.03
MARK = re.compile(r"m\d+")
SETTINGS = AgentSettings(history_turns=3, summary_min_turns=1)


def loop_on(
    memory: Memory, summarising: Callable[[], None], summary_s: float = SUMMARY_S
) -> TurnLoop:
    """A loop whose model takes `summary_s` to list the marks of all it is to summarise."""

    async def speak(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        if not (info.instructions or "").startswith("You summarise"):
            yield "Well."
            return
        summarising()
        await asyncio.sleep(summary_s)
        given = str(messages[-1].parts[-1].content)  # type: ignore[union-attr]
        yield "The user said:\n- " + " ".join(MARK.findall(given))

    model = FunctionModel(stream_function=speak)
    pipeline = ToolPipeline(Registry([]), scrubber=Scrubber())
    return TurnLoop(only(model), memory, pipeline, SETTINGS, 1000, str)


async def say(loop: TurnLoop, number: int) -> None:
    """One turn with a mark of its own."""
    context = ToolContext(USER_ID, SESSION_ID, f"t{number}", "test")
    outcome = await loop.run(TurnRequest(context, f"m{number} is said"), Watcher())
    assert outcome.DESCRIPTOR.name == "TurnCompleted", outcome
    await loop.summarised(SESSION_ID)


def run(path: str, descriptor: int, first: int, summary_s: float) -> None:
    """Go on until killed, from turn `first` on."""
    asyncio.run(_run(Path(path), descriptor, first, summary_s))


async def _run(path: Path, descriptor: int, number: int, summary_s: float) -> None:
    def tell(**line: Any) -> None:
        os.write(descriptor, json.dumps(line).encode() + b"\n")

    async with opened(path) as memory:
        await memory.conversations.create(SESSION_ID)
        loop = loop_on(memory, lambda: tell(summarises=number), summary_s)
        while True:
            await say(loop, number)
            tell(did=number)
            number += 1
