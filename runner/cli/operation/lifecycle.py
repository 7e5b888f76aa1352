"""Starting, restarting and stopping hosts, one user's or all, in this terminal or behind it.

Every user has a separate runner process, so a failure affects one user only.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import typer
from wire.errors import Code, WireError

from runner.cli.agent import connect_if_running, host_runs
from runner.cli.operation.launching import HostSpawner, Launched, waking
from runner.cli.operation.status import show_summary, when_due
from runner.cli.options import Options
from runner.cli.output import plain_console
from runner.config.models import Config
from runner.config.users import known_users
from runner.errors import HostError
from runner.host.awake import Due, forget, stay, waker_of
from runner.host.runtime import LastStart, Runtime, host_lock, is_running, lock_holder
from runner.tiers.drivers import driver_for, tier_of
from runner.workspace.workspace import Workspace

if TYPE_CHECKING:
    from runner.host.host import Host

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_S: Final = 2.0
_AGAIN_S: Final = 30.0
"""How long after a failed start a user of a cluster is started again."""
_LEAVE_S: Final = 15.0
"""How long a host may take to leave its guests to the next one."""


async def run_in_foreground(options: Options, config: Config) -> int:
    """Run the host until Ctrl-C, a signal or `runner stop`. Returns the exit code."""

    async def ready(host: "Host") -> None:
        show_summary(host, options, await host.all_notices())
        _show_warnings()

    return await _host(options, config, ready)


def run_detached(options: Options, notify_fd: int, *, woken: bool = False) -> int:
    """Run the host in the background; tells `notify_fd` when it is ready, or why it is not."""
    with os.fdopen(notify_fd, "w", encoding="utf-8") as pipe:

        async def ready(host: "Host") -> None:
            no_shell = [f"no shell: {host.no_shell}"] if host.no_shell else []
            notices = [*no_shell, *await host.all_notices()]
            gone = (BrokenPipeError,) if woken else ()  # it is needed though its waker was killed
            with contextlib.suppress(*gone):
                json.dump({"pid": os.getpid(), "notices": notices}, pipe)
                pipe.close()
            _output_to(Runtime.locate(config, options.user_id))

        try:
            config = options.load_for_hosting()
            return asyncio.run(_host(options, config, ready, woken=woken))
        except WireError as error:
            if pipe.closed:
                raise
            json.dump({"error": error.fields()}, pipe)
            return 1


def tell(options: Options, launched: Launched, *, stays: bool = True) -> None:
    """Say that a host was started. `stays` says whether the host goes on when this command ends."""
    where = "running in the background" if stays else "running"
    typer.echo(f"{where}, pid {launched.pid}")
    for notice in launched.notices:
        plain_console().print(f"note: {options.mended(notice)}")
    typer.echo(f"  chat  {options.command('chat')}")
    typer.echo(f"  stop  {options.command('stop')}")


async def stop(options: Options, *, for_good: bool = False) -> None:
    """Stop the host; if none runs, remove what a killed one left. One that is stopped `for_good` is
    not started for what is due. Idempotent."""
    for line in await _stop(options, for_good=for_good):
        typer.echo(line)


async def _stop(options: Options, *, for_good: bool = False) -> list[str]:
    """See `stop`. Returns what is to be told."""
    config = options.load()
    if (control := await connect_if_running(config, options.user_id)) is None:
        notices = await _clear(config, options.user_id)
        told = [*(f"note: {notice}" for notice in notices), "not running"]
    else:
        async with control:
            await control.stop()
        told = ["stopped"]
    if for_good:
        forget(config, options.user_id)
        told.append("nobody starts it for what is due")
    elif due := when_due(options, config):
        keep = f"; to keep it stopped: {options.command('stop', '--for-good')}"
        told.append(due + (keep if waker_of(config) else ""))
    return told


async def _clear(config: Config, user_id: str) -> list[str]:
    runtime = Runtime.locate(config, user_id)
    if not runtime.directory.exists():
        return []
    from runner.host.removal import clear_leftovers

    if last := LastStart.load(runtime):
        config = config.model_copy(update={"tier": last.tier})
    workspace = Workspace.locate(config, user_id)
    with host_lock(runtime.lock), workspace.held():
        return await clear_leftovers(runtime, workspace, driver_for(config), config)


async def _host(
    options: Options,
    config: Config,
    ready: Callable[["Host"], Awaitable[None]],
    *,
    woken: bool = False,
) -> int:
    from runner.host.host import Host

    await tier_of(config).require_active(config)
    host = Host(config, options.user_id, reload=options.load_for_hosting, woken=woken)
    with at_first_signal(host.request_leave, _STOP_SIGNALS) as received:
        try:
            await host.start()
        except HostError as error:
            if error.code is Code.CANCELLED and received:
                return _exit_code(received)
            raise
        try:
            await ready(host)
            await host.wait_stopped()
        finally:
            await host.stop()
    return _exit_code(received)


def _exit_code(received: list[int]) -> int:
    """130 for Ctrl-C, as shells expect; 0 for a service manager's SIGTERM."""
    return 130 if received[:1] == [signal.SIGINT] else 0


