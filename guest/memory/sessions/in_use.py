"""Which sessions are in use right now, each by one thing at a time."""

from collections.abc import Iterator
from contextlib import contextmanager

from guest.memory.types import SessionBusy


class InUse:
    """Keeps a turn and the forgetting of its session apart. For one process."""

    def __init__(self) -> None:
        self._holders: dict[str, str] = {}

    def take(self, session_id: str, holder: str) -> None:
        """Hold a session until `release`. Raises `SessionBusy` where something else does."""
        self.check(session_id)
        self._holders[session_id] = holder

    def release(self, session_id: str) -> None:
        self._holders.pop(session_id, None)

    def check(self, session_id: str) -> None:
        """Raise `SessionBusy` where something holds the session."""
        if (holder := self._holders.get(session_id)) is not None:
            raise SessionBusy(session_id, holder)

    @contextmanager
    def held(self, session_id: str, holder: str) -> Iterator[None]:
        """Hold a session for as long as the block takes."""
        self.take(session_id, holder)
        try:
            yield
        finally:
            self.release(session_id)
