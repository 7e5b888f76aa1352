"""Starting, stopping and restarting a host, in this terminal or in the background."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

import typer
from wire.errors import Code, WireError

from runner.cli.options import Options
from runner.cli.status import show_summary
from runner.config.models import Config
from runner.errors import HostError
from runner.host.cleanup import clear_leftovers
from runner.host.control import connect_control
from runner.host.host import Host
from runner.host.runtime import Runtime, host_lock
from runner.tiers.drivers import driver_for
from runner.workspace.workspace import Workspace

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run_in_foreground(options: Options, config: Config) -> int:
    """Run the host until Ctrl-C, a signal or `runner stop`. Returns the exit code."""

    async def ready(host: Host) -> None:
        show_summary(host, options)
        _show_warnings()

    return await _host(options, config, ready)


def run_detached(options: Options, notify_fd: int) -> int:
    """Run the host in the background. Tells `notify_fd` when it is ready, or why it is not."""
    with os.fdopen(notify_fd, "w", encoding="utf-8") as pipe:

        async def ready(host: Host) -> None:
            no_shell = [f"no shell: {host.no_shell}"] if host.no_shell else []
            json.dump({"pid": os.getpid(), "notices": [*no_shell, *host.notices]}, pipe)
            pipe.close()
            _output_to(Runtime.locate(config, options.user_id))

        try:
            config = options.load_for_hosting()
            return asyncio.run(_host(options, config, ready))
        except WireError as error:
            if pipe.closed:
                raise
            json.dump({"error": error.fields()}, pipe)
            return 1


def start_detached(options: Options) -> None:
    """Start a host in the background; return when its agent answers.

    Raises the `WireError` that kept it from starting.
    """
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="utf-8") as pipe, tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen(  # noqa: S603 - this very program
            options.child("start", "--notify-fd", str(writing)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[writing],
            start_new_session=True,
        )
        os.close(writing)
        try:
            told = pipe.read()
        except KeyboardInterrupt:
            child.terminate()
            child.wait()
            raise
        if not told:
            output.seek(0)
            raise HostError(
                Code.INTERNAL,
                f"the host ended with status {child.wait()} before it was ready",
                details=output.read()[-2000:].strip(),
                resolution=options.command("logs", "--role", "host"),
            )
    content = json.loads(told)
    if "error" in content:
        child.wait()
        raise WireError.of(content["error"])
    typer.echo(f"running in the background, pid {content['pid']}")
    for notice in content["notices"]:
        typer.echo(f"note: {notice}")
    typer.echo(f"  chat  {options.command('chat')}")
    typer.echo(f"  stop  {options.command('stop')}")


async def stop(options: Options) -> None:
    """Stop the host; if none runs, remove what a killed one left. Idempotent."""
    config = options.load()
    control = await connect_control(config, options.user_id)
    if control is not None:
        async with control:
            await control.stop()
        typer.echo("stopped")
        return
    for notice in await _clear(config, options.user_id):
        typer.echo(f"note: {notice}")
    typer.echo("not running")


async def _clear(config: Config, user_id: str) -> list[str]:
    runtime = Runtime.locate(config, user_id)
    if not runtime.directory.exists():
        return []
    workspace = Workspace.locate(config, user_id)
    workspace.check()
    with host_lock(runtime.lock):
        driver = driver_for(config.tier, config.container)
        return await clear_leftovers(runtime, workspace, driver, config.container)


async def _host(options: Options, config: Config, ready: Callable[[Host], Awaitable[None]]) -> int:
    host = Host(config, options.user_id, reload=options.load_for_hosting)
    with _signals_stop(host) as received:
        try:
            await host.start()
        except HostError as error:
            if error.code is Code.CANCELLED and received:
                return _exit_code(received)
            raise
        await ready(host)
        await host.wait_stopped()
        await host.stop()
    return _exit_code(received)


def _exit_code(received: list[int]) -> int:
    """130 for Ctrl-C, as shells expect; 0 for a service manager's SIGTERM."""
    return 130 if received[:1] == [signal.SIGINT] else 0


@contextmanager
def _signals_stop(host: Host) -> Iterator[list[int]]:
    """The first signal stops the host; yields all that were received. Later ones are ignored,
    because stopping takes only seconds."""
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def end(number: int) -> None:
        if not received:
            host.request_stop()
        received.append(number)

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, end, number)
    try:
        yield received
    finally:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)


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
