"""What a conversation stands on: a host for as long as it lasts, and streams that are open."""

import asyncio
import fcntl
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final, NamedTuple, TextIO

from wire.errors import Code

from runner.cli.agent import host_runs
from runner.cli.chat.conversation import INTERRUPT
from runner.cli.chat.screen import say
from runner.cli.operation.lifecycle import at_first_signal
from runner.cli.options import Options
from runner.cli.output import one_line
from runner.cli.projects import Folders, named
from runner.config.models import Config
from runner.errors import HostError
from runner.host.runtime import Runtime
from runner.workspace.directories import descriptor

_LOOK_S: Final = 0.1


class Streams(NamedTuple):
    """Where a conversation reads, answers, and tells everything else."""

    stdin: TextIO
    stdout: TextIO
    stderr: TextIO


def standard_streams() -> Streams:
    """The process's own. Raises `HostError` if one of them is closed."""
    stdin, stdout, stderr = sys.stdin, sys.stdout, sys.stderr
    if stdin is None or stdout is None or stderr is None:
        raise HostError(
            Code.INVALID_ARGUMENT,
            "standard input, output or error is closed",
            details="the chat reads turns from the first and writes to the others",
            resolution="run it in a terminal, or redirect from and to files or /dev/null",
        )
    return Streams(stdin, stdout, stderr)


async def until_signalled(talking: Coroutine[Any, Any, int]) -> int:
    """The exit code of `talking`, or 128 plus the number of the signal that ended it."""
    task = asyncio.current_task()
    assert task is not None
    with (
        at_first_signal(task.cancel, (signal.SIGTERM, signal.SIGHUP)) as ended_by,
        at_first_signal(partial(task.cancel, INTERRUPT), (signal.SIGINT,)) as interrupted_by,
    ):
        try:
            return await talking
        except asyncio.CancelledError:
            for number in (*ended_by, *interrupted_by):
                return 128 + number
            raise


async def with_host(
    config: Config | None,
    options: Options,
    talk: Callable[[bool], Coroutine[Any, Any, int]],
    stderr: TextIO,
    folders: Folders = (),
) -> int:
    """Talk while the user's host runs: the one that is there, or one that ends with it and with all
    others that talk by then. `talk` is told whether the host outlives it. Without `config` the host
    is somebody else's. A host that starts has the `folders` open."""
    if config is None:
        return await talk(True)
    runtime = Runtime.locate(config, options.user_id)
    runtime.create()
    async with AsyncExitStack() as stack:
        # Beneath the host: who comes while it ends waits, and starts another one.
        talking = stack.enter_context(descriptor(runtime.talking, os.O_RDWR | os.O_CREAT))
        await _take(talking, fcntl.LOCK_SH)
        stays = await _ensure_host(config, options, stack, stderr, folders)
        code = await talk(stays)
        if not stays:
            await _take(
                talking,
                fcntl.LOCK_EX,
                lambda: say(stderr, "the agent stays until others have ended; Ctrl-C ends it now"),
            )
        return code


async def _take(lock: int, how: int, wait: Callable[[], None] = lambda: None) -> None:
    """Take the lock; `wait` says that it takes a while."""
    waits = False
    while True:
        try:
            fcntl.flock(lock, how | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not waits:
                wait()
            waits = True
            await asyncio.sleep(_LOOK_S)


async def _ensure_host(
    config: Config, options: Options, stack: AsyncExitStack, stderr: TextIO, folders: Folders
) -> bool:
    """Start a host that lives as long as `stack`, unless one runs; returns whether one did."""
    user_id = options.user_id
    if await host_runs(config, user_id):
        return True
    from runner.host.host import Host

    opened = named(folders, config, user_id)
    say(stderr, f"starting the agent of user {user_id} ...")
    try:
        host = await stack.enter_async_context(Host(config, user_id, opened=opened, passing=True))
    except HostError as error:
        started_meanwhile = error.code is Code.ALREADY_EXISTS and await host_runs(config, user_id)
        if not started_meanwhile:
            raise
        return True
    for notice in host.notices:
        say(stderr, one_line(options.mended(notice)))
    return False
