"""What a watch of pods shows to those who wait for a change."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

from runner.tiers.kubernetes.cluster import Cluster
from runner.tiers.kubernetes.watching import Pods, has_ended


def pod(phase: str) -> dict[str, Any]:
    return {"metadata": {"name": "p", "resourceVersion": "2"}, "status": {"phase": phase}}


class Server:
    """An API server that tells of an end and of the removal in one piece."""

    namespace = "n"
    core = SimpleNamespace(list_namespaced_pod=None)

    async def ask(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {"items": [pod("Running")], "metadata": {"resourceVersion": "1"}}

    @asynccontextmanager
    async def stream(self, *_: Any, **__: Any) -> AsyncIterator[AsyncIterator[str]]:
        async def lines() -> AsyncIterator[str]:
            for kind in ("MODIFIED", "DELETED"):
                yield json.dumps({"type": kind, "object": pod("Succeeded")})
            await asyncio.Event().wait()

        yield lines()


async def test_an_end_is_seen_although_the_removal_comes_with_it() -> None:
    pods = Pods(cast(Cluster, Server()), "x=y")
    await pods.open()

    def over() -> str | None:
        found = pods.get("p")
        return "gone" if found is None else "ended" if has_ended(found) else None

    async with asyncio.timeout(60):
        assert await pods.until(over) == "ended"
        await pods.until(lambda: pods.get("p") is None or None)
    await pods.close()
