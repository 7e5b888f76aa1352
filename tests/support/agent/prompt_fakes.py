"""A memory of lists for building prompts, and the builder and the turn loop on it."""

from collections.abc import Sequence
from datetime import date
from typing import Any, cast

from pydantic_ai.models import Model
from wire.settings import AgentSettings

from guest.agent.prompt.builder import ContextBuilder
from guest.agent.turn_loop import TurnLoop
from guest.errors import StorageError
from guest.memory.conversations.sessions import SessionState
from guest.memory.indexing.embedder import Tell
from guest.memory.memory import Memory
from guest.memory.models import Hit, Note, Only, Origin, SearchOutcome
from guest.memory.notes.keyed import Activity
from tests.support.agent.turn_fakes import (
    CONTEXT,
    FakeReceipts,
    FakeStore,
    FakeUsage,
    only,
)
from tests.support.settings import PATIENT

Key = tuple[str, str]


class FakeState(SessionState):
    """Session state in a dict; `fail` raises on every call."""

    def __init__(self) -> None:
        self.values: dict[Key, tuple[str, int]] = {}
        self.fail: StorageError | None = None

    async def read(self, session_id: str, name: str) -> tuple[str, int] | None:
        if self.fail is not None:
            raise self.fail
        return self.values.get((session_id, name))

    async def swap(self, session_id: str, name: str, value: str, expected_epoch: int) -> bool:
        if self.fail is not None:
            raise self.fail
        key = session_id, name
        if self.values.get(key, ("", 0))[1] != expected_epoch:
            return False
        self.values[key] = value, expected_epoch + 1
        return True


class FakeKeyed:
    """Keyed notes in a dict, and the day's activity."""

    def __init__(self) -> None:
        self.notes: dict[str, Note] = {}
        self.done: list[Activity] = []
        self.fail: Exception | None = None

    async def read(self, key: str) -> Note | None:
        if self.fail is not None:
            raise self.fail
        return self.notes.get(key)

    async def activity(self, day: date, time_zone: str = "UTC") -> list[Activity]:
        return [entry for entry in self.done if entry.at.startswith(day.isoformat())]


class FakeMemory:
    """Finds `hits` for whatever is asked; `fail` raises instead."""

    def __init__(self, hits: Sequence[Hit] = ()) -> None:
        self.results = tuple(hits)
        self.warnings: tuple[str, ...] = ()
        self.fail: Exception | None = None
        self.asked: list[tuple[str, Only]] = []
        self.patience = PATIENT
        self.keyed = FakeKeyed()
        self.state_of = FakeState()
        self.user_id = CONTEXT.user_id
        self.conversations = FakeStore()
        self.receipts = FakeReceipts()
        self.usage = FakeUsage()
        self.deleted: list[str] = []

    async def wait_while_loading(self, tell: Tell = None) -> None:
        """Nothing loads."""

    async def search(
        self,
        query: str,
        *,
        top_k: int = 5,
        include_conversation: bool = False,
        only: Only = Only(),  # noqa: B008 - immutable
    ) -> SearchOutcome:
        self.asked.append((query, only))
        if self.fail is not None:
            raise self.fail
        return SearchOutcome(self.results[:top_k], self.warnings)


def builder(
    pipeline: Any,
    model: Model,
    settings: AgentSettings,
    memory: Any = None,
    context_tokens: int = 1000,
) -> ContextBuilder:
    """A builder as the guest makes it, on a memory that is empty unless one is given."""
    return ContextBuilder(
        memory=cast(Memory, memory or FakeMemory()),
        pipeline=pipeline,
        settings=settings,
        model=lambda: model,
        context_tokens=context_tokens,
        redact=lambda _, text: _redact(text),
    )


def loop_on(
    model: Model,
    pipeline: Any,
    store: FakeStore,
    settings: AgentSettings,
    memory: FakeMemory | None = None,
) -> TurnLoop:
    """A loop with everything around it faked."""
    memory = memory or FakeMemory()
    memory.conversations = store
    models = only(model, settings)
    return TurnLoop(models, cast(Memory, memory), pipeline, settings, 1000, _redact)


def _redact(text: str) -> str:
    return text.replace("s3cret", "[redacted]")


def note(key: str, text: str, *, session_id: str = "s0", **origin: object) -> Note:
    """A keyed note of alice."""
    return Note(
        note_id=f"note-{key}",
        text=text,
        tags=(),
        version=1,
        created_at="2026-11-20T08:00:00.000000Z",
        updated_at="2026-11-20T09:30:00.000000Z",
        source="user_memory",
        origin=Origin(**{"actor": "agent", "session_id": session_id, **origin}),  # type: ignore[arg-type]
        embedded=True,
        key=key,
    )


def hit(text: str, note_id: str = "note-1", **others: object) -> Hit:
    """A note found with a good score; a passage of a conversation where `note_id` is empty."""
    values: dict[str, object] = {
        "note_id": note_id,
        "text": text,
        "score": 0.9,
        "source": "user_memory" if note_id else "conversation",
        "matched_by": "both",
        "tags": (),
        "created_at": "2026-11-19T08:00:00.000000Z",
        "updated_at": "2026-11-19T08:00:00.000000Z",
        "version": 1,
        "actor": "user" if note_id else "",
        **others,
    }
    return Hit(**values)  # type: ignore[arg-type]
