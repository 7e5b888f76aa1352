"""Hosts that run here, and whose guests are pods."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from wire.settings import EmbedderSettings

from runner.config.models import Config
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.hosts import with_settings
from tests.support.scratch import SCRATCH


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="oxh-") as name:
        yield Path(name)


@pytest.fixture
def config(cluster: Cluster, namespace: str, place: Path) -> Config:
    kubeconfig = cluster.plane.kubeconfig(namespace, namespace=namespace)
    return with_settings(
        Config(
            workspace_root=place / "ws",
            runtime_dir=place / "rt",
            tier="kubernetes",
            embedder=EmbedderSettings(backend="none"),
        ),
        kubeconfig=kubeconfig,
        start_s=60,
    )


@pytest.fixture
def guests(cluster: Cluster, namespace: str) -> Callable[[], dict[str, str]]:
    """The uids of the pods that are there, by their roles."""

    def found() -> dict[str, str]:
        items = cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        return {
            pod["metadata"]["labels"]["oxydra.io/role"]: pod["metadata"]["uid"] for pod in items
        }

    return found
