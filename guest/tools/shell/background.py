"""Commands in the background: they outlive their turn, and a session is told once how each ended.

Each is kept with its session, before it begins: an agent that starts finds its commands again, or
tells that they ended with the shell guest. Those of another host's agent it leaves alone while that
renews them. The end is stored before it is told, with the turn that is told of it. A turn that ends
before the words are in the history has not told them: the next one does.
"""

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from wire.text import shortened, visible
from wire.v1 import shell_pb2

from guest.errors import GuestError, StorageError, ToolError
from guest.memory.conversations.sessions import RENEW_S, SessionState
from guest.memory.models import Event
from guest.memory.storage.changes import Background
from guest.notices.outbox import Outbox
from guest.tools.base import Ending, ToolContext
from guest.tools.shell.client import CONTEXT_BYTES, Command, ShellClient, readable

if TYPE_CHECKING:
    from guest.projects.watch import Watch

log = logging.getLogger(__name__)

COMMANDS_MAX: Final = 8
"""How many of a user run at once, and how many ended ones keep their output."""
_COMMAND_CHARS: Final = 200
_LAST_CHARS: Final = 800
_LAST_LINES: Final = 8
LOOK_S: Final = 5.0
"""How often the projects are looked at while a command runs."""
NOTICE_S: Final = 30.0
"""How long a turn has to be told of an end, before the person gets a notice."""
_KEPT_MAX: Final = 50
"""How many of a session are known of which nothing is to be told."""
LOAD_AGAIN_S: Final = 300.0
"""How often those of a host that does not come back are looked for."""
_LOAD_S: Final = 1.0
_AWAY: Final = "has not been heard of for ten minutes: the host that ran it is away"
_REPLACED: Final = (
    "was ended because the shell guest started anew: it was stopped, restarted or died, a "
    "project was opened or closed, or a hidden file was replaced"
)


@dataclass(eq=False)
class BackgroundCommand:
    """`number` is its id in its session; `text` is shown. `owner` is the agent that follows it.
    `ended` is what is told of its end, and `told_in` the turn that was told. It is `done` once
    nothing more is to be told."""

    number: int
    exec_id: str
    text: str
    source: str
    begun: float
    owner: str
    ended: str = ""
    told_in: str = ""
    done: bool = False

    @property
    def runs(self) -> bool:
        return not (self.ended or self.done)

    @property
    def name(self) -> str:
        """How it is told of."""
        return f"background command {self.number} `{self.text}`"

    @property
    def value(self) -> str:
        """How it is stored."""
        return "" if self.done else json.dumps(asdict(self))