def _show_warnings() -> None:
    """Show warnings about guests in the terminal while the host runs there."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logging.getLogger("runner").addHandler(handler)


def _output_to(runtime: Runtime) -> None:
    """Send all further output to the host's log."""
    with contextlib.suppress(OSError):
        fd = os.open(runtime.log, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        os.close(fd)


async def start_all(
    options: Options,
    *,
    detach: bool,
    server: AbstractAsyncContextManager[object] | None = None,
) -> int:
    """Start the hosts of all users, as many at once as there are cores. A failed start is reported,
    and the others go on.

    Without `detach`, stay, restart hosts that were killed, and stop all on a signal; one while they
    start lets the hosts in hand come up first. A `server` is run meanwhile. In a cluster, wait
    first until this runner is the active one, and at the end leave guests to the next one. Returns
    1 if a user could not be started or stopped, or if another runner has become the active one; 130
    for Ctrl-C, else 0.
    """
    config = options.load_for_hosting()
    users = known_users(config)
    if not users:
        raise HostError(
            Code.FAILED_PRECONDITION,
            "there are no users to start",
            details=f"no workspace in {config.workspace_root} and no [users.<id>] section",
            resolution=replace(options, user_id="alice").command("start"),
        )
    ended = asyncio.Event()
    async with AsyncExitStack() as stack:
        received = stack.enter_context(at_first_signal(ended.set, _STOP_SIGNALS))
        tier, serves = tier_of(config), server is not None
        leads = tier.replicas and not detach
        if leads and not await tier.lead(config, stack, ended, typer.echo, serves=serves):
            return _exit_code(received)
        if server is not None:
            await stack.enter_async_context(server)
        typer.echo(f"starting {', '.join(users)}")

        nursery = stack.enter_context(HostSpawner(options))

        down: set[str] = set()

        async def start(user_id: str) -> bool:
            down.add(user_id)
            started = ended.is_set() or await _start_one(
                config, options, user_id, nursery, stays=detach
            )
            down.discard(user_id)
            return started

        failed = await _each(options, users, start)
        if server is None and (config.access.socket or config.access.listen):
            typer.echo(f"to let people with tokens in: {options.command('serve')}")
        if not detach:
            again = down if leads else set()
            async with waking(options, "all"):
                await _stay(config, options, users, ended, start, again)
            failed = len(down) if leads else failed
            failed += await (leave_all(config, users) if leads else stop_all(options))
            failed += leads and not received  # another runner is the active one
    return 1 if failed else _exit_code(received)


async def leave_all(config: Config, users: Sequence[str]) -> int:
    """End all hosts, leave guests to the next runner; returns how many had to be killed."""

    async def leave(user_id: str) -> bool:
        lock = Runtime.locate(config, user_id).lock
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                if (holder := lock_holder(lock)) is None:
                    return number is signal.SIGTERM
                os.kill(holder.pid, number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LEAVE_S):
                    while lock_holder(lock) is not None:  # noqa: ASYNC110 - another process holds it
                        await asyncio.sleep(_LOOK_S / 20)
                    return number is signal.SIGTERM
        return False

    return (await asyncio.gather(*map(leave, users))).count(False)


async def stop_all(options: Options, *, for_good: bool = False) -> int:
    """Stop the hosts of all users, as many at once as there are cores. A failure is reported, and
    the others go on. Idempotent. Returns 1 if a host could not be stopped, else 0."""

    async def stop_one(user_id: str) -> bool:
        for line in await _stop(replace(options, user_id=user_id), for_good=for_good):
            typer.echo(f"{user_id}: {line}")
        return True

    return 1 if await _each(options, known_users(options.load()), stop_one) else 0


async def restart_all(options: Options, role: str) -> int:
    """Restart the guest `role`, or ("") all, of all users whose hosts run. A failure is reported,
    and the others go on. Returns 1 if a guest could not be restarted, else 0."""
    config = options.load()

    async def restart_one(user_id: str) -> bool:
        if (control := await connect_if_running(config, user_id)) is not None:
            async with control:
                await control.restart(role)
        typer.echo(f"{user_id}: {'not running' if control is None else 'restarted'}")
        return True

    return 1 if await _each(options, known_users(config), restart_one) else 0


async def _each(
    options: Options, users: Sequence[str], step: Callable[[str], Awaitable[bool]]
) -> int:
    """Do `step` for all users, as many at once as there are cores, whatever becomes of the others.
    A failure is told, with what mends it for that user; returns how many failed."""
    at_once = asyncio.Semaphore(os.cpu_count() or 1)

    async def one(user_id: str) -> bool:
        async with at_once:
            try:
                return await step(user_id)
            except WireError as error:
                error.resolution = replace(options, user_id=user_id).mended(error.resolution)
                typer.echo(f"{user_id}: {error}", err=True)
            except Exception as error:
                typer.echo(f"{user_id}: {type(error).__name__}: {error}", err=True)
            return False

    return (await asyncio.gather(*map(one, users))).count(False)


async def _start_one(
    config: Config, options: Options, user_id: str, nursery: HostSpawner, *, stays: bool
) -> bool:
    """Start a user's host unless it runs, and tell about it. Raises what the launch raises."""
    if await host_runs(config, user_id):
        stay(config, user_id)
        typer.echo(f"{user_id}: runs already")
        return True
    whose = replace(options, user_id=user_id)
    launched = await asyncio.to_thread(nursery.launch, whose)
    typer.echo(f"{user_id}: ", nl=False)
    tell(whose, launched, stays=stays)
    return True


async def _stay(
    config: Config,
    options: Options,
    users: Sequence[str],
    ended: asyncio.Event,
    start: Callable[[str], Awaitable[bool]],
    again: set[str],
) -> None:
    """Wait until `ended`, or until all hosts were stopped and nothing is due. Those of `again`,
    which a failed start adds to and a good one takes from, are tried again from time to time.

    A host that was killed leaves its control token behind; one that was stopped does not.
    """
    loop = asyncio.get_running_loop()
    next_try = loop.time() + _AGAIN_S
    while not ended.is_set():
        idle = [user_id for user_id in users if not is_running(config, user_id)]
        killed = [each for each in idle if Runtime.locate(config, each).token.exists()]
        for user_id in killed:
            typer.echo(f"{user_id}: the host was killed and is started again", err=True)
        due = sorted(again - {*killed}) if loop.time() >= next_try else []
        if due:
            next_try = loop.time() + _AGAIN_S
        await _each(options, [*killed, *due], start)
        waits = any(Due.load(config, each) for each in users)
        if len(idle) == len(users) and not (killed or again or waits):
            return
        try:
            async with asyncio.timeout(_LOOK_S):
                await ended.wait()
        except TimeoutError:
            continue


@contextmanager
def at_first_signal(
    end: Callable[[], object], numbers: Iterable[signal.Signals]
) -> Iterator[list[int]]:
    """Call `end` at the first of these signals; yields all that were received. Later ones are
    ignored, because an end takes only seconds."""
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def note(number: int) -> None:
        if not received:
            end()
        received.append(number)

    for number in numbers:
        loop.add_signal_handler(number, note, number)
    try:
        yield received
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
