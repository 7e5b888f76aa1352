"""A stand-in for the kubelet: a node of the cluster whose pods are containers of this machine."""

import asyncio
import contextlib
import os
import ssl
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.support.kubernetes import volumes
from tests.support.kubernetes.api import UNREACHABLE, Api, ApiError
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.engine import Engine
from tests.support.kubernetes.policies import Policies
from tests.support.kubernetes.streams import Attached, Streams
from tests.support.kubernetes.workers import Worker

Object = dict[str, Any]
_BEAT_S: Final = 3.0
_LEASE_S: Final = 40
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_ROOM: Final = {"cpu": "64", "memory": "256Gi", "pods": "250", "ephemeral-storage": "500Gi"}


@dataclass
class Network:
    """The bridge that all pods of a cluster are on, with the addresses that are free."""

    name: str
    name_server: str
    free: list[str]
    policies: Policies


class Kubelet:
    """The node `name`. What it keeps for pods lies in `directory`.

    No pod has more than `pids_limit` processes; 0 is no limit.
    """

    def __init__(
        self,
        plane: ControlPlane,
        api: Api,
        engine: Engine,
        network: Network,
        *,
        name: str,
        directory: Path,
        pids_limit: int,
    ) -> None:
        self._plane = plane
        self._network = network
        self.api = api
        self.engine = engine
        self.name = name
        self.address = plane.address
        self.network = network.name
        self.name_server = network.name_server
        self.directory = directory / name
        self.pids_limit = pids_limit
        self._workers: dict[str, Worker] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._streams = Streams(engine, self._tls(), self._find)

    async def start(self) -> None:
        """Register the node and take up its pods, also those of an earlier life."""
        self.directory.mkdir(parents=True, exist_ok=True)
        port = await self._streams.open(self.address)
        await self._register(port)
        self._begin(self._beat(port))
        mine = f"fieldSelector=spec.nodeName%3D{self.name}"
        self._begin(self.api.follow("/api/v1/pods", self._take, mine))

    async def stop(self) -> None:
        """Cease to answer. Containers run on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._streams.close()

    async def kill(self) -> None:
        """The node loses its power: all its containers end at once and it answers nobody."""
        containers = [each.container for each in self._workers.values() if each.container]
        await self.stop()
        await asyncio.gather(*(self.engine.kill(each) for each in containers))
        for uid, worker in self._workers.items():
            await self.release(uid, worker.ip)
        self._workers.clear()

    def container(self, pod: str) -> str:
        """The engine's id for a pod, by namespace and name. Raises `LookupError`."""
        for worker in self._workers.values():
            if worker.name == pod and worker.container:
                return worker.container
        raise LookupError(f"{pod} has no container on {self.name}")

    def api_address(self) -> tuple[str, int]:
        return self._plane.address, self._plane.port

    def take_ip(self) -> str:
        return self._network.free.pop(0)

    async def admit(self, uid: str, pod: Object, ip: str) -> None:
        await self._network.policies.add(uid, pod, ip)

    async def release(self, uid: str, ip: str) -> None:
        """The pod sends nothing any more; with `ip`, its address is free."""
        await self._network.policies.drop(uid)
        if ip and ip not in self._network.free:
            self._network.free.append(ip)

    def _tls(self) -> ssl.SSLContext:
        user = f"system:node:{self.name}"
        own = self._plane.authority.issue(user, "system:nodes", (self.address,))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(own.certificate + own.key)
            file.flush()
            context.load_cert_chain(file.name)
        context.load_verify_locations(cadata=self._plane.authority.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _find(self, namespace: str, name: str) -> Attached | None:
        found = [each for each in self._workers.values() if each.name == f"{namespace}/{name}"]
        return found[-1] if found else None

    def _take(self, pods: list[Object]) -> None:
        """Bring the workers to what the API server has."""
        there = {str(pod["metadata"]["uid"]): pod for pod in pods}
        for uid, pod in there.items():
            if uid in self._workers:
                self._workers[uid].take(pod)
                labels = dict(pod["metadata"].get("labels") or {})
                self._network.policies.relabel(uid, labels)
            else:
                self._workers[uid] = worker = Worker(self, pod)
                self._begin(self._work(uid, worker))
        for uid, worker in self._workers.items():
            if uid not in there:
                worker.vanish()

    async def _work(self, uid: str, worker: Worker) -> None:
        while True:
            try:
                await worker.run()
            except (ApiError, *UNREACHABLE) as error:
                print(f"{self.name}: {worker.name}: {error!r}")
                await asyncio.sleep(1)
            else:
                break
        del self._workers[uid]

    async def _register(self, port: int) -> None:
        labels = {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux"}
        node = {"metadata": {"name": self.name, "labels": labels}}
        await self.api.insist(lambda: self._made("/api/v1/nodes", node))
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": _LEASE_S}
        lease = {"metadata": {"name": self.name}, "spec": spec}
        await self.api.insist(lambda: self._made(_LEASES, lease))
        await self.api.insist(lambda: self._tell(port))

    async def _made(self, path: str, made: Object) -> None:
        try:
            await self.api.post(path, made)
        except ApiError as error:
            if error.status != 409:
                raise

    async def _beat(self, port: int) -> None:
        """Tell again and again that the node is there."""
        while True:
            await asyncio.sleep(_BEAT_S)
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            with contextlib.suppress(ApiError, *UNREACHABLE):
                await self.api.merge(f"{_LEASES}/{self.name}", {"spec": {"renewTime": now}})
                await self._tell(port)

    async def _tell(self, port: int) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        kinds = {"Ready": "True", **dict.fromkeys(("MemoryPressure", "DiskPressure"), "False")}
        conditions = [
            {
                "type": kind,
                "status": truth,
                "reason": "StandIn",
                "message": "a stand-in for a kubelet",
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
            for kind, truth in kinds.items()
        ]
        unknown = ("machineID", "systemUUID", "bootID", "osImage", "kubeProxyVersion")
        status = {
            "capacity": _ROOM,
            "allocatable": _ROOM,
            "conditions": conditions,
            "addresses": [
                {"type": "InternalIP", "address": self.address},
                {"type": "Hostname", "address": self.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "nodeInfo": {
                **dict.fromkeys(unknown, "stand-in"),
                "kernelVersion": os.uname().release,
                "kubeletVersion": "v1.20.2",
                "containerRuntimeVersion": "docker://stand-in",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        }
        await self.api.merge(f"/api/v1/nodes/{self.name}/status", {"status": status})

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Storage:
    """The provisioner of the cluster's volumes, which are directories."""

    def __init__(self, api: Api, directory: Path) -> None:
        self._api = api
        self._directory = directory
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await volumes.make_class(self._api)
        self._begin(self._api.follow("/api/v1/persistentvolumeclaims", self._provision))
        self._begin(self._api.follow("/api/v1/persistentvolumes", self._reclaim))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _provision(self, claims: list[Object]) -> None:
        self._begin(volumes.provision(self._api, self._directory, claims))

    def _reclaim(self, found: list[Object]) -> None:
        self._begin(volumes.reclaim(self._api, found))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
