"""What memory is made of: notes, sessions, search results, settings, times and namespaces."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, get_args

from wire.limits import USER_ID_PATTERN
from wire.settings import MemorySettings

HIT_TEXT_MAX_CHARS: Final = 1200
"""Longest note that a search shows whole; of a longer one it shows the best passage."""

MatchedBy = Literal["keyword", "semantic", "both"]
Source = Literal["user_memory", "conversation"]
Searchable = Literal["semantic", "keyword"]
Role = Literal["user", "assistant", "tool"]
Change = Literal["save", "update", "replace", "append", "undo"]
NoteType = Literal[
    "fact",
    "assumption",
    "hypothesis",
    "discovery",
    "risk",
    "unknown",
    "decision",
    "convention",
    "lesson_learned",
]
HANDOFF: Final = "session-handoff"
SCRATCHPAD: Final = "scratchpad"
FIXED: Final = (HANDOFF, SCRATCHPAD)
"""The keys of the two notes of working memory that are no memories."""

NOTE_TYPES: Final[tuple[NoteType, ...]] = get_args(NoteType)


class NoteNotFound(Exception):  # noqa: N818 - a condition that callers expect and handle
    """The user has no note with this id, whether or not another user has one."""

    def __init__(self, note_id: str) -> None:
        super().__init__(note_id)
        self.note_id = note_id


class SupersedeRefused(Exception):  # noqa: N818 - a condition that callers expect and handle
    """A note cannot be superseded like this; the message is one sentence that says why.
    Nothing was changed."""


class StaleVersion(Exception):  # noqa: N818 - a condition that callers expect and handle
    """The note has changed since the version that was to be updated; `current` is what it
    says now."""

    def __init__(self, current: "Note") -> None:
        super().__init__(current.note_id)
        self.current = current


class SessionNotFound(Exception):  # noqa: N818 - a condition that callers expect and handle
    """The user has no session with this id, whether or not another user has one."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self.session_id = session_id


class SessionBusy(Exception):  # noqa: N818 - a condition that callers expect and handle
    """The session is in use; `holder` says by what."""

    def __init__(self, session_id: str, holder: str) -> None:
        super().__init__(session_id)
        self.session_id = session_id
        self.holder = holder


class MemoryFull(Exception):  # noqa: N818 - a condition that callers expect and handle
    """A change would go over what one user may keep; the message says of what, how much
    there is and how much there may be. Nothing was changed."""


@dataclass(frozen=True)
class Origin:
    """How a note came to be. Empty strings where there is nothing to say.

    `actor`: the user said so, the agent decided, the runtime did it by itself, or it was
    imported. `link` is where the text comes from: a virtual path, a command, a URL.
    `material` marks what was read (a file, a page, a command's output) and nobody
    vouched for.
    """

    actor: Literal["user", "agent", "automatic", "import"]
    channel: str = ""
    session_id: str = ""
    turn_id: str = ""
    link: str = ""
    material: bool = False


MemoryAction = Literal["saved", "updated", "superseded", "deleted", "restored"]
AskedBy = Literal["model", "runtime", "person"]


@dataclass(frozen=True)
class Receipt:
    """What one change did to memory. It never holds the note's text: a note that is
    forgotten must leave no copy here.

    `unknown` means that nobody can tell whether the change was made, because a server's
    answer was lost. `note_id` is empty for a save that failed, `version` 0 where there is
    none. `searchable` says how the note is found, empty where it is not known. `reason` says
    why a change failed, or what else is to be said of it.
    """

    action: MemoryAction
    outcome: Literal["done", "failed", "unknown"]
    note_id: str = ""
    version: int = 0
    searchable: Literal["", "semantic", "keyword"] = ""
    durable: bool = False
    asked_by: AskedBy = "model"
    reason: str = ""
    created_at: str = field(default_factory=lambda: now())


@dataclass(frozen=True)
class Details:
    """What is known of a note besides its text. `confidence` lies in [0, 1];
    `scope_session` is the only session that sees it, empty where all of the user's do."""

    type: NoteType = "fact"
    confidence: float = 1.0
    rationale: str = ""
    importance: float = 1.0
    scope_session: str = ""


@dataclass(frozen=True)
class Superseded:
    """A note that counts no more: `by` is the note that replaces it, empty where none does."""

    by: str
    reason: str
    at: str


@dataclass(frozen=True)
class Note:
    """One note as stored. Times are RFC 3339 in UTC with microseconds.

    `key` is its fixed name in working memory, empty where it has none. `change` says
    how this version came to be, `restores` which version's text an undo brought back
    (else 0). `accessed_at` is when it was last recalled, empty: never.
    """

    note_id: str
    text: str
    tags: tuple[str, ...]
    version: int
    created_at: str
    updated_at: str
    source: str
    origin: Origin
    embedded: bool
    details: Details = field(default_factory=Details)
    key: str = ""
    change: Change = "save"
    restores: int = 0
    access_count: int = 0
    accessed_at: str = ""
    superseded: Superseded | None = None


