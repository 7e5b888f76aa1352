"""The client of the shell guest: runs commands, resumes their output, runs none twice.

Each command is started once, under an id of its own. If the connection breaks, the client reads
on where the output stopped; if the caller no longer waits, it ends the command's process tree.
The shell guest is not trusted: what it sends is bounded here, and its errors become one line. Of
long output the beginning and the end are kept, as text that fits a tool result.
"""

import asyncio
import contextlib
import json
import logging
import uuid
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from wire.errors import Code, WireError
from wire.identity import Peer
from wire.status import from_rpc_error
from wire.text import shortened, visible
from wire.transport import was_cancelled
from wire.v1 import shell_pb2, shell_pb2_grpc
from wire.zones import variable

from guest import watch
from guest.connection import Connection
from guest.errors import GuestError, ToolError
from guest.memory.storage.changes import Background
from guest.tools.base import EXCERPT_CONTEXT_CHARS, Excerpt, Spliced
from guest.tools.clock import Pause
from guest.tools.shell.program import Program

CONTEXT_BYTES: Final = 8192
"""How much more than can be shown is stored, so that redaction sees both sides of a cut."""


class StreamEnds:
    """The first and the last `budget` bytes of a stream, each with `CONTEXT_BYTES` more.

    Its size does not grow with the stream. `place` is the offset at which to read on: the
    length of the stream, including bytes that the shell dropped before they could be read.
    """

    def __init__(self, budget: int) -> None:
        self._most = budget + CONTEXT_BYTES
        self._head = bytearray()
        self._tail = bytearray()
        self._head_is_done = False
        self.place = 0

    @property
    def head(self) -> bytes:
        return bytes(self._head)

    @property
    def tail(self) -> bytes:
        """The end of the stream; it directly follows `head` if `gap` is 0."""
        return bytes(self._tail[-self._most :])

    @property
    def gap(self) -> int:
        """How many bytes between `head` and `tail` are missing."""
        return self.place - len(self._head) - len(self.tail)

    def add(self, offset: int, data: bytes) -> None:
        """Add `data`, which begins at `offset`.

        Bytes before `place` are ignored, because they were read before. Bytes between `place` and
        `offset` were dropped by the shell.
        """
        if offset > self.place:
            self._head_is_done = True
            self._tail.clear()
            self.place = offset
        data = data[self.place - offset :]
        self.place += len(data)
        if not self._head_is_done:
            room = self._most - len(self._head)
            self._head += data[:room]
            data = data[room:]
            self._head_is_done = len(self._head) == self._most
        self._tail += data
        if len(self._tail) > 2 * self._most:
            del self._tail[: -self._most]


_DOUBLED: Final = frozenset('"\\\n\t')


@dataclass(frozen=True)
class StreamView:
    """One stream in a result; `left_out` is roughly the number of bytes missing from it."""

    value: str | Spliced
    left_out: int = 0


def readable(data: bytes) -> str:
    """`data` as text with control characters escaped and all line ends as newlines."""
    text = data.decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    return visible(text)


