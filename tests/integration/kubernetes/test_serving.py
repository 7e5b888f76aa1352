"""The HTTP server of a cluster: both replicas are ready, the Service leads to the active one."""

import base64
import http.client
import ssl
import subprocess
from typing import Any

import pytest

from tests.support.kubernetes.certificates import Authority
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.installation import Installation

pytestmark = [pytest.mark.kubernetes, pytest.mark.long, pytest.mark.xdist_group("kubernetes")]

PORT = 8443


@pytest.fixture
def installation(cluster: Cluster, namespace: str) -> Installation:
    authority = Authority()
    identity = authority.issue("oxydra", hosts=("localhost",))
    content = {"tls.crt": identity.certificate, "tls.key": identity.key}
    secret = {
        "metadata": {"name": "console"},
        "type": "kubernetes.io/tls",
        "data": {name: base64.b64encode(text.encode()).decode() for name, text in content.items()},
    }
    cluster.request("POST", f"/api/v1/namespaces/{namespace}/secrets", secret)
    values = {
        "users": ["alice"],
        "embedder": {"enabled": False},
        "serve": {"enabled": True, "secret": "console"},
    }
    made = Installation(cluster, namespace, values)
    made.install()
    made.until_active()
    made.until_running(["alice"])
    return made


def asked(address: str, path: str) -> tuple[int, bytes]:
    """The answer of the server at a pod's address."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(address, PORT, context=context, timeout=20)
    connection.request("GET", path, headers={"Host": f"localhost:{PORT}"})
    answer = connection.getresponse()
    try:
        return answer.status, answer.read()
    finally:
        connection.close()


def until_led(installation: Installation) -> None:
    """Both replicas are ready and new enough, and the Service leads to the active one, which
    answers."""
    path = f"/apis/apps/v1/namespaces/{installation.namespace}/deployments/oxydra-runner"
    kinds = ("readyReplicas", "updatedReplicas", "replicas")

    def is_whole(found: dict[str, Any]) -> bool:
        status = found["status"]
        known = status.get("observedGeneration") == found["metadata"]["generation"]
        return known and [status.get(kind) for kind in kinds] == [2, 2, 2]

    installation.cluster.wait_for(path, is_whole, within_s=120)
    path = f"{installation.pods_path}?labelSelector=oxydra.io/role%3Drunner"
    installation.cluster.wait_for(path, _two_stay)
    installation.until_active()
    installation.until_running(["alice"])
    active = installation.cluster.request("GET", f"{installation.pods_path}/{installation.holder}")
    subset = {
        "addresses": [{"ip": active["status"]["podIP"]}],
        "ports": [{"name": "https", "port": PORT, "protocol": "TCP"}],
    }
    path = f"/api/v1/namespaces/{installation.namespace}/endpoints/oxydra"
    installation.cluster.wait_for(path, lambda found: found["subsets"] == [subset])
    address = active["status"]["podIP"]
    assert asked(address, "/healthz")[0] == 200
    status, page = asked(address, "/")
    assert status == 200
    assert b"<html" in page
    assert asked(address, "/v1/models")[0] == 401


def _two_stay(found: dict[str, Any]) -> bool:
    ends = [each["metadata"].get("deletionTimestamp") for each in found["items"]]
    return ends == [None, None]


def test_the_service_leads_to_the_active_replica_through_ends_and_an_update(
    installation: Installation,
) -> None:
    until_led(installation)
    left = installation.holder
    installation.cluster.request("DELETE", f"{installation.pods_path}/{left}")
    installation.until_active(but=left)
    until_led(installation)
    container = installation.cluster.container(f"{installation.namespace}/{installation.holder}")
    subprocess.run(["docker", "kill", "--signal", "KILL", container], check=True)
    until_led(installation)
    path = f"/apis/apps/v1/namespaces/{installation.namespace}/deployments/oxydra-runner"
    found = installation.cluster.request("GET", path)
    found["spec"]["template"]["metadata"]["annotations"] = {"restarted": "now"}
    installation.cluster.request("PUT", path, found)
    until_led(installation)
