"""Writes a memory file of this program's schema version, for tests of later versions.

Run it once for every release that changes the schema, before the tag, and commit
`tests/fixtures/schema/vN.db` and `vN.json`. A fixture is never written again. For
an earlier version, from 7 on, put the code of its tag first:

    git archive TAG guest proto | tar -x -C DIR
    PYTHONPATH=DIR:DIR/proto:. .venv/bin/python tools/schema_fixture.py
"""

import asyncio
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from guest.memory.memory import Memory
from guest.memory.models import Details, MemoryConfig, Note, Origin
from guest.memory.storage.migrations import MIGRATIONS
from tests.unit.memory_support import FakeEmbedder, embedded

FIXTURES: Final = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "schema"
_USER: Final = "alice"
_ORIGIN: Final = Origin(actor="user", channel="test", session_id="s1", turn_id="t1")
_READ: Final = Origin("agent", "test", "s1", "t1", "/shared/garden.md", material=True)
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


def as_json(note: Note) -> Any:
    """All that is known of a note, as the fixture has it."""
    return json.loads(json.dumps(asdict(note)))


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
    """Notes of every kind, a deleted one, a conversation, vectors; what should be found."""
    for text, tags in _NOTES:
        await memory.save(_USER, text, tags, _ORIGIN)
    changing = (await memory.save(_USER, "Prefers coffee", ["drink"], _ORIGIN)).note
    for text in ("Prefers green tea", "Prefers black tea with lemon"):
        await memory.update(_USER, changing.note_id, text, None, _ORIGIN)
    going = (await memory.save(_USER, "A passing thought", [], _ORIGIN)).note
    await memory.delete(_USER, going.note_id)
    await _fill_kinds(memory)
    talk = memory.conversations
    await talk.create(_USER, "s1", "Keys", "test")
    for role, text in _TURNS:
        payload = json.dumps({"text": text})
        await talk.append(_USER, "s1", turn_id="t1", role=role, text=text, payload=payload)
    counts = await memory.statistics(_USER)
    await embedded(memory, _USER, counts.passages)
    listed, _ = await memory.list(_USER, 100)
    notes = [[n.note_id, n.text, list(n.tags), n.version, n.created_at] for n in listed]
    kinds, _ = await memory.list(_USER, 100, include_superseded=True)
    return {
        "notes": notes,
        "kinds": [as_json(note) for note in kinds],
        "versions": counts.note_versions,
        "passages": counts.passages,
        "turns": [list(turn) for turn in _TURNS],
    }


async def _fill_kinds(memory: Memory) -> None:
    """Notes with a type, a scope and a name; one superseded, one undone, one recalled."""
    risk = Details("risk", 0.25, "it is older than the pump", 0.5, scope_session="s1")
    leak = (await memory.save(_USER, "The hose may leak", ["garden"], _READ, risk)).note
    only_here = Details("decision", scope_session="s1")
    new = (await memory.save(_USER, "A new hose is bought", [], _ORIGIN, only_here)).note
    await memory.typed.supersede(
        _USER, leak.note_id, reason="it did", replacement_id=new.note_id, session_id="s1"
    )
    plan = await memory.keyed.write(_USER, "plan", "sow beans", "replace", _ORIGIN)
    await memory.keyed.write(_USER, "plan", "water them", "append", _READ)
    await memory.history.undo(_USER, plan.note_id, channel="test")
    await memory.typed.recall(_USER, query="beans", limit=1)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
