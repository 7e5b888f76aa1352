"""Fifty open consoles at one HTTP server: its memory for each, and how late the first token comes.

`runner serve` runs as a program of its own before the hosts of several users, whose agents ask a
provider that answers at once. Every console is logged in by itself. First all of them follow a turn
that stands still, then each asks a question: one after the other over some seconds, and all in the
same moment. The same request is sent to the provider itself, for comparison.

Run alone: `python -m bench.consoles`.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import psutil

from bench.report import p50, p95
from bench.scratch import scratch
from runner.access.scopes import Scope
from runner.access.tokens import Tokens
from tests.support.servers import openai_server as provider
from tests.support.servers.openai_server import OpenAIServer, Request, openai_server

_CONSOLES: Final = 50
_USERS: Final = 10
_SPREAD_S: Final = 10.0
_LIMIT_S: Final = 120.0
_SETTINGS: Final = """
workspace_root = "{root}/users"
runtime_dir = "{root}/run"
[embedder]
backend = "none"
[shell]
enabled = false
[agent]
provider = "openai"
model = "m"
base_url = "{provider}"
api_key_env = "BENCH_KEY"
[serve]
listen = "127.0.0.1:0"
"""


@dataclass
class Console:
    """A browser with a session of its own, in a conversation of its own."""

    client: httpx.AsyncClient
    user_id: str
    session_id: str = ""

    async def call(self, method: str, **request: Any) -> dict[str, Any]:
        reply = await self.client.post(f"/api/users/{self.user_id}/{method}", json=request)
        reply.raise_for_status()
        return dict(reply.json())

    @asynccontextmanager
    async def asking(self, text: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """The events of a turn, as the chat page follows them."""
        turn = await self.call("StartTurn", session_id=self.session_id, text=text)
        path = f"/api/users/{self.user_id}/FollowTurn"
        async with self.client.stream("POST", path, json={"turn_id": turn["turn_id"]}) as reply:
            yield (json.loads(line) async for line in reply.aiter_lines())

    async def first_token_s(self, after_s: float) -> float:
        await asyncio.sleep(after_s)
        began = time.perf_counter()
        first = 0.0
        async with self.asking("and?") as events:
            async for event in events:
                if "text" in event and not first:
                    first = time.perf_counter() - began
                if "failed" in event:
                    raise RuntimeError(f"a turn failed: {event}")
        return first


async def run(full: bool = False) -> list[str]:
    """Lines of the report; `full` gives every console an agent of its own."""
    users = [f"user{number}" for number in range(_CONSOLES if full else _USERS)]
    with scratch() as root:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(openai_server(provider.says("Yes", ", so.")))
            settings = root / "runner.toml"
            settings.write_text(_SETTINGS.format(root=root, provider=server.base_url))
            for user_id in users:
                await _command(settings, "--user", user_id, "start", "--detach")
                stack.push_async_callback(_command, settings, "--user", user_id, "stop")
            url, serving = await stack.enter_async_context(_serving(settings, root))
            consoles = await _log_in(stack, root, url, users)
            return await _measured(server, serving, consoles, len(users))


async def _measured(
    server: OpenAIServer, serving: psutil.Process, consoles: Sequence[Console], users: int
) -> list[str]:
    await consoles[0].first_token_s(0.0)
    idle = serving.memory_info().rss
    await _first_tokens(consoles, _SPREAD_S)  # every agent has loaded what it needs
    answer = server.replies[0]
    moved_on = asyncio.Event()

    async def stands_still(request: Request, writer: asyncio.StreamWriter) -> None:
        async def say() -> None:
            await provider.stream({"content": "Wait"}, then="hang")(request, writer)

        said = asyncio.create_task(say())
        await moved_on.wait()
        said.cancel()
        await asyncio.wait({said})

    server.replies[0] = stands_still
    async with AsyncExitStack() as stack:
        for console in consoles:
            events = await stack.enter_async_context(console.asking("stand still"))
            async with asyncio.timeout(_LIMIT_S):
                while "text" not in await anext(events):
                    pass
        held = serving.memory_info().rss
        moved_on.set()
        for console in consoles:
            for turn in (await console.call("ListTurns", running_only=True)).get("turns", []):
                await console.call("CancelTurn", turn_id=turn["turn_id"])
    server.replies[0] = answer
    spread = await _first_tokens(consoles, _SPREAD_S)
    burst = await _first_tokens(consoles, 0.0)
    async with httpx.AsyncClient() as client:
        alone = [await _provider_s(client, server) for _ in consoles]
    return [
        f"consoles ({len(consoles)} logged in, {users} agents, one server)",
        f"  memory of the server        {idle / 2**20:6.1f} MiB with one console, "
        f"{held / 2**20:.1f} MiB with {len(consoles)} that follow a turn: "
        f"{(held - idle) / (len(consoles) - 1) / 1024:.0f} KiB each",
        _row("the provider alone", alone),
        _row(f"first token, in {_SPREAD_S:.0f} s", spread),
        _row("first token, all at once", burst),
        f"  above the provider's own    p95 {p95(spread) - p95(alone):6.0f} ms, all at once "
        f"{p95(burst) - p95(alone):.0f} ms",
    ]


def _row(what: str, seconds: Sequence[float]) -> str:
    return f"  {what:26}  p50 {p50(seconds):6.0f} ms   p95 {p95(seconds):6.0f} ms"


async def _first_tokens(consoles: Sequence[Console], over_s: float) -> list[float]:
    pause = over_s / len(consoles)
    async with asyncio.timeout(_LIMIT_S):
        return await asyncio.gather(
            *(each.first_token_s(number * pause) for number, each in enumerate(consoles))
        )


async def _provider_s(client: httpx.AsyncClient, server: OpenAIServer) -> float:
    """How long the provider takes for the first piece of an answer."""
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "and?"}]}
    began = time.perf_counter()
    async with client.stream("POST", f"{server.base_url}/chat/completions", json=body) as reply:
        async for line in reply.aiter_lines():
            if line:
                return time.perf_counter() - began
    raise RuntimeError("the provider said nothing")


async def _log_in(
    stack: AsyncExitStack, root: Path, url: str, users: Sequence[str]
) -> list[Console]:
    tokens = Tokens(root / "users")
    secrets = {
        user_id: tokens.create(user_id, "bench", frozenset(Scope), timedelta(hours=1))[1]
        for user_id in users
    }
    consoles = []
    for number in range(_CONSOLES):
        user_id = users[number % len(users)]
        client = await stack.enter_async_context(
            httpx.AsyncClient(
                base_url=url,
                headers={"X-Oxydra": "1"},
                timeout=_LIMIT_S,
                # Sooner than the server, which could close one just as it is used again.
                limits=httpx.Limits(keepalive_expiry=2.0),
            )
        )
        reply = await client.post("/api/login", json={"token": secrets[user_id]})
        client.headers["X-Oxydra"] = reply.raise_for_status().json()["page"]
        console = Console(client, user_id)
        console.session_id = (await console.call("CreateSession"))["session_id"]
        consoles.append(console)
    return consoles


@asynccontextmanager
async def _serving(settings: Path, root: Path) -> AsyncIterator[tuple[str, psutil.Process]]:
    """`runner serve` as a program of its own: where it is, and its process."""
    process = await asyncio.create_subprocess_exec(
        *_words(settings, "serve"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=root,
    )
    assert process.stdout is not None
    try:
        said = (await process.stdout.readline()).decode()
        yield said.removeprefix("serving at ").strip(), psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


async def _command(settings: Path, *words: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *_words(settings, *words),
        env={**os.environ, "BENCH_KEY": "of no provider"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    _, said = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(said.decode())


def _words(settings: Path, *words: str) -> tuple[str, ...]:
    return (
        sys.executable,
        "-P",
        "-m",
        "runner.cli",
        "--config",
        str(settings),
        "--insecure",
        *words,
    )


if __name__ == "__main__":
    print("\n".join(asyncio.run(run("--full" in sys.argv))))
