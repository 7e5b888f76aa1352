"""Notes, changes and reviews for programs: one stable shape each.

Names are those of the contract (`gateway.proto`), null stands where there is nothing,
times are RFC 3339 in UTC. A shape may get new keys and never loses one.
"""

from typing import Any

from wire.v1 import gateway_pb2


def note_json(note: gateway_pb2.Note) -> dict[str, Any]:
    """A note as it is stored. `superseded` is null for one that counts."""
    return {
        **_text_json(note),
        "confidence": note.confidence,
        "rationale": note.rationale or None,
        "importance": note.importance,
        "access_count": note.access_count,
        "accessed_at": note.accessed_at or None,
        "scope_session": note.scope_session or None,
        "embedded": note.embedded,
        "superseded": {
            "by": note.superseded_by or None,
            "reason": note.superseded_reason or None,
            "at": note.superseded_at or None,
        }
        if note.superseded
        else None,
    }


def hit_json(note: gateway_pb2.Note) -> dict[str, Any]:
    """What a search has found; `note_id` is null for what was said in a conversation, and
    `origin` where the search does not tell."""
    return {**_text_json(note), "score": note.score, "matched_by": note.matched_by or None}


def change_json(change: gateway_pb2.Change) -> dict[str, Any]:
    """One version of a note, or its being superseded (`text` is the reason then)."""
    return {
        "note_id": change.note_id,
        "version": change.version,
        "change": change.change,
        "text": change.text,
        "tags": list(change.tags),
        "at": change.at,
        "key": change.key or None,
        "type": change.type or None,
        "current": change.current,
        "superseded_by": change.superseded_by or None,
        "origin": _origin_json(change.origin),
    }


def saved_json(reply: gateway_pb2.SaveNoteReply) -> dict[str, Any]:
    """A save; `similar` are notes that say nearly the same."""
    return {
        "note_id": reply.note_id,
        "message": reply.message,
        "searchable": reply.searchable,
        "similar": [
            {"note_id": note.note_id, "text": note.text, "score": note.score}
            for note in reply.similar
        ],
    }


def review_json(reply: gateway_pb2.ReviewMemoryReply) -> dict[str, Any]:
    """A review; `similarity` is null for a pair that was found by its words."""
    return {
        "near": [
            {
                "older": note_json(pair.older),
                "newer": note_json(pair.newer),
                "similarity": pair.similarity or None,
                "may_contradict": pair.may_contradict,
            }
            for pair in reply.near
        ],
        "stale": [note_json(note) for note in reply.stale],
        "warnings": list(reply.warnings),
    }


def _text_json(note: gateway_pb2.Note) -> dict[str, Any]:
    return {
        "note_id": note.note_id or None,
        "text": note.text,
        "tags": list(note.tags),
        "version": note.version,
        "created_at": note.created_at,
        "updated_at": note.updated_at,
        "source": note.source or None,
        "type": note.type or None,
        "key": note.key or None,
        "origin": _origin_json(note.origin) if note.HasField("origin") else None,
    }


def _origin_json(origin: gateway_pb2.NoteOrigin) -> dict[str, Any]:
    return {
        "actor": origin.actor or None,
        "channel": origin.channel or None,
        "session_id": origin.session_id or None,
        "turn_id": origin.turn_id or None,
        "link": origin.link or None,
        "material": origin.material,
    }
