"""The egress program as it runs, with a runner that records what it hears, and clients at its
listeners."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
from wire import envelope, tls
from wire.identity import Party
from wire.transport import check_health, open_channel, unix_endpoint
from wire.v1 import egress_pb2 as pb
from wire.v1 import egress_pb2_grpc

from tests.support import parties

TOKEN: Final = "launch-token"
AGENT_TOKEN: Final = "agents-token"
SHELL_TOKEN: Final = "shells-token"
RUNNER_TOKEN: Final = "runners-token"
LOOPBACK: Final = ("127.0.0.0/8", "::1/128")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Answer:
    """What came back at a listener: the head's lines, the headers, and all that followed."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def refused(self) -> str:
        """The code of egress's own reason; empty if the answer is not its own."""
        return self.headers.get("oxydra-refused", "")


@dataclass
class Egress:
    """A running program. `begun` and `ended` are what its runner has heard; `held` is awaited
    before it answers to what begins, and to a question."""

    directory: Path
    process: asyncio.subprocess.Process
    stub: Any
    begun: list[pb.EgressBegun] = field(default_factory=list)
    ended: dict[int, pb.EgressEnded] = field(default_factory=dict)
    answers: Callable[[pb.EgressQuestion], bool] = lambda _: False
    questions: list[pb.EgressQuestion] = field(default_factory=list)
    held: Callable[[pb.EgressEvent], Awaitable[object]] | None = None
    watching: asyncio.Task[None] | None = None

    @property
    def shell_listener(self) -> Path:
        return self.directory / "shell.sock"

    @property
    def agent_listener(self) -> Path:
        return self.directory / "agent.sock"

    async def configure(self, **fields: Any) -> pb.EgressConfigured:
        given = {
            "user_id": "alice",
            "agent_token": AGENT_TOKEN,
            "shell_token": SHELL_TOKEN,
            "runner_token": RUNNER_TOKEN,
            "private_networks": LOOPBACK,
        }
        configured: pb.EgressConfigured = await self.stub.Configure(
            pb.EgressConfiguration(**(given | fields))
        )
        return configured

    def watch(self) -> None:
        """Record everything from now on, as a runner does."""
        self.watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        call = self.stub.Watch()
        try:
            while (event := await call.read()) is not grpc.aio.EOF:
                if self.held is not None:
                    await self.held(event)
                match event.WhichOneof("event"):
                    case "begun":
                        self.begun.append(event.begun)
                        await call.write(pb.EgressReply(recorded=event.begun.id))
                    case "ended":
                        self.ended[event.ended.id] = event.ended
                    case "question":
                        self.questions.append(event.question)
                        said = pb.EgressAnswer(
                            question=event.question.id, allowed=self.answers(event.question)
                        )
                        await call.write(pb.EgressReply(answer=said))
        finally:
            call.cancel()

    async def unwatch(self) -> None:
        if self.watching is not None:
            self.watching.cancel()
            with suppress(asyncio.CancelledError, grpc.RpcError):
                await self.watching

    async def end_of(self, host: str) -> pb.EgressEnded:
        """How the last one to `host` that was let out ended."""
        number = next(each.id for each in reversed(self.begun) if each.host == host)
        async with asyncio.timeout(60):
            while number not in self.ended:
                await asyncio.sleep(0.01)
        return self.ended[number]

    async def at_shell_listener(
        self,
        token: str = SHELL_TOKEN,
        session_id: str = "session-1",
        turn_id: str = "turn-1",
        party: Party = Party.SHELL,
    ) -> Streams:
        """A connection as the forwarder makes it."""
        streams = await self._connect(self.shell_listener, party)
        streams[1].write(f"OXYDRA/1 {token} {session_id or '-'} {turn_id or '-'}\r\n".encode())
        return streams

    async def at_agent_listener(self, party: Party = Party.AGENT) -> Streams:
        return await self._connect(self.agent_listener, party)

    async def _connect(self, path: Path, party: Party) -> Streams:
        return await asyncio.open_unix_connection(
            str(path),
            ssl=tls.client_context(parties.identity(party)),
            server_hostname=Party.EGRESS,
            limit=2**20,
        )

    async def say(self, request: bytes | str) -> Answer:
        """The answer to what a command's client says."""
        return await said(await self.at_shell_listener(), request)

    async def ask(self, request: str, *, method: str = "GET", **headers: str) -> Answer:
        """The answer to a request of the agent, such as `/openai/models`."""
        lines = [f"{method} {request} HTTP/1.1", f"Oxydra-Token: {AGENT_TOKEN}"]
        if "host" not in headers:
            headers["host"] = "egress"
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return await said(
            await self.at_agent_listener(), "\r\n".join([*lines, "Connection: close", "", ""])
        )

    async def tunnel(self, target: str) -> tuple[Answer, Streams]:
        """Ask for a tunnel; the streams are its own if the answer is 200."""
        streams = await self.at_shell_listener()
        streams[1].write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        return await head(streams[0]), streams

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


async def said(streams: Streams, request: bytes | str) -> Answer:
    """Say something, and read the answer to its end."""
    reader, writer = streams
    writer.write(request.encode("latin-1") if isinstance(request, str) else request)
    try:
        async with asyncio.timeout(60):
            answer = await head(reader)
            answer.body += await _body(reader, answer.headers)
    finally:
        writer.transport.abort()
    return answer


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if "oxydra-refused" in headers:
        return b""
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    if headers.get("transfer-encoding") != "chunked":
        return await reader.read()
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return body


async def head(reader: asyncio.StreamReader) -> Answer:
    """The head of an answer; the body stays to be read."""
    try:
        text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError):
        return Answer(0, {}, b"")
    line, *rest = text.removesuffix("\r\n\r\n").split("\r\n")
    headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in rest)}
    answer = Answer(int(line.split()[1]), headers, b"")
    if answer.refused and "content-length" in headers:
        answer.body = await reader.readexactly(int(headers["content-length"]))
    return answer


@asynccontextmanager
async def running(directory: Path, *, environ: Sequence[str] = ()) -> AsyncIterator[Egress]:
    """The program, ready and watched, and not yet configured."""
    control = directory / "egress.sock"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "egress.server", "--socket", control),
        *(
            "--agent-listener",
            directory / "agent.sock",
            "--shell-listener",
            directory / "shell.sock",
        ),
        *("--bootstrap-stdin", "--exit-with-parent"),
        stdin=asyncio.subprocess.PIPE,
        env={**os.environ, **dict(each.split("=", 1) for each in environ)},
    )
    assert process.stdin is not None
    process.stdin.write(envelope.service(TOKEN, parties.identity(Party.EGRESS)))
    channel = open_channel(parties.peer(unix_endpoint(control), Party.EGRESS, TOKEN))
    try:
        async with asyncio.timeout(60):
            while not await check_health(channel):
                await asyncio.sleep(0.02)
        metadata = ((("oxydra-token", TOKEN)),)
        egress = Egress(directory, process, _Stub(egress_pb2_grpc.EgressStub(channel), metadata))
        egress.watch()
        yield egress
        await egress.unwatch()
    finally:
        await channel.close()
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


class _Stub:
    """The service; gRPC adds no token to a stream of both sides by itself."""

    def __init__(self, stub: Any, metadata: tuple[tuple[str, str], ...]) -> None:
        self.Configure = stub.Configure
        self.Counters = stub.Counters
        self.Watch = lambda: stub.Watch(metadata=metadata)