@dataclass(frozen=True)
class Hit:
    """One search result: a note with its best passage, or a conversation turn.

    `text` is the whole note, or its best passage where it is longer than
    `HIT_TEXT_MAX_CHARS`, which `shortened` says; for a conversation the passage with who
    said it and when. `note_id` is empty for a conversation. `score` lies in [0, 1]. `actor`,
    `link` and `material` are those of a note's origin; what a tool gave in a conversation
    is material, too. `session_id` and `sequence` say where in a conversation it was said.
    """

    note_id: str
    text: str
    score: float
    source: Source
    matched_by: MatchedBy
    tags: tuple[str, ...]
    created_at: str
    updated_at: str
    version: int
    key: str = ""
    type: NoteType = "fact"
    confidence: float = 1.0
    actor: str = ""
    link: str = ""
    material: bool = False
    superseded: bool = False
    session_id: str = ""
    sequence: int = 0
    shortened: bool = False


@dataclass(frozen=True)
class Only:
    """Which notes a search may give. `session_id` is the session that asks: notes of
    another session's scope are never given. Empty `types`: every type."""

    session_id: str = ""
    types: tuple[NoteType, ...] = ()
    min_confidence: float = 0.0
    superseded: bool = False


@dataclass(frozen=True)
class SearchOutcome:
    """Hits by descending score, and what the caller must know about them.

    `warnings` are sentences such as "semantic search is unavailable ...":
    a degraded search is never silent.
    """

    hits: tuple[Hit, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class SaveOutcome:
    """A save that is durable.

    `created` is false when a note with exactly this text was there already: it
    is `note`, and stays as it is. `searchable` is "keyword" while the vector is
    still to come. `similar` holds other notes that say nearly the same, scored
    by cosine, nearest first.
    """

    note: Note
    created: bool
    searchable: Searchable
    similar: tuple[Hit, ...] = ()


@dataclass(frozen=True)
class Updated:
    """A note as it says now, and others that say nearly the same, as `SaveOutcome` has
    them; none where its vector is still to come."""

    note: Note
    similar: tuple[Hit, ...] = ()


@dataclass(frozen=True)
class Session:
    """One conversation. `updated_at` is when something was last said in it;
    `archived_at` is empty unless it was put away since; `parent_id` is the session that its
    work was delegated from, empty where a person began it."""

    session_id: str
    title: str
    channel: str
    created_at: str
    updated_at: str
    turns: int
    archived_at: str = ""
    parent_id: str = ""


@dataclass(frozen=True)
class Event:
    """One line of a conversation, in the order of `sequence` from 1.

    `payload` is JSON that restores the model's own message; `text` is what a
    person and the search see.
    """

    sequence: int
    turn_id: str
    role: Role
    text: str
    payload: str
    created_at: str


@dataclass(frozen=True)
class Statistics:
    """Counts for one user.

    `passages_embedded` counts vectors of `embedding_model`, and of any model where
    that is not known yet. `archived_sessions` are among `sessions`. `database_bytes`
    covers the file and its WAL. `vectors` has all there are, by model; those set
    aside are under "". `state` is "ready", or what is wrong with the store: while a
    server is away, what is counted is the copy that `replica_synced_at` dates.
    """

    notes: int
    note_versions: int
    passages: int
    passages_embedded: int
    sessions: int
    conversation_events: int
    database_bytes: int
    schema_version: int
    embedding_model: str = ""
    archived_sessions: int = 0
    vectors: Mapping[str, int] = field(default_factory=dict)
    store: Literal["local", "remote"] = "local"
    state: str = "ready"
    replica_synced_at: str = ""


@dataclass(frozen=True)
class RemoteConfig:
    """A libSQL server that holds the memory of one user."""

    url: str
    auth_token: str = field(default="", repr=False)
    ca_pem: str = ""
    timeout_s: float = MemorySettings().remote_timeout_s


@dataclass(frozen=True)
class Patience:
    """How long, in seconds, somebody is kept waiting for what is slow before memory goes on
    without it and says so."""

    server_s: float = 3.0
    """Opening, for the first answer of a server."""
    copy_s: float = 2.0
    """A search, for the copy of what is on a server to be up to date."""
    own_writes_s: float = 1.0
    """A save, for the copy to hold what was written just before."""
    query_vector_s: float = 2.0
    """A search, for the embedder; what holds the words is found without it."""
    turn_s: float = 3.0
    """A turn, for what its prompt shows of memory."""


@dataclass(frozen=True)
class MemoryConfig:
    """What one store is opened with: its settings, and what is not a setting.

    With `remote`, the memory is there, and what was fetched for searching is in
    `replica.db` beside `db_path`. `encryption_key` is that of all database files.
    """

    db_path: str
    settings: MemorySettings = field(default_factory=MemorySettings)
    encryption_key: str = field(default="", repr=False)
    remote: RemoteConfig | None = None
    patience: Patience = field(default_factory=Patience)


def now() -> str:
    """The current time."""
    return at(datetime.now(UTC))


def at(moment: datetime) -> str:
    """A moment in UTC, in RFC 3339 with microseconds: of fixed width, so that
    comparing two as text compares them in time."""
    return moment.isoformat(timespec="microseconds")[: -len("+00:00")] + "Z"


_USER_ID: Final = re.compile(USER_ID_PATTERN)


class User:
    """Whose memory it is, and the namespaces in which it lies: that of the notes, and that
    of the passages of all conversations. Raises `ValueError` for what is no user id."""

    def __init__(self, user_id: str) -> None:
        if not _USER_ID.fullmatch(user_id):
            raise ValueError(f"user_id: {user_id!r} does not match {USER_ID_PATTERN}")
        self.id: Final = user_id
        self.notes: Final = f"memory:{user_id}"
        self.conversations: Final = f"conversation:{user_id}"

    @property
    def namespaces(self) -> tuple[str, str]:
        return self.notes, self.conversations
