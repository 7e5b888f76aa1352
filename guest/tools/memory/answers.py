"""Answers common to all memory tools: marks of material, receipts and errors."""

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal

from wire.errors import Code
from wire.zones import local

from guest.errors import ToolError
from guest.memory.memory import Memory
from guest.memory.models import (
    AskedBy,
    Hit,
    MemoryAction,
    MemoryFull,
    Note,
    NoteNotFound,
    Only,
    Origin,
    Receipt,
    SaveOutcome,
    StaleVersion,
    stays_here,
)
from guest.memory.period import Period
from guest.memory.search.context_block import one_line, source_of
from guest.memory.search.contradiction import contradictions
from guest.tools.base import (
    Arguments,
    Asks,
    Changes,
    Found,
    Run,
    Safety,
    Stored,
    Tool,
    ToolContext,
    ToolOutput,
)

_READ_TIMEOUT_S: Final = 15.0
_WRITE_TIMEOUT_S: Final = 10.0
_AT_HOME: Final = "tagged local, because it came of what stays on this machine"
_MARKS_MAX_BYTES: Final = 3_000
"""Longer marks might be cut at the end of an answer."""


def reads(
    name: str, description: str, arguments: type[Arguments], run: Run, *, output_bytes: int = 0
) -> Tool:
    """A tool that looks into memory."""
    return Tool(
        *(name, description, arguments, Safety.READ_ONLY, _READ_TIMEOUT_S, run),
        log_level=logging.DEBUG,
        output_bytes=output_bytes,
    )


def writes(
    name: str,
    description: str,
    arguments: type[Arguments],
    run: Run,
    changes: Changes,
    *stored: str,
    asks: Asks | None = None,
) -> Tool:
    """A tool that changes memory; the arguments named `stored` become part of a note."""
    return Tool(
        *(name, description, arguments, Safety.SIDE_EFFECTING, _WRITE_TIMEOUT_S, run),
        changes=changes,
        stored=Stored("note", stored) if stored else None,
        asks=asks,
    )


def for_user(memory: Memory, tools: Iterable[Tool]) -> list[Tool]:
    """Restrict `tools` to the user of `memory`: they refuse every other caller."""
    return [replace(tool, run=partial(_run_for, memory, tool.run)) for tool in tools]


async def _run_for(memory: Memory, run: Run, context: ToolContext, arguments: Any) -> ToolOutput:
    if context.user_id != memory.user_id:
        raise ToolError("user context of another user", Code.PERMISSION_DENIED)
    return await run(context, arguments)


def marks(entries: Iterable[Hit | Note]) -> tuple[str, ...]:
    """One line for each source of material among the entries."""
    return _marked(
        (each.note_id or "a conversation result", source(each))
        for each in entries
        if _origin(each).material
    )


def material_of(entries: Iterable[Hit | Note]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(source(each) for each in entries if _origin(each).material))


def said_by_user(entries: Iterable[Hit | Note]) -> tuple[str, ...]:
    """The whole texts of the notes among the entries that the user vouches for."""
    whole = (each for each in entries if each.note_id and not getattr(each, "shortened", False))
    return tuple(
        each.text for each in whole if _origin(each).actor == "user" and not _origin(each).material
    )


def _origin(entry: Hit | Note) -> Hit | Origin:
    return entry.origin if isinstance(entry, Note) else entry


def source(entry: Hit | Note) -> str:
    """The source of a text: its link, else the note or session itself."""
    if isinstance(entry, Note):
        return ("" if stays_here(entry.tags) else one_line(entry.origin.link)) or entry.note_id
    return source_of(entry)


async def search_answer(
    memory: Memory,
    context: ToolContext,
    names: str,
    days: tuple[str, str],
    only: Only = Only(),  # noqa: B008 - it cannot change
    **search: Any,
) -> ToolOutput:
    """The answer to a search, in the time from the first to the last of `days`, of whose results
    these fields are shown; weak ones are marked.

    Small models make up a value for every argument that they see, so that a search in a turn leaves
    out a cursor that is none.
    """
    try:
        chosen = Period.of(*days).limits(context.time_zone)
        session, tag = context.session_id, context.project_tag
        only = replace(only, session_id=session, project_tag=tag, chosen=chosen)
        found = await memory.search(**search, only=only, weak=True, or_anytime=True)
    except ValueError as error:
        if context.reply is None or not search["cursor"]:
            raise ToolError(str(error)) from None
        first = await search_answer(memory, context, names, days, only, **search | {"cursor": ""})
        told = "the cursor is not from an earlier search for the same: these are the best results"
        return replace(first, notes=(told, *first.notes))
    count = len(found.results)
    return ToolOutput(
        [
            fields(hit, names, context.time_zone)
            | ({"weak": True} if hit.matched_by == "weak" else {})
            | ({"older_than": hit.older_than} if hit.older_than else {})
            for hit in found.results
        ],
        notes=(*found.warnings, *marks(found.results), *passages(found.results)),
        summary=f"{count} result{'' if count == 1 else 's'}",
        count=count,
        material=material_of(found.results),
        vouched=said_by_user(found.results),
        found=found_in(found.results),
        cursor_after=found.cursor_after,
    )


def found_in(results: Iterable[Hit]) -> Found:
    """The notes among `results`, each with how it was found."""
    return tuple((hit.note_id, hit.matched_by) for hit in results if hit.note_id)


