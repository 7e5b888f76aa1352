"""Agents that are stopped and have something to do: when, and who starts them for it.

    <workspace_root>/.awake/<user_id>.json   what is due next; written by the host, and by a waker
                            serve.lock, all.lock   held by who wakes

A host keeps there what its agent says. `runner serve` and `runner start --all` wake: they start a
stopped user's host in time. A host that was started so ends by itself once nobody needs it.
"""

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from wire import locks
from wire.errors import Code, WireError
from wire.v1 import gateway_pb2

from runner.config.models import Config
from runner.config.users import known_users
from runner.host.runtime import Runtime, is_running, write_json
from runner.tiers.drivers import tier_of
from runner.workspace.directories import check_root, create_tree, descriptor

log = logging.getLogger(__name__)

DIRECTORY: Final = ".awake"
LOOK_S: Final = 10.0
STAYS: Final = timedelta(minutes=5)
"""What is due so soon is waited for, by an agent that was started."""
QUIET_LOOKS: Final = 3
SILENT_LOOKS: Final = 30
"""After so many looks at an agent that rests, or that does not answer, a woken host ends."""
AT_ONCE: Final = max(os.cpu_count() or 1, 2)
_YEARS: Final = range(2000, 9999)
"""What an agent may say; nearer to the ends of the calendar nobody can calculate."""
_LEAD: Final = timedelta(seconds=30)
"""So long before its time an agent is started, and before the one that starts in its place."""
_LEAD_MAX: Final = STAYS - timedelta(minutes=1)
_PAUSE: Final = timedelta(minutes=1)
_PAUSE_MAX: Final = timedelta(hours=1)
_PROBLEM_CHARS: Final = 500
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_WAKERS: Final = {"all": "runner start --all", "serve": "runner serve"}
"""The first that runs wakes."""


@dataclass(frozen=True)
class Due:
    """When a stopped agent has something to do next. Of starts for it: how many there were, when
    there may be another one, and why the last one failed."""

    at: datetime
    attempts: int = 0
    again_at: datetime = _LONG_AGO
    problem: str = ""

    @staticmethod
    def place(config: Config, user_id: str) -> Path:
        return config.workspace_root / DIRECTORY / f"{user_id}.json"

    @classmethod
    def load(cls, config: Config, user_id: str) -> "Due | None":
        """None if nothing is due, or what is there cannot be read."""
        try:
            content = json.loads(cls.place(config, user_id).read_bytes())
            at, again = (datetime.fromisoformat(content[name]) for name in ("at", "again_at"))
            found = cls(at, int(content["attempts"]), again, str(content["problem"]))
            return found if at.tzinfo and again.tzinfo else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def save(self, config: Config, user_id: str) -> None:
        _prepare(config)
        content = asdict(self) | {"at": self.at.isoformat(), "again_at": self.again_at.isoformat()}
        write_json(self.place(config, user_id), content)

    def tried(self, now: datetime) -> "Due":
        """The same at the beginning of another start for it."""
        pause = min(_PAUSE * 2 ** min(self.attempts, 10), _PAUSE_MAX)
        return replace(self, attempts=self.attempts + 1, again_at=now + pause, problem="")


def keep(config: Config, user_id: str, hello: gateway_pb2.HelloReply) -> None:
    """Keep when the agent has something to do next, as it has said, if it knows."""
    if not hello.knows_due:
        return
    try:
        at = datetime.fromisoformat(hello.next_due) if hello.next_due else None
        if at is not None and (at.tzinfo is None or at.year not in _YEARS):
            return
        known = Due.load(config, user_id)
        if at is None:
            forget(config, user_id)
        elif known is None or known.at != at:
            Due(at).save(config, user_id)
    except (ValueError, OSError, WireError) as error:
        log.warning("when the agent is needed next cannot be kept: %s", error)


def forget(config: Config, user_id: str) -> None:
    """Let nobody start this user's agent, until it has said again when it is needed."""
    Due.place(config, user_id).unlink(missing_ok=True)


def stay(config: Config, user_id: str) -> None:
    """Let a host that was woken run on, if one runs."""
    with suppress(FileNotFoundError):
        Runtime.locate(config, user_id).stays.touch(0o600)


def rests(hello: gateway_pb2.HelloReply, now: datetime) -> bool:
    """Whether an agent has nothing to do, now and soon."""
    if hello.in_use or not hello.knows_due:
        return False
    with suppress(ValueError, TypeError):
        return not hello.next_due or datetime.fromisoformat(hello.next_due) - now > STAYS
    return True


async def until_idle(
    ask: Callable[[], Awaitable[gateway_pb2.HelloReply | None]],
    pause: Callable[[], Awaitable[object]],
    clock: Callable[[], datetime],
) -> None:
    """Wait until an agent rests, or does not answer any more."""
    quiet = silent = 0
    while quiet < QUIET_LOOKS and silent < SILENT_LOOKS:
        await pause()
        hello = await ask()
        silent = silent + 1 if hello is None else 0
        quiet = quiet + 1 if hello is not None and rests(hello, clock()) else 0


