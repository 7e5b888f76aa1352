"""What the store knows of turns: how they ended, also those of an agent that was killed.

A turn's own events show that it was answered, or where its answer was cut. Every other end is noted
beside its session as the turn ends. A turn with neither was interrupted.
"""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from wire.errors import Code, WireError
from wire.v1 import gateway_pb2 as pb

from guest.agent import events as stored
from guest.agent import failures
from guest.agent.receipts.ledger import to_message
from guest.agent.turn import Outcome, Progress
from guest.gateway.turns.events import numbered
from guest.memory.conversations.sessions import SessionState
from guest.memory.conversations.store import Conversations
from guest.memory.models import Event
from guest.memory.notes.receipts import Receipts
from guest.projects.changes import Changes
from guest.tools.base import ToolContext

log = logging.getLogger(__name__)

TEXT_CHARS: Final = 1_000
"""How much of a question a list of turns shows."""
_STATE: Final = "turn-ends"
_END: Final = ("code", "message", "resolution", "details")
_NOT_COUNTED: Final = "the agent was stopped before what the turn changed was counted"
_ENDS_MAX: Final = 100
_NOTE_TIMEOUT_S: Final = 2.0
_LISTED_EVENTS: Final = 200


@dataclass(frozen=True)
class Record:
    """A turn as its session has it; `end` is how it failed, where that was noted."""

    session_id: str
    events: Sequence[Event]
    end: pb.TurnFailed | None = None

    @property
    def turn_id(self) -> str:
        return self.events[0].turn_id

    @property
    def interrupted(self) -> bool:
        return self.state == "interrupted"

    @property
    def state(self) -> str:
        """As in `Turn.state`."""
        if self.end is not None:
            return state_of(self.end)
        last = self.events[-1]
        mark = stored.incomplete_in(last)
        if mark:
            return "cancelled" if mark == "stopped" else "incomplete"
        answered = last.role == "assistant" and not stored.calls_in(last)
        return "completed" if answered else "interrupted"

    @property
    def outcome(self) -> Outcome:
        """How the turn ended, without its receipts."""
        state = self.state
        if self.end is not None:
            return self.end
        if state == "interrupted":
            return failures.interrupted()
        if state == "cancelled":
            return failures.cancelled()
        done = pb.TurnCompleted(text=stored.answer_in(self.events), model=self.model)
        if state == "completed":
            return done
        return pb.TurnIncomplete(
            reason=stored.incomplete_in(self.events[-1]),
            message="the answer is incomplete",
            resolution=failures.GO_ON,
            so_far=done,
        )

    @property
    def model(self) -> str:
        return next(filter(None, map(stored.model_in, reversed(self.events))), "")

    @property
    def said(self) -> str:
        return "\n\n".join(e.text for e in self.events if e.role == "assistant" and e.text)

    def to_message(self) -> pb.Turn:
        first = self.events[0]
        return pb.Turn(
            turn_id=self.turn_id,
            session_id=self.session_id,
            state=self.state,
            text=first.text[:TEXT_CHARS] if first.role == "user" else "",
            model=self.model,
            started_at=first.created_at,
            ended_at=self.events[-1].created_at,
            **began_by(stored.origin_in(first)),
        )


