"""Fixtures: one cluster for all tests of a process, and a namespace for each."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.scratch import SCRATCH

if TYPE_CHECKING:
    from tests.support.cluster.cluster import TestCluster


@pytest.fixture(scope="session")
def cluster() -> "Iterator[TestCluster]":
    """A cluster with one node, whose network enforces policies."""
    from tests.support.cluster.cluster import TestCluster
    from tests.support.guests.engine import bridge_address

    with (
        tempfile.TemporaryDirectory(dir=SCRATCH, prefix="oxk-", ignore_cleanup_errors=True) as root,
        TestCluster(Path(root), bridge_address()) as made,
    ):
        yield made


@pytest.fixture
def namespace(cluster: "TestCluster") -> Iterator[str]:
    """A namespace that is removed with all that is in it."""
    name = cluster.new_namespace()
    yield name
    cluster.node.enforce(True)
    cluster.remove_namespace(name)
