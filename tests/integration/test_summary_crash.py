"""Killed in the middle of summaries: no turn is lost, none is summarised twice."""

import asyncio
import multiprocessing
import random
from pathlib import Path
from typing import Any

from guest.agent.events import by_turn
from guest.agent.prompt.summary import Summary
from guest.memory.models import Event
from tests.support.crashing import summaries
from tests.support.crashing.killing import Line, Lines, end
from tests.support.crashing.summaries import MARK, SESSION_ID, SUMMARY_S
from tests.support.memory.store import opened

ROUNDS = 8
LONGEST_LIFE_S = 8 * SUMMARY_S


def test_sigkill_in_a_summary_loses_nothing_and_says_nothing_twice(
    tmp_path: Path, chance: random.Random
) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([summaries.__name__])
    path = tmp_path / "memory.db"
    said, done, in_summary = 0, 0, 0
    for number in range(ROUNDS):
        reader, writer = context.Pipe(duplex=False)
        later = number % 2 == 1  # else right in the first summary
        summary_s = SUMMARY_S if later else 600.0
        child = context.Process(target=_child, args=(str(path), writer, said + 1, summary_s))
        child.start()
        writer.close()
        told: list[Line] = []
        lines = Lines(reader, told.append)
        assert lines.listen(60, lambda line: "summarises" in line), "the child ended by itself"
        if later:
            lines.listen(chance.random() * LONGEST_LIFE_S)
        end(child)
        lines.close()
        in_summary += "summarises" in told[-1]
        done = max([done, *(line["did"] for line in told if "did" in line)])
        said = _check(*asyncio.run(_inspect(path)), done)
    assert in_summary >= ROUNDS / 2
    last = said + 1
    asyncio.run(_say_undisturbed(path, last))
    events, summary = asyncio.run(_inspect(path))
    assert _check(events, summary, last) == last
    assert summary is not None
    assert len(by_turn([event for event in events if event.sequence > summary.through])) <= 4


def _check(events: list[Event], summary: Summary | None, done: int) -> int:
    """All that was acknowledged is there, and the summary holds what it says, once; the
    last turn of which the user's words are stored."""
    turns = by_turn(events)
    marks = [turn[0].text.split()[0] for turn in turns]
    assert marks == [f"m{number}" for number in range(1, len(turns) + 1)]
    assert len(turns) >= done
    assert all(turn[-1].role == "assistant" for turn in turns[:done] if len(turn) > 1)
    if summary is not None:
        ends = [turn[-1].sequence for turn in turns]
        assert MARK.findall(summary.text) == marks[: ends.index(summary.through) + 1]
    return len(turns)


async def _say_undisturbed(path: Path, number: int) -> None:
    async with opened(path) as memory:
        await summaries.say(summaries.loop_on(memory, lambda: None), number)


async def _inspect(path: Path) -> tuple[list[Event], Summary | None]:
    async with opened(path) as memory:
        events = await memory.conversations.history(SESSION_ID, 4000)
        stored = await memory.state_of.read(SESSION_ID, "summary")
        return events, Summary.model_validate_json(stored[0]) if stored else None


def _child(path: str, writer: Any, first: int, summary_s: float) -> None:
    summaries.run(path, writer.fileno(), first, summary_s)
