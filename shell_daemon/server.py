"""The shell daemon: its command line, and its server from the start to the end."""

import argparse
import asyncio
import logging
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from wire import envelope, logs, program
from wire.identity import Identity, Party
from wire.kernel import prctl
from wire.transport import Server
from wire.v1 import shell_pb2_grpc
from wire.v1.bootstrap_pb2 import ServiceEnvelope

from shell_daemon.limits import Settings
from shell_daemon.shell import Shell

log = logging.getLogger(__name__)

_SETTINGS: Final = {
    "--root-shared": ("shared", Path),
    "--root-tmp": ("tmp", Path),
    "--root-projects": ("projects", Path),
    "--root-run": ("run", Path),
    "--root-cache": ("cache", Path),
    "--git-identity": ("git_identity", str),
    "--max-commands": ("commands_max", int),
    "--buffer-bytes": ("buffer_bytes", int),
    "--memory-bytes": ("memory_bytes", int),
    "--default-timeout": ("timeout_default", float),
    "--max-timeout": ("timeout_max", float),
}
_FAULTS: Final = {
    *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL),
    *(signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS),
}
_NOT_IGNORED: Final = {signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGCHLD, *_FAULTS}
_EXIT_LOST: Final = 1
_LAST_WORDS_SECONDS: Final = 0.2
"""Time for clients to read the last messages: gRPC closes a connection with its last call, and
a client that writes at that moment, even an acknowledgement, loses what it has not read."""


def _become_first() -> None:
    """Close this process to every signal that commands, which have its user id, have no reason to
    send.

    The kernel neither kills nor stops the first process of a guest for a signal from inside that it
    does not handle, hands it the orphans of all others, and ends the guest with it. So this one
    handles SIGTERM alone. Call this before anything secret is read. Outside of a process namespace
    of its own, where the daemon is not the first process, a command can still kill or stop it.
    """
    prctl.set_name("oxydra-shell")
    for number in signal.valid_signals() - _NOT_IGNORED:
        signal.signal(number, signal.SIG_IGN)


def _parser() -> program.Parser:
    parser = program.Parser("oxydra-shell-daemon", "Runs commands in the shell guest.")
    parser.add_listener("--socket", "where it is served")
    parser.add_argument(
        "--sealed",
        action="store_true",
        help="answer only this token's calls until one of them admits another token",
    )
    for flag, (field, kind) in _SETTINGS.items():
        default = getattr(Settings, field)
        parser.add_argument(flag, dest=field, type=kind, default=default, metavar=kind.__name__)
    parser.add_log_level()
    return parser


async def _serve(
    arguments: argparse.Namespace, received: ServiceEnvelope, settings: Settings
) -> int:
    """Serve until told to stop, or until the zygote is lost. Returns the exit code."""
    code = 0
    life = program.Life(arguments, (signal.SIGTERM,))

    def lost() -> None:
        nonlocal code
        code = _EXIT_LOST
        life.ended.set()

    async with AsyncExitStack() as stack:
        identity = Identity.of(received.identity)
        server = Server(
            arguments.socket,
            received.token,
            identity,
            {Party.RUNNER, Party.AGENT},
            sealed=arguments.sealed,
            on_call=life.lease.renew,
        )
        shell = Shell(settings, identity, admit=server.admit, on_lost=lost)
        shell.open()
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, shell.reap)
        stack.push_async_callback(shell.close)
        shell_pb2_grpc.add_ShellServicer_to_server(shell, server.grpc)
        await server.start()
        stack.push_async_callback(server.stop)
        stack.push_async_callback(server.set_serving, False)
        await server.set_serving(True)
        life.lease.begin()
        stack.callback(life.lease.end)
        log.info("shell daemon ready", extra={"event": "ready"})
        await life.ended.wait()
        # Commands end first, so that their readers still get the exit.
        await shell.close()
        await asyncio.sleep(_LAST_WORDS_SECONDS)
    return code


def main() -> int:
    """Serve until told to stop; returns the exit code."""
    return program.run("shell", _run)


def _run() -> int:
    arguments = _parser().parse_args()
    logs.configure("shell", "", arguments.log_level)
    _become_first()
    received = program.received(envelope.read_service)
    settings = Settings(**{field: getattr(arguments, field) for field, _ in _SETTINGS.values()})
    return asyncio.run(_serve(arguments, received, settings))


if __name__ == "__main__":
    sys.exit(main())
