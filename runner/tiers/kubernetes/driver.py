"""The kubernetes tier's driver: a guest is a pod of one namespace."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wire.errors import Code, WireError
from wire.settings import ContainerSettings
from wire.v1.egress_pb2 import EgressConfiguration

from runner.errors import TierError
from runner.host.embedder import EmbedderHome
from runner.tiers.base import (
    Boundary,
    Capabilities,
    Confinement,
    Handle,
    Inspection,
    LaunchSpec,
    SharedEmbedder,
    TierDriver,
)
from runner.tiers.kubernetes import claims, policies
from runner.tiers.kubernetes.boundary import PodBoundary
from runner.tiers.kubernetes.cluster import Cluster, RefusedError
from runner.tiers.kubernetes.embedder import ClusterEmbedder
from runner.tiers.kubernetes.names import Owner, selector
from runner.tiers.kubernetes.permissions import missing_permissions
from runner.tiers.kubernetes.placement import PodPlacement
from runner.tiers.kubernetes.pods import launch_in, pod_of
from runner.tiers.kubernetes.settings import TIER, KubernetesSettings
from runner.tiers.kubernetes.streams import Output, send_envelope
from runner.tiers.kubernetes.watching import (
    Pod,
    Pods,
    address_of,
    exit_code,
    has_ended,
    hopeless,
    is_running,
    reason_of_end,
    was_out_of_memory,
    why_waiting,
)
from runner.tiers.running import OutputLog
from runner.workspace.mounts import SERVED, Role

log = logging.getLogger(__name__)

_ENDING_S: Final = 20.0
"""How long a node may take to end a pod beyond its grace."""
_MARGIN_S: Final = 10.0
_CLEAR_GRACE_S: Final = 2.0


@dataclass
class _Guest:
    """One pod that this driver started or adopted, among the user's `pods`. `ended` resolves once
    nothing of it runs."""

    pods: Pods
    name: str
    uid: str
    ended: "asyncio.Future[int | None]"
    life: "asyncio.Task[None]"


class KubernetesDriver(TierDriver):
    """See `runner.tiers.base.TierDriver`. The API server is first asked by `check` or at the first
    use."""

    def __init__(self, settings: KubernetesSettings, container: ContainerSettings) -> None:
        self._settings = settings
        self._container = container
        self.cluster = Cluster(settings)
        self._ports: dict[tuple[str, Role], policies.Ports] = {}
        self._pods: dict[str, Pods] = {}
        self._guests: dict[str, _Guest] = {}

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            tier=TIER,
            unsupported={},
            own_files=frozenset(Role),
            own_programs=True,
            placement=PodPlacement(self._settings.lease_s),
            let_out=self._let_out,
        )

    def confinement(self, spec: LaunchSpec) -> Confinement:
        own_kernel = bool(self._settings.runtime_class)
        return Confinement(*spec.owner, seccomp=True, own_kernel=own_kernel)

    async def check(self) -> list[str]:
        """Raises `TierError`, with the fix, if the cluster does not let the runner do its work."""
        await self.cluster.open()
        if missing := await missing_permissions(self.cluster):
            raise TierError(
                Code.PERMISSION_DENIED,
                f"the runner may not {missing[0]} in the namespace {self.cluster.namespace}",
                details=f"it lacks: {', '.join(missing)}",
                resolution="kubectl apply -k deploy/kubernetes/plain, or helm upgrade",
            )
        # One that the runner may not look for is refused with the pods.
        wanted = self._settings.runtime_class
        if wanted and await self.cluster.runtime_class(wanted) == {}:
            raise TierError(
                Code.FAILED_PRECONDITION,
                f"this cluster has no runtime class {wanted}",
                details="guests start with it or not at all",
                resolution="kubectl get runtimeclass, then set kubernetes.runtime_class",
            )
        return []

    async def start(self, spec: LaunchSpec) -> Handle:
        await self.cluster.open()
        owner = Owner(spec.user_id)
        pods = await self._watched(owner)
        output = OutputLog(spec.log_path, spec.home, spec.role, spec.user_id)
        async with contextlib.AsyncExitStack() as undo:
            undo.callback(output.close)
            if spec.user_id:
                await claims.ensure(self.cluster, owner, spec.role, self._settings)
                key = spec.user_id, spec.role
                await self._open_ports(key, self._ports.get(key, policies.USUAL))
            wanted = pod_of(spec, self._settings, self._container.images)
            name = wanted["metadata"]["name"]
            pod = await self._create(wanted, pods)
            undo.push_async_callback(self._remove_now, pods, pod)
            uid = pod["metadata"]["uid"]
            try:
                async with asyncio.timeout(self._settings.start_s):
                    pod = await pods.until(lambda: _begun(pods.get(name), uid))
            except TimeoutError:
                found = pods.get(name)
                raise TierError(
                    Code.TIMEOUT,
                    f"the {spec.role} guest's pod {name} did not run within "
                    f"{self._settings.start_s} s",
                    details=why_waiting(found) if found is not None else "it is gone",
                    resolution=f"kubectl -n {self.cluster.namespace} describe pod {name}",
                ) from None
            if not (is_running(pod) or has_ended(pod)):
                raise TierError(
                    Code.UNAVAILABLE,
                    f"the {spec.role} guest's pod {name} cannot run",
                    details=why_waiting(pod) or reason_of_end(pod) or "it was removed",
                    resolution=f"kubectl -n {self.cluster.namespace} describe pod {name}",
                )
            lingering = None
            if is_running(pod):
                lingering = await send_envelope(
                    self.cluster, name, spec.envelope, incoming=spec.incoming
                )
            undo.pop_all()
        following = Output(self.cluster, name, output)
        self._guests[spec.launch_id] = self._guest(pods, name, uid, following, spec, lingering)
        return Handle(
            TIER,
            spec.role,
            spec.user_id,
            spec.launch_id,
            {"pod": name, "uid": uid, "log": str(spec.log_path), "home": str(spec.home)},
            address=address_of(pod),
        )

    async def inspect(self, handle: Handle) -> Inspection:
        guest = self._guests.get(handle.launch_id)
        if guest is None:
            return Inspection(running=False)
        if guest.ended.done():
            return Inspection(running=False, exit_code=guest.ended.result())
        return Inspection(running=True)

    async def wait(self, handle: Handle) -> int | None:
        guest = self._guests.get(handle.launch_id)
        return None if guest is None else await asyncio.shield(guest.ended)

    async def stop(self, handle: Handle, grace: float = 5.0) -> None:
        guest = self._guests.get(handle.launch_id)
        if guest is None or guest.ended.done():
            return
        try:
            await self._end(guest, grace)
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.create_task(self._end(guest, 0)))
            raise

    async def clear(self, user_id: str, home: Path) -> list[str]:
        await self.cluster.open()
        pods = await self._watched(Owner(user_id))
        ours = {guest.uid for guest in self._guests.values()}
        found = [pod for pod in pods.all() if _uid(pod) not in ours]
        await asyncio.gather(*(self._gone(pods, pod, _CLEAR_GRACE_S) for pod in found))
        names = sorted(pod["metadata"]["name"] for pod in found)
        return [f"an earlier runner left the pod {name}; it was removed" for name in names]

    async def recover(self, handle: Handle) -> bool:
        data = handle.data
        if not all(isinstance(data.get(key), str) for key in ("pod", "uid", "log", "home")):
            return False
        await self.cluster.open()
        owner = Owner(handle.user_id)
        pods = await self._watched(owner)
        pod = pods.get(data["pod"])
        if pod is None or _uid(pod) != data["uid"] or not is_running(pod):
            return False
        if launch_in(pod) != handle.launch_id:
            return False
        # What is allowed may be set otherwise than when it was started. Egress hears of it later.
        if handle.user_id and handle.role not in SERVED:
            await self._open_ports((handle.user_id, handle.role), None)
        output = OutputLog(Path(data["log"]), Path(data["home"]), handle.role, handle.user_id)
        following = Output(self.cluster, data["pod"], output, adopted=True)
        self._guests[handle.launch_id] = self._guest(pods, data["pod"], data["uid"], following)
        return True

    async def close(self) -> None:
        for guest in self._guests.values():
            guest.life.cancel()
        tasks = [guest.life for guest in self._guests.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=_ENDING_S)
        self._guests.clear()
        for pods in self._pods.values():
            await pods.close()
        self._pods.clear()
        await self.cluster.close()

    def boundary(self, user_id: str, environ: Mapping[str, str]) -> Boundary:
        return PodBoundary(self.cluster, self.confinement, user_id, environ)

    def embedder(
        self, home: EmbedderHome, user_id: str, on_moved: Callable[[], Awaitable[None]]
    ) -> SharedEmbedder:
        return ClusterEmbedder(home, self.cluster, user_id, on_moved=on_moved)

    async def _let_out(self, told: EgressConfiguration, role: Role) -> None:
        """See `Capabilities.let_out`. Raises `TierError`."""
        key, ports = (told.user_id, role), policies.ports_of(told)
        if key not in self._ports or self._ports[key] != ports:
            await self._open_ports(key, ports)

    async def _open_ports(self, of: tuple[str, Role], ports: policies.Ports) -> None:
        user_id, role = of
        await policies.ensure(self.cluster, Owner(user_id), role, self._settings, ports)
        self._ports[of] = ports

    async def _watched(self, owner: Owner) -> Pods:
        key = selector(owner.labels)
        if key not in self._pods:
            self._pods[key] = Pods(self.cluster, key)
        await self._pods[key].open()
        return self._pods[key]

    async def _create(self, wanted: Pod, pods: Pods) -> Pod:
        """Create a pod. One of an earlier launch that bears its name goes first, if it is this
        driver's, or about to go; another runner's stays."""
        name = wanted["metadata"]["name"]
        if (found := pods.get(name)) is not None:
            ours = _uid(found) in {guest.uid for guest in self._guests.values()}
            if not (ours or has_ended(found) or found["metadata"].get("deletionTimestamp")):
                raise self._taken(name)
            await self._gone(pods, found, _CLEAR_GRACE_S)
        core = self.cluster.core
        pod = await self.cluster.made(
            "pod", core.create_namespaced_pod, core.read_namespaced_pod, wanted
        )
        if launch_in(pod) != launch_in(wanted):  # else a repeated request has made it already
            raise self._taken(name)
        pods.seen(pod)
        return pod

    def _taken(self, name: str) -> TierError:
        return TierError(
            Code.ALREADY_EXISTS,
            f"the pod {name} is there already",
            details="another runner has started it, or it is somebody else's",
            resolution=f"kubectl -n {self.cluster.namespace} get pod {name} --show-labels; one "
            "runner at a time serves a namespace",
        )

    def _guest(
        self,
        pods: Pods,
        name: str,
        uid: str,
        output: Output,
        spec: LaunchSpec | None = None,
        lingering: "asyncio.Task[None] | None" = None,
    ) -> _Guest:
        ended: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

        async def live() -> None:
            try:
                pod = await pods.until(lambda: _over(pods.get(name), uid))
            except asyncio.CancelledError:
                await output.abandon()
                if lingering is not None:
                    await asyncio.wait({lingering})
                raise
            if lingering is not None:
                lingering.cancel()
            await output.finish(_last_line(pod, spec))
            with contextlib.suppress(WireError):
                await self._gone(pods, pod, 0)
            ended.set_result(exit_code(pod))

        return _Guest(pods, name, uid, ended, asyncio.create_task(live()))

    async def _end(self, guest: _Guest, grace: float) -> None:
        pod = guest.pods.get(guest.name)
        if pod is not None and _uid(pod) == guest.uid:
            await self._gone(guest.pods, pod, grace)
        await asyncio.shield(guest.ended)

    async def _remove_now(self, pods: Pods, pod: Pod) -> None:
        if pods.get(pod["metadata"]["name"]) is not None:
            await asyncio.shield(asyncio.create_task(self._gone(pods, pod, 0)))

    async def _gone(self, pods: Pods, pod: Pod, grace: float) -> None:
        """Remove a pod and wait until it is gone.

        If its node does not answer, nothing says that the guest has ended. But it ends by itself
        when no runner is heard of for its lease; nobody renews it from here on. So after that the
        pod's object can go without the node.
        """
        name, uid = pod["metadata"]["name"], _uid(pod)
        await self._delete(name, uid, max(1, round(grace)) if not has_ended(pod) else 0)

        async def absent(within_s: float) -> bool:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    return await pods.until(lambda: _absent(pods.get(name), uid))
            return False

        if await absent(grace + _ENDING_S):
            return
        log.warning("the node of the pod %s does not say that it has ended", name)
        if await absent(self._settings.lease_s + _MARGIN_S):
            return
        await self._delete(name, uid, 0)
        if not await absent(_ENDING_S):
            raise TierError(
                Code.INTERNAL,
                f"the pod {name} does not go",
                details="it was removed, and the cluster still has it",
                resolution=f"kubectl -n {self.cluster.namespace} describe pod {name}",
            )

    async def _delete(self, name: str, uid: str, grace: int) -> None:
        try:
            await self.cluster.ask(
                f"remove the pod {name}",
                self.cluster.core.delete_namespaced_pod,
                name,
                self.cluster.namespace,
                body={"gracePeriodSeconds": grace, "preconditions": {"uid": uid}},
            )
        except RefusedError as refused:
            if refused.reason not in ("NotFound", "Conflict"):
                raise


def _uid(pod: Pod) -> str:
    return str(pod["metadata"]["uid"])


def _absent(pod: Pod | None, uid: str) -> bool | None:
    return True if pod is None or _uid(pod) != uid else None


def _begun(pod: Pod | None, uid: str) -> Pod | None:
    """The pod once it runs, has ended, or cannot run; None while it may still come."""
    if pod is None or _uid(pod) != uid:
        return {"metadata": {"name": "", "uid": uid}, "status": {}}
    ready = is_running(pod) and address_of(pod)
    return pod if ready or has_ended(pod) or hopeless(pod) else None


def _over(pod: Pod | None, uid: str) -> Pod | None:
    """The pod once nothing of it runs; None while it does."""
    if pod is None or _uid(pod) != uid:
        return {"metadata": {"name": "", "uid": uid}, "status": {}}
    return pod if has_ended(pod) else None


def _last_line(pod: Pod, spec: LaunchSpec | None) -> str:
    if was_out_of_memory(pod):
        limit = f" (limit of {spec.limits.memory_bytes // 2**20} MiB)" if spec is not None else ""
        return f"the guest was killed: out of memory{limit}"
    if reason := reason_of_end(pod):
        return f"the cluster says of its end: {reason}"
    return ""
