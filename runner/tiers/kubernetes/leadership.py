"""One active runner for each namespace: whoever holds the Lease. The others wait until it is free.

The library's election gives up at the first request that gets no answer. This one goes on through
an API server that is away for a minute: nobody can take the Lease then either.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, cast

from kubernetes_asyncio import client
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.leaderelection.electionconfig import Config
from kubernetes_asyncio.leaderelection.leaderelection import LeaderElection
from kubernetes_asyncio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes_asyncio.leaderelection.resourcelock.leaselock import LeaseLock
from wire.errors import Code

from runner.errors import HostError
from runner.tiers.kubernetes.cluster import NAMESPACE_FILE, UNREACHABLE, Cluster
from runner.tiers.kubernetes.names import LEASE, OURS, SERVICE
from runner.tiers.kubernetes.settings import KubernetesSettings

log = logging.getLogger(__name__)

LEASE_S: Final = 90
"""So long after its last sign of life, the active runner counts as gone."""
RENEW_S: Final = 75
RETRY_S: Final = 3
_ANSWER_S: Final = 10.0


class _Lock(LeaseLock):
    """The Lease. A request without an answer is one that has failed, and no more; so is one with an
    answer that is no JSON, as load balancers and an API server with too much to do give."""

    holder = ""

    async def get(self, name: str, namespace: str) -> Any:
        try:
            async with asyncio.timeout(_ANSWER_S):
                found, record = await super().get(name, namespace)
        except UNREACHABLE as error:
            log.warning("the Lease cannot be read: %s", error or type(error).__name__)
            return False, _failure(503, str(error))
        if found:
            self.holder = cast("LeaderElectionRecord", record).holder_identity or ""
            return True, record
        refused = cast("ApiException", record)
        return False, _failure(int(refused.status), str(refused.reason))

    async def create(
        self, name: str, namespace: str, election_record: LeaderElectionRecord
    ) -> bool:
        with contextlib.suppress(*UNREACHABLE):
            async with asyncio.timeout(_ANSWER_S):
                return await super().create(name, namespace, election_record)
        return False

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        with contextlib.suppress(*UNREACHABLE):
            async with asyncio.timeout(_ANSWER_S):
                return await super().update(name, namespace, updated_record)
        return False


def _failure(status: int, reason: str) -> ApiException:
    """The error as the library's election reads it."""
    failure = ApiException(status=status, reason=reason)
    failure.body = b'{"code": %d}' % status
    return failure


@contextlib.asynccontextmanager
async def leading(
    cluster: Cluster, identity: str, waiting: Callable[[str], object]
) -> AsyncIterator[asyncio.Event]:
    """Wait until this runner, which is `identity`, is the active one, and stay it.

    Yields an event that is set when it no longer is. `waiting` is told once who is, if another one
    is. At the end the Lease is given back.
    """
    await cluster.open()
    lock = _Lock(LEASE, cluster.home, identity, cluster.api)
    began, lost = asyncio.Event(), asyncio.Event()

    async def lead() -> None:
        began.set()
        await lost.wait()

    async def stopped() -> None:
        lost.set()

    election = LeaderElection(Config(lock, LEASE_S, RENEW_S, RETRY_S, lead, stopped))
    running = asyncio.create_task(election.run())
    running.add_done_callback(lambda _: lost.set())
    telling = asyncio.create_task(_tell(lock, identity, began, waiting))
    beginning = asyncio.create_task(began.wait())
    try:
        await asyncio.wait({running, beginning}, return_when=asyncio.FIRST_COMPLETED)
        if not began.is_set():
            running.result()
        yield lost
    finally:
        held = began.is_set() and not lost.is_set()
        for task in (running, telling, beginning):
            task.cancel()
        await asyncio.wait({running, telling, beginning})
        if held:
            await _give_back(cluster, identity)


