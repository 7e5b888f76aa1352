"""What the way out costs: the time that a request takes longer, how fast a download is, and the
memory of the third guest. The servers are a small internet on this machine, which needs root.

Every figure has its yardstick beside it, measured in turns with it: the same request, download or
piece of an answer without egress between.

Run alone: `python -m bench.egress`.
"""

import asyncio
import os
import ssl
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import Final

import httpx
import psutil
from wire.identity import Identity
from wire.tls import client_context

from bench import engine
from bench.report import p50, p95, verdict
from runner.client.gateway import GatewayClient
from runner.config.tiers import TierName
from tests.support.internet.guests import Guests, guests
from tests.support.internet.images import images_of_this_checkout
from tests.support.internet.internet import Internet, internet
from tests.support.servers import openai_server as provider

REQUEST_GOAL_MS: Final = 2.0
MEMORY_GOAL_MB: Final = 45
MEMORY_OF_BOTH_GOAL_MB: Final = 60
LATER_GOAL_MS: Final = 50
_MIB: Final = 100
_USERS: Final = 10
_HOST: Final = "www.example.org"
_FILES: Final = "files.example.org"

_UNREAD: Final = (
    "python3 -c 'import os, socket, time, urllib.parse as u\n"
    'at = u.urlsplit(os.environ["http_proxy"])\n'
    "held = [socket.create_connection((at.hostname, at.port)) for _ in range(200)]\n"
    f'for each in held: each.sendall(b"GET http://{_FILES}/bytes?1 HTTP/1.1\\r\\n'
    f'Host: {_FILES}\\r\\n\\r\\n")\n'
    "time.sleep(600)'"
)
_SIEGE: Final = (
    _UNREAD,
    f"while :; do curl -s http://{_FILES}/hints; done",
    "while :; do for n in $(seq 40); do curl -s silent-$n.example.org & done; wait; done",
)
"""What commands do at once to their way out: answers that nobody reads, a server that never comes
to its answer, and names that nobody answers for."""

_Fetch = Callable[[], Awaitable[object]]


