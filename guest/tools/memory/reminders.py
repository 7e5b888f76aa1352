"""Reminders: notes that the person is told of at a time, whether a model runs or not."""

from datetime import UTC, datetime

from pydantic import Field
from wire.limits import NOTE_MAX_CHARS, QUERY_MAX_CHARS
from wire.zones import local

from guest.errors import ToolError
from guest.memory.memory import LIST_MAX, Memory
from guest.memory.models import Filter, SupersedeRefused
from guest.notices.reminders import Reminders, due_at
from guest.tools.base import Arguments, MemoryChange, Tool, ToolContext, ToolOutput
from guest.tools.memory.answers import (
    changeable,
    for_user,
    marks,
    material_of,
    reads,
    receipt,
    refusing,
    writes,
    written,
)
from guest.tools.memory.notes import NOTE_ID_MAX_CHARS
from guest.tools.memory.provenance import origin_of, tags_in

_LISTED_MAX = 50
_DONE = "done"


class ReminderSetArguments(Arguments):
    content: str = Field(
        default="", max_length=NOTE_MAX_CHARS, description="What to be reminded of, in full words."
    )
    due: str = Field(
        max_length=80,
        description='When, to the user: "2026-12-04 09:00", "friday 9:00", "in 20 minutes"; "done" '
        "with note_id ends it.",
    )
    note_id: str = Field(
        default="",
        max_length=NOTE_ID_MAX_CHARS,
        description="Of the reminder to move or end, from reminder_list.",
    )


class ReminderListArguments(Arguments):
    query: str = Field(
        default="", max_length=QUERY_MAX_CHARS, description="Only those with this text in them."
    )


def reminder_tools(memory: Memory) -> list[Tool]:
    tools = _ReminderTools(memory)
    family = [
        writes(
            "reminder_set",
            "Set a reminder: the user is told at that time, later and without you. With note_id it "
            "moves (snoozes) one, or ends it. Say that it is set only after `Stored: [id: …]`.",
            ReminderSetArguments,
            tools.set,
            lambda given: (
                MemoryChange("superseded", str(given.get("note_id", "")))
                if given.get("due") == _DONE
                else MemoryChange("updated" if given.get("note_id") else "saved")
            ),
            "content",
        ),
        reads(
            "reminder_list",
            "List the reminders that are set, with their times and ids.",
            ReminderListArguments,
            tools.list,
        ),
    ]
    return for_user(memory, family)


class _ReminderTools:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._reminders = Reminders(memory)

    async def set(self, context: ToolContext, arguments: ReminderSetArguments) -> ToolOutput:
        text, note_id = arguments.content.strip(), arguments.note_id
        if not (text or note_id):
            raise ToolError("content: what to be reminded of; or note_id of a reminder to change")
        if note_id:
            note_id = await changeable(self._memory, context, note_id)
        try:
            with refusing(note_id):
                if arguments.due == _DONE:
                    return await self._end(context, note_id)
                due = due_at(arguments.due, context.time_zone, datetime.now(UTC))
                if note_id:
                    note = await self._reminders.move(note_id, due, origin_of(context, ""))
                else:
                    origin, tags = origin_of(context, text), tags_in(context, text)
                    note = await self._reminders.set(text, due, tuple(tags), origin)
        except (ValueError, SupersedeRefused) as error:
            raise ToolError(str(error)) from None
        message = f"Stored: [id: {note.note_id}], due {local(due, context.time_zone)}"
        return ToolOutput(
            data={"note_id": note.note_id, "message": message},
            notes=marks([note]),
            summary=message,
            material=material_of([note]),
            receipts=written(context, note),
            words=(note.text,),
        )

    async def _end(self, context: ToolContext, note_id: str) -> ToolOutput:
        if not note_id:
            raise ToolError("note_id: call reminder_list first")
        await self._reminders.done(note_id, origin_of(context, ""))
        message = f"Superseded: [id: {note_id}]"
        return ToolOutput(
            data={"note_id": note_id, "message": message},
            summary=message,
            receipts=receipt(context, "superseded", note_id),
        )

    async def list(self, context: ToolContext, arguments: ReminderListArguments) -> ToolOutput:
        notes, _ = await self._memory.list(LIST_MAX, only=Filter(due=True))
        seen = [
            note
            for note in notes
            if note.details.scope_session in ("", context.session_id)
            and arguments.query.strip().casefold() in note.text.casefold()
        ]
        found = len(seen)
        seen = sorted(seen, key=lambda note: note.details.due_at)[:_LISTED_MAX]
        more = found - len(seen)
        later = [f"{more} more are due later: find them by a query"] if more else []
        return ToolOutput(
            data=[
                {
                    "note_id": note.note_id,
                    "text": note.text,
                    "due_at": local(note.details.due_at, context.time_zone),
                }
                for note in seen
            ],
            notes=(*later, *marks(seen)),
            summary=f"{found} reminder{'' if found == 1 else 's'}",
            count=found,
            material=material_of(seen),
            found=tuple((note.note_id, "") for note in seen),
        )