async def holder(cluster: Cluster) -> str:
    """Who is the active runner; empty if none is. Raises `TierError` if the API server does not
    say."""
    await cluster.open()
    read = client.CoordinationV1Api(cluster.api).read_namespaced_lease
    lease = await cluster.find("read the Lease", read, LEASE, cluster.home)
    return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")


async def lead_here(cluster: Cluster, port: int) -> None:
    """Make this pod the only one that the Service leads to, at `port`. Raises `TierError`."""
    found = await asyncio.get_running_loop().getaddrinfo(socket.gethostname(), port)
    endpoints = {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": SERVICE, "labels": OURS},
        "subsets": [
            {
                "addresses": [{"ip": str(found[0][4][0])}],
                "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
            }
        ],
    }
    await cluster.ask(
        "lead its Service to this pod",
        cluster.core.replace_namespaced_endpoints,
        SERVICE,
        cluster.home,
        endpoints,
    )


async def lead(
    settings: KubernetesSettings,
    stack: contextlib.AsyncExitStack,
    ended: asyncio.Event,
    say: Callable[[str], object],
    port: int,
) -> bool:
    """See `Tier.lead`. The Service then leads to `port` of this pod, unless that is 0."""
    cluster = Cluster(settings)
    stack.push_async_callback(cluster.close)
    own = socket.gethostname()

    def waiting(active: str) -> None:
        say(f"waiting: {active} is the active runner of {cluster.home}")

    entering = asyncio.create_task(stack.enter_async_context(leading(cluster, own, waiting)))
    told = asyncio.create_task(ended.wait())
    try:
        await asyncio.wait({entering, told}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not entering.done():
            entering.cancel()
            await asyncio.wait({entering})
        told.cancel()
    if entering.cancelled():
        return False
    lost = entering.result()
    if port:
        await lead_here(cluster, port)
    say(f"active: {own} serves {cluster.home}")

    async def follow() -> None:
        await lost.wait()
        say("another runner is to be the active one; this one ends")
        ended.set()

    following = asyncio.create_task(follow())
    stack.callback(following.cancel)
    return True


async def active_elsewhere(settings: KubernetesSettings) -> tuple[str, str]:
    """The namespace and the pod of the active runner, if this process is in another pod of that
    namespace; both are empty if it is not, or if none is active. Raises `TierError` if the API
    server does not say."""
    if settings.kubeconfig is not None or not NAMESPACE_FILE.exists():
        return "", ""
    async with Cluster(settings) as cluster:
        found = await holder(cluster)
        return (cluster.home, found) if found not in ("", socket.gethostname()) else ("", "")


async def require_active(settings: KubernetesSettings) -> None:
    """See `Tier.require_active`."""
    namespace, active = await active_elsewhere(settings)
    if active:
        raise HostError(
            Code.FAILED_PRECONDITION,
            f"this replica waits; {active} is the active runner of {namespace}",
            details="one runner at a time serves a namespace",
            resolution=f"kubectl -n {namespace} exec -it {active} -c runner -- runner …",
        )


async def _tell(
    lock: _Lock, identity: str, began: asyncio.Event, waiting: Callable[[str], object]
) -> None:
    while not began.is_set():
        if lock.holder and lock.holder != identity:
            waiting(lock.holder)
            return
        await asyncio.sleep(RETRY_S / 3)


async def _give_back(cluster: Cluster, identity: str) -> None:
    """Empty the Lease, so that the next one need not wait until it runs out."""
    api = client.CoordinationV1Api(cluster.api)
    try:
        async with asyncio.timeout(_ANSWER_S):
            lease = await api.read_namespaced_lease(LEASE, cluster.home)
            if lease.spec.holder_identity == identity:
                lease.spec.holder_identity = ""
                await api.replace_namespaced_lease(LEASE, cluster.home, lease)
    except (ApiException, *UNREACHABLE) as error:
        log.warning("the Lease cannot be given back: %s", error or type(error).__name__)
