"""The guest that faults are made on: it uses memory and says what it does, until killed.

Before each change it writes what it is about to do, and afterwards that it is done
or how it failed. Every line is one JSON object.
"""

import asyncio
import itertools
import json
import logging
import os
import random
import signal
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from guest.embedding.backends import Embedder
from guest.embedding.client import RemoteEmbedder
from guest.errors import StorageError
from guest.memory.factory import open_file, open_remote, prepare
from guest.memory.memory import Memory
from guest.memory.models import Details, MemoryConfig
from guest.memory.notes.keyed import Mode
from tests.support import parties
from tests.support.memory.migrations import LATER
from tests.support.memory.store import ORIGIN, FakeEmbedder

USER: Final = "alice"
WORK: Final = {
    "notes": (
        *("save", "save", "remember", "update", "update", "delete"),
        *("write", "write", "write", "clear", "supersede", "undo", "undo"),
    ),
    "sessions": (
        *("append", "append", "append", "append", "begin", "save", "forget"),
        *("remember here", "remember here"),
    ),
    "import": ("import",),
    "both": (
        *("save", "remember", "update", "delete", "append", "append", "begin", "forget"),
        *("write", "write", "clear", "supersede", "undo", "remember here"),
    ),
}
_OPEN: Final = (
    "not known",
    " is updated;",
    " is deleted;",
    " is current again;",
    "what was to be forgotten is;",
    "what was said is stored;",
)
"""Parts of errors that do not say that nothing has happened."""
_AFTER_FAILURE_S: Final = 0.005


@dataclass(frozen=True)
class Task:
    """One life of a guest. `notes`, `superseded` and `sessions` are those it may change, and
    `keys` the names of others; `embedder` is a socket, or the model of one within the
    worker; `source` are lines to import."""

    config: MemoryConfig
    work: str
    seed: int
    notes: Sequence[str] = ()
    superseded: Sequence[str] = ()
    keys: Sequence[str] = ()
    sessions: Sequence[str] = ()
    embedder: str = "fake"
    source: bytes = b""


def run(task: Task, descriptor: int) -> None:
    """Do what the task says until killed, and write the lines to `descriptor`."""
    asyncio.run(_Worker(task, descriptor).live())


