"""Exports in tests: taken whole, looked into, and written by hand."""

import hashlib
import json
from typing import Any

from guest.memory.memory import Memory

TIME = "2026-11-21T09:30:00.000000Z"


async def exported(memory: Memory) -> bytes:
    """A whole export."""
    return b"".join([part.lines async for part in memory.export()])


def entities(export: bytes) -> list[bytes]:
    """The lines between header and end."""
    return export.splitlines()[1:-1]


def header(user_id: str = "alice", **other: Any) -> bytes:
    return line(
        {"kind": "header", "format": "oxydra-memory", "version": 1, "user_id": user_id}
        | {"exported_at": TIME, "counts": {}}
        | other
    )


def note(note_id: str, content: str, version: int = 1, **other: Any) -> dict[str, Any]:
    """A note with a history in which it said `content` and the number of the version."""
    earlier = [
        said(f"{content} {number}", number)
        | {"written_at": TIME, "replaced_at": TIME}
        | {"superseded_by": None, "superseded_reason": "", "superseded_at": None}
        for number in range(1, version)
    ]
    return {
        "kind": "note",
        "note_id": note_id,
        "key": None,
        "scope_session": None,
        "created_at": TIME,
        "updated_at": TIME,
        "access_count": 0,
        "accessed_at": None,
        "superseded_by": None,
        "superseded_reason": "",
        "superseded_at": None,
        "repeats_text": False,
        "current": said(content, version),
        "history": earlier,
    } | other


def said(content: str, version: int) -> dict[str, Any]:
    return {
        "version": version,
        "content": content,
        "tags": [],
        "type": "fact",
        "confidence": 1.0,
        "rationale": "",
        "importance": 1.0,
        "due_at": "",
        "source": "user",
        "origin": {"actor": "user", "channel": "", "session_id": "", "turn_id": ""}
        | {"link": "", "material": False},
        "change": "save" if version == 1 else "update",
        "restores": 0,
    }


def session(session_id: str, **other: Any) -> dict[str, Any]:
    return {
        "kind": "session",
        "session_id": session_id,
        "title": "",
        "channel": "cli",
        "created_at": TIME,
        "updated_at": TIME,
        "turns": 0,
        "archived_at": None,
        "parent_id": None,
        "state": [],
    } | other


def event(session_id: str, sequence: int, text: str, **other: Any) -> dict[str, Any]:
    return {
        "kind": "event",
        "session_id": session_id,
        "sequence": sequence,
        "turn_id": "t1",
        "role": "user",
        "text": text,
        "payload": "{}",
        "created_at": TIME,
    } | other


def file(*lines: dict[str, Any], user_id: str = "alice") -> bytes:
    """A header and `lines`, as one request holds them."""
    return header(user_id) + b"".join(map(line, lines))


def sealed(*lines: dict[str, Any], user_id: str = "alice") -> bytes:
    """A whole file, with the end that says that nothing of it is missing."""
    begun = file(*lines, user_id=user_id)
    content = begun.split(b"\n", 1)[1]
    end = {"kind": "end", "lines": len(lines), "sha256": hashlib.sha256(content).hexdigest()}
    return begun + line(end | {"counts": {}})


def line(value: dict[str, Any]) -> bytes:
    """One line of a file."""
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"
