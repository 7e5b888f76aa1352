"""The manifests without Helm, as `kubectl` applies them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.installation import Installation
from tests.support.kubernetes.kubectl import Kubectl

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.long,
    pytest.mark.model,
    pytest.mark.xdist_group("kubernetes"),
]

PLAIN = Path(__file__).parents[3] / "deploy/kubernetes/plain"
NAMESPACE = "oxydra"


@pytest.fixture
def kubectl(cluster: Cluster, tmp_path: Path) -> Iterator[Kubectl]:
    made = Kubectl(tmp_path / "bin", cluster.kubeconfig)
    yield made
    cluster.remove_namespace(NAMESPACE)


def test_they_bring_up_an_agent_and_may_be_applied_again(
    cluster: Cluster, kubectl: Kubectl
) -> None:
    kubectl.run("apply", "-k", str(PLAIN))
    installation = Installation(cluster, NAMESPACE, {})
    installation.until_active()
    installation.until_running(["default"])
    installation.say("default", "remember that the spare key is under the blue pot")
    again = kubectl.run("apply", "-k", str(PLAIN)).splitlines()
    assert [line for line in again if not line.endswith(" unchanged")] == []
    assert "blue pot" in installation.say("default", "what do you know about the key")
