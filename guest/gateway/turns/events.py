"""The events of one turn, kept for any number of readers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from google.protobuf.message_factory import GetMessageClass
from wire.v1 import gateway_pb2 as pb

from guest.agent.turn import Outcome, Progress

KEPT_BYTES: Final = 8 * 1024 * 1024
_ENTRY_BYTES: Final = 100
_KEPT_SHARE: Final = 0.75
_JOINED_CHARS: Final = 32_768
_GONE: Final = "the beginning of this turn is not kept any more"

_FIELD_OF: Final = {
    GetMessageClass(each.message_type): each.name
    for each in pb.TurnEvent.DESCRIPTOR.oneofs_by_name["event"].fields
    if each.message_type
}


def numbered(turn_id: str, index: int, event: Progress | Outcome) -> pb.TurnEvent:
    made = pb.TurnEvent(turn_id=turn_id, index=index)
    getattr(made, _FIELD_OF[type(event)]).CopyFrom(event)
    return made


class EventLog:
    """Numbers the events of a turn and keeps them. Writing never waits for a reader.

    An index names the same event for every reader. A reader that is behind gets pieces of text
    that follow each other as one, under the index of the last. Beyond `kept_bytes` the oldest
    events go; who would have needed them gets a notice in their place.
    """

    def __init__(self, turn_id: str, kept_bytes: int = KEPT_BYTES) -> None:
        self._turn_id = turn_id
        self._most = kept_bytes
        self._kept: list[str | Progress | Outcome] = []
        self._gone = 0
        self._changed = asyncio.Event()
        self.bytes = 0
        self.ended = False
        self.followers = 0

    @property
    def count(self) -> int:
        """How many events there were so far."""
        return self._gone + len(self._kept)

    async def put(self, progress: Progress) -> None:
        """Add an event. Returns at once; what follows the end of the turn is dropped."""
        self.add(progress)

    def add(self, event: Progress | Outcome) -> None:
        """See `put`."""
        if self.ended:
            return
        kept = event.text if isinstance(event, pb.TextDelta) else event
        self._kept.append(kept)
        self.bytes += _size(kept)
        if self.bytes > self._most:
            self._drop_oldest()
        self._changed.set()
        self._changed = asyncio.Event()

    def finish(self, outcome: Outcome) -> None:
        self.add(outcome)
        self.ended = True

    async def follow(self, after: int = 0) -> AsyncIterator[pb.TurnEvent]:
        """The events from the index `after` on, and then those that happen, the outcome last.

        A reader that is ahead of the turn gets what happens from now on.
        """
        index = min(after, self.count - self.ended)
        self.followers += 1
        try:
            while True:
                changed = self._changed
                if index < self._gone:
                    index = self._gone
                    yield numbered(self._turn_id, index - 1, pb.Notice(text=_GONE))
                elif index < self.count:
                    event, index = self._next(index)
                    yield event
                elif self.ended:
                    return
                else:
                    await changed.wait()
        finally:
            self.followers -= 1

    def _next(self, index: int) -> tuple[pb.TurnEvent, int]:
        """The event at `index`, joined with the text behind it, and the index after that."""
        event = self._kept[index - self._gone]
        if not isinstance(event, str):
            return numbered(self._turn_id, index, event), index + 1
        pieces, chars = [], 0
        for piece in self._kept[index - self._gone :]:
            if not isinstance(piece, str) or chars > _JOINED_CHARS:
                break
            pieces.append(piece)
            chars += len(piece)
        index += len(pieces)
        text = pb.TextDelta(text="".join(pieces))
        return numbered(self._turn_id, index - 1, text), index

    def _drop_oldest(self) -> None:
        dropped = 0
        while self.bytes > self._most * _KEPT_SHARE and dropped < len(self._kept) - 1:
            self.bytes -= _size(self._kept[dropped])
            dropped += 1
        del self._kept[:dropped]
        self._gone += dropped


def _size(event: str | Progress | Outcome) -> int:
    return _ENTRY_BYTES + (4 * len(event) if isinstance(event, str) else event.ByteSize())
