"""One cluster for the tests of a process: a control plane and a node, in a thread of their own."""

import asyncio
import secrets
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

from tests.support.cluster.api import Api, ApiError
from tests.support.cluster.control_plane import ControlPlane
from tests.support.cluster.kubelet import Kubelet

_Answer = TypeVar("_Answer")


class TestCluster:
    """A context manager. `address` is one of this machine that containers reach."""

    __test__ = False

    def __init__(self, directory: Path, address: str) -> None:
        self.plane = ControlPlane(directory / "plane", address)
        self._directory = directory
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.nodes: dict[str, Kubelet] = {}

    def __enter__(self) -> Self:
        self.plane.__enter__()
        self._thread.start()
        self.api = Api(self.plane.url, self.plane.ca, self.plane.token)
        try:
            self.run(self.api.__aenter__())
            self.add_node("node-1")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in [*self.nodes.values()]:
            self.run(node.__aexit__())
        self.run(self.api.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self.plane.__exit__()

    def run(self, work: Coroutine[Any, Any, _Answer]) -> _Answer:
        """What `work` returns, done in the cluster's thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    def add_node(self, name: str, **options: Any) -> Kubelet:
        node = Kubelet(self.plane, self._directory / "nodes", name, **options)
        self.run(node.__aenter__())
        self.nodes[name] = node
        return node

    @property
    def node(self) -> Kubelet:
        """The first node."""
        return self.nodes["node-1"]

    def new_namespace(self) -> str:
        """A namespace that is ready for pods."""
        name = f"ox-{secrets.token_hex(4)}"

        async def make() -> None:
            await self.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
            accounts = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            while True:
                try:
                    if (await self.api.get(accounts)).get("secrets"):
                        return
                except ApiError:
                    pass
                await asyncio.sleep(0.1)

        self.run(make())
        return name

    def remove_namespace(self, name: str) -> None:
        """Remove a namespace with all that is in it; returns when it is gone."""

        async def remove() -> None:
            path = f"/api/v1/namespaces/{name}"
            await self.api.delete(path)
            while True:
                try:
                    await self.api.get(path)
                except ApiError:
                    return
                await asyncio.sleep(0.2)

        self.run(remove())

    def kubeconfig(self, namespace: str) -> Path:
        """A file with which a runner may do everything in `namespace`."""
        return self.plane.kubeconfig(f"admin-{namespace}", self.plane.token, namespace)
