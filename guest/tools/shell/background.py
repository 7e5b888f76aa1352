"""Commands in the background: they outlive their turn, and a session is told once how each ended.

What a session has started is kept with it, before the command begins: an agent that starts finds
its commands again, or tells that they ended with the shell guest; those of another host's agent it
leaves alone. The end is stored before it is
told, with the turn that is told of it. A turn that ends before the words are in the history has
not told them: the next one does.
"""

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from wire.text import shortened, visible
from wire.v1 import shell_pb2

from guest.errors import GuestError, StorageError, ToolError
from guest.memory.conversations.sessions import SessionState
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
_STATE: Final = "background_commands"
_COMMAND_CHARS: Final = 200
_LAST_CHARS: Final = 800
_LAST_LINES: Final = 8
LOOK_S: Final = 5.0
"""How often the projects are looked at while a command runs."""
NOTICE_S: Final = 30.0
"""How long a turn has to be told of an end, before the person gets a notice."""
_KEPT_MAX: Final = 50
"""How many ended ones of a session are known."""
_LOAD_S: Final = 1.0
_REPLACED: Final = (
    "was ended because the shell guest started anew: it was restarted or died, a project was "
    "opened or closed, or a hidden file was replaced"
)


@dataclass(eq=False)
class BackgroundCommand:
    """`number` is its id in its session; `text` is shown. `ended` is what is told of its end, and
    `told_in` the turn that was told. It is `done` once nothing more is to be told."""

    number: int
    exec_id: str
    text: str
    source: str
    begun: float
    ended: str = ""
    told_in: str = ""
    done: bool = False
    owner: str = ""

    @property
    def runs(self) -> bool:
        return not (self.ended or self.done)

    @property
    def name(self) -> str:
        """How it begins what is told of it, and as it is found in a turn's events."""
        return f"background command {self.number} `"


