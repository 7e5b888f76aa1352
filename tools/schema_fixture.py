"""Writes a memory file of this program's schema version, for tests of later versions.

Run it once for every release that changes the schema, before the tag, and commit
`tests/fixtures/schema/vN.db` and `vN.json`. A fixture is never written again. For
an earlier version, put the code of its tag first:

    git archive TAG guest proto | tar -x -C DIR
    PYTHONPATH=DIR:DIR/proto:. .venv/bin/python tools/schema_fixture.py
"""

import asyncio
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from guest.memory.migrations import MIGRATIONS
from guest.memory.store import Memory
from guest.memory.types import MemoryConfig, Origin
from tests.unit.memory_support import FakeEmbedder, embedded

FIXTURES: Final = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "schema"
_USER: Final = "alice"
_ORIGIN: Final = Origin(actor="user", channel="test", session_id="s1", turn_id="t1")
_NOTES: Final = (
    ("The boiler was serviced by Márta on 3 March; next time in spring", ("house", "heating")),
    ("Allergic to walnuts 🌰, but not to hazelnuts", ("health",)),
    ("The bicycle's lock opens with 4711", ()),
    ("Reads on the train: " + "a chapter of the long green book, and then another one. " * 40, ()),
)
_TURNS: Final = (
    ("user", "Where did I leave the spare keys?"),
    ("tool", "memory_search: nothing found"),
    ("assistant", "You have not told me; try the drawer in the hall."),
)


def digest(name: str, statements: Sequence[str]) -> str:
    """Tells whether a migration was changed."""
    return hashlib.sha256(json.dumps([name, *statements]).encode()).hexdigest()


async def main() -> int:
    version = len(MIGRATIONS)
    database, expected = FIXTURES / f"v{version}.db", FIXTURES / f"v{version}.json"
    if database.exists():
        print(f"{database} is there; a released schema does not change", file=sys.stderr)
        return 1
    memory = await Memory.open(MemoryConfig(str(database)), FakeEmbedder())
    try:
        content = await _fill(memory)
    finally:
        await memory.close()
    content["digests"] = [digest(m.name, m.statements) for m in MIGRATIONS]
    expected.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    print(f"{database}: {database.stat().st_size} bytes")
    return 0


async def _fill(memory: Memory) -> dict[str, Any]:
    """Notes with versions, a deleted one, a conversation, vectors; what should be found."""
    for text, tags in _NOTES:
        await memory.save(_USER, text, tags, _ORIGIN)
    changing = (await memory.save(_USER, "Prefers coffee", ["drink"], _ORIGIN)).note
    for text in ("Prefers green tea", "Prefers black tea with lemon"):
        await memory.update(_USER, changing.note_id, text, None, _ORIGIN)
    going = (await memory.save(_USER, "A passing thought", [], _ORIGIN)).note
    await memory.delete(_USER, going.note_id)
    talk = memory.conversations
    await talk.create(_USER, "s1", "Keys", "test")
    for role, text in _TURNS:
        payload = json.dumps({"text": text})
        await talk.append(_USER, "s1", turn_id="t1", role=role, text=text, payload=payload)
    counts = await memory.statistics(_USER)
    await embedded(memory, _USER, counts.passages)
    listed, _ = await memory.list(_USER, 100)
    notes = [[n.note_id, n.text, list(n.tags), n.version, n.created_at] for n in listed]
    return {
        "notes": notes,
        "versions": counts.note_versions,
        "passages": counts.passages,
        "turns": [list(turn) for turn in _TURNS],
    }


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
