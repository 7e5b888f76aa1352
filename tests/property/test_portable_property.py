"""Round trips of a memory lose nothing: any text, any history, any order of importing."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from guest.memory.models import NOTE_TYPES, Change
from tests.support.examples import examples
from tests.support.memory.exports import entities, exported, file
from tests.support.memory.store import opened

MICROSECOND = st.datetimes().map(lambda t: t.isoformat(timespec="microseconds") + "Z")
TIMES = MICROSECOND.filter(lambda text: len(text) == 27)
ANY = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
TEXTS = st.one_of(
    ANY,
    st.sampled_from(
        [
            "\u2028\u2029\x85",
            "\r\n\t\x0b",
            '"\\u0041"',
            "👨‍👩‍👧",
            "e\u0301",
            "\ufeff",
            "\x1b[0m",
            "x" * 3000,
        ]
    ),
)
CONTENTS = TEXTS.map(lambda text: text if text.strip() else text + ".")
LABELS = ANY.map(lambda text: " ".join(text.splitlines()))
FRACTIONS = st.floats(0, 1)
COUNTS = st.integers(0, 2**52)


def said() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "content": CONTENTS,
            "tags": st.lists(ANY.map(lambda tag: tag + "t"), max_size=3),
            "type": st.sampled_from(NOTE_TYPES),
            "confidence": FRACTIONS,
            "rationale": ANY,
            "importance": FRACTIONS,
            "due_at": st.just("") | TIMES,
            "source": LABELS,
            "origin": st.fixed_dictionaries(
                {
                    "actor": st.sampled_from(["user", "agent", "automatic", "import"]),
                    "channel": LABELS,
                    "session_id": LABELS,
                    "turn_id": LABELS,
                    "link": LABELS,
                    "material": st.booleans(),
                }
            ),
            "change": st.sampled_from(get_args(Change)),
            "restores": COUNTS,
        }
    )


@st.composite
def notes(draw: st.DrawFn) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for number in range(draw(st.integers(0, 4))):
        versions = draw(st.lists(said(), min_size=1, max_size=12))
        told = [{"version": place, **each} for place, each in enumerate(versions, 1)]
        times = st.fixed_dictionaries(
            {
                "written_at": TIMES,
                "replaced_at": TIMES,
                "superseded_by": st.sampled_from([None, "", "note-9"]),
                "superseded_reason": ANY,
                "superseded_at": st.none() | TIMES,
            }
        )
        last = made[-1] if made else {}
        scopes = [None, "s0", "s9"]
        if last.get("superseded_by") == f"note-{number}":
            scopes = [None, last["scope_session"]]  # others would lose the note before
        made.append(
            {
                "kind": "note",
                "note_id": f"note-{number}",
                "key": draw(st.one_of(st.none(), LABELS.map(f"{number}{{}}".format))),
                "scope_session": draw(st.sampled_from(scopes)),
                "created_at": draw(TIMES),
                "updated_at": draw(TIMES),
                "access_count": draw(COUNTS),
                "accessed_at": draw(st.none() | TIMES),
                "superseded_by": draw(st.sampled_from([None, "", f"note-{number + 1}", "note-9"])),
                "superseded_reason": draw(ANY),
                "superseded_at": draw(st.none() | TIMES),
                "repeats_text": True,
                "current": told[-1],
                "history": [each | draw(times) for each in told[:-1]],
            }
        )
    return made


@st.composite
def sessions(draw: st.DrawFn) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for number in range(draw(st.integers(0, 3))):
        names = draw(st.lists(LABELS, unique=True, max_size=2))
        state = {"value": TEXTS, "epoch": COUNTS, "updated_at": TIMES}
        made.append(
            {
                "kind": "session",
                "session_id": f"s{number}",
                "title": draw(TEXTS),
                "channel": draw(LABELS),
                "created_at": draw(TIMES),
                "updated_at": draw(TIMES),
                "turns": draw(COUNTS),
                "archived_at": draw(st.one_of(st.none(), TIMES)),
                "parent_id": draw(st.sampled_from([None, "s0", "s9"])),
                "state": [
                    {"name": name, **draw(st.fixed_dictionaries(state))} for name in sorted(names)
                ],
            }
        )
        numbers = draw(st.lists(st.integers(1, 2**53 - 1), unique=True, max_size=4))
        for sequence in sorted(numbers):
            made.append(
                {
                    "kind": "event",
                    "session_id": f"s{number}",
                    "sequence": sequence,
                    "turn_id": draw(LABELS),
                    "role": draw(st.sampled_from(["user", "assistant", "tool"])),
                    "text": draw(TEXTS),
                    "payload": draw(TEXTS),
                    "created_at": draw(TIMES),
                }
            )
    return made


@examples(15)
@given(notes(), sessions(), st.randoms(use_true_random=False))
def test_what_was_imported_is_exported_and_imported_the_same(
    some_notes: list[dict[str, Any]], some_sessions: list[dict[str, Any]], chance: Any
) -> None:
    asyncio.run(_there_and_back(some_notes, some_sessions, chance))


async def _there_and_back(
    some_notes: list[dict[str, Any]], some_sessions: list[dict[str, Any]], chance: Any
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        async with opened(Path(scratch) / "a.db") as a, opened(Path(scratch) / "b.db") as b:
            report = await a.importer().feed(file(*some_notes, *some_sessions))
            assert report.problems == []
            assert report.created == len(some_notes) + len(some_sessions)
            first = await exported(a)
            assert _content(first) == _by_version([*some_notes, *some_sessions])
            assert entities(await exported(a)) == entities(first)
            report = await b.importer().feed(first)
            assert report.problems == []
            second = await exported(b)
            assert entities(second) == entities(first)
            assert second.splitlines()[-1] == first.splitlines()[-1]
            shuffled = [
                each for each in first.splitlines(keepends=True) if b'"kind":"h' not in each
            ]
            chance.shuffle(shuffled)
            report = await b.importer().feed(
                first.splitlines(keepends=True)[0] + b"".join(shuffled)
            )
            assert (report.created, report.updated, report.problems) == (0, 0, [])
            assert entities(await exported(b)) == entities(first)


def _content(export: bytes) -> dict[Any, Any]:
    return _by_version([json.loads(line) for line in entities(export)])


def _by_version(written: list[dict[str, Any]]) -> dict[Any, Any]:
    """Lines as what they say, however a history is spread over them."""
    told: dict[Any, Any] = {}
    for line in written:
        rest = {
            name: value for name, value in line.items() if name not in ("history", "repeats_text")
        }
        for version in line.get("history", ()):
            told[line["note_id"], version["version"]] = version
        if line["kind"] != "history":
            told[line.get("note_id"), line.get("session_id"), line.get("sequence")] = rest
    return told
