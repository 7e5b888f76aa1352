"""How long an import takes until everything of it is found by its words. Vectors follow in the
background, as fast as the embedder makes them.

Run alone: `python -m bench.importing [--full]`.
"""

import argparse
import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from wire.limits import EXPORT_PART_BYTES

from bench import corpus
from bench.report import verdict
from bench.scratch import scratch
from guest.memory.memory import Memory
from guest.memory.models import MemoryConfig, at
from tests.support.memory import exports

GOAL_S: Final = 60
_NOTES: Final = 3_000
_SESSIONS: Final = 727
_TURNS: Final = 20_004
"""One year of a person who talks a lot."""
_SHORT: Final = 10
"""Without `--full`, one of so many."""


async def run(full: bool = False) -> list[str]:
    """Lines of the report; `full` measures a whole year."""
    share = 1 if full else _SHORT
    notes, sessions, turns = _NOTES // share, _SESSIONS // share, _TURNS // share
    with scratch() as place:
        config = MemoryConfig(str(place / "memory.db"))
        memory = await Memory.open(config, None, corpus.USER_ID)
        try:
            importer = memory.importer()
            begun = time.perf_counter()
            created = 0
            for part in _parts(notes, sessions, turns):
                created += (await importer.feed(part)).created
            taken = time.perf_counter() - begun
        finally:
            await memory.close()
    assert created == notes + sessions + turns
    goal = f"   (goal: at most {GOAL_S} s: {verdict(taken <= GOAL_S)})" if full else ""
    return [
        f"import of {notes:,} notes and {turns:,} turns in {sessions:,} sessions",
        f"  all found by their words after {taken:.1f} s{goal}",
    ]


def _parts(notes: int, sessions: int, turns: int) -> Iterator[bytes]:
    """The requests of `runner memory import`: each begins with the header."""
    counts = {"notes": notes, "note_versions": 0, "sessions": sessions, "events": turns}
    header = exports.header(corpus.USER_ID, counts=counts)
    part = bytearray(header)
    for line in map(exports.line, _entries(notes, sessions, turns)):
        if len(part) + len(line) > EXPORT_PART_BYTES:
            yield bytes(part)
            part = bytearray(header)
        part += line
    yield bytes(part)


def _entries(notes: int, sessions: int, turns: int) -> Iterator[dict[str, Any]]:
    texts = iter(corpus.make(notes + turns).texts)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    moments = (at(start + timedelta(minutes=number)) for number in range(notes + turns + sessions))
    for number in range(notes):
        moment = next(moments)
        yield exports.note(f"note-{number}", next(texts), created_at=moment, updated_at=moment)
    for number in range(sessions):
        moment = next(moments)
        yield exports.session(f"session-{number}", turns=1, created_at=moment, updated_at=moment)
    for number in range(turns):
        session_id = f"session-{number * sessions // turns}"
        said = {"turn_id": f"turn-{number // 2}", "role": ("user", "assistant")[number % 2]}
        moment = next(moments)
        yield exports.event(session_id, number + 1, next(texts), created_at=moment, **said)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.importing")
    parser.add_argument("--full", action="store_true", help="a whole year")
    print("\n".join(asyncio.run(run(parser.parse_args().full))))
