"""What a guest and the embedder cost: time until ready, resident memory.

Run alone: `python -m bench.processes`.
"""

import asyncio
import fcntl
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
from wire import envelope, transport
from wire.identity import Party, Peer
from wire.v1 import (
    bootstrap_pb2,
    embedder_pb2,
    embedder_pb2_grpc,
    gateway_pb2,
    gateway_pb2_grpc,
)

from runner.host.authority import Authority
from tests.support.settings import envelope_for

_READY_LIMIT_S = 120.0
_TOKEN = transport.new_token()


async def run(full: bool = False) -> list[str]:
    """Lines of the report; `full` measures more rounds."""
    rounds = 15 if full else 5
    lines = ["processes (seconds from spawn to a healthy answer; resident memory)"]
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oxb-") as scratch:
        times: list[float] = []
        resident = 0
        for number in range(rounds):
            seconds, resident = await _guest(Path(scratch) / str(number))
            times.append(seconds)
        lines.append(
            f"  agent guest    ready p50 {statistics.median(times):5.2f} s "
            f"(min {min(times):.2f}, max {max(times):.2f}, {rounds} starts)   "
            f"{resident / 2**20:4.0f} MiB after one turn   goals: 0.8 s, 130 MB"
        )
        for backend in ("hashing", "sentence-transformers"):
            seconds, resident = await _embedder(Path(scratch), backend)
            lines.append(
                f"  embedder {backend:22} ready {seconds:5.2f} s   {resident / 2**20:4.0f} MiB"
            )
    return lines


def envelope_at(base: Path) -> bootstrap_pb2.BootstrapEnvelope:
    """What starts an agent in a new directory."""
    made = envelope_for(base, "bench")
    for directory in ("internal", "shared", "tmp", "vault", "ipc"):
        (base / directory).mkdir(parents=True, mode=0o700)
    return made


async def _guest(base: Path) -> tuple[float, int]:
    async with agent(envelope_at(base)) as (gateway, process, seconds):
        await one_turn(gateway)
        return seconds, process.memory_info().rss


@asynccontextmanager
async def agent(
    settings: bootstrap_pb2.BootstrapEnvelope,
) -> AsyncIterator[tuple["gateway_pb2_grpc.GatewayAsyncStub", psutil.Process, float]]:
    """An agent in a process, and the seconds until it was ready."""
    authority = Authority.new()
    settings.identity.CopyFrom(authority.issue(Party.AGENT).message())
    ours = authority.issue(Party.CLI)
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "guest.app",
        "--bootstrap-stdin",
        "--exit-with-parent",
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdin is not None
    process.stdin.write(envelope.encode(settings))
    await process.stdin.drain()
    try:
        async with transport.open_channel(
            Peer(settings.gateway, Party.AGENT, settings.token, ours)
        ) as channel:
            await _until_healthy(channel, process)
            seconds = time.perf_counter() - began
            yield gateway_pb2_grpc.GatewayStub(channel), psutil.Process(process.pid), seconds
    finally:
        process.terminate()
        await process.wait()


async def _until_healthy(channel: object, process: asyncio.subprocess.Process) -> None:
    deadline = time.monotonic() + _READY_LIMIT_S
    while not await transport.check_health(channel):  # type: ignore[arg-type]
        if process.returncode is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the process did not become ready: {process.returncode}")
        await asyncio.sleep(0.01)


async def one_turn(gateway: "gateway_pb2_grpc.GatewayAsyncStub") -> None:
    session = await gateway.CreateSession(gateway_pb2.CreateSessionRequest(channel="bench"))
    turn = await gateway.StartTurn(
        gateway_pb2.StartTurnRequest(
            session_id=session.session_id, text="remember that benches are honest", channel="bench"
        )
    )
    following = gateway_pb2.FollowTurnRequest(turn_id=turn.turn_id)
    events = [event async for event in gateway.FollowTurn(following)]
    if not events[-1].HasField("completed"):
        raise RuntimeError(f"the turn did not complete: {events[-1]}")


async def _embedder(base: Path, backend: str) -> tuple[float, int]:
    socket = base / f"{backend}.sock"
    authority = Authority.new()
    ours = authority.issue(Party.AGENT)
    server = Peer(f"unix:{socket}", Party.EMBEDDER, _TOKEN, ours)
    lease = os.open(base / "leases", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lease, fcntl.LOCK_SH)  # without one the embedder would end by itself
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "guest.embedding.server",
        *("--socket", str(socket), "--backend", backend, "--model", "all-MiniLM-L6-v2"),
        *("--leases", str(base / "leases"), "--bootstrap-stdin"),
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdin is not None
    process.stdin.write(envelope.service(_TOKEN, authority.issue(Party.EMBEDDER)))
    process.stdin.close()
    try:
        async with transport.open_channel(server) as channel:
            await _until_healthy(channel, process)
            stub = embedder_pb2_grpc.EmbedderStub(channel)
            while (info := await stub.Info(embedder_pb2.EmbedderInfoRequest())).state == "loading":
                await asyncio.sleep(0.05)
            seconds = time.perf_counter() - began
            if info.state != "ready":
                raise RuntimeError(f"the embedder failed: {info.reason}")
            await stub.Embed(embedder_pb2.EmbedRequest(texts=["one text"]))
            return seconds, psutil.Process(process.pid).memory_info().rss
    finally:
        process.terminate()
        await process.wait()
        os.close(lease)


if __name__ == "__main__":
    print("\n".join(asyncio.run(run())))