class BackgroundCommands:
    """All of one user, in one shell. `redact` takes the secrets from what a command printed.
    `owner` is this agent: the same after it was started anew."""

    def __init__(
        self,
        shell: ShellClient,
        state: SessionState,
        redact: Callable[[str], str],
        watching: "Watch | None" = None,
        outbox: Outbox | None = None,
        owner: str = "",
    ) -> None:
        self._owner = owner
        self._shell = shell
        self._state = state
        self._redact = redact
        self._watching = watching
        self._outbox = outbox
        self._of: dict[str, list[BackgroundCommand]] = {}
        self._ended: list[BackgroundCommand] = []
        self._loaded = False
        self._lock = asyncio.Lock()
        self._following = Background()

    async def close(self) -> None:
        """Stop watching them; they run on while the shell guest does."""
        await self._following.stop()

    async def start(self, context: ToolContext, command: Command, source: str) -> int:
        """Start `command` for the session, and return its id there. Raises `ToolError`."""
        await self._load()
        running = [each for one in self._of.values() for each in one if each.runs]
        if len(running) >= COMMANDS_MAX:
            named = ", ".join(f"{each.number} `{each.text}`" for each in running)
            raise ToolError(
                f"{COMMANDS_MAX} commands run in the background already: {shortened(named, 400)}; "
                "end one with shell_stop"
            )
        session = context.session_id
        text = visible(" ".join(self._redact(command.text).split()))
        text, source = shortened(text, _COMMAND_CHARS), self._redact(source)
        exec_id = f"background-{uuid.uuid4()}"
        async with self._lock:
            number = await self._last(session) + 1
            started = BackgroundCommand(
                *(number, exec_id, text, source, time.time()), owner=self._owner
            )
            self._of.setdefault(session, []).append(started)
            if not await self._store(session, number):
                self._of[session].remove(started)
                raise ToolError("a command runs in the background of a conversation only")
        try:
            await self._shell.start(exec_id, command)
        except BaseException:
            with suppress(GuestError, StorageError):
                await self._drop(session, started)
            raise
        self._following.begin(self._follow(session, started))
        return number

    async def get(self, session_id: str, number: int) -> BackgroundCommand:
        """The command with this id. Raises `ToolError` where the session has none."""
        await self._load()
        known = {each.number: each for each in self._of.get(session_id, ())}
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
        for each in self._of.pop(session_id, []):
            each.done = True
            self._following.begin(self._shell.end(each.exec_id))

    async def running(self) -> list[str]:
        """A line of each that runs."""
        await self._loaded_soon()
        return [
            f"background command {each.number} `{each.text}` has run for "
            f"{_lasted(time.time() - each.begun)}, in conversation {session}"
            for session, commands in self._of.items()
            for each in commands
            if each.runs
        ]

    async def to_tell(
        self, session_id: str, turn_id: str, events: Iterable[Event] | None = None
    ) -> list[Ending]:
        """What a turn of the session is to be told now. At its beginning, `events` are those that
        the model sees: what another turn was told and is not in them is told again."""
        await self._loaded_soon()
        commands = [each for each in self._of.get(session_id, ()) if each.ended and not each.done]
        if not commands:
            return []
        async with self._lock:
            due = []
            for each in commands:
                if not each.told_in:
                    due.append(each)
                elif events is not None and each.told_in != turn_id:
                    seen = (event for event in events if event.turn_id == each.told_in)
                    if any(each.name in event.payload for event in seen):
                        each.done = True
                    else:
                        due.append(each)
            for each in due:
                each.told_in = turn_id
            try:
                await self._store(session_id)
            except StorageError as error:
                log.warning("the end of a background command is not told: %s", error.brief)
                for each in due:
                    each.told_in = ""
                return []
        return [Ending(each.ended, each.source) for each in due]

    async def _follow(self, session_id: str, command: BackgroundCommand) -> None:
        told = list[str]()
        async with self._watched(told):
            exit_ = await self._shell.wait(command.exec_id)
        self._ended.append(command)
        while len(self._ended) > COMMANDS_MAX:
            oldest = self._ended.pop(0)
            await self._shell.release(oldest.exec_id)
        if command.done:
            return
        command.ended = await self._said(command, exit_, told)
        while True:
            try:
                async with self._lock:
                    await self._store(session_id)
                break
            except StorageError as error:
                log.warning("the end of a background command is not stored: %s", error.brief)
            await asyncio.sleep(LOOK_S)
        await self._notify(session_id, command)

    async def _notify(self, session_id: str, command: BackgroundCommand) -> None:
        """Tell the person, if no turn is told of the end soon."""
        await asyncio.sleep(NOTICE_S)
        if self._outbox is not None and not command.told_in:
            told = {"key": command.exec_id, "session_id": session_id}
            try:
                await self._outbox.add("command", command.ended, **told)
            except StorageError as error:
                log.warning("the end of a background command is not told: %s", error.brief)

    async def _drop(self, session_id: str, command: BackgroundCommand) -> None:
        """End a command of which nothing is to be told."""
        command.done = True
        await self._shell.stop(command.exec_id)
        async with self._lock:
            await self._store(session_id)

    @asynccontextmanager
    async def _watched(self, told: list[str]) -> AsyncIterator[None]:
        """Watch the projects: what changes in them meanwhile is not the operator's."""
        if self._watching is None:
            yield
            return
        async with self._watching.call("", told):
            looking = asyncio.create_task(self._look(self._watching))
            try:
                yield
            finally:
                looking.cancel()

    @staticmethod
    async def _look(watching: "Watch") -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await watching.look()

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
        return ". ".join((f"the {command.name}{command.text}` {how}{last}", *told))

    async def _last_lines(self, exec_id: str) -> str:
        size = _LAST_CHARS * 4 + CONTEXT_BYTES
        try:
            there = await self._shell.read(exec_id, -1, size)
        except (GuestError, ToolError):  # the shell has just gone
            there = None
        whole = self._redact(readable(there.output.data)) if there else ""
        lines = [line.strip() for line in whole[-_LAST_CHARS:].splitlines() if line.strip()]
        return " ⏎ ".join(lines[-_LAST_LINES:])

    async def _load(self) -> None:
        """Find what an earlier agent has started. Raises `StorageError`."""
        async with self._lock:
            if self._loaded:
                return
            for session, value in await self._state.named(_STATE):
                with suppress(ValueError, TypeError, KeyError):  # another version has written it
                    kept = [BackgroundCommand(**each) for each in json.loads(value)["commands"]]
                    self._of[session] = [each for each in kept if not self._foreign(each.owner)]
            self._loaded = True
            for session, commands in self._of.items():
                for each in commands:
                    if each.runs:
                        self._following.begin(self._follow(session, each))
                    elif not each.told_in:
                        self._following.begin(self._notify(session, each))

    async def _loaded_soon(self) -> None:
        """The same, but what takes long goes on beside the caller, and a failure is tried again."""
        if not self._loaded:
            await asyncio.wait({self._following.begin(self._load())}, timeout=_LOAD_S)

    def _foreign(self, owner: str | None) -> bool:
        return bool(owner) and owner != self._owner

    async def _last(self, session_id: str) -> int:
        stored = await self._state.read(session_id, _STATE)
        return int(json.loads(stored[0])["last"]) if stored else 0

    async def _store(self, session_id: str, last: int = 0) -> bool:
        """Write what a session has; False if there is no such session."""
        known = self._of.get(session_id, [])
        for each in [each for each in known if not each.runs][:-_KEPT_MAX]:
            known.remove(each)
        own = [asdict(each) for each in known if not each.done]

        def merged(value: str) -> str:
            there = json.loads(value or "{}")
            kept = there.get("commands", ())
            others = [each for each in kept if self._foreign(each.get("owner"))]
            return json.dumps({"last": max(last, there.get("last", 0)), "commands": others + own})

        return await self._state.update(session_id, _STATE, merged)


def _lasted(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"
