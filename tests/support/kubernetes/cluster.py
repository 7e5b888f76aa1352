"""A whole cluster: a real control plane, and nodes that are stand-ins.

The stand-ins live in a thread of their own, so tests may have any event loop, or none.
"""

import asyncio
import contextlib
import ipaddress
import itertools
import json
import os
import random
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.support.kubernetes import policies, volumes
from tests.support.kubernetes.api import Api, ApiError
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.engine import Engine, EngineError
from tests.support.kubernetes.kubelet import Kubelet, Network, Storage
from tests.support.kubernetes.names import ClusterNames
from tests.support.kubernetes.policies import Policies
from tests.support.scratch import SCRATCH

Object = dict[str, Any]
RUNNER: Final = {"app.kubernetes.io/name": "oxydra", "oxydra.io/role": "runner"}
"""The labels of a runner's pod, as which tests let this machine count."""
_CALL_S: Final = 120.0
_Answer = TypeVar("_Answer")
_numbers = itertools.count()


class Cluster:
    """Started by `start`, ended by `stop`, which leaves nothing behind.

    `nodes` are their names; no pod has more than `pids_limit` processes. All methods block. For
    what the network does with policies see `network`.
    """

    def __init__(self, *, nodes: tuple[str, ...] = ("node-1",), pids_limit: int = 1000) -> None:
        self._owner = f"{os.getpid()}x{next(_numbers)}"
        self.directory = Path(tempfile.mkdtemp(prefix=f"oxk{self._owner}-", dir=SCRATCH))
        self.directory.chmod(0o755)
        self.plane = ControlPlane(self.directory / "plane", _bridge_address())
        self._names = nodes
        self._pids_limit = pids_limit
        self._nodes: dict[str, Kubelet] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._stack = contextlib.AsyncExitStack()
        self._api: Api
        self._engine: Engine
        self._network: Network

    def start(self) -> None:
        """Start everything; return when pods can be created."""
        self._thread.start()
        try:
            self.plane.start()
            self._call(self._start())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End everything. Idempotent."""
        if self._loop.is_closed():
            return
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.plane.stop()
        volumes.remove(self.directory)

    @property
    def kubeconfig(self) -> Path:
        """Of somebody who may do everything."""
        return self.plane.admin_kubeconfig

    def request(self, method: str, path: str, body: object = None) -> Object:
        """A request to the API server as its administrator. Raises `ApiError`."""
        return self._call(self._api.request(method, path, body))

    def wait_for(
        self, path: str, is_so: Callable[[Object], object], *, within_s: float = 60.0
    ) -> Object:
        """The object at `path` as soon as `is_so` of it. Raises `TimeoutError` with the object."""
        deadline = time.monotonic() + within_s
        found: Object = {}
        while time.monotonic() < deadline:
            with contextlib.suppress(ApiError):
                found = self.request("GET", path)
                if is_so(found):
                    return found
            time.sleep(0.1)
        raise TimeoutError(json.dumps(found.get("status", found), indent=1))

    def kill_node(self, name: str) -> None:
        """The node loses its power: its containers end at once, and it answers nobody."""
        self._call(self._nodes[name].kill())

    def start_node(self, name: str) -> None:
        """Start a node, a new one or one that was killed."""
        self._call(self._start_node(name))

    def container(self, pod: str) -> str:
        """The engine's id for a pod, by namespace and name. Raises `LookupError`."""
        for node in self._nodes.values():
            with contextlib.suppress(LookupError):
                return node.container(pod)
        raise LookupError(f"no node has a container of {pod}")

    @contextlib.contextmanager
    def network(
        self,
        *,
        enforces_policies: bool = True,
        policies_after_s: float = 0.0,
        host_is: dict[str, str] | None = None,
    ) -> Iterator[None]:
        """For a while, a network that takes no notice of policies, or takes up those of a pod so
        long after its start; or in which this machine counts as a pod with the labels `host_is`."""
        rules = self._network.policies
        before = (rules.enforced, rules.after_s, rules.host_is)
        self._set_network(enforces_policies, policies_after_s, host_is)
        try:
            yield
        finally:
            self._set_network(*before)

    def make_namespace(self, name: str) -> None:
        """Make a namespace; return when pods can be created in it. Idempotent."""
        # Newer versions label it by themselves.
        labels = {"kubernetes.io/metadata.name": name}
        with contextlib.suppress(ApiError):
            made = {"metadata": {"name": name, "labels": labels}}
            self.request("POST", "/api/v1/namespaces", made)
        self.wait_for(f"/api/v1/namespaces/{name}/serviceaccounts/default", lambda _: True)

    def remove_namespace(self, name: str) -> None:
        """End all that runs in a namespace and in that of its guests, and remove both some time
        later."""
        if not name.endswith(guests_of("")):
            self.remove_namespace(guests_of(name))
        pods = f"/api/v1/namespaces/{name}/pods"
        with contextlib.suppress(ApiError):
            self.request("DELETE", f"/api/v1/namespaces/{name}")
        for pod in self.request("GET", pods)["items"]:
            with contextlib.suppress(ApiError):
                path = f"{pods}/{pod['metadata']['name']}"
                self.request("DELETE", path, {"gracePeriodSeconds": 0})
        self.wait_for(pods, lambda found: not found["items"])

    def _set_network(self, enforced: bool, after_s: float, host_is: dict[str, str] | None) -> None:
        rules = self._network.policies
        rules.enforced, rules.after_s, rules.host_is = enforced, after_s, host_is
        self._call(rules.apply())

    async def _start(self) -> None:
        self._api = await self._stack.enter_async_context(
            Api(self.plane.url, self.plane.admin_tls())
        )
        self._engine = await self._stack.enter_async_context(Engine(self._owner))
        await self._sweep()
        self._stack.push_async_callback(self._engine.sweep, {self._owner})
        await self._make_network()
        storage = Storage(self._api, self.directory / "volumes")
        await storage.start()
        self._stack.push_async_callback(storage.stop)
        for name in self._names:
            await self._start_node(name)
        path = "/api/v1/namespaces/default/serviceaccounts/default"
        while not await self._api.insist(lambda: self._api.get(path)):
            await asyncio.sleep(0.1)
        path = "/api/v1/namespaces/kube-system"  # which newer versions label by themselves
        system = await self._api.get(path)
        labels = {"kubernetes.io/metadata.name": "kube-system"}
        system["metadata"] |= {"labels": labels}
        await self._api.request("PUT", path, system)

    async def _stop(self) -> None:
        await asyncio.gather(*(node.stop() for node in self._nodes.values()))
        await self._stack.aclose()

    async def _start_node(self, name: str) -> None:
        node = Kubelet(
            self.plane,
            self._api,
            self._engine,
            self._network,
            name=name,
            directory=self.directory / "pods",
            pids_limit=self._pids_limit,
        )
        await node.start()
        self._nodes[name] = node

    async def _make_network(self) -> None:
        numbers = random.sample(range(256), 256)
        for number in numbers:
            subnet, name = f"10.213.{number}.0/24", f"oxk{self._owner}"
            try:
                await self._engine.make_network(name, subnet)
            except EngineError as error:
                if "overlap" not in str(error):
                    raise
                continue
            hosts = [str(each) for each in ipaddress.ip_network(subnet).hosts()]
            rules = Policies(self._owner, subnet)
            await rules.open()
            self._stack.push_async_callback(rules.close)
            names = ClusterNames(hosts[0])
            await names.open(rules)
            self._stack.push_async_callback(names.close)
            self._network = Network(name, hosts[0], hosts[1:], rules)
            for path, take in (
                ("/apis/networking.k8s.io/v1/networkpolicies", rules.take_policies),
                ("/api/v1/namespaces", rules.take_namespaces),
                ("/api/v1/endpoints", names.take),
            ):
                task = asyncio.create_task(self._api.follow(path, take))
                self._stack.push_async_callback(_cancelled, task)
            return
        raise RuntimeError("no addresses are free for pods")

    async def _sweep(self) -> None:
        """Remove what killed runs have left."""
        for owner in policies.owners():
            if not _lives(owner):
                policies.remove(policies.main_chain(owner))
        dead = {each for each in await self._engine.owners() if not _lives(each)}
        await self._engine.sweep(dead)
        for place in Path(SCRATCH).glob("oxk[0-9]*x[0-9]*-*"):
            if not _lives(place.name.removeprefix("oxk")):
                volumes.remove(place)

    def _call(self, work: Coroutine[Any, Any, _Answer]) -> _Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_S)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _lives(owner: str) -> bool:
    return Path(f"/proc/{owner.partition('x')[0]}").exists()


def guests_of(namespace: str) -> str:
    """The namespace of the guests of a chart in `namespace`."""
    return f"{namespace}-guests"


def _bridge_address() -> str:
    """The engine's own address, which containers reach."""
    command = ["docker", "network", "inspect", "bridge", "-f", "{{(index .IPAM.Config 0).Gateway}}"]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    return found or "172.17.0.1"
