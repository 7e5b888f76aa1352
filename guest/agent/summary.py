"""The rolling summary of a session: what earlier turns said, once they are not shown any more.

It belongs to the session's state. Who writes a new one says which one it has read, so
of two that summarise at once one wins, and what is summarised is never taken back.
The events themselves stay as they are.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pydantic import BaseModel, ValidationError
from pydantic_ai.usage import RunUsage

from guest.agent import history
from guest.agent.guard.earlier import earlier_in
from guest.agent.settings import AgentSettings
from guest.agent.summarizer import Summarizer
from guest.agent.window import Window, of_messages
from guest.errors import StorageError
from guest.memory.types import Event

log = logging.getLogger(__name__)

_NAME: Final = "summary"


class State(Protocol):
    """The part of `guest.memory.sessions.state.SessionState` that summaries need."""

    async def read(self, user_id: str, session_id: str, name: str) -> tuple[str, int] | None: ...

    async def swap(
        self, user_id: str, session_id: str, name: str, value: str, expected_epoch: int
    ) -> bool: ...


class Summary(BaseModel, frozen=True):
    """What the turns up to the event `through` said. `made_by` names the model, or is
    "extract"; `material`: what tools or marked notes gave took part in it."""

    text: str = ""
    through: int = 0
    made_by: str = ""
    material: bool = False


@dataclass(frozen=True)
class Rolled:
    """The summary that stands before a turn, and its epoch; `usage` is what making it
    took. Without a `summary` the session's state could not be read."""

    summary: Summary | None
    epoch: int = 0
    usage: RunUsage | None = None

    @property
    def through(self) -> int:
        return self.summary.through if self.summary else 0


class Summaries:
    """Reads and rolls the summaries of any number of sessions; holds none."""

    def __init__(self, state: State, summarizer: Summarizer, settings: AgentSettings) -> None:
        self._state = state
        self._summarizer = summarizer
        self._settings = settings
        self._window = Window.of(settings)

    async def latest(self, user_id: str, session_id: str) -> Rolled:
        """The summary as stored; an empty one where there is none."""
        try:
            stored = await self._state.read(user_id, session_id, _NAME)
        except StorageError as error:
            log.warning("the summary of a session could not be read: %s", error.brief)
            return Rolled(None)
        if stored is None:
            return Rolled(Summary())
        value, epoch = stored
        try:
            return Rolled(Summary.model_validate_json(value), epoch)
        except ValidationError:
            log.warning("an unreadable summary of a session is made anew")
            return Rolled(Summary(), epoch)

    async def roll(
        self, user_id: str, session_id: str, latest: Rolled, events: Sequence[Event]
    ) -> Rolled:
        """Summarise the oldest of `events`, those after `latest`, where they are too many.

        Of two that do so at once the loser gets the winner's. Nothing is done where the
        session's state cannot be reached.
        """
        folded = self._too_old(events)
        if latest.summary is None or not folded:
            return latest
        made = await self._summarizer.summarise(latest.summary.text, folded)
        summary = Summary(
            text=made.text,
            through=folded[-1].sequence,
            made_by=made.made_by,
            material=latest.summary.material
            or any(event.role == "tool" for event in folded)
            or bool(earlier_in(folded).material),
        )
        try:
            value = summary.model_dump_json()
            won = await self._state.swap(user_id, session_id, _NAME, value, latest.epoch)
        except StorageError as error:
            log.warning("the summary of a session could not be stored: %s", error.brief)
            return Rolled(summary, latest.epoch, made.usage)
        if won:
            log.info("a session is summarised", extra={"count": len(folded)})
            return Rolled(summary, latest.epoch + 1, made.usage)
        winner = await self.latest(user_id, session_id)
        return Rolled(winner.summary, winner.epoch, made.usage)

    def _too_old(self, events: Sequence[Event]) -> list[Event]:
        """The events of the turns to summarise now; of whole turns that are stored."""
        turns = history.by_turn(events)
        sizes = [of_messages(history.to_messages(turn)) for turn in turns]
        shown, size = len(turns), sum(sizes)
        if shown <= self._settings.history_turns and size <= self._window.trigger:
            return []
        least = min(self._settings.summary_min_turns, self._settings.history_turns)
        most = max(
            least, self._settings.history_turns * self._window.target // self._window.trigger
        )
        folded: list[Event] = []
        for turn, of_turn in zip(turns, sizes, strict=True):
            if shown <= least or (shown <= most and size <= self._window.target):
                break
            if not all(event.sequence for event in turn):  # it waits for the server
                break
            folded += turn
            shown -= 1
            size -= of_turn
        return folded
