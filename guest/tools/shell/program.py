"""A program in the shell guest that lives long and is spoken to over its standard streams."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final

import grpc
from wire.status import from_rpc_error
from wire.text import visible
from wire.transport import was_cancelled
from wire.v1 import shell_pb2

from guest.connection import Connection

_CALL_S: Final = 10.0
_WRITE_S: Final = 30.0
"""How long a program may leave its standard input unread."""
_PIECE_BYTES: Final = 256 * 1024
_LAST_WORDS_BYTES: Final = 2048
_STDERR_BYTES_PER_S: Final = 4 * 1024 * 1024
_SAID_CHARS: Final = 300
_REPLACED: Final = "the shell guest was replaced"


class ProgramLostError(Exception):
    """The program has ended, or cannot be spoken to; the message is one bounded line."""


class Program:
    """One run of a program. `start` it, then `write` and read `output` until that ends; `end` it in
    any case. If the shell restarts, the program is lost."""

    def __init__(self, shell: Connection) -> None:
        self._shell = shell
        self._exec_id = f"program-{uuid.uuid4()}"
        self._written = 0
        self._last_words = b""

    async def start(self, argv: Sequence[str], *, cwd: str, environment: Mapping[str, str]) -> None:
        """Raises `ProgramLostError` if the shell refuses it or does not answer."""
        request = shell_pb2.StartExecRequest(
            exec_id=self._exec_id, argv=argv, cwd=cwd, environment=environment, open_stdin=True
        )
        await self._ask("Start", request, _CALL_S)

    async def write(self, data: bytes) -> None:
        """Write all of `data`; waits while the program does not read.

        Raises `ProgramLostError` if it has ended or does not read for too long.
        """
        for first in range(0, len(data), _PIECE_BYTES):
            piece = data[first : first + _PIECE_BYTES]
            request = shell_pb2.ExecInputRequest(
                exec_id=self._exec_id, offset=self._written, data=piece
            )
            await self._ask("Input", request, _WRITE_S)
            self._written += len(piece)

    async def output(self) -> AsyncGenerator[bytes]:
        """What it writes to its standard output, as it comes, and no faster than it is taken.

        Raises `ProgramLostError` at its end, with the exit code and what it said last.
        """
        call = self._shell.stub.Output(shell_pb2.ExecOutputRequest(exec_id=self._exec_id))
        try:
            async for event in call:
                match event.WhichOneof("event"):
                    case "stdout":
                        yield event.stdout.data
                    case "stderr":
                        told = self._last_words + event.stderr.data
                        self._last_words = told[-_LAST_WORDS_BYTES:]
                        await asyncio.sleep(len(event.stderr.data) / _STDERR_BYTES_PER_S)
                    case "exit":
                        raise ProgramLostError(self._ended(event.exit.exit_code))
        except grpc.RpcError as error:
            raise ProgramLostError(_said(error)) from None
        except asyncio.CancelledError:
            if was_cancelled():
                raise
            raise ProgramLostError(_REPLACED) from None
        finally:
            call.cancel()
        raise ProgramLostError("the shell guest broke off its output")

    async def end(self) -> None:
        """End it with all that it has started. Idempotent."""
        with contextlib.suppress(ProgramLostError):
            request = shell_pb2.CancelExecRequest(exec_id=self._exec_id)
            await self._ask("Cancel", request, _CALL_S)
        with contextlib.suppress(ProgramLostError):
            forget = shell_pb2.ReleaseExecRequest(exec_id=self._exec_id)
            await self._ask("Release", forget, _CALL_S)

    async def _ask(self, method: str, request: Any, timeout: float) -> None:
        try:
            await getattr(self._shell.stub, method)(request, timeout=timeout)
        except grpc.RpcError as error:
            raise ProgramLostError(_said(error)) from None
        except asyncio.CancelledError:
            if was_cancelled():
                raise
            raise ProgramLostError(_REPLACED) from None

    def _ended(self, exit_code: int) -> str:
        words = _line(self._last_words.decode(errors="replace"))
        return f"it ended with exit code {exit_code}" + (f": {words}" if words else "")


def _said(error: grpc.RpcError) -> str:
    failure = from_rpc_error(error)
    return _line("; ".join(filter(None, (failure.brief, failure.details))))


def _line(text: str) -> str:
    """The end of `text` on one line of bounded length."""
    line = " ".join(visible(text).split())
    return line if len(line) <= _SAID_CHARS else f"…{line[-_SAID_CHARS:]}"
