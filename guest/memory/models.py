"""What memory is made of: notes, sessions, search results, settings, times and namespaces."""

import re
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from wire.limits import USER_ID_PATTERN
from wire.settings import MemorySettings
from wire.text import parsed_json
from wire.tools import PROJECT_TAG

if TYPE_CHECKING:
    from guest.egress_client import EgressClient

RATIONALE_MAX_CHARS: Final = 2_000
HIT_TEXT_MAX_CHARS: Final = 1200
"""A search shows notes up to this length whole, and of longer ones the best passage."""

MatchedBy = Literal["keyword", "semantic", "both", "weak"]
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
"""Keys of the two notes of working memory that do not count as memories."""

NOTE_TYPES: Final[tuple[NoteType, ...]] = get_args(NoteType)

TEMPORARY: Final = "temporary-"
"""Begins the ids of conversations that are in this process's memory alone."""

DISOWNED_MARK: Final = ":"
"""Precedes the user id of a session that is being forgotten; no user id begins with it."""

DISOWNED_BY: Final = "BETWEEN ':' AND ':~'"
"""The SQL condition for the user id of such a session."""

HIDDEN: Final = f"""
EXISTS (SELECT 1 FROM sessions
        WHERE sessions.session_id = chunks.session_id AND sessions.user_id {DISOWNED_BY})
"""  # noqa: S608
"""The SQL condition for passages in `chunks` whose session is being forgotten."""


class NoteNotFound(Exception):  # noqa: N818 - a condition that callers expect and handle
    """The user has no note with this id, whether or not another user has one."""

    def __init__(self, note_id: str) -> None:
        super().__init__(f"note not found: {note_id}")
        self.note_id = note_id


class SupersedeRefused(Exception):  # noqa: N818 - a condition that callers expect and handle
    """This supersession is not allowed; the message gives the reason. Nothing was changed."""


class StaleVersion(Exception):  # noqa: N818 - a condition that callers expect and handle
    """The note is no longer at the version the caller expected; `current` is the note now."""

    def __init__(self, current: "Note") -> None:
        super().__init__(current.note_id)
        self.current = current