class _Worker:
    def __init__(self, task: Task, descriptor: int) -> None:
        self._task = task
        self._descriptor = descriptor
        self._chance = random.Random(task.seed)
        self._notes = list(task.notes)
        self._superseded = list(task.superseded)
        self._keys = list(task.keys)
        self._sessions = list(task.sessions)

    async def live(self) -> None:
        """Work until killed, or until SIGTERM asks to end what is begun."""
        logging.disable(logging.CRITICAL)
        asked = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
        if self._task.work == "migration":
            await self._migrate()
            await asked.wait()
            return
        embedder = self._embedder()
        self._say(will="open")
        memory = await Memory.open(self._task.config, embedder, USER)
        self._say(did="open")
        for number in itertools.count():
            action = self._chance.choice(WORK[self._task.work])
            try:
                await self._do(memory, action, number)
            except StorageError as error:
                self._say(failed=str(error), known=not any(map(error.brief.count, _OPEN)))
                await asyncio.sleep(_AFTER_FAILURE_S)
            if asked.is_set():
                break
        await memory.close()
        await embedder.close()
        self._say(did="end")

    async def _migrate(self) -> None:
        config = self._task.config
        self._say(will="open")
        if config.remote is None:
            database = await open_file(config, LATER)
        else:
            database = await open_remote(config.remote)
            await prepare(database, LATER)
        self._say(did="open")
        await database.close()

    async def _do(self, memory: Memory, action: str, number: int) -> None:
        """One change. What it changes is forgotten first: a change that fails leaves it in
        a state that is not known here."""
        match action:
            case "update" | "delete" | "undo" | "supersede" if self._notes:
                await self._change(memory, action, self._text(number))
            case "write":
                await self._write(memory, self._text(number))
            case "clear" if self._keys:
                key = self._take(self._keys)
                self._say(will="clear", key=key)
                assert await memory.keyed.clear(key)
                self._say(did="clear")
            case "begin" | "append" | "forget":
                await self._converse(memory, action, self._text(number), number)
            case "import":
                self._say(will="import")
                await memory.importer().feed(self._task.source)
                self._say(did="import")
            case _:
                await self._save(memory, action, self._text(number))

    async def _save(self, memory: Memory, action: str, text: str) -> None:
        details = Details()
        if action.startswith("remember"):
            scope = (
                self._chance.choice(self._sessions) if "here" in action and self._sessions else ""
            )
            details = Details(type="decision", rationale="so it was", scope_session=scope)
        known = {"type": details.type, "scope": details.scope_session}
        self._say(will="save", text=text, **known)
        note = (await memory.save(text, [], ORIGIN, details)).note
        if not details.scope_session:
            self._notes.append(note.note_id)
        self._say(did="save", id=note.note_id)

    async def _change(self, memory: Memory, action: str, text: str) -> None:
        revive = action == "undo" and self._superseded and self._chance.random() < 0.5
        note_id = self._take(self._superseded if revive else self._notes)
        match action:
            case "update":
                self._say(will="update", id=note_id, text=text)
                note = (await memory.update(note_id, text, None, ORIGIN)).note
                self._notes.append(note_id)
                self._say(did="update", version=note.version)
            case "delete":
                self._say(will="delete", id=note_id)
                await memory.delete(note_id)
                self._say(did="delete")
            case "undo":
                self._say(will="undo", id=note_id)
                undone = await memory.history.undo(note_id, may_forget=True)
                if undone.note is not None:
                    self._notes.append(note_id)
                self._say(did="undo", version=undone.note.version if undone.note else 0)
            case "supersede":
                by = self._chance.choice(["", *self._notes])
                self._say(will="supersede", id=note_id, by=by)
                await memory.typed.supersede(note_id, reason="it is so", replacement_id=by)
                self._superseded.append(note_id)
                self._say(did="supersede")

    async def _write(self, memory: Memory, text: str) -> None:
        fresh = not self._keys or self._chance.random() < 0.2
        key = f"plan-{self._chance.getrandbits(64)}" if fresh else self._take(self._keys)
        mode: Mode = self._chance.choice(["replace", "append", "append"])
        text = text.split(". ")[0] + "."
        self._say(will="write", key=key, mode=mode, text=text)
        note = await memory.keyed.write(key, text, mode, ORIGIN)
        self._keys.append(key)
        self._say(did="write", id=note.note_id, version=note.version)

    async def _converse(self, memory: Memory, action: str, text: str, number: int) -> None:
        match action if self._sessions else "begin":
            case "begin":
                session_id = f"session-{uuid.UUID(int=self._chance.getrandbits(128))}"
                self._say(will="begin", session=session_id)
                await memory.conversations.create(session_id)
                stored = not memory.conversations.unstored(session_id)
                self._end("begin", self._sessions, session_id, stored=stored)
            case "append":
                session_id = self._take(self._sessions)
                self._say(will="append", session=session_id, text=text)
                sequence = await memory.conversations.append(
                    session_id, turn_id=f"t{number}", role="user", text=text, payload="[]"
                )
                self._end("append", self._sessions, session_id, stored=sequence > 0)
            case "forget":
                session_id = self._take(self._sessions)
                self._say(will="forget", session=session_id)
                await memory.sessions.forget(session_id)
                self._say(did="forget")

    def _end(self, did: str, keys: list[str], key: str, *, stored: bool) -> None:
        if stored:
            keys.append(key)
            self._say(did=did)
        else:
            self._say(failed="it waits for the server", known=False)

    def _take(self, keys: list[str]) -> str:
        return keys.pop(self._chance.randrange(len(keys)))

    def _embedder(self) -> Embedder:
        name = self._task.embedder
        if name.startswith("unix:"):
            return RemoteEmbedder(parties.embedder(name, "token"))
        embedder = FakeEmbedder(name)
        embedder.delay_s = self._chance.choice([0, 0.001, 0.02])
        return embedder

    def _say(self, **line: Any) -> None:
        os.write(self._descriptor, json.dumps(line).encode() + b"\n")

    def _text(self, number: int) -> str:
        """A text like no other."""
        words = self._chance.choices(["tea", "quartz", "violin", "harbor", "zebra"], k=40)
        repeated = " ".join(f"{word.capitalize()} comes {i}." for i, word in enumerate(words))
        mark = f"Note {number} of {self._chance.getrandbits(64)}."
        return f"{mark} {repeated * self._chance.choice([0, 1, 3])}".strip()