@dataclass(repr=False, eq=False)
class BackgroundCommands:
    """All of one user, in one shell. `redact` takes the secrets from what a command printed.
    `owner` is this agent: the same after it was started anew."""

    shell: ShellClient
    state: SessionState
    redact: Callable[[str], str]
    watching: "Watch | None" = None
    outbox: Outbox | None = None
    owner: str = ""

    def __post_init__(self) -> None:
        self._of: dict[str, dict[int, BackgroundCommand]] = {}
        self._ended: list[BackgroundCommand] = []
        self._load_at = 0.0
        self._lock = asyncio.Lock()
        self._following = Background()
        self.close = self._following.stop
        """Stops watching them; the commands run on while the shell guest does."""

    async def start(self, context: ToolContext, command: Command, source: str) -> int:
        """Start `command` for the session, and return its id there. Raises `ToolError`."""
        await self._load()
        session = context.session_id
        text = visible(" ".join(self.redact(command.text).split()))
        text, source = shortened(text, _COMMAND_CHARS), self.redact(source)
        number, exec_id = await self._next(session), f"background-{uuid.uuid4()}"
        running = [each for of in self._of.values() for each in of.values() if each.runs]
        if len(running) >= COMMANDS_MAX:
            named = ", ".join(f"{each.number} `{each.text}`" for each in running)
            raise ToolError(
                f"{COMMANDS_MAX} commands run in the background already: {shortened(named, 400)}; "
                "end one with shell_stop"
            )
        known = self._of.setdefault(session, {})
        for old in [each.number for each in known.values() if each.done][:-_KEPT_MAX]:
            del known[old]
        started = BackgroundCommand(number, exec_id, text, source, time.time(), self.owner)
        known[number] = started  # before it is stored: nobody else takes its place, or follows it
        try:
            await self._store(session, started)
        except BaseException:
            del known[number]
            raise
        try:
            await self.shell.start(exec_id, command)
        except BaseException:
            with suppress(GuestError, StorageError):
                await self._drop(session, started)
            raise
        self._following.begin(self._follow(session, started))
        return number

    async def get(self, session_id: str, number: int) -> BackgroundCommand:
        """The command with this id. Raises `ToolError` where the session has none."""
        await self._load()
        known = self._of.get(session_id, {})
        if number not in known:
            there = ", ".join(f"{each.number} `{each.text}`" for each in known.values())
            raise ToolError(
                f"this conversation has no background command {number}; there is {there or 'none'}"
            )
        return known[number]

    async def stop(self, session_id: str, number: int) -> BackgroundCommand:
        """End a command and all that it has started; nothing more is told of it."""
        command = await self.get(session_id, number)
        if command.runs:
            try:
                await self._drop(session_id, command)
            except (GuestError, StorageError):
                command.done = False
                raise
        return command

    async def forget(self, session_id: str) -> None:
        """End all of a session that is forgotten."""
        for each in self._of.pop(session_id, {}).values():
            each.done = True
            self._following.begin(self.shell.end(each.exec_id))

    async def running(self) -> list[str]:
        await self._loaded_soon()
        return [
            f"{each.name} has run for {_lasted(time.time() - each.begun)}, in conversation {of}"
            for of, commands in self._of.items()
            for each in commands.values()
            if each.runs
        ]

    async def to_tell(
        self, session_id: str, turn_id: str, events: Iterable[Event] | None = None
    ) -> list[Ending]:
        """What a turn of the session is to be told now. At its beginning, `events` are those that
        the model sees: what another turn was told and is not in them is told again."""
        await self._loaded_soon()
        due = []
        for each in tuple(self._of.get(session_id, {}).values()):
            known = each.told_in and (events is None or each.told_in == turn_id)
            if each.runs or each.done or known:
                continue
            before, each.told_in = each.told_in, turn_id
            seen = (event for event in events or () if event.turn_id == before)
            each.done = any(f"command {each.number} `" in event.payload for event in seen)
            try:
                await self._store(session_id, each)
            except StorageError as error:
                log.warning("the end of a background command is not told: %s", error.brief)
                each.told_in, each.done = before, False
                continue
            if not each.done:
                due.append(Ending(each.ended, each.source))
        return due

    async def _follow(self, session_id: str, command: BackgroundCommand) -> None:
        told = list[str]()
        watched = self.watching.call("", told) if self.watching else nullcontext()
        async with watched:  # what changes in projects meanwhile is not the operator's
            exit_ = await self._exit(session_id, command)
        self._ended.append(command)
        while len(self._ended) > COMMANDS_MAX:
            oldest = self._ended.pop(0)
            await self.shell.release(oldest.exec_id)
        if command.done:
            return
        command.ended = await self._said(command, exit_, told)
        while True:
            try:
                await self._store(session_id, command)
                break
            except StorageError as error:
                log.warning("the end of a background command is not stored: %s", error.brief)
            await asyncio.sleep(LOOK_S)
        await self._notify(session_id, command)

    async def _notify(self, session_id: str, command: BackgroundCommand) -> None:
        """Tell the person, if no turn is told of the end soon."""
        await asyncio.sleep(NOTICE_S)
        if self.outbox is not None and not command.told_in:
            told = {"key": command.exec_id, "session_id": session_id}
            try:
                await self.outbox.add("command", command.ended, **told)
            except StorageError as error:
                log.warning("the end of a background command is not told: %s", error.brief)

    async def _drop(self, session_id: str, command: BackgroundCommand) -> None:
        """End a command of which nothing is to be told."""
        command.done = True
        await self.shell.stop(command.exec_id)
        await self._store(session_id, command)

    async def _exit(self, session_id: str, command: BackgroundCommand) -> shell_pb2.ExecExit | None:
        """Wait for the end; meanwhile look at the projects, and renew the command."""
        waiting = asyncio.ensure_future(self.shell.wait(command.exec_id))
        renewed = time.monotonic()
        try:
            while not (await asyncio.wait({waiting}, timeout=LOOK_S))[0]:
                with suppress(StorageError, OSError):
                    if self.watching is not None:
                        await self.watching.look()
                    if time.monotonic() - renewed > RENEW_S:
                        renewed = time.monotonic()
                        if not await self._store(session_id, command):  # forgotten elsewhere
                            await self.forget(session_id)
            return await waiting
        finally:
            waiting.cancel()

    async def _said(
        self, command: BackgroundCommand, exit_: shell_pb2.ExecExit | None, told: list[str]
    ) -> str:
        lasted = _lasted(exit_.duration_ms / 1000 if exit_ else time.time() - command.begun)
        if exit_ is None or exit_.cancelled:
            how, last = f"{_REPLACED}; it had run for {lasted}", ""
        else:
            how = f"ended with code {exit_.exit_code} after {lasted}"
            if exit_.timed_out:
                how = f"was stopped after {lasted}, the most that it may run"
            last = await self._last_lines(command.exec_id)
        last = f"; last lines: {last}" if last else "; it printed nothing" if exit_ else ""
        return ". ".join((f"the {command.name} {how}{last}", *told))

    async def _last_lines(self, exec_id: str) -> str:
        size = _LAST_CHARS * 4 + CONTEXT_BYTES
        try:
            there = await self.shell.read(exec_id, -1, size)
        except (GuestError, ToolError):  # the shell has just gone
            there = None
        whole = self.redact(readable(there.output.data)) if there else ""
        lines = [line.strip() for line in whole[-_LAST_CHARS:].splitlines() if line.strip()]
        return " ⏎ ".join(lines[-_LAST_LINES:])

    async def _load(self) -> None:
        """Find what an earlier agent has started, and what is no other's any more. Raises
        `StorageError`."""
        async with self._lock:
            if time.monotonic() < self._load_at:
                return
            for session, name, value, epoch, lost in await self.state.named("command %"):
                try:
                    command = BackgroundCommand(**json.loads(value))
                except (ValueError, TypeError):  # another version has written it
                    continue
                known, foreign = self._of.setdefault(session, {}), command.owner != self.owner
                if command.number in known or (foreign and not lost):
                    continue
                if foreign:
                    command.owner = self.owner
                    command.ended = command.ended or f"the {command.name} {_AWAY}"
                    if not await self.state.swap(session, name, command.value, epoch):
                        continue
                known[command.number] = command
                follow = self._follow if command.runs else self._notify
                self._following.begin(follow(session, command))
            self._load_at = time.monotonic() + LOAD_AGAIN_S

    async def _loaded_soon(self) -> None:
        """The same, but what takes long goes on beside the caller, and a failure is tried again."""
        if time.monotonic() >= self._load_at:
            await asyncio.wait({self._following.begin(self._load())}, timeout=_LOAD_S)

    async def _next(self, session_id: str) -> int:
        """A number that no command of the session has had. Raises `ToolError`."""
        number = 0

        def counted(value: str) -> str:
            nonlocal number
            number = int(value or 0) + 1
            return str(number)

        async with self._lock:  # one reply may start several
            there = await self.state.update(session_id, "commands", counted)
        if not there:
            raise ToolError("a command runs in the background of a conversation only")
        return number

    async def _store(self, session_id: str, command: BackgroundCommand) -> bool:
        """Write a command, or that it is done; False if there is no such session."""
        name = f"command {command.number}"
        return await self.state.update(session_id, name, lambda _: command.value)


def _lasted(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"