class SessionNotFound(Exception):  # noqa: N818 - a condition that callers expect and handle
    """The user has no session with this id, whether or not another user has one."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"session not found: {session_id}")
        self.session_id = session_id


class SessionBusy(Exception):  # noqa: N818 - a condition that callers expect and handle
    """The session is in use; `holder` says by what."""

    def __init__(self, session_id: str, holder: str) -> None:
        super().__init__(f"session {session_id!r} is busy with {holder}")


class MemoryFull(Exception):  # noqa: N818 - a condition that callers expect and handle
    """A change would exceed the user's quota; the message names it with both figures. Nothing
    was changed."""


@dataclass(frozen=True)
class Origin:
    """Where a note comes from. Unknown fields are empty.

    `actor` is the user, the agent, the runtime or an import. `link` is the place the text was read
    from: a virtual path, a command, a URL. `material` marks text that was read (a file, a page, a
    command's output) and that nobody vouched for.
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
    """What one change did to memory. It holds no text of the note, so that forgetting a note leaves
    no copy here.

    The outcome `unknown` means that a server's answer was lost, so the change may or may not have
    been made. `note_id` is empty for a failed save; `version` is 0 where there is none.
    `searchable` says how the note is found, empty if unknown. `reason` says why a change failed, or
    adds a remark.
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
    """What is known about a note besides its text. Numbers lie in [0, 1]; `max_chars` bounds a
    text; `scope_session` is the only session that sees the note, empty for all of the user's;
    `due_at` is when the person is reminded of it, empty for never.

    A new field is a column in a migration and a field of `Note` in gateway.proto; everything else
    follows from here (see `notes.columns`).
    """

    type: NoteType = "fact"
    confidence: float = 1.0
    rationale: str = field(default="", metadata={"max_chars": RATIONALE_MAX_CHARS})
    importance: float = 1.0
    scope_session: str = ""
    due_at: str = ""


@dataclass(frozen=True)
class Superseded:
    """Marks a note as superseded: `by` is the id of its replacement, empty if it has none."""

    by: str
    reason: str
    at: str


@dataclass(frozen=True)
class Note:
    """One note as stored. Times are RFC 3339 in UTC with microseconds.

    `key` is its fixed name in working memory, or empty. `change` is the operation that made this
    version; `restores` is the version an undo brought back, else 0. `accessed_at` is when the note
    was last recalled, empty for never.
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

    For a note, `text` is its whole text, or its best passage if it is longer than
    `HIT_TEXT_MAX_CHARS` (then `shortened` is true). For a conversation, it is the passage with its
    speaker and time, and `note_id` is empty. `score` lies in [0, 1]; `meaning` is the cosine of the
    passage with the query, and `words` how much of the query's words it has, as a share of the
    best, both in [0, 1]. `actor`, `link` and `material` come from the note's origin; tool output in
    a conversation is material as well. `session_id` and `sequence` locate a conversation's passage.
    `older_than` is the newest of the notes that may contradict this one, if any.
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
    meaning: float = 0.0
    words: float = 0.0
    older_than: str = ""


TAGS: Final = "json_each(iif(json_valid(notes.tags), notes.tags, '[]'))"
"""The tags of a note in SQL. Another program may have written anything there."""
_TAGGED: Final = f"EXISTS (SELECT 1 FROM {TAGS} WHERE value = ?)"  # noqa: S608


LOCAL: Final = "local"
"""The tag of notes that stay on this machine, and the mark in the metadata of what came of them."""
MARKED: Final = f'"{LOCAL}":'
"""How the mark stands in what is stored, where texts have no such quotation marks."""
STAYS_HERE: Final = f"""EXISTS (SELECT 1 FROM {TAGS}
    WHERE lower(trim(value, char(9, 10, 13, 32, 160))) = '{LOCAL}')"""  # noqa: S608
READ: Final[ContextVar[list[str]]] = ContextVar("READ")
"""The ids of such notes that a call has read; empty ones for passages that came of them."""


def stays_here(tags: Iterable[str]) -> bool:
    """Whether what has these tags stays on this machine."""
    return any(tag.strip().lower() == LOCAL for tag in tags)


def projects_in(tags: Iterable[str]) -> frozenset[str]:
    """Those of the tags that name a project."""
    return frozenset(tag for tag in tags if tag.startswith(f"{PROJECT_TAG}:"))


def tags_of(column: Any) -> tuple[str, ...]:
    """The tags in their column; none if another program has written something else there."""
    try:
        found = parsed_json(column)
    except (ValueError, TypeError):
        return ()
    return tuple(each for each in found if isinstance(each, str)) if isinstance(found, list) else ()


@dataclass(frozen=True)
class Filter:
    """Which notes their owner wants to see, by type, tag, origin and age; an empty field filters
    nothing.

    `since` and `before` are moments in UTC as they are stored: when a note was last written, or
    something said, at the earliest, and before when. `session_id` and `channel` belong to the
    origin. `due` notes have a time at which the person is reminded of them.
    """

    type: str = ""
    actor: str = ""
    material_only: bool = False
    tag: str = ""
    session_id: str = ""
    channel: str = ""
    since: str = ""
    before: str = ""
    due: bool = False

    @property
    def at_any_time(self) -> "Filter":
        """The same without `since` and `before`."""
        return replace(self, since="", before="")

    def conditions(self) -> tuple[str, tuple[str, ...]]:
        """SQL to append to other conditions on `notes`, and its arguments."""
        chosen = [" AND notes.origin_material = 1"] if self.material_only else []
        chosen += [" AND notes.due_at <> ''"] if self.due else []
        arguments: list[str] = []
        for condition, value in (
            ("notes.type = ?", self.type),
            ("notes.origin_actor = ?", self.actor),
            (_TAGGED, self.tag),
            ("notes.origin_session = ?", self.session_id),
            ("notes.origin_channel = ?", self.channel),
            ("notes.updated_at >= ?", self.since),
            ("notes.updated_at < ?", self.before),
        ):
            if value:
                chosen.append(f" AND {condition}")
                arguments.append(value)
        return "".join(chosen), tuple(arguments)


@dataclass(frozen=True)
class Only:
    """Limits a search to some notes. `session_id` is the session that searches: it never sees
    notes scoped to another session. Empty `types` means every type. Of conversations, the turn
    `asked_in` is left out, and wherever the user said `asked`, the very question; with
    `this_conversation`, they are limited to the session that searches, and notes are left out.
    Notes with `project_tag` are preferred."""

    session_id: str = ""
    types: tuple[NoteType, ...] = ()
    min_confidence: float = 0.0
    superseded: bool = False
    chosen: Filter = Filter()
    asked_in: str = ""
    asked: str = ""
    this_conversation: bool = False
    project_tag: str = ""

    @property
    def lasting(self) -> "Only":
        """The same without what is of one session or one turn."""
        return replace(self, session_id="", asked_in="", asked="")


@dataclass(frozen=True)
class SearchOutcome:
    """Search results by descending score, and warnings for the caller.

    A degraded search is never silent: `warnings` has sentences such as "semantic search is
    unavailable ...". `passing` is what ends by itself soon, a model that is loading or vectors that
    are still being made: a turn tells it to the model once, and not with every result.
    `cursor_after` gives the cursor of what follows the first so many results; empty at the end.
    """

    results: tuple[Hit, ...]
    warnings: tuple[str, ...] = ()
    passing: str = ""
    cursor_after: Callable[[int], str] = field(default=lambda _: "", compare=False, repr=False)

    @property
    def next_cursor(self) -> str:
        return self.cursor_after(len(self.results))

    @property
    def all_warnings(self) -> tuple[str, ...]:
        return (*self.warnings, self.passing) if self.passing else self.warnings


@dataclass(frozen=True)
class SaveOutcome:
    """A durable save.

    `created` is false if a note with exactly this text already existed; `note` is then that note,
    unchanged. `searchable` is "keyword" until the vector exists. `similar` holds other notes that
    say nearly the same, by descending cosine; `uncompared` means that they were not looked for,
    because the embedder is out of order.
    """

    note: Note
    created: bool
    searchable: Searchable
    similar: tuple[Hit, ...] = ()
    uncompared: bool = False


@dataclass(frozen=True)
class Updated:
    """The updated note, and similar notes as in `SaveOutcome`; none while the note's vector is
    missing."""

    note: Note
    similar: tuple[Hit, ...] = ()


@dataclass(frozen=True)
class Session:
    """One conversation. `updated_at` is the time of its last event. `archived_at` is empty
    unless it is archived. `parent_id` is the session that delegated work to it, empty if a
    person began it."""

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
    """One event of a conversation; `sequence` counts from 1.

    `payload` is JSON that restores the model's own message; `text` is what people and searches see.
    """

    sequence: int
    turn_id: str
    role: Role
    text: str
    payload: str
    created_at: str


EVENT: Final = ", ".join(each.name for each in fields(Event))
"""The columns of an event: storage, export and import read and write whatever is added there."""


@dataclass(frozen=True)
class Erasure:
    """What deleting a note would erase, and where else its text stands.

    `versions` includes the current one. `replaced` counts superseded notes that lose their
    replacement. `mentions` counts the messages in conversations that hold the note's text
    or that of an earlier version, word for word; they stay, in the sessions `mentioned_in`, latest
    first.
    """

    version: int
    versions: int
    passages: int
    replaced: int
    mentions: int
    mentioned_in: tuple[str, ...]


@dataclass(frozen=True)
class Statistics:
    """Counts for one user.

    `passages_embedded` counts vectors of `embedding_model`, or of every model while that is
    unknown; `embedding_seconds_left` is about how long the others take, 0 if nobody knows.
    `sessions` includes `archived_sessions`. `database_bytes` covers the file and its WAL. `vectors`
    counts vectors by model; those set aside have the empty name. `stored_notes` and `text_bytes`
    are what counts for the quota: superseded notes and earlier versions too. `foreign_percent` of
    the latest 200 notes are in another language than the embedding model knows, if that is the
    default one. `state` is "ready", or what is wrong with the store. While a server is away, the
    counts are those of the replica of `replica_synced_at`.
    """

    notes: int
    note_versions: int
    passages: int
    passages_embedded: int
    sessions: int
    conversation_events: int
    schema_version: int
    archived_sessions: int
    stored_notes: int
    text_bytes: int
    vectors: Mapping[str, int]
    database_bytes: int
    embedding_model: str
    store: Literal["local", "remote"] = "local"
    state: str = "ready"
    replica_synced_at: str = ""
    embedding_seconds_left: int = 0
    foreign_percent: int = 0


@dataclass(frozen=True)
class RemoteConfig:
    """A libSQL server that holds the memory of one user. It is asked through `egress`, where the
    token is put in; without one directly. `one_user`: it holds nobody else's, so that its SQL may
    reach files."""

    url: str
    auth_token: str = field(default="", repr=False)
    ca_pem: str = ""
    timeout_s: float = MemorySettings().remote_timeout_s
    first_wait_s: float = 0.1
    """How long to wait at most before a request is repeated for the first time."""
    egress: "EgressClient | None" = None
    one_user: bool = False


@dataclass(frozen=True)
class MemoryTimeouts:
    """How many seconds to wait for something slow before memory continues without it and says
    so."""

    server_s: float = 3.0
    """While opening: for the server's first answer."""
    copy_s: float = 2.0
    """During a search: until the replica is up to date."""
    own_writes_s: float = 1.0
    """After a save: until the replica holds it."""
    query_vector_s: float = 2.0
    """During a search: for the query's vector. Keyword matches are found without it."""
    rerank_s: float = 2.5
    """From the beginning of a search on: for a reranker, where there is one. Less than `turn_s`, or
    a turn would show nothing of what was found."""
    loading_s: float = 2.0
    """Once, at the first search: for an embedder that is still loading. So long a person waits
    without wondering; a model that is on the disk is mostly there by then."""
    starting_s: float = 30.0
    """From the opening on: for the process of the embedder, which counts as loading until then."""
    turn_s: float = 3.0
    """During a turn: for the memory that its prompt shows."""


@dataclass(frozen=True)
class MemoryConfig:
    """How to open one store.

    With `remote`, the memory lies on that server, and its replica in `replica.db` beside `db_path`.
    `encryption_key` applies to all database files.
    """

    db_path: str
    settings: MemorySettings = field(default_factory=MemorySettings)
    encryption_key: str = field(default="", repr=False)
    remote: RemoteConfig | None = None
    patience: MemoryTimeouts = field(default_factory=MemoryTimeouts)


def now() -> str:
    return at(datetime.now(UTC))


def is_temporary(session_id: str) -> bool:
    """Whether nothing is kept of this conversation."""
    return session_id.startswith(TEMPORARY)


def at(moment: datetime) -> str:
    """Format a UTC time as RFC 3339 with microseconds. The width is fixed, so that text order is
    time order."""
    return moment.isoformat(timespec="microseconds")[: -len("+00:00")] + "Z"


_USER_ID: Final = re.compile(USER_ID_PATTERN)


class User:
    """The owner of a memory, with the namespaces of the notes and of the conversations'
    passages. Raises `ValueError` for an invalid user id."""

    def __init__(self, user_id: str) -> None:
        if not _USER_ID.fullmatch(user_id):
            raise ValueError(f"user_id: {user_id!r} does not match {USER_ID_PATTERN}")
        self.id: Final = user_id
        self.notes: Final = f"memory:{user_id}"
        self.conversations: Final = f"conversation:{user_id}"

    @classmethod
    def of(cls, namespace: str) -> "User":
        return cls(namespace.partition(":")[2])

    @property
    def namespaces(self) -> tuple[str, str]:
        return self.notes, self.conversations
