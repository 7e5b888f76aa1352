"""The HTTP server of a cluster: both replicas are ready, and either leads to the active one."""

import base64
import http.client
import ssl

import pytest

from tests.support.kubernetes.certificates import Authority
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.installation import Installation

pytestmark = [pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]

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


def test_either_replica_leads_to_the_active_one(installation: Installation) -> None:
    path = f"/apis/apps/v1/namespaces/{installation.namespace}/deployments/oxydra-runner"
    installation.cluster.wait_for(path, lambda found: found["status"].get("readyReplicas") == 2)
    pods = {
        pod["metadata"]["name"]: pod["status"]["podIP"] for pod in installation.pods(role="runner")
    }
    active = installation.holder
    assert len(pods) == 2
    for address in pods.values():
        assert asked(address, "/healthz")[0] == 200
        status, page = asked(address, "/")
        assert status == 200
        assert b"<html" in page
        assert asked(address, "/v1/models")[0] == 401
    installation.cluster.request("DELETE", f"{installation.pods_path}/{active}")
    installation.until_active(but=active)
    installation.until_running(["alice"])
    installation.cluster.wait_for(path, lambda found: found["status"].get("readyReplicas") == 2)
    for pod in installation.pods(role="runner"):
        assert asked(pod["status"]["podIP"], "/healthz")[0] == 200