def waker_of(config: Config) -> str:
    """The command that runs and wakes; empty: none does."""
    return next((_WAKERS[name] for name in _WAKERS if _held(config, name)), "")


def described(config: Config, user_id: str) -> dict[str, str]:
    """When a stopped user's agent is needed next, who starts it then, and why that failed last."""
    if (due := Due.load(config, user_id)) is None:
        return {"next_due": "", "started_by": "", "problem": ""}
    at = due.at.isoformat()
    return {"next_due": at, "started_by": waker_of(config), "problem": due.problem}


def _held(config: Config, name: str) -> bool:
    with suppress(OSError), descriptor(_lock(config, name), os.O_RDONLY) as lock:
        return not locks.take(lock, shared=True)
    return False


def _lock(config: Config, name: str) -> Path:
    return config.workspace_root / DIRECTORY / f"{name}.lock"


def _prepare(config: Config) -> None:
    check_root(config.workspace_root, private=False)
    create_tree(config.workspace_root, (DIRECTORY,))


@dataclass(eq=False)
class Waker:
    """Starts stopped users' hosts in time for what is due, soonest first. `name` is one of those
    that wake; `load` gives the settings as they are now; `start` starts a user's host, which ends
    by itself. It blocks, and raises `WireError`."""

    name: str
    load: Callable[[], Config]
    start: Callable[[str], object]
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    at_once: int = AT_ONCE

    def __post_init__(self) -> None:
        self.starts: dict[str, asyncio.Task[None]] = {}
        """Those that are on."""
        self._rest: dict[str, datetime] = {}  # what an agent says anew starts it no sooner
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Wake until it is cancelled. A start that is on then goes on."""
        config, problem = self.load(), ""
        _prepare(config)
        with descriptor(_lock(config, self.name), os.O_RDWR | os.O_CREAT) as lock:
            while True:
                self._ended.clear()
                try:
                    if locks.take(lock) and self._is_first(config):
                        await self.look()
                    problem = ""
                except (WireError, OSError) as error:
                    if str(error) != problem:
                        log.warning("nobody can be woken now: %s", error)
                    problem = str(error)
                except Exception:
                    log.exception("looking at what is due failed")
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ended.wait(), LOOK_S)

    def _is_first(self, config: Config) -> bool:
        before = list(_WAKERS)[: list(_WAKERS).index(self.name)]
        return not any(_held(config, name) for name in before)

    async def look(self) -> None:
        """Begin to start those whose time comes. Raises `WireError` if none can be started."""
        config = await asyncio.to_thread(self.load)
        try:
            await tier_of(config).require_active(config)
        except WireError:
            return  # another replica wakes
        waiting = await asyncio.to_thread(self._waiting, config)
        begins: list[datetime] = []  # of the last one first
        for place, (_, due) in enumerate(reversed(waiting)):
            latest = due.at - _LEAD
            if place >= self.at_once:
                latest = min(latest, begins[place - self.at_once] - _LEAD)
            begins.append(max(latest, due.at - _LEAD_MAX))
        for (user_id, due), begin in zip(waiting, reversed(begins), strict=True):
            if len(self.starts) < self.at_once and begin <= self.clock():
                waking = self._wake(config, user_id, due)
                self.starts[user_id] = asyncio.create_task(waking, name=f"wake {user_id}")

    def _waiting(self, config: Config) -> list[tuple[str, Due]]:
        found = []
        for user_id in set(known_users(config)) - self.starts.keys():
            due = Due.load(config, user_id)
            rest = self._rest.get(user_id, _LONG_AGO)
            if due is None or (due.again_at if due.attempts else rest) > self.clock():
                continue
            if not is_running(config, user_id):
                found.append((user_id, due))
        return sorted(found, key=lambda each: each[1].at)

    async def _wake(self, config: Config, user_id: str, due: Due) -> None:
        tried = due.tried(self.clock())
        try:
            tried.save(config, user_id)
            self._rest[user_id] = self.clock() + STAYS
            await asyncio.to_thread(self.start, user_id)
            log.info("the agent of %s runs for what is due at %s", user_id, f"{due.at:%F %T} UTC")
        except (WireError, OSError) as error:
            if isinstance(error, WireError) and error.code is Code.ALREADY_EXISTS:
                return  # somebody else has started it
            log.error("the agent of %s cannot be started for %s: %s", user_id, due.at, error)
            if Due.load(config, user_id) == tried:
                replace(tried, problem=str(error)[:_PROBLEM_CHARS]).save(config, user_id)
        finally:
            del self.starts[user_id]
            self._ended.set()
