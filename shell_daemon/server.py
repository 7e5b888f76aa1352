"""The shell daemon: the gRPC service of the shell guest, and its start from the command line."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NoReturn

import grpc
from wire import logs, transport
from wire.errors import Code, WireError
from wire.v1 import shell_pb2, shell_pb2_grpc

from shell_daemon import limits
from shell_daemon.limits import Settings
from shell_daemon.processes import prctl
from shell_daemon.shell import Shell

# ruff: noqa: ARG002, N802 - gRPC names the methods and passes requests and contexts


Context = grpc.aio.ServicerContext[Any, Any]


class ShellService(shell_pb2_grpc.ShellServicer):
    """Passes every call to `Shell`; `wire.transport` checks tokens and maps errors.

    Args:
        shell: Runs the commands.
        admit: Accepts a further token from now on.
    """

    def __init__(self, shell: Shell, admit: Callable[[str], None]) -> None:
        self._shell = shell
        self._admit = admit

    async def Hello(
        self, request: shell_pb2.ShellHelloRequest, context: Context
    ) -> shell_pb2.ShellHelloReply:
        return shell_pb2.ShellHelloReply()

    async def Admit(
        self, request: shell_pb2.AdmitRequest, context: Context
    ) -> shell_pb2.AdmitReply:
        limits.check_token(request.token)
        self._admit(request.token)
        return shell_pb2.AdmitReply()

    async def Start(
        self, request: shell_pb2.StartExecRequest, context: Context
    ) -> shell_pb2.StartExecReply:
        reply = self._shell.start(request)
        await asyncio.sleep(0)  # let the command start before the answer goes out
        return reply

    async def Output(
        self, request: shell_pb2.ExecOutputRequest, context: Context
    ) -> AsyncIterator[shell_pb2.ExecOutputEvent]:
        async for event in self._shell.output(request):
            yield event

    async def Cancel(
        self, request: shell_pb2.CancelExecRequest, context: Context
    ) -> shell_pb2.CancelExecReply:
        return await self._shell.cancel(request)

    async def Release(
        self, request: shell_pb2.ReleaseExecRequest, context: Context
    ) -> shell_pb2.ReleaseExecReply:
        return self._shell.release(request)


log = logging.getLogger(__name__)

_TOKEN_MAX_BYTES: Final = 1024
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
    parser.add_argument("--socket", type=Path, required=True, metavar="PATH")
    parser.add_argument(
        "--token-stdin",
        action="store_true",
        required=True,
        help="the first line of standard input is the token of every call",
    )
    parser.add_argument(
        "--exit-with-parent", action="store_true", help="stop when standard input ends"
    )
    parser.add_argument(
        "--sealed",
        action="store_true",
        help="answer only this token's calls until one of them admits another token",
    )
    parser.add_argument("--root-shared", type=Path, default=Settings.shared, metavar="DIR")
    parser.add_argument("--root-tmp", type=Path, default=Settings.tmp, metavar="DIR")
    parser.add_argument("--max-commands", type=int, default=Settings.commands_max)
    parser.add_argument("--buffer-bytes", type=int, default=Settings.buffer_bytes)
    parser.add_argument("--default-timeout", type=float, default=Settings.timeout_default)
    parser.add_argument("--max-timeout", type=float, default=Settings.timeout_max)
    parser.add_argument(
        "--log-level", choices=["debug", "info", "warning", "error"], default="info"
    )
    return parser


def _settings(arguments: argparse.Namespace) -> Settings:
    return Settings(
        shared=arguments.root_shared,
        tmp=arguments.root_tmp,
        commands_max=arguments.max_commands,
        buffer_bytes=arguments.buffer_bytes,
        timeout_default=arguments.default_timeout,
        timeout_max=arguments.max_timeout,
    )


def read_token(descriptor: int) -> str:
    """The first line of `descriptor`, read byte by byte so that the rest stays unread."""
    token = b""
    while len(token) <= _TOKEN_MAX_BYTES and (byte := os.read(descriptor, 1)) not in (b"", b"\n"):
        token += byte
    if not 1 <= len(token) <= _TOKEN_MAX_BYTES or not token.isascii():
        raise WireError(
            Code.INVALID_ARGUMENT,
            "no token on standard input",
            details=f"its first line must be 1 to {_TOKEN_MAX_BYTES} ASCII characters",
            resolution="start the daemon through the runner",
        )
    return token.decode()


async def serve(
    socket: Path, token: str, settings: Settings, watch: int | None, *, sealed: bool = False
) -> int:
    """Serve until a signal, the end of `watch` or the loss of the zygote.

    Args:
        socket: Where to listen.
        token: The token that every call must carry.
        settings: Limits of the commands.
        watch: A descriptor whose end stops the daemon; None for none.
        sealed: Answer only calls with `token` until one of them admits another token.

    Returns:
        The exit code of the daemon.
    """
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()

    def stop(code: int) -> None:
        if not stopped.done():
            stopped.set_result(code)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, 0)
    async with AsyncExitStack() as stack:
        shell = Shell(settings, on_lost=lambda: stop(_EXIT_LOST))
        shell.open()
        stack.push_async_callback(shell.close)
        server = transport.Server(transport.unix_endpoint(socket), token, sealed=sealed)
        service = ShellService(shell, server.admit)
        shell_pb2_grpc.add_ShellServicer_to_server(service, server.grpc)
        await server.start()
        stack.push_async_callback(server.stop)
        stack.push_async_callback(server.set_serving, False)
        await server.set_serving(True)
        if watch is not None:
            _when_ended(watch, lambda: stop(0))
        log.info("shell daemon ready", extra={"event": "ready"})
        code = await stopped
        # Commands end first, so that their readers still get the exit.
        await shell.close()
        await asyncio.sleep(_LAST_WORDS_SECONDS)
    return code


def _when_ended(descriptor: int, then: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            then()

    try:
        loop.add_reader(descriptor, readable)
    except PermissionError:
        raise WireError(
            Code.INVALID_ARGUMENT,
            "standard input is a file, which never ends",
            details="--exit-with-parent waits for the end of a pipe or socket",
            resolution="start the daemon through the runner",
        ) from None


def main() -> None:
    logs.configure("shell", "", "info")
    try:
        arguments = _parser().parse_args()
        logs.configure("shell", "", arguments.log_level)
        prctl.set_name("oxydra-shell")
        prctl.conceal()
        token = read_token(sys.stdin.fileno())
        watch = sys.stdin.fileno() if arguments.exit_with_parent else None
        settings = _settings(arguments)
        code = asyncio.run(serve(arguments.socket, token, settings, watch, sealed=arguments.sealed))
    except WireError as error:
        logs.log_startup_failure(log, error)
        code = logs.EXIT_OPERATOR
    sys.exit(code)


if __name__ == "__main__":
    main()