async def run(full: bool = False) -> list[str]:
    """Lines of the report; `full` measures more rounds."""
    lines = ["the way out"]
    if os.geteuid() != 0:
        return [*lines, "  left out: its servers need root"]
    rounds = 1000 if full else 300
    tiers: list[TierName] = ["process"]
    if why := await engine.missing():
        lines.append(f"  container tier left out: {why}")
    else:
        tiers.append("container")
    with internet() as net:
        for tier in tiers:
            opened = {"allow": (_FILES,)}
            async with guests(net, tier, base_url=f"https://{_HOST}", shell=opened) as user:
                lines += await _one_user(net, user, tier, rounds)
            allowed = {"allow": ("*.example.org",)}
            async with guests(net, tier, shell=allowed) as user:
                lines += await _besieged(net, user, tier, rounds // 3)
        lines += await _users(net, rounds // 3)
    return lines


async def _one_user(net: Internet, user: Guests, tier: TierName, rounds: int) -> list[str]:
    idle = await _memory(user, tier)
    near, far = f"https://{net.web}", "https://egress/openai"
    async with (
        _straight(net) as straight,
        _through_egress(user) as client,
        AsyncExitStack() as stack,
    ):
        asked = await _in_turns(_asking(straight, near), _asking(client, far), rounds)
        first = await _stream(stack, net, straight, near, rounds)
        pieces = await _alone(first, rounds)
        second = await _stream(stack, net, client, far, rounds)
        streamed = pieces, await _alone(second, rounds)
    direct, through = await _downloads(net, user, tier)
    after = await _memory(user, tier)
    added = p50(asked[1]) - p50(asked[0])
    return [
        f"  {tier} tier",
        *_rows("a provider's request", asked),
        f"    added                        p50 {added:7.2f} ms   "
        f"goal: at most {REQUEST_GOAL_MS:g} ms: {verdict(added <= REQUEST_GOAL_MS)}",
        *_rows("a piece of an answer", streamed),
        f"    a download of {_MIB} MiB        {_MIB / through:5.0f} MiB/s through, "
        f"{_MIB / direct:.0f} MiB/s direct: {direct / through:.2f}   "
        f"goal: at least 0.5: {verdict(direct / through >= 0.5)}",
        f"    memory of egress             {idle}; after the download {after}",
    ]


async def _besieged(net: Internet, user: Guests, tier: TierName, rounds: int) -> list[str]:
    """How much later the first word of an answer comes while commands besiege their way out."""
    net.said_by_provider(provider.says("Yes."))
    before = [await _first_word(user) for _ in range(rounds)]
    idle = [await _pss(user, role) for role in ("egress", "shell-egress")]
    begun = len(net.arrivals.all)

    def unread(_: object) -> bool:
        return sum("/bytes?1" in each.what for each in net.arrivals.all[begun:]) > 150

    siege = [asyncio.create_task(user.command(_SIEGE[0], timeout_ms=600_000))]
    await asyncio.to_thread(net.arrivals.wait_for, unread, 60)
    siege += [asyncio.create_task(user.command(each, timeout_ms=600_000)) for each in _SIEGE[1:]]
    during = [await _first_word(user) for _ in range(rounds)]
    for each in siege:
        each.cancel()
    later, both = p95(during) - p95(before), sum(idle) / 1e6
    met = f"goal: at most {MEMORY_OF_BOTH_GOAL_MB}: {verdict(both <= MEMORY_OF_BOTH_GOAL_MB)}"
    return [
        f"  {tier} tier, while commands besiege their way out",
        f"    the first word of a turn     p50 {p50(before):7.2f} ms   p95 {p95(before):7.2f} ms",
        f"    the same meanwhile           p50 {p50(during):7.2f} ms   p95 {p95(during):7.2f} ms",
        f"    later                        p95 {later:7.2f} ms   "
        f"goal: at most {LATER_GOAL_MS} ms: {verdict(later <= LATER_GOAL_MS)}",
        f"    memory of both, idle         {both:.0f} MB PSS ({met})",
    ]


async def _first_word(user: Guests) -> float:
    """Seconds from the question to the first word of the answer."""
    async with await GatewayClient.open(await user.host.gateway(), channel_name="bench") as agent:
        session = await agent.create_session()
        began, took = time.perf_counter(), 0.0
        async for event in agent.run_turn(session.session_id, "well?", ""):
            if event.HasField("text") and not took:
                took = time.perf_counter() - began
    assert took, event
    return took


async def _users(net: Internet, rounds: int) -> list[str]:
    """Many users of the process tier, who ask at once."""
    async with AsyncExitStack() as stack:
        all_users = [
            await stack.enter_async_context(guests(net, "process", base_url=f"https://{_HOST}"))
            for _ in range(_USERS)
        ]
        clients = [await stack.enter_async_context(_through_egress(user)) for user in all_users]
        straights = [await stack.enter_async_context(_straight(net)) for _ in all_users]
        through = [_asking(each, "https://egress/openai") for each in clients]
        direct = [_asking(each, f"https://{net.web}") for each in straights]
        together = await _in_turns(_all(direct), _all(through), rounds)
        total = sum([(await _pss(user)) for user in all_users])
    return [
        f"  {_USERS} users of the process tier, all at once",
        *_rows("a request of each", together),
        f"    memory of egress             {total / _USERS / 1e6:.0f} MB PSS each",
    ]


def _all(fetches: Sequence[_Fetch]) -> _Fetch:
    async def fetch() -> object:
        return await asyncio.gather(*(each() for each in fetches))

    return fetch


def _asking(client: httpx.AsyncClient, url: str) -> _Fetch:
    """A request as an agent sends it to a provider: some kilobytes there, few back."""
    body = b"x" * 8_000
    return lambda: client.post(f"{url}/hello", content=body)


async def _stream(
    stack: AsyncExitStack, net: Internet, client: httpx.AsyncClient, url: str, rounds: int
) -> _Fetch:
    """The next piece of an answer that says one whenever it may."""
    asked = f"{url}/stream?{rounds}"
    answer = await stack.enter_async_context(client.stream("GET", asked))
    chunks = answer.aiter_raw()

    async def piece() -> object:
        net.let_pieces_through(1)
        return await anext(chunks)

    return piece


async def _in_turns(first: _Fetch, second: _Fetch, rounds: int) -> tuple[list[float], list[float]]:
    """How long each of both takes, in seconds."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(5):
        await first()
        await second()
    for _ in range(rounds):
        for fetch, into in zip((first, second), times, strict=True):
            began = time.perf_counter()
            await fetch()
            into.append(time.perf_counter() - began)
    return times


async def _alone(fetch: _Fetch, rounds: int) -> list[float]:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        await fetch()
        times.append(time.perf_counter() - began)
    return times


def _rows(what: str, times: tuple[Sequence[float], Sequence[float]]) -> list[str]:
    return [
        f"    {what:22} {how:6} p50 {p50(each):7.2f} ms   p95 {p95(each):7.2f} ms"
        for how, each in zip(("direct", "egress"), times, strict=True)
    ]


def _straight(net: Internet) -> httpx.AsyncClient:
    """A client that reaches the server itself."""
    context = ssl.create_default_context(cadata=net.authority.pem)
    context.check_hostname = False  # it is asked for by its address
    return httpx.AsyncClient(verify=context, headers={"host": _HOST}, timeout=30)


def _through_egress(user: Guests) -> httpx.AsyncClient:
    """A client at the agent's listener, with the agent's identity."""
    context = client_context(Identity.of(user.listener.identity))
    path = user.listener.endpoint.removeprefix("unix:")
    transport = httpx.AsyncHTTPTransport(uds=path, verify=context)
    headers = {"oxydra-token": user.listener.token}
    return httpx.AsyncClient(transport=transport, headers=headers, timeout=30)


async def _downloads(net: Internet, user: Guests, tier: TierName) -> tuple[float, float]:
    """Seconds of the same download by curl: straight, and from a command of the shell guest."""
    url = f"https://{_FILES}/bytes?{_MIB}"
    written = "-sSk -o /dev/null -w %{time_total}"
    known = f"--resolve {_FILES}:443:{net.web}"
    words = ["curl", *written.split(), *known.split(), url]
    if tier == "container":
        image = f"{images_of_this_checkout()}-shell:{version('oxydra')}"
        words = ["docker", "run", "--rm", "--entrypoint", words[0], image, *words[1:]]
    best = [float("inf"), float("inf")]
    for _ in range(3):
        done = await asyncio.to_thread(subprocess.run, words, capture_output=True, check=True)
        best[0] = min(best[0], float(done.stdout))
        ran = await user.command(f"curl {written} '{url}'")
        best[1] = min(best[1], float(ran.stdout))
    return best[0], best[1]


async def _pss(user: Guests, role: str = "egress") -> int:
    """Of all processes of a guest."""
    first = psutil.Process(await user.pid(role))
    return sum(each.memory_full_info().pss for each in (first, *first.children(recursive=True)))


async def _memory(user: Guests, tier: TierName) -> str:
    """Of the guest: of its process, and in the container tier of its control group."""
    if tier == "process":
        used = await _pss(user) / 1e6
        return (
            f"{used:.0f} MB PSS (goal: at most {MEMORY_GOAL_MB}: {verdict(used <= MEMORY_GOAL_MB)})"
        )
    shown = ["docker", "stats", "--no-stream", "--format", "{{.MemUsage}}"]
    done = await asyncio.to_thread(
        subprocess.run, [*shown, user.container("egress")], capture_output=True, check=True
    )
    return f"{done.stdout.decode().partition(' /')[0]} in its control group"


if __name__ == "__main__":
    print("\n".join(asyncio.run(run())))