@dataclass(repr=False, eq=False)
class TurnRecords:
    conversations: Conversations
    receipts: Receipts
    session_state: SessionState
    changes: Changes | None = None

    async def find(self, turn_id: str) -> Record | None:
        """A turn that has begun, by its id. Raises `StorageError`."""
        session_id = await self.conversations.session_of_turn(turn_id)
        if not session_id:
            return None
        events = await self.conversations.of_turn(session_id, turn_id)
        return next(iter(await self.in_session(session_id, events)), None)

    async def in_session(self, session_id: str, events: Sequence[Event]) -> list[Record]:
        """The turns of these events of a session, oldest first. Raises `StorageError`."""
        turns = stored.by_turn(events)
        records = [Record(session_id, each) for each in turns]
        if all(record.state == "completed" for record in records):
            return records
        ends = await self._ends(session_id)
        return [Record(session_id, each, _failed(ends.get(each[0].turn_id))) for each in turns]

    async def latest(self, session_id: str = "") -> list[Record]:
        """The latest turns, of one session or of all, newest first. Raises `StorageError`."""
        if session_id:
            found = await self.conversations.history(session_id, _LISTED_EVENTS)
            by_session = {session_id: found}
        else:
            by_session = await self.conversations.latest(_LISTED_EVENTS)
        records = [
            record
            for session, events in by_session.items()
            for record in await self.in_session(session, events)
        ]
        return sorted(records, key=lambda record: record.events[-1].created_at, reverse=True)

    async def events(self, record: Record, after: int) -> list[pb.TurnEvent]:
        """What a reader is told of a turn whose own events are gone: all from the beginning, or
        for one that has some of them only how the turn ended. Raises `StorageError`."""
        stored = await self.receipts.of_turns(record.session_id, [record.turn_id])
        receipts = [to_message(receipt, record.turn_id) for _, receipt in stored]
        outcome = record.outcome
        told = outcome.so_far if isinstance(outcome, pb.TurnIncomplete) else outcome
        told.receipts.extend(receipts)
        if self.changes is not None:
            found = await self.changes.receipts(record.session_id, [record.turn_id])
            for files in found.values():
                told.files.CopyFrom(files)
            if record.interrupted and not found and self.changes.versions.exists:
                told.files.uncounted = _NOT_COUNTED
        told_events: list[Progress | Outcome] = []
        if not after:
            told_events.append(pb.TurnStarted(session_id=record.session_id, model=record.model))
            if record.said:
                told_events.append(pb.TextDelta(text=record.said))
            told_events += receipts
        told_events.append(outcome)
        return [
            numbered(record.turn_id, after + index, event)
            for index, event in enumerate(told_events)
        ]

    async def note_end(self, context: ToolContext, failed: pb.TurnFailed) -> None:
        """Note how a turn ended that its own events do not show. A failure is only logged."""
        try:
            await asyncio.wait_for(self._note(context, failed), _NOTE_TIMEOUT_S)
        except (WireError, TimeoutError) as error:
            log.warning("the end of a turn was not noted: %s", error)

    async def _note(self, context: ToolContext, failed: pb.TurnFailed) -> None:
        def noted(value: str) -> str:
            ends = _ends_in(value)
            ends[context.turn_id] = {name: getattr(failed, name) for name in _END}
            return json.dumps(dict(list(ends.items())[-_ENDS_MAX:]), ensure_ascii=False)

        await self.session_state.update(context.session_id, _STATE, noted)

    async def _ends(self, session_id: str) -> dict[str, dict[str, str]]:
        found = await self.session_state.read(session_id, _STATE)
        return _ends_in(found[0]) if found else {}


def _ends_in(value: str) -> dict[str, dict[str, str]]:
    try:
        ends = json.loads(value)
    except ValueError:
        ends = None
    return ends if isinstance(ends, dict) else {}


def began_by(origin: Mapping[str, str]) -> dict[str, Any]:
    """What `Turn` says of the origin of a turn."""
    return {
        "parent_session_id": origin.get("session_id", ""),
        "parent_turn_id": origin.get("turn_id", ""),
        "schedule_id": origin.get("schedule_id", ""),
        "slot": origin.get("slot", ""),
    }


def state_of(outcome: Outcome) -> str:
    """How a turn with this outcome ended, as in `Turn.state`."""
    if isinstance(outcome, pb.TurnCompleted):
        return "completed"
    if isinstance(outcome, pb.TurnIncomplete):
        return "incomplete"
    return outcome.code if outcome.code in (Code.CANCELLED, failures.INTERRUPTED) else "failed"


def _failed(end: object) -> pb.TurnFailed | None:
    if not isinstance(end, dict):
        return None
    code, message, resolution, details = (str(end.get(name, "")) for name in _END)
    return failures.failed(code, message, resolution, details)
