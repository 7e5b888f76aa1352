"""The lines of an export, one by one.

A line is read or refused with the name of a field. What was read is written as a line that says the
same, and a line of another user never says that this user said it.
"""

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from wire.text import visible_name

from guest.memory.transfer import format as lines
from guest.memory.transfer.format import BadLine, HistoryLine, NoteLine
from tests.fuzz.material import Choices, Target, chosen, stateless
from tests.support.memory.exports import TIME, event, header, note, session

ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 1.5, 2**31, 2**53, 2**63, 10**40, 1e308),
    *("", " ", "a\nb", "a\0b", "\u2028", "\ud800", "../x", "note-1", TIME, "x" * 201, "x" * 16_001),
    *([], [[]], {}, {"a": 1}, ["x"] * 17),
)
"""Values that some field does not take."""

BASES: tuple[dict[str, Any], ...] = (
    note("note-1", "the key is under the pot"),
    note("note-2", "tea", 3, key="tea", repeats_text=True),
    note("note-3", "x", superseded_by="note-1", superseded_reason="old", superseded_at=TIME),
    {"kind": "history", "note_id": "note-2", "history": note("n", "x", 3)["history"]},
    session("s1", state=[{"name": "summary", "value": "v", "epoch": 1, "updated_at": TIME}]),
    session("s2", parent_id="s1", archived_at=TIME, title="a title"),
    event("s1", 1, "hello"),
    event("s1", 2, "hi", role="assistant", payload='{"a": 1}'),
    json.loads(header()),
    {"kind": "end", "lines": 1, "counts": {"notes": 1}, "sha256": "0" * 64},
)
"""Lines as they are written."""


def changed(choices: Choices) -> bytes:
    """A line with some values put in the place of others."""
    line = deepcopy(choices.one_of(BASES))
    for _ in range(choices.below(4)):
        places = list(_places(line))
        holder, key = choices.one_of(places)
        match choices.below(4):
            case 0:
                del holder[key]
            case 1:
                holder[key] = choices.text()
            case 2 if isinstance(holder, dict):
                holder[choices.text()] = deepcopy(choices.one_of(ODD))
            case _:
                holder[key] = deepcopy(choices.one_of(ODD))
        if not list(_places(line)):
            break
    return json.dumps(line).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a value within `value`: what holds it, and the key or index."""
    keys = value if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def _one_input(data: bytes) -> None:
    choices = Choices(data)
    text = choices.rest() if choices.below(2) else changed(choices)
    try:
        line = lines.read(text)
    except BadLine as refusal:
        assert str(refusal)
        assert visible_name(str(refusal)) == str(refusal)
        return
    assert lines.read(lines.written(line)) == line
    if isinstance(line, NoteLine | HistoryLine):
        other = lines.of_another(line)
        assert '"actor":"user"' not in other.model_dump_json()
        assert lines.of_another(other) == other


def _seeds() -> Mapping[str, bytes]:
    whole = {
        f"{line['kind']}-{number}": chosen(1, json.dumps(line).encode())
        for number, line in enumerate(BASES)
    }
    nested = {"nested": chosen(1, b'{"kind": ' + b"[" * 200)}
    changes = {
        f"changed-{number}": bytes([0, number, 2, number, 3, number]) for number in range(10)
    }
    return whole | changes | nested


TARGET = Target("export_lines", 120, stateless(_one_input), _seeds)
