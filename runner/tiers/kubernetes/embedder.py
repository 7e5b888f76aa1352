"""The embedder of a cluster: pods of a Deployment, which all runners of the namespace share.

The Deployment starts them, and they wait for an envelope. Whichever host sees one first gives it:
all hosts have the same token and authority, from files on the runner's volume. A host leads its
agent to one of those that answer, and to another one when that is gone.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import grpc
from wire import envelope
from wire.disk import held
from wire.errors import WireError
from wire.identity import Party, Peer
from wire.transport import check_health, open_channel
from wire.v1 import bootstrap_pb2, control_pb2

from runner.host.embedder import NONE, EmbedderHome, describe, locked
from runner.host.runtime import write_json
from runner.host.supervisor import disabled
from runner.tiers.base import Port, SharedEmbedder
from runner.tiers.kubernetes.cluster import Cluster
from runner.tiers.kubernetes.names import EMBEDDER, selector
from runner.tiers.kubernetes.streams import send_envelope
from runner.tiers.kubernetes.watching import Pod, Pods, address_of, container_of, is_running
from runner.workspace.mounts import Role

log = logging.getLogger(__name__)

_LOOK_S: Final = 5.0
_CHECK_S: Final = 3.0
_NO_PODS: Final = "no pod of the Deployment oxydra-embedder runs"


class ClusterEmbedder(SharedEmbedder):
    """One host's share in the embedders of a cluster; see `Embedder` for its face.

    `on_moved` is called when the agent has to be told of another place.
    """

    def __init__(
        self,
        home: EmbedderHome,
        cluster: Cluster,
        user_id: str,
        *,
        on_moved: Callable[[], Awaitable[None]],
    ) -> None:
        self._home = home
        self._cluster = cluster
        self._user_id = user_id
        self._on_moved = on_moved
        self._enabled = home.backend != "none"
        self._pods = Pods(cluster, selector(EMBEDDER))
        self._link = bootstrap_pb2.Link(unavailable_reason=NONE)
        self._chosen = ""
        self._reason = _NO_PODS
        self._channel: grpc.aio.Channel | None = None
        self._attending: asyncio.Task[None] | None = None
        self._since = datetime.now(UTC)

    async def start(self) -> None:
        """Begin to attend to the pods. Returns before one serves. Idempotent."""
        if not self._enabled or self._attending is not None:
            return
        self._token, self._authority = self._home.prepare()
        self._ours = self._authority.issue(Party.RUNNER)
        self._theirs = self._authority.issue(Party.AGENT).message()
        self._link = bootstrap_pb2.Link(token=self._token, identity=self._theirs)
        await self._pods.open()
        self._attending = asyncio.create_task(self._attend())

    async def stop(self) -> None:
        """Leave the pods to other hosts. Idempotent."""
        if self._attending is not None:
            self._attending.cancel()
            await asyncio.wait({self._attending})
            self._attending = None
        await self._leave()
        await self._pods.close()

    def link(self) -> bootstrap_pb2.Link:
        """Where guests find it, with an identity for them. Valid after `start`."""
        return self._link

    async def status(self) -> control_pb2.GuestStatus:
        """The current state of the embedder that was chosen, which is asked."""
        reply = disabled(Role.EMBEDDER, NONE, self._since)
        if not self._enabled:
            return reply
        reply.state, reply.reason = "starting", ""
        if self._channel is None:
            reply.reason = self._reason
            return reply
        await describe(reply, self._channel)
        if reply.details:
            reply.details += f", pod {self._chosen}"
        return reply

    async def _attend(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._pods.changed()
            try:
                await self._look()
            except (WireError, OSError) as error:
                self._reason = str(error)
                log.warning("embedders: %s", error)

    async def _look(self) -> None:
        """Give envelopes to those that have none, and see that one is chosen that answers."""
        running = [pod for pod in self._pods.all() if is_running(pod) and address_of(pod)]
        for pod in running:
            await self._equip(pod)
        held = {pod["metadata"]["name"]: pod for pod in running}
        known = self._channel if self._chosen in held else None
        if known is not None and await check_health(known, _CHECK_S):
            return
        before = self._link.endpoint
        await self._choose(running)
        if self._link.endpoint != before:
            await self._on_moved()

    async def _choose(self, running: list[Pod]) -> None:
        await self._leave()
        if not running:
            self._reason = _NO_PODS
        for pod in sorted(running, key=self._distance):
            peer = self._peer(pod)
            channel = open_channel(peer)
            if await check_health(channel, _CHECK_S):
                self._channel, self._chosen = channel, pod["metadata"]["name"]
                self._link = bootstrap_pb2.Link(
                    endpoint=peer.endpoint,
                    token=self._token,
                    identity=self._theirs,
                    launch_id=peer.launch_id,
                )
                return
            await channel.close()
            self._reason = f"the pod {pod['metadata']['name']} does not answer yet"

    async def _leave(self) -> None:
        if self._channel is not None:
            await self._channel.close()
            self._channel, self._chosen = None, ""
        if self._link.endpoint:
            self._link = bootstrap_pb2.Link(token=self._token, identity=self._theirs)

    def _peer(self, pod: Pod) -> Peer:
        endpoint = Port.EMBEDDER.at(address_of(pod))
        name = pod["metadata"]["uid"]
        return Peer(endpoint, Party.EMBEDDER, self._token, self._ours, name)

    def _distance(self, pod: Pod) -> str:
        """Spreads users over pods, and moves few of them when pods come and go."""
        words = f"{self._user_id} {pod['metadata']['uid']}"
        return hashlib.sha256(words.encode()).hexdigest()

    async def _equip(self, pod: Pod) -> None:
        """Give a pod its envelope, unless it has one: standard input takes only one."""
        name, container = pod["metadata"]["name"], container_of(pod)
        lock = await locked(self._home.spawn_lock, 0)
        if lock is None:
            return  # another host is at it
        with held(lock):
            known = self._equipped()
            if container in known:
                return
            identity = self._authority.issue(Party.EMBEDDER, pod["metadata"]["uid"])
            message = envelope.service(self._token, identity)
            lingering = await send_envelope(self._cluster, name, message)
            self._note([*known, container])
            await lingering
            log.info("the embedder %s has its envelope", name)

    def _equipped(self) -> list[str]:
        """The containers that have an envelope."""
        try:
            found = json.loads(self._home.state.read_text())
        except (FileNotFoundError, ValueError):
            return []
        return [str(each) for each in found.get("equipped", ())]

    def _note(self, equipped: list[str]) -> None:
        present = {container_of(pod) for pod in self._pods.all()}
        write_json(self._home.state, {"equipped": [each for each in equipped if each in present]})