def fields(of: object, names: str, time_zone: str = "") -> dict[str, Any]:
    """The fields of `of` with these names, separated by spaces; moments as in `time_zone`."""
    found = {name: getattr(of, name) for name in names.split()}
    return {
        name: local(value, time_zone) if name.endswith("_at") else value
        for name, value in found.items()
    }


def passages(results: Iterable[Hit]) -> tuple[str, ...]:
    """A line that names the notes of which only a passage is shown."""
    shortened = ", ".join(hit.note_id for hit in results if hit.shortened)
    if not shortened:
        return ()
    return (
        f"only the passage that fits best is shown of {shortened}; an update replaces the whole "
        "note",
    )


def about_similar(saved: SaveOutcome) -> tuple[str, ...]:
    """Remarks about notes similar to the saved one."""
    if saved.uncompared:
        return (
            "similar notes were not looked for, because this one has no vector yet; a search "
            "finds them by keyword",
        )
    similar = saved.similar
    return (*contradictions(similar), *marks(similar), *passages(similar))


def quoted(text: str) -> str:
    """Somebody else's words, in quotation marks, so that their end is visible."""
    return json.dumps(text, ensure_ascii=False)


async def changeable(memory: Memory, context: ToolContext, note_id: str) -> str:
    """The whole id of the note that `note_id` stands for. Raises `ToolError` if it is empty, or
    stands for several."""
    if not note_id:
        raise ToolError("conversation results cannot be changed; use a note_id from memory_search")
    try:
        return await memory.notes.full_id(note_id, context.session_id)
    except ValueError as several:
        raise ToolError(str(several)) from None


def _marked(found: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Marks of material; without the sources if those would take too much room."""
    by_source = defaultdict[str, dict[str, None]](dict)
    for what, where in found:
        by_source[where][what] = None
    lines = [_mark(what, f" ({where})") for where, what in by_source.items()]
    if len("".join(lines).encode()) > _MARKS_MAX_BYTES:
        lines = [_mark(dict.fromkeys(what for some in by_source.values() for what in some))]
    return tuple(lines)


def _mark(what: Iterable[str], where: str = "") -> str:
    return f"{', '.join(what)} came from what was read{where}, not from the user"


_ASKED_BY: Final[dict[str, AskedBy]] = {"agent": "model", "automatic": "runtime", "user": "person"}


def asked_by(context: ToolContext) -> AskedBy:
    return _ASKED_BY[context.actor]


def receipt(
    context: ToolContext,
    action: MemoryAction,
    note_id: str,
    *,
    version: int = 0,
    searchable: Literal["", "semantic", "keyword"] = "",
    reason: str = "",
) -> tuple[Receipt, ...]:
    asked = asked_by(context)
    return (Receipt(action, "done", note_id, version, searchable, True, asked, reason),)


def written(context: ToolContext, note: Note) -> tuple[Receipt, ...]:
    """The receipt of a new note or a new version."""
    return receipt(
        context,
        "saved" if note.version == 1 else "updated",
        note.note_id,
        version=note.version,
        searchable="semantic" if note.embedded else "keyword",
        reason=_at_home(context, note),
    )


def _at_home(context: ToolContext, note: Note) -> str:
    """Why a note bears the tag that nobody gave it; empty if it does not."""
    return _AT_HOME if context.local and stays_here(note.tags) else ""


def says_already(note: Note, text: str, origin: Origin) -> bool:
    """Whether a change to `text` would change nothing of a note, not even who vouches for it."""
    vouched = origin.actor == "user" and (note.origin.actor != "user" or note.origin.material)
    return note.text == text and note.superseded is None and not vouched


def about_save(
    context: ToolContext, saved: SaveOutcome, data: dict[str, Any], *first: str
) -> ToolOutput:
    """The answer to a save, including one that found the same text already stored.
    `data` has the message; `first` are remarks before all others."""
    note = saved.note
    held = () if saved.created else (note,)
    return ToolOutput(
        data=data,
        notes=(*first, *marks(held), *about_similar(saved)),
        summary=data["message"],
        receipts=receipt(
            context,
            "saved",
            note.note_id,
            version=note.version,
            searchable=saved.searchable,
            reason=_at_home(context, note) if saved.created else "it was there already",
        ),
        words=(note.text,),
        material=material_of((*held, *saved.similar)),
    )


@contextmanager
def refusing(note_id: str = "", seen: int | None = None) -> Iterator[None]:
    """Turn what memory refuses into an error that says what helps: a change of this note, which the
    caller has `seen` in a version, or what does not fit any more."""
    try:
        yield
    except MemoryFull as full:
        raise ToolError(f"not saved: {full}", Code.RESOURCE_EXHAUSTED) from None
    except NoteNotFound:
        raise ToolError(
            f"note not found: {note_id}; call memory_search to find the right one", Code.NOT_FOUND
        ) from None
    except StaleVersion as stale:
        now = stale.current
        raise ToolError(
            f"nothing was changed, because the note has changed: it has version {now.version}, not "
            f"{seen}. Decide again on what it says now; to replace it, call memory_update with "
            f"version {now.version}. It says: {quoted(now.text)}",
            Code.CONFLICT,
            material_of([now]),
            marks([now]),
        ) from None
