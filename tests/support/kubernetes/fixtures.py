"""One cluster for all tests of a process, and a namespace for each."""

import secrets
from collections.abc import Iterator

import pytest

from tests.support.kubernetes.cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster with two nodes, `node-1` and `node-2`."""
    found = Cluster(nodes=("node-1", "node-2"))
    found.start()
    yield found
    found.stop()


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A fresh one, whose pods end with the test."""
    name = f"test-{secrets.token_hex(4)}"
    cluster.make_namespace(name)
    yield name
    cluster.remove_namespace(name)
