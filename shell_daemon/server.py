"""The shell daemon: its command line, and its server from the start to the end."""

import argparse
import asyncio
import logging
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NoReturn

from wire import envelope, lease, logs, transport
from wire.errors import Code, WireError
from wire.identity import Identity, Party
from wire.lease import when_ended
from wire.v1 import shell_pb2_grpc
from wire.v1.bootstrap_pb2 import ServiceEnvelope

from shell_daemon.limits import Settings
from shell_daemon.processes import init
from shell_daemon.shell import Shell

log = logging.getLogger(__name__)

_SETTINGS: Final = {
    "--root-shared": ("shared", Path),
    "--root-tmp": ("tmp", Path),
    "--root-run": ("run", Path),
    "--max-commands": ("commands_max", int),
    "--buffer-bytes": ("buffer_bytes", int),
    "--memory-bytes": ("memory_bytes", int),
    "--default-timeout": ("timeout_default", float),
    "--max-timeout": ("timeout_max", float),
}
_EXIT_LOST: Final = 1
_LAST_WORDS_SECONDS: Final = 0.2
"""Time for clients to read the last messages: gRPC closes a connection with its last call, and
a client that writes at that moment, even an acknowledgement, loses what it has not read."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise WireError(
            Code.INVALID_ARGUMENT,
            f"bad arguments: {message}",
            details=self.format_usage().strip(),
            resolution="oxydra-shell-daemon --help",
        )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="oxydra-shell-daemon", description="Runs commands in the shell guest.")
    parser.add_argument(
        "--socket",
        type=transport.listener,
        required=True,
        metavar="PLACE",
        help="a path, or tcp:*:PORT",
    )
    parser.add_argument(
        "--bootstrap-stdin",
        action="store_true",
        required=True,
        help="read a ServiceEnvelope: the token of every call, and the server's identity",
    )
    lease.add_arguments(parser)
    parser.add_argument(
        "--sealed",
        action="store_true",
        help="answer only this token's calls until one of them admits another token",
    )
    for flag, (field, kind) in _SETTINGS.items():
        default = getattr(Settings, field)
        parser.add_argument(flag, dest=field, type=kind, default=default, metavar=kind.__name__)
    parser.add_argument(
        "--log-level", choices=["debug", "info", "warning", "error"], default="info"
    )
    return parser


def read_envelope(descriptor: int) -> ServiceEnvelope:
    """Read the envelope, and not a byte of what follows."""
    with open(descriptor, "rb", buffering=0, closefd=False) as stdin:
        return envelope.read_service(stdin)


async def serve(
    endpoint: str,
    received: ServiceEnvelope,
    settings: Settings,
    watch: int | None,
    *,
    lease_s: float | None = None,
    sealed: bool = False,
) -> int:
    """Serve until SIGTERM, the end of the descriptor `watch` or of the lease, or the loss of the
    zygote.

    Every call must carry the token of `received`; `sealed`: until a call with it admits another
    token. Returns the exit code of the daemon.
    """
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()

    def stop(code: int) -> None:
        if not stopped.done():
            stopped.set_result(code)

    loop.add_signal_handler(signal.SIGTERM, stop, 0)
    async with AsyncExitStack() as stack:
        identity = Identity.of(received.identity)
        granted = lease.Lease(lease_s, lambda: stop(0))
        server = transport.Server(
            endpoint,
            received.token,
            identity,
            {Party.RUNNER, Party.AGENT},
            sealed=sealed,
            on_call=granted.renew,
        )
        shell = Shell(settings, identity, admit=server.admit, on_lost=lambda: stop(_EXIT_LOST))
        shell.open()
        loop.add_signal_handler(signal.SIGCHLD, shell.reap)
        stack.push_async_callback(shell.close)
        shell_pb2_grpc.add_ShellServicer_to_server(shell, server.grpc)
        await server.start()
        stack.push_async_callback(server.stop)
        stack.push_async_callback(server.set_serving, False)
        await server.set_serving(True)
        if watch is not None:
            when_ended(watch, lambda: stop(0), resolution="start the daemon through the runner")
        granted.begin()
        stack.callback(granted.end)
        log.info("shell daemon ready", extra={"event": "ready"})
        code = await stopped
        # Commands end first, so that their readers still get the exit.
        await shell.close()
        await asyncio.sleep(_LAST_WORDS_SECONDS)
    return code


def main() -> None:
    logs.configure("shell", "", "info")
    try:
        arguments = _parser().parse_args()
        logs.configure("shell", "", arguments.log_level)
        init.become()
        received = read_envelope(sys.stdin.fileno())
        watch = sys.stdin.fileno() if arguments.exit_with_parent else None
        settings = Settings(**{field: getattr(arguments, field) for field, _ in _SETTINGS.values()})
        code = asyncio.run(
            serve(
                arguments.socket,
                received,
                settings,
                watch,
                lease_s=arguments.lease,
                sealed=arguments.sealed,
            )
        )
    except WireError as error:
        logs.log_startup_failure(log, error)
        code = logs.EXIT_OPERATOR
    sys.exit(code)


if __name__ == "__main__":
    main()
