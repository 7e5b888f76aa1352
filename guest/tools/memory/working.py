"""Working memory: notes for the current task, for the next session, and for good."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field
from wire.limits import NOTE_MAX_CHARS, QUERY_MAX_CHARS

from guest.errors import ToolError
from guest.memory.memory import Memory
from guest.memory.models import HANDOFF, SCRATCHPAD, Note, Receipt
from guest.memory.notes.keyed import Mode
from guest.tools.base import Arguments, MemoryChange, Tool, ToolContext, ToolOutput
from guest.tools.memory.answers import (
    fields,
    for_user,
    marks,
    material_of,
    reads,
    receipt,
    refusing,
    says_already,
    search_answer,
    writes,
    written,
)
from guest.tools.memory.notes import Content, Cursor, NotBlank, Since, Until
from guest.tools.memory.provenance import origin_of, tags_in

_SHOWN: Final = "note_id key text score tags updated_at"
_LIMIT_MAX: Final = 50
_KEY_PATTERN: Final = r"^[a-z0-9][a-z0-9._-]{0,63}$"
_TOOL_OF: Final = {HANDOFF: "write_session_handoff", SCRATCHPAD: "scratch_note"}


class SearchMemoryArguments(Arguments):
    query: Annotated[
        str,
        Field(max_length=QUERY_MAX_CHARS, description="What to look for, in plain words."),
        NotBlank,
    ]
    limit: Annotated[
        int,
        Field(description="How many results at most, 1 to 50; beyond counts as these."),
        AfterValidator(lambda limit: min(max(limit, 1), _LIMIT_MAX)),
    ] = 10
    since: Since = ""
    until: Until = ""
    cursor: Cursor = ""


class WriteMemoryArguments(Arguments):
    key: str = Field(
        pattern=_KEY_PATTERN,
        description="The note's fixed name: a-z, 0-9, '.', '_' and '-', e.g. project-plan.",
    )
    content: Content
    mode: Mode = Field(
        default="replace", description="Put the content in place of the note, or at its end."
    )


class HandoffArguments(Arguments):
    content: Annotated[
        str,
        Field(
            min_length=1,
            max_length=NOTE_MAX_CHARS,
            description="What is done, what is decided, what comes next.",
        ),
        NotBlank,
    ]


class ScratchArguments(Arguments):
    telling: ClassVar[str] = "content"

    mode: Literal["replace", "append", "clear", "read"]
    content: str = Field(
        default="", max_length=NOTE_MAX_CHARS, description="With replace and append only."
    )


def working_memory_tools(memory: Memory) -> list[Tool]:
    tools = _WorkingTools(memory)
    family = [
        reads(
            "search_memory",
            "Search all notes, those with a key and those without, in plain words. Call it to "
            "look up what was written with write_memory or saved in another way. Returns notes "
            "with note_id, key (empty where there is none), text and score, best first. A low "
            "score may mean that nothing fits: do not present it as a fact.",
            SearchMemoryArguments,
            tools.search,
        ),
        writes(
            "write_memory",
            "Keep a note under a fixed key for good, such as a project plan, a running list or a "
            "summary, and update it. mode replace puts the content in place of the note, append "
            "adds it at the end. Say that it is stored only after `Stored: [id: …]`; else say "
            "that it could not be. For single facts about the user use memory_save if you "
            "have it.",
            WriteMemoryArguments,
            tools.write,
            lambda _: MemoryChange("saved"),
            "content",
        ),
        writes(
            "write_session_handoff",
            "Hand over to the next session: a note that is the first thing you see there. Call "
            "it when the user stops for today, or wants to continue tomorrow or another time, "
            "and when work is unfinished. It overwrites the handoff before, so say all that "
            "still matters. It is no place for facts to keep for good.",
            HandoffArguments,
            tools.hand_off,
            lambda _: MemoryChange("saved"),
            "content",
        ),
        writes(
            "scratch_note",
            "Your scratchpad for the task at hand: working notes for yourself, interim results, "
            "open points. You see it until it is cleared. mode replace or append writes content, "
            "read gives it back, clear empties it; clear it when the task is done. It is no "
            "place for what is to be kept for good: use memory_save if you have it.",
            ScratchArguments,
            tools.scratch,
            _change_of_scratchpad,
            "content",
        ),
    ]
    return for_user(memory, family)


class _WorkingTools:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def search(self, context: ToolContext, arguments: SearchMemoryArguments) -> ToolOutput:
        return await search_answer(
            self._memory,
            context,
            _SHOWN,
            (arguments.since, arguments.until),
            query=arguments.query,
            top_k=arguments.limit,
            cursor=arguments.cursor,
        )

    async def write(self, context: ToolContext, arguments: WriteMemoryArguments) -> ToolOutput:
        if (tool := _TOOL_OF.get(arguments.key)) is not None:
            raise ToolError(f"the key {arguments.key} belongs to {tool}; use that tool")
        mode = arguments.mode
        return _written(*await self._write(context, arguments.key, arguments.content, mode))

    async def hand_off(self, context: ToolContext, arguments: HandoffArguments) -> ToolOutput:
        return _written(*await self._write(context, HANDOFF, arguments.content, "replace"))

    async def scratch(self, context: ToolContext, arguments: ScratchArguments) -> ToolOutput:
        mode, content = arguments.mode, arguments.content
        if mode == "clear" or mode == "read":
            if content:
                raise ToolError(f"content: mode {mode} takes none; leave it out")
            return await (self._clear(context) if mode == "clear" else self._read())
        if not content.strip():
            raise ToolError(f"content is required with mode {mode}, and must not be blank")
        note, receipts = await self._write(context, SCRATCHPAD, content, mode)
        return _scratchpad(note, f"Stored: [id: {note.note_id}]", receipts)

    async def _clear(self, context: ToolContext) -> ToolOutput:
        note = await self._memory.keyed.read(SCRATCHPAD)
        there = await self._memory.keyed.clear(SCRATCHPAD, origin_of(context, ""))
        message = "the scratchpad is cleared" if there else "the scratchpad was empty already"
        return ToolOutput(
            data={"content": "", "message": message},
            summary=message,
            receipts=receipt(context, "deleted", note.note_id if note else "") if there else (),
            words=(note.text,) if note else (),
        )

    async def _read(self) -> ToolOutput:
        note = await self._memory.keyed.read(SCRATCHPAD)
        if note is None:
            message = "the scratchpad is empty"
            return ToolOutput(data={"content": "", "message": message}, summary=message)
        return _scratchpad(note, f"this is the scratchpad, version {note.version}")

    async def _write(
        self, context: ToolContext, key: str, text: str, mode: Mode
    ) -> tuple[Note, tuple[Receipt, ...]]:
        """The note, and the receipt if it says something else than before."""
        keyed, origin = self._memory.keyed, origin_of(context, text)
        before = await keyed.read(key) if mode == "replace" else None
        if before is not None and says_already(before, text, origin):
            return before, ()
        try:
            with refusing():
                note = await keyed.write(key, text, mode, origin, tags_in(context, text, before=()))
        except ValueError as error:
            raise ToolError(f"not stored: {error}") from None
        return note, written(context, note)


def _change_of_scratchpad(given: Mapping[str, Any]) -> MemoryChange | None:
    if given.get("mode") == "read":
        return None
    return MemoryChange("deleted" if given.get("mode") == "clear" else "saved")


def _written(note: Note, receipts: tuple[Receipt, ...]) -> ToolOutput:
    message = f"Stored: [id: {note.note_id}]"
    data = fields(note, "key note_id version") | {"message": message}
    return ToolOutput(data=data, summary=message, receipts=receipts, words=(note.text,))


def _scratchpad(note: Note, message: str, receipts: tuple[Receipt, ...] = ()) -> ToolOutput:
    return ToolOutput(
        data={"content": note.text, "message": message, "note_id": note.note_id},
        notes=marks([note]),
        summary=message,
        material=material_of([note]),
        receipts=receipts,
        words=(note.text,),
    )
