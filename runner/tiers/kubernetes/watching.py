"""How pods are, as the API server tells it: one list and one watch for all pods of a selection.

While the API server is away, pods stay as they were last seen.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

from wire.errors import WireError

from runner.tiers.kubernetes.cluster import UNREACHABLE, Cluster, RefusedError

log = logging.getLogger(__name__)

_WATCH_S: Final = 300
"""After so long the API server ends a watch, and another one begins where it was."""
PAUSE_S: Final = 0.5
_PAUSE_MAX_S: Final = 10.0
_GONE: Final = 410
_ENDED: Final = ("Succeeded", "Failed")
_KILLED: Final = 128

Pod = dict[str, Any]
_Found = TypeVar("_Found")


class Pods:
    """The pods that `select` chooses, by their names, kept up to date from `open` to `close`."""

    def __init__(self, cluster: Cluster, select: str) -> None:
        self._cluster = cluster
        self._select = select
        self._pods: dict[str, Pod] = {}
        self._unconfirmed: set[str] = set()
        self._changed = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Return when the pods are known. Idempotent. Raises `TierError` if they are refused."""
        if self._following is None:
            version = await self._list()
            self._following = asyncio.create_task(self._follow(version))

    async def close(self) -> None:
        """End the watch. Idempotent."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait({self._following})
            self._following = None

    def get(self, name: str) -> Pod | None:
        """The pod as it was last seen; None if it is gone."""
        return self._pods.get(name)

    def all(self) -> list[Pod]:
        """All pods as they were last seen."""
        return list(self._pods.values())

    def seen(self, pod: Pod) -> None:
        """Take up a pod that was just created, before the watch reports it."""
        name = pod["metadata"]["name"]
        if name not in self._pods:
            self._pods[name] = pod
            self._unconfirmed.add(name)

    async def until(self, found: Callable[[], _Found | None]) -> _Found:
        """What `found` returns, once that is not None; it is asked at each change."""
        while True:
            changed = self._changed
            if (answer := found()) is not None:
                return answer
            await changed.wait()

    async def changed(self) -> None:
        """Return at the next change."""
        await self._changed.wait()

    async def _list(self) -> str:
        before = {*self._unconfirmed}
        found = await self._cluster.ask(
            "list pods",
            self._cluster.core.list_namespaced_pod,
            self._cluster.namespace,
            label_selector=self._select,
        )
        # What was created while the list was made may be missing in it.
        kept = {name: self._pods[name] for name in self._unconfirmed - before}
        self._pods = kept | {pod["metadata"]["name"]: pod for pod in found["items"]}
        self._unconfirmed &= kept.keys()
        self._tell()
        return str(found["metadata"]["resourceVersion"])

    async def _follow(self, version: str) -> None:
        pause = PAUSE_S
        while True:
            try:
                version = version or await self._list()
                version = await self._watch(version)
                pause = PAUSE_S
                continue
            except RefusedError as refused:
                if refused.status != _GONE:
                    log.warning("the watch of pods: %s (%s)", refused.brief, refused.details)
                version = ""
            except (WireError, ValueError, *UNREACHABLE) as error:
                log.info("the watch of pods is interrupted: %s", error or type(error).__name__)
                version = ""
            await asyncio.sleep(pause)
            pause = min(_PAUSE_MAX_S, pause * 2)

    async def _watch(self, version: str) -> str:
        """Follow changes until the API server ends the watch. Returns where it was."""
        async with self._cluster.stream(
            "watch pods",
            self._cluster.core.list_namespaced_pod,
            self._cluster.namespace,
            label_selector=self._select,
            resource_version=version,
            watch=True,
            allow_watch_bookmarks=True,
            timeout_seconds=_WATCH_S,
        ) as lines:
            # A connection that died without a word is noticed by this.
            async with asyncio.timeout(_WATCH_S * 1.1):
                async for line in lines:
                    version = self._take(json.loads(line))
                    await asyncio.sleep(0)  # who waits sees an end also where a removal follows it
        return version

    def _take(self, event: dict[str, Any]) -> str:
        kind, pod = event["type"], event["object"]
        if kind == "ERROR":
            raise RefusedError(
                int(pod.get("code", 0)),
                "go on with the watch of pods",
                str(pod.get("reason", "")),
                str(pod.get("message", "")),
            )
        name = pod["metadata"].get("name", "")
        self._unconfirmed.discard(name)
        if kind == "DELETED":
            self._pods.pop(name, None)
        elif kind != "BOOKMARK":
            self._pods[name] = pod
        self._tell()
        return str(pod["metadata"]["resourceVersion"])

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def has_ended(pod: Pod) -> bool:
    """Whether nothing of the pod runs any more."""
    return str(pod.get("status", {}).get("phase", "")) in _ENDED


def is_running(pod: Pod) -> bool:
    """Whether its container runs and nobody has asked it to end."""
    phase = str(pod.get("status", {}).get("phase", ""))
    asked = "deletionTimestamp" in pod["metadata"]
    return phase == "Running" and "running" in _state(pod) and not asked


def address_of(pod: Pod) -> str:
    return str(pod.get("status", {}).get("podIP", ""))


def container_of(pod: Pod) -> str:
    """The id of its container; another one after each restart."""
    statuses = pod.get("status", {}).get("containerStatuses") or [{}]
    return str(statuses[0].get("containerID", ""))


def exit_code(pod: Pod) -> int | None:
    """The code with which its container has ended, negative for a signal; None if unknown."""
    code = _state(pod).get("terminated", {}).get("exitCode")
    if code is None:
        return None
    return _KILLED - code if code > _KILLED else int(code)


def was_out_of_memory(pod: Pod) -> bool:
    return str(_state(pod).get("terminated", {}).get("reason", "")) == "OOMKilled"


def reason_of_end(pod: Pod) -> str:
    """Why the pod ended, where the node or the cluster says more than a code: an eviction, a lost
    node."""
    status = pod.get("status", {})
    return ": ".join(filter(None, (status.get("reason", ""), status.get("message", ""))))


def why_waiting(pod: Pod) -> str:
    """Why its container does not run yet, if that is known."""
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            return f"no node takes it: {condition.get('message') or condition.get('reason', '')}"
    waiting = _state(pod).get("waiting", {})
    return ": ".join(filter(None, (waiting.get("reason", ""), waiting.get("message", ""))))


def hopeless(pod: Pod) -> bool:
    """Whether it waits for what does not come by itself soon."""
    reason = _state(pod).get("waiting", {}).get("reason", "")
    return reason in (
        *("ErrImageNeverPull", "InvalidImageName", "ImagePullBackOff"),
        *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
    )


def _state(pod: Pod) -> dict[str, Any]:
    """Of its container, or of one that must succeed first and has not."""
    status = pod.get("status", {})
    for first in status.get("initContainerStatuses") or ():
        state = first.get("state") or {}
        if state.get("terminated", {}).get("exitCode") != 0:
            return dict(state)
    statuses = status.get("containerStatuses") or [{}]
    return dict(statuses[0].get("state") or {})
