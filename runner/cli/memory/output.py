"""Notes, changes and statistics in words, for people."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from rich.text import Text
from wire.v1 import gateway_pb2

from runner.cli.agent import short_id
from runner.cli.output import (
    HIT,
    Shape,
    clip,
    lately,
    local_day,
    neutralise,
    one_line,
    to_the_second,
)

_TEXT_CELLS: Final = 200
_LABELS_CELLS: Final = 50
_ID_STYLE: Final = "bold"
_MARK_STYLE: Final = "yellow"
_ACTORS: Final = {
    "user": "the user said so",
    "agent": "the agent decided to keep it",
    "automatic": "the runtime kept it by itself",
    "import": "it was imported",
}
_ACTORS_OF_MATERIAL: Final = {**_ACTORS, "user": "the user brought it back"}
_BRIEF_ACTORS: Final = {"agent": "agent", "automatic": "automatic", "import": "imported"}
_CHANGES: Final = {
    "save": "saved",
    "update": "updated",
    "replace": "replaced",
    "append": "appended",
    "undo": "undone",
    "supersede": "superseded",
}


def memory_line(found: gateway_pb2.MemoryStatisticsReply) -> str:
    """In one line: how much there is, how much of it has vectors, and the state of the store."""
    passages = "1 passage" if found.passages == 1 else f"{found.passages:,} passages"
    if found.passages and found.embedder != "disabled":
        passages += f", {_embedded(found)}"
    parts = [passages, " ".join(filter(None, (found.store, found.state)))]
    if found.encrypted:
        parts.append("encrypted")
    if found.replica_synced_at:
        parts.append(f"local copy {replica_age_s(found):.0f} s old")
    if found.foreign_percent:
        parts.append(
            f"{found.foreign_percent} % of the notes are not in English, which alone the model "
            'knows: set [embedder] model = "multilingual"'
        )
    return " · ".join(filter(None, parts))


def replica_age_s(found: gateway_pb2.MemoryStatisticsReply) -> float:
    age = datetime.now(UTC) - datetime.fromisoformat(found.replica_synced_at)
    return max(0.0, age.total_seconds())


def _embedded(found: gateway_pb2.MemoryStatisticsReply) -> str:
    if found.passages_embedded >= found.passages:
        return "all embedded"
    share = f"{int(100 * found.passages_embedded / found.passages)} % embedded"
    if found.embedder != "ready":
        return f"{share} (the embedder is not ready)"
    if not found.embedding_model:
        return share
    again = "re-embedding" if found.vectors else "embedding"
    return f"{share} ({again} with {found.embedding_model}{time_left(found)})"


def time_left(found: gateway_pb2.MemoryStatisticsReply) -> str:
    """How long it takes until all passages have vectors; empty if nobody knows."""
    seconds = found.embedding_seconds_left
    minutes = round(seconds / 60)
    about = f"{minutes} minutes" if minutes > 1 else f"{seconds} s"
    return f", about {about} left" if seconds else ""


def marks(note: gateway_pb2.Note) -> list[str]:
    """What distinguishes a note from a plain fact that the user stated."""
    found = ["weak"] if note.matched_by == "weak" else []
    if note.superseded:
        found.append("superseded")
    if note.older_than:
        found.append(f"older than {short_id(note.older_than)}")
    if note.type not in ("", "fact"):
        found.append(note.type.replace("_", " "))
    if note.key:
        found.append(f"key {note.key}")
    if note.due_at:
        found.append(f"due {lately(note.due_at)}")
    if note.scope_session:
        found.append("of one session")
    if note.source == "conversation":
        found.append("conversation")
    if note.origin.material or note.origin.actor in _BRIEF_ACTORS:
        found.append(origin_in_brief(note.origin))
    return [one_line(mark) for mark in found]


def origin_in_brief(origin: gateway_pb2.NoteOrigin) -> str:
    """Who wrote it, or where it was read."""
    if origin.material:
        return f"read in {one_line(origin.link)}" if origin.link else "read somewhere"
    return one_line(_BRIEF_ACTORS.get(origin.actor, origin.actor))


def origin_in_words(origin: gateway_pb2.NoteOrigin) -> str:
    """The origin of a text: who, where, and whether it is confirmed."""
    actors = _ACTORS_OF_MATERIAL if origin.material else _ACTORS
    who = actors.get(origin.actor, origin.actor or "not known")
    places = {
        "through": origin.channel,
        "in": origin.session_id,
        "turn": origin.turn_id,
    }
    where = ", ".join(f"{name} {place}" for name, place in places.items() if place)
    words = f"{who} ({where})" if where else who
    if origin.material:
        words += "; from what was read, unconfirmed"
    return one_line(words)


def change_in_words(change: gateway_pb2.Change) -> str:
    """`updated, version 3`."""
    done = _CHANGES.get(change.change, one_line(change.change))
    return done if change.change == "supersede" else f"{done}, version {change.version}"


def first_line(text: str) -> str:
    """The first line that is not blank, with an ellipsis if there are more."""
    lines = [line for line in text.splitlines() if line.strip()]
    return f"{lines[0]} …" if len(lines) > 1 else "".join(lines)


def brief(text: str) -> str:
    """`text` on one line, cut with an ellipsis if it is long."""
    return clip(one_line(text), _TEXT_CELLS)


def whole(text: str) -> Text:
    """The whole text, line by line, neutralised."""
    return Text(neutralise(text))


_NOTE: Final[Mapping[str, Callable[[gateway_pb2.Note], Text]]] = {
    "id": lambda note: Text(short_id(note.note_id) or "(said)", _ID_STYLE),
    "score": lambda note: Text(f"{note.score:.2f}"),
    "updated": lambda note: Text(one_line(local_day(note.updated_at))),
    "tags": lambda note: Text(clip(one_line(", ".join(note.tags)), _LABELS_CELLS)),
    "mark": lambda note: Text(clip(", ".join(marks(note)), _LABELS_CELLS), _MARK_STYLE),
    "text": lambda note: Text(brief(note.text)),
}
HITS: Final = Shape(_NOTE, HIT)
"""What a search found. Long texts are cut with an ellipsis; `show` prints them whole."""
NOTES: Final = Shape({name: cell for name, cell in _NOTE.items() if name != "score"})
CHANGES: Final = Shape[gateway_pb2.Change](
    {
        "when": lambda change: Text(one_line(to_the_second(change.at))),
        "what": lambda change: Text(change_in_words(change)),
        "note": lambda change: Text(short_id(change.note_id), _ID_STYLE),
        "who": lambda change: Text(
            clip(origin_in_brief(change.origin), _LABELS_CELLS), _MARK_STYLE
        ),
        "text": lambda change: Text(brief(first_line(change.text))),
    }
)