def both(stdout: StreamEnds, stderr: StreamEnds, budget: int) -> tuple[StreamView, StreamView]:
    """Both streams within `budget` bytes of JSON; each may take at least half of it."""
    first, second = _cost_of(stdout), _cost_of(stderr)
    return (
        _shown(stdout, max(budget // 2, budget - second)),
        _shown(stderr, max(budget // 2, budget - first)),
    )


def _cost_of(kept: StreamEnds) -> int:
    if kept.gap:
        return kept.place
    return _cost(readable(kept.head + kept.tail))


def _cost(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode()) - 2


def _shown(kept: StreamEnds, budget: int) -> StreamView:
    if kept.gap:
        head, tail = readable(kept.head), readable(kept.tail)
    else:
        whole = readable(kept.head + kept.tail)
        if _cost(whole) <= budget:
            return StreamView(whole)
        head = tail = whole
    first = _fitting(head, budget // 2)
    last = len(tail) - _fitting(tail[::-1], budget // 2)
    if kept.gap:
        left_out = kept.gap + len(head[first:].encode()) + len(tail[:last].encode())
    else:
        left_out = len(head[first:last].encode())
    mark = f"\n[… about {left_out} bytes left out …]\n"
    context = EXCERPT_CONTEXT_CHARS
    parts = (
        Excerpt(head[:first], after=head[first : first + context]),
        mark,
        Excerpt(tail[last:], before=tail[max(0, last - context) : last]),
    )
    return StreamView(Spliced(parts), left_out)


def _fitting(text: str, budget: int) -> int:
    """How many characters of `text` fit into `budget` bytes of JSON."""
    spent = 0
    for count, letter in enumerate(text):
        spent += 2 if letter in _DOUBLED else len(letter.encode())
        if spent > budget:
            return count
    return len(text)


log = logging.getLogger(__name__)

_RETRY_S: Final = 0.1
_CALL_S: Final = 10.0
_END_S: Final = 15.0
_END_WAIT_S: Final = 0.7
"""How long a cancelled command waits for its end: a cancelled turn is recorded within a second."""
_STATE_S: Final = 1.0
_EXTENSION_S: Final = 5.0
_SAID_CHARS: Final = 300

_LOST: Final = frozenset({Code.UNAVAILABLE, Code.TIMEOUT, Code.CANCELLED, Code.INTERNAL})
_OF_THE_CALL: Final = frozenset({Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED})
_UNSURE: Final = "it may or may not have taken effect"
_RESOLUTION: Final = "runner status says how the shell guest is; runner logs has its log"


@dataclass(frozen=True)
class ShellTimeouts:
    """How many seconds a client waits for a shell that is away.

    Attributes:
        reach_s: Before a command, for a shell that is being restarted.
        resume_s: For a running command after its connection is lost.
        settled_s: A stream that lasted this long was connected, even if the command wrote nothing.
    """

    reach_s: float = 5.0
    resume_s: float = 10.0
    settled_s: float = 2.0


@dataclass(frozen=True)
class Command:
    """One command for the shell.

    Attributes:
        text: The command line, for bash.
        argv: If not empty, what is executed instead of `text`, without any shell.
        cwd: Its working directory, a virtual path.
        keep_bytes: How many bytes of each output stream may be shown.
        session_id: For which it runs; egress asks there what may leave.
        turn_id: Likewise.
        time_zone: Of the user; empty for the agent's own.
    """

    text: str
    cwd: str
    timeout_s: float
    argv: tuple[str, ...] = ()
    stdin: bytes = b""
    keep_bytes: int = 16 * 1024
    session_id: str = ""
    turn_id: str = ""
    time_zone: str = ""


@dataclass
class Ended:
    """How a command ended, and what it wrote.

    In `exit`, `exit_code` is 128 + n if signal n ended the command, and `cancelled` means that
    the shell ended it because it was stopping itself.
    """

    stdout: StreamEnds
    stderr: StreamEnds
    exit: shell_pb2.ExecExit = field(default_factory=shell_pb2.ExecExit)


class ShellClient:
    """Runs commands in one shell guest; any number at once."""

    def __init__(self, server: Peer, patience: ShellTimeouts | None = None) -> None:
        self._patience = patience or ShellTimeouts()
        self._connection = Connection(server, shell_pb2_grpc.ShellStub)
        self._ending = Background()

    @property
    def peer(self) -> Peer:
        return self._connection.peer

    def move(self, peer: Peer) -> None:
        """Run commands in `peer`, which has taken the place of the shell guest. Those that run in
        that one are lost, as where it is started again."""
        self._connection.move(peer)

    @property
    def _stub(self) -> Any:
        return self._connection.stub

    async def close(self) -> None:
        """Wait for commands that are being ended, then close the connection."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ending.finish(), _END_WAIT_S)
        await self._connection.close()

    async def state(self) -> str:
        """`ready` if the shell answers now, else `unavailable: ` and why."""
        try:
            await self._stub.Hello(shell_pb2.ShellHelloRequest(), timeout=_STATE_S)
        except grpc.RpcError as error:
            return f"unavailable: {_said(from_rpc_error(error))}"
        return "ready"

    def program(self) -> Program:
        return Program(self._connection)

    async def run(self, command: Command, pause: Pause | None = None) -> Ended:
        """Run `command` to its end. If this is cancelled, the command's process tree is ended. Its
        time stands still during a `pause`.

        Raises:
            ToolError: The model can act on it: a bad directory, a busy shell, or a command that
                was lost when the shell restarted.
            GuestError: The shell guest cannot be used (UNAVAILABLE, UNAUTHENTICATED, …).
        """
        with watch.step("shell"):
            return await self._run(command, pause or Pause())

    async def start(self, exec_id: str, command: Command) -> None:
        """Start `command` in the background, under an id of the caller's. Raises like `run`."""
        await self._reach()
        try:
            await self._stub.Start(_request(exec_id, command, background=True), timeout=_CALL_S)
        except grpc.RpcError as error:
            raise _RefusedError(from_rpc_error(error)).error from None

    async def wait(self, exec_id: str) -> shell_pb2.ExecExit | None:
        """The exit of a command once it has ended; None if it is gone with its shell guest."""
        while True:
            try:
                request = shell_pb2.WaitExecRequest(exec_id=exec_id)
                exited: shell_pb2.ExecExit = await self._stub.Wait(request)
            except grpc.RpcError as error:
                if from_rpc_error(error).code is Code.NOT_FOUND:
                    return None
            except asyncio.CancelledError:
                if was_cancelled():
                    raise
            else:
                return exited
            await asyncio.sleep(_STATE_S)

    async def read(self, exec_id: str, offset: int, limit: int) -> shell_pb2.ReadExecReply | None:
        """What a command has printed from `offset` on, or the last `limit` bytes for a negative
        one; None if nothing of it is kept. Raises `GuestError`."""
        end = 2**63 if offset < 0 else offset
        try:
            reply = await self._read(exec_id, end, limit)
            if offset < 0:
                reply = await self._read(exec_id, max(0, reply.total - limit), limit)
        except grpc.RpcError as error:
            if (failure := from_rpc_error(error)).code is Code.NOT_FOUND:
                return None
            raise _RefusedError(failure).error from None
        return reply

    async def _read(self, exec_id: str, offset: int, limit: int) -> shell_pb2.ReadExecReply:
        request = shell_pb2.ReadExecRequest(exec_id=exec_id, offset=offset, limit=limit)
        reply: shell_pb2.ReadExecReply = await self._stub.Read(request, timeout=_CALL_S)
        reply.output.data = reply.output.data[:limit]
        return reply

    async def stop(self, exec_id: str) -> None:
        """End a command's tree; what it has printed is kept. Raises `GuestError`."""
        try:
            await self._stub.Cancel(shell_pb2.CancelExecRequest(exec_id=exec_id), timeout=_END_S)
        except grpc.RpcError as error:
            if (failure := from_rpc_error(error)).code is not Code.NOT_FOUND:
                raise _RefusedError(failure).error from None

    async def _run(self, command: Command, pause: Pause) -> Ended:
        exec_id = f"tool-{uuid.uuid4()}"
        await self._reach()
        ended = Ended(StreamEnds(command.keep_bytes), StreamEnds(command.keep_bytes))
        extending = asyncio.create_task(self._extend(exec_id, pause))
        try:
            if not await self._start(exec_id, command, ended):
                await self._follow(exec_id, ended)
        except _RefusedError as refused:
            raise refused.error from None
        except BaseException:
            ending = self._ending.begin(self.end(exec_id))
            await asyncio.wait({ending}, timeout=_END_WAIT_S)
            raise
        finally:
            extending.cancel()
        self._ending.begin(self.release(exec_id))
        return ended

    async def _reach(self) -> None:
        """Wait for a connection; without one the command was certainly not started."""
        try:
            await asyncio.wait_for(self._connection.ready(), self._patience.reach_s)
        except TimeoutError:
            raise GuestError(
                Code.UNAVAILABLE,
                "the shell guest does not answer; the command was not started",
                details=f"no connection within {self._patience.reach_s:g} s; "
                f"it is {await self.state()}",
                resolution=_RESOLUTION,
            ) from None

    async def _start(self, exec_id: str, command: Command, ended: Ended) -> bool:
        """Start the command, once, and read its output; returns whether that came to the exit. If
        the connection is lost, `_follow` finds out whether the command runs, and reads on."""
        call, heard = self._stub.Run(_request(exec_id, command)), False
        try:
            async for event in call:
                if _take(event, ended):
                    return True
                heard = True
        except grpc.RpcError as error:
            failure = from_rpc_error(error)
            if failure.code not in _LOST and not heard:
                raise _RefusedError(failure) from None
            log.warning("the output of a command was lost: %s", _said(failure))
        except asyncio.CancelledError:
            if was_cancelled():
                raise
            log.warning("the output of a command was lost: the shell guest was replaced")
        finally:
            call.cancel()
        return False

    async def _follow(self, exec_id: str, ended: Ended) -> None:
        """Read all output, across lost connections, until the exit."""
        loop = asyncio.get_running_loop()
        give_up = 0.0
        why = "the stream ended early"
        while True:
            asked, heard = loop.time(), False
            request = shell_pb2.ExecOutputRequest(
                exec_id=exec_id, stdout_offset=ended.stdout.place, stderr_offset=ended.stderr.place
            )
            call = self._stub.Output(request)
            try:
                async for event in call:
                    if _take(event, ended):
                        return
                    heard = True
            except grpc.RpcError as error:
                failure = from_rpc_error(error)
                if failure.code in (Code.NOT_FOUND, Code.INVALID_ARGUMENT):
                    # The daemon was restarted, so it does not know the id or the offsets.
                    log.warning("the shell no longer knows a command: %s", _said(failure))
                    raise ToolError(
                        f"the shell restarted and the command was lost; {_UNSURE}: "
                        "check before running it again"
                    ) from None
                why = _said(failure)
                if failure.code not in _LOST:
                    break
            except asyncio.CancelledError:
                if was_cancelled():
                    raise
                why = "it was replaced"
            finally:
                call.cancel()
            now = loop.time()
            if heard or now - asked > self._patience.settled_s or not give_up:
                give_up = now + self._patience.resume_s
            if now >= give_up:
                break
            await asyncio.sleep(_RETRY_S)
        raise GuestError(
            Code.UNAVAILABLE,
            f"the shell guest went away while the command ran; {_UNSURE}",
            details=why,
            resolution=_RESOLUTION,
        )

    async def _extend(self, exec_id: str, pause: Pause) -> None:
        """Give the command as much more time as a person is asked on its behalf."""
        while True:
            await pause.asked()
            request = shell_pb2.ExtendExecRequest(exec_id=exec_id, by_ms=round(_EXTENSION_S * 1000))
            try:
                await self._stub.Extend(request, timeout=_CALL_S)
            except grpc.RpcError:  # it may not have begun yet
                await asyncio.sleep(_RETRY_S)
            else:
                await asyncio.sleep(_EXTENSION_S)

    async def end(self, exec_id: str) -> None:
        """End the command's tree and forget it."""
        with contextlib.suppress(grpc.RpcError):
            await self._stub.Cancel(shell_pb2.CancelExecRequest(exec_id=exec_id), timeout=_END_S)
        await self.release(exec_id)

    async def release(self, exec_id: str) -> None:
        """Have the shell forget a command; after a while it does so by itself."""
        with contextlib.suppress(grpc.RpcError):
            request = shell_pb2.ReleaseExecRequest(exec_id=exec_id)
            await self._stub.Release(request, timeout=_CALL_S)


def _request(
    exec_id: str, command: Command, *, background: bool = False
) -> shell_pb2.StartExecRequest:
    return shell_pb2.StartExecRequest(
        exec_id=exec_id,
        command="" if command.argv else command.text,
        argv=command.argv,
        cwd=command.cwd,
        timeout_ms=round(command.timeout_s * 1000),
        stdin=command.stdin,
        session_id=command.session_id,
        turn_id=command.turn_id,
        environment=variable(command.time_zone),
        background=background,
    )


class _RefusedError(Exception):
    """The shell refused the command; `error` is a `ToolError` or a `GuestError` that says why."""

    def __init__(self, failure: WireError) -> None:
        super().__init__()
        self.error: Exception
        if failure.code in _OF_THE_CALL:
            self.error = ToolError(f"the shell refused the command: {_said(failure)}")
        else:
            self.error = GuestError(
                failure.code,
                "the shell guest refused the command",
                details=_said(failure),
                resolution=_RESOLUTION,
            )


def _take(event: shell_pb2.ExecOutputEvent, ended: Ended) -> bool:
    """Store what `event` brings; returns whether it was the exit."""
    kind = event.WhichOneof("event")
    if kind == "exit":
        ended.exit = event.exit
        return True
    if kind == "stdout":
        ended.stdout.add(event.stdout.offset, event.stdout.data)
    elif kind == "stderr":
        ended.stderr.add(event.stderr.offset, event.stderr.data)
    return False


def _said(error: WireError) -> str:
    """The shell guest's error on one line of bounded length."""
    words = "; ".join(part for part in (error.brief, error.details) if part)
    line = "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for letter in " ".join(words[: 4 * _SAID_CHARS].split())
    )
    return shortened(line, _SAID_CHARS)
