"""What the real API server decides: which of many wins, what the runner may, and what no pod may
be."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from wire.errors import Code
from wire.settings import ContainerSettings

from runner.doctor.finding import State
from runner.errors import TierError
from runner.tiers.base import LaunchSpec
from runner.tiers.kubernetes import claims, leadership
from runner.tiers.kubernetes.cluster import Cluster as ApiServer
from runner.tiers.kubernetes.doctor import cluster as examine
from runner.tiers.kubernetes.driver import KubernetesDriver
from runner.tiers.kubernetes.leadership import holder, leading
from runner.tiers.kubernetes.names import Owner
from runner.tiers.kubernetes.permissions import excessive_permissions, missing_permissions
from runner.tiers.kubernetes.settings import KubernetesSettings
from runner.workspace.mounts import Role
from tests.support.guests import engine
from tests.support.guests.engine import GUEST_UID
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.installation import Installation
from tests.support.kubernetes.kubectl import Kubectl

pytestmark = [pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]

Object = dict[str, Any]


class Runner:
    """The runner of the chart, by the token of its service account."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.home = namespace
        installation = Installation(cluster, namespace, {})
        self.namespace = installation.guests
        installation.install("ServiceAccount", "Role", "RoleBinding", "NetworkPolicy")
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/oxydra-runner/token"
        self.token = cluster.request("POST", path, {"spec": {}})["status"]["token"]

    def settings(self, **more: Any) -> KubernetesSettings:
        config = self.cluster.plane.kubeconfig(
            f"{self.home}-runner", namespace=self.home, token=self.token
        )
        apart = {"kubeconfig": config, "namespace": self.namespace, "start_s": 30}
        return KubernetesSettings.model_validate({**apart, **more})

    @asynccontextmanager
    async def api(self) -> AsyncIterator[ApiServer]:
        found = ApiServer(self.settings())
        await found.open()
        try:
            yield found
        finally:
            await found.close()


@pytest.fixture
def runner(cluster: Cluster, namespace: str) -> Runner:
    return Runner(cluster, namespace)


@pytest.fixture
def images() -> ContainerSettings:
    return engine.standin_images()


def spec(place: Path, role: Role, number: int = 0) -> LaunchSpec:
    log = place / "log"
    log.mkdir(exist_ok=True)
    return LaunchSpec(
        role=role,
        user_id="alice",
        home=place,
        launch_id=f"launch-{number}",
        command=engine.command_inside("obstinate"),
        mounts=(),
        environment={},
        envelope=b"",
        log_path=log / f"{role}-{number}.log",
        working_directory=Path("/run"),
        owner=(GUEST_UID, GUEST_UID),
    )


@pytest.fixture
async def driver_of(
    runner: Runner, images: ContainerSettings
) -> AsyncIterator[Callable[..., KubernetesDriver]]:
    async with AsyncExitStack() as stack:

        def made(**settings: Any) -> KubernetesDriver:
            driver = KubernetesDriver(runner.settings(**settings), images)
            stack.push_async_callback(driver.close)
            return driver

        yield made


async def test_of_eight_who_create_a_guest_at_once_one_does(
    driver_of: Callable[..., KubernetesDriver], runner: Runner, tmp_path: Path
) -> None:
    drivers = [driver_of() for _ in range(8)]
    found = await asyncio.gather(
        *(
            driver.start(spec(tmp_path, Role.EGRESS, number))
            for number, driver in enumerate(drivers)
        ),
        return_exceptions=True,
    )
    started = [each for each in found if not isinstance(each, BaseException)]
    refused = [each for each in found if isinstance(each, TierError)]
    assert (len(started), len(refused)) == (1, 7), found
    assert {error.code for error in refused} == {Code.ALREADY_EXISTS}
    pods = runner.cluster.request("GET", f"/api/v1/namespaces/{runner.namespace}/pods")["items"]
    (pod,) = pods
    assert pod["metadata"]["labels"]["oxydra.io/launch"] == started[0].launch_id


async def test_agent_and_shell_are_on_one_node_and_a_volume_is_one_nodes(
    driver_of: Callable[..., KubernetesDriver], runner: Runner, tmp_path: Path
) -> None:
    driver = driver_of()
    await asyncio.gather(*(driver.start(spec(tmp_path, role)) for role in (Role.AGENT, Role.SHELL)))
    pods = runner.cluster.request("GET", f"/api/v1/namespaces/{runner.namespace}/pods")["items"]
    assert len(pods) == 2
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 1
    claims = runner.cluster.request(
        "GET", f"/api/v1/namespaces/{runner.namespace}/persistentvolumeclaims"
    )["items"]
    assert {tuple(claim["spec"]["accessModes"]) for claim in claims} == {("ReadWriteOnce",)}
    mounted = {
        pod["metadata"]["labels"]["oxydra.io/role"]: {
            volume["persistentVolumeClaim"]["claimName"].rpartition("-")[2]
            for volume in pod["spec"]["volumes"]
            if "persistentVolumeClaim" in volume
        }
        for pod in pods
    }
    assert mounted == {"agent": {"state", "work"}, "shell": {"work"}}


async def test_a_runtime_class_that_is_not_there_is_refused(
    driver_of: Callable[..., KubernetesDriver], tmp_path: Path
) -> None:
    driver = driver_of(runtime_class="missing")
    with pytest.raises(TierError, match="pod") as refused:
        await driver.start(spec(tmp_path, Role.EGRESS))
    assert "missing" in refused.value.details


async def test_it_is_refused_before_any_start_where_the_runner_may_look(
    cluster: Cluster, namespace: str, images: ContainerSettings
) -> None:
    everything = cluster.plane.kubeconfig(namespace, namespace=namespace)
    driver = KubernetesDriver(
        KubernetesSettings(kubeconfig=everything, runtime_class="missing"), images
    )
    try:
        with pytest.raises(TierError, match="this cluster has no runtime class missing"):
            await driver.check()
    finally:
        await driver.close()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"dns_labels": ["..-/a=b"]}, "matchLabels"),
        ({"node_selector": ["..-/a=b"]}, "nodeSelector"),
    ],
)
async def test_what_the_api_server_does_not_accept_is_refused_with_the_field(
    driver_of: Callable[..., KubernetesDriver],
    runner: Runner,
    tmp_path: Path,
    settings: Object,
    told: str,
) -> None:
    with pytest.raises(TierError) as refused:
        await driver_of(**settings).start(spec(tmp_path, Role.EGRESS))
    assert refused.value.code is Code.INVALID_ARGUMENT
    assert told in refused.value.details
    pods = runner.cluster.request("GET", f"/api/v1/namespaces/{runner.namespace}/pods")["items"]
    assert pods == []


async def test_a_claim_of_somebody_else_is_neither_used_nor_removed(
    driver_of: Callable[..., KubernetesDriver], runner: Runner, tmp_path: Path
) -> None:
    path = f"/api/v1/namespaces/{runner.namespace}/persistentvolumeclaims"
    theirs = claims.claim(Owner("alice"), claims.STATE, KubernetesSettings())
    del theirs["metadata"]["labels"]
    runner.cluster.request("POST", path, theirs)
    with pytest.raises(TierError, match="is somebody else's") as refused:
        await driver_of().start(spec(tmp_path, Role.AGENT))
    async with runner.api() as api:
        with pytest.raises(TierError, match="is somebody else's"):
            await claims.remove(api, Owner("alice"))
        left = runner.cluster.request("GET", path)["items"]
        assert [each["metadata"].get("deletionTimestamp") for each in left] == [None]
        kubectl = Kubectl(tmp_path / "bin", runner.cluster.kubeconfig)
        _, _, fix = refused.value.resolution.partition(" kubectl ")
        kubectl.run("--namespace", runner.namespace, *fix.split())
        await claims.remove(api, Owner("alice"))
    runner.cluster.wait_for(path, lambda found: not found["items"])


async def test_a_quota_that_is_used_up_is_told(
    driver_of: Callable[..., KubernetesDriver], runner: Runner, tmp_path: Path
) -> None:
    path = f"/api/v1/namespaces/{runner.namespace}/resourcequotas"
    quota = {"metadata": {"name": "little"}, "spec": {"hard": {"pods": "0"}}}
    runner.cluster.request("POST", path, quota)
    runner.cluster.wait_for(f"{path}/little", lambda found: found["status"].get("hard"))
    with pytest.raises(TierError) as refused:
        await driver_of().start(spec(tmp_path, Role.EGRESS))
    assert "exceeded quota" in refused.value.details
    assert "kubectl describe resourcequota" in refused.value.resolution


async def test_one_of_two_runners_holds_the_lease(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "RETRY_S", 1)
    told: list[str] = []
    async with runner.api() as first, runner.api() as second:
        async with leading(first, "one", told.append) as lost:
            waiting = asyncio.create_task(_lead(second, "two", told))
            async with asyncio.timeout(60):
                while not told:
                    await asyncio.sleep(0.05)
            assert await holder(second) == "one"
            assert not waiting.done()
            assert not lost.is_set()
        async with asyncio.timeout(60):
            await waiting
    assert told == ["one", "two leads"]


async def _lead(api: ApiServer, name: str, told: list[str]) -> None:
    async with leading(api, name, told.append):
        told.append(f"{name} leads")


async def test_a_runner_whose_lease_another_one_has_is_told(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "RETRY_S", 1)
    monkeypatch.setattr(leadership, "RENEW_S", 3)
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{runner.home}/leases/oxydra-runner"
    async with runner.api() as api, leading(api, "one", print) as lost:
        found = runner.cluster.request("GET", leases)
        found["spec"]["holderIdentity"] = "two"
        runner.cluster.request("PUT", leases, found)
        async with asyncio.timeout(60):
            await lost.wait()
    assert runner.cluster.request("GET", leases)["spec"]["holderIdentity"] == "two"


async def test_the_charts_role_is_enough_and_no_more(runner: Runner) -> None:
    async with runner.api() as api:
        assert await missing_permissions(api) == []
        assert await excessive_permissions(api) == []


FORBIDDEN: list[tuple[str, str, Object | None]] = [
    ("POST", "/api/v1/namespaces/{home}/pods", {}),
    ("GET", "/api/v1/namespaces/{home}/pods", None),
    ("POST", "/api/v1/namespaces/{home}/pods/a/attach?stdin=true", None),
    ("POST", "/api/v1/namespaces/{home}/persistentvolumeclaims", {}),
    ("DELETE", "/api/v1/namespaces/{home}/persistentvolumeclaims/oxydra-records", None),
    ("GET", "/api/v1/namespaces/{home}/secrets/oxydra-keys", None),
    ("GET", "/api/v1/namespaces/{home}/configmaps/oxydra-runner", None),
    ("PUT", "/api/v1/namespaces/{home}/endpoints/another", {"metadata": {"name": "another"}}),
    ("GET", "/api/v1/namespaces/{}/secrets", None),
    ("GET", "/api/v1/namespaces/{}/secrets/oxydra-keys", None),
    ("GET", "/api/v1/namespaces/{}/configmaps", None),
    ("POST", "/api/v1/namespaces/{}/pods/a/exec?command=sh&stdin=true", None),
    ("GET", "/api/v1/namespaces/{}/pods/a/exec?command=sh&stdin=true", None),
    ("POST", "/api/v1/namespaces/{}/pods/a/eviction", {}),
    ("PUT", "/api/v1/namespaces/{}/pods/a", {}),
    ("POST", "/api/v1/namespaces/{}/services", {}),
    ("POST", "/api/v1/namespaces/{}/serviceaccounts/default/token", {"spec": {}}),
    ("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings", {}),
    ("GET", "/apis/coordination.k8s.io/v1/namespaces/{home}/leases/another", None),
    ("GET", "/api/v1/namespaces/default/pods", None),
    ("POST", "/api/v1/namespaces/default/pods", {}),
    ("GET", "/api/v1/namespaces", None),
    ("GET", "/api/v1/nodes", None),
    ("GET", "/api/v1/persistentvolumes", None),
    ("GET", "/api/v1/pods", None),
]


@pytest.mark.parametrize(("method", "path", "body"), FORBIDDEN)
async def test_what_the_runner_may_not(
    runner: Runner, method: str, path: str, body: Object | None
) -> None:
    place = path.format(runner.namespace, home=runner.home)
    status, said = await _asked(runner, method, place, body)
    assert (status, said["reason"]) == (403, "Forbidden")
    assert "oxydra-runner" in said["message"]


async def test_no_pod_that_the_runner_may_make_mounts_its_secrets_or_has_an_account(
    runner: Runner,
) -> None:
    """Who may make pods can mount whatever is in their namespace; so the guests' has nothing."""
    container = {"name": "c", "image": "i", "volumeMounts": [{"name": "s", "mountPath": "/s"}]}
    volume = {"name": "s", "secret": {"secretName": "somebodys"}}
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [container], "volumes": [volume]}}
    for namespace, expected in ((runner.namespace, 201), (runner.home, 403), ("kube-system", 403)):
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        assert (await _asked(runner, "POST", path, pod))[0] == expected

    def there(kind: str) -> list[Object]:
        path = f"/api/v1/namespaces/{runner.namespace}/{kind}"
        return list(runner.cluster.request("GET", path)["items"])

    # Versions before 1.24 make a token of the account that has no rights.
    assert {each["type"] for each in there("secrets")} <= {"kubernetes.io/service-account-token"}
    assert [each["metadata"]["name"] for each in there("serviceaccounts")] == ["default"]
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{runner.namespace}/rolebindings"
    bound = [each["subjects"] for each in runner.cluster.request("GET", roles)["items"]]
    account = {"kind": "ServiceAccount", "name": "oxydra-runner", "namespace": runner.home}
    assert bound == [[account]]


@pytest.mark.long
async def test_no_empty_claim_is_made_beside_one_that_is_still_in_the_runners_namespace(
    driver_of: Callable[..., KubernetesDriver],
    runner: Runner,
    images: ContainerSettings,
    tmp_path: Path,
) -> None:
    """It moves with its volume, also in a second run, and is used then."""
    plane, path = runner.cluster.plane, "/api/v1/namespaces/{}/persistentvolumeclaims"

    def volumes(namespace: str) -> dict[str, str]:
        found = runner.cluster.request("GET", path.format(namespace))["items"]
        return {each["metadata"]["name"]: each["spec"].get("volumeName", "") for each in found}

    together = plane.kubeconfig(f"{runner.home}-together", namespace=runner.home)
    before = KubernetesDriver(KubernetesSettings(kubeconfig=together), images)
    handle = await before.start(spec(tmp_path, Role.AGENT))
    await before.stop(handle, 0)
    await before.close()
    left = volumes(runner.home)
    assert len(left) == 2
    with pytest.raises(TierError, match=f"is in the namespace {runner.home}, guests") as refused:
        await driver_of().start(spec(tmp_path, Role.AGENT))
    assert f'kubernetes.namespace = "{runner.home}"' in refused.value.resolution
    assert volumes(runner.namespace) == {}
    kubectl = Kubectl(tmp_path / "bin", plane.kubeconfig(f"{runner.home}-admin"))
    script = Path(__file__).parents[3] / "deploy/kubernetes/move-guests.sh"
    for _ in range(2):
        kubectl.script(script, runner.home, runner.namespace)
        assert (volumes(runner.home), volumes(runner.namespace)) == ({}, left)
    for name in left.values():
        found = runner.cluster.request("GET", f"/api/v1/persistentvolumes/{name}")
        assert found["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
        assert found["status"]["phase"] == "Bound"
    await driver_of().start(spec(tmp_path, Role.AGENT))
    assert volumes(runner.namespace) == left


async def _asked(runner: Runner, method: str, path: str, body: Object | None) -> tuple[int, Object]:
    """The answer to the runner itself."""
    headers = {"Authorization": f"Bearer {runner.token}"}
    trusted = ssl.create_default_context(cafile=str(runner.cluster.plane.ca_file))
    connector = aiohttp.TCPConnector(ssl=trusted)
    async with (
        aiohttp.ClientSession(runner.cluster.plane.url, connector=connector) as session,
        session.request(method, path, json=body, headers=headers) as answer,
    ):
        return answer.status, await answer.json()


async def test_doctor_finds_nothing_wrong_with_the_chart(runner: Runner) -> None:
    found = await asyncio.to_thread(examine, runner.settings(), ContainerSettings(), "alice")
    said = {each.name: each for each in found}
    assert [each for each in found if each.state is State.PROBLEM] == []
    assert " answers at https://" in said["cluster"].what
    assert said["permissions"].what == (
        "what the runner needs, no exec, and no Secret of its namespace"
    )
    assert "not known" in said["storage class"].what
    assert "doctor --boundary" in said["network policies"].what
    assert said["pod security"].state is State.WARNING
    assert said["images"].state is State.WARNING
    assert "is made at the first start" in said["volumes"].what


async def test_doctor_names_what_is_missing(cluster: Cluster, namespace: str) -> None:
    nobody = cluster.plane.kubeconfig(f"{namespace}-nobody", namespace=namespace, user="nobody")
    settings = KubernetesSettings(kubeconfig=nobody)
    found = await asyncio.to_thread(examine, settings, ContainerSettings(), "alice")
    permissions = next(each for each in found if each.name == "permissions")
    assert permissions.state is State.PROBLEM
    assert "create pods" in permissions.what
    assert "helm upgrade" in permissions.fix


async def test_doctor_looks_further_with_the_rights_to(cluster: Cluster, namespace: str) -> None:
    everything = cluster.plane.kubeconfig(namespace, namespace=namespace)
    settings = KubernetesSettings(kubeconfig=everything, runtime_class="missing")
    found = await asyncio.to_thread(examine, settings, ContainerSettings(), "alice")
    said = {each.name: each for each in found}
    assert said["permissions"].state is State.WARNING
    assert "create pods/exec" in said["permissions"].what
    apart = settings.model_copy(update={"namespace": "default"})
    found = await asyncio.to_thread(examine, apart, ContainerSettings(), "alice")
    assert f"create pods in {namespace}" in found[1].what
    assert said["storage class"].what == "standin, made by oxydra.io/standin"
    assert said["runtime class"].state is State.PROBLEM
    assert "oxydra-default" in said["network policies"].what
    settings = settings.model_copy(update={"storage_class": "nowhere"})
    found = await asyncio.to_thread(examine, settings, ContainerSettings(), "alice")
    assert next(each for each in found if each.name == "storage class").state is State.PROBLEM


def test_doctor_says_that_nobody_answers(tmp_path: Path) -> None:
    missing = KubernetesSettings(kubeconfig=tmp_path / "nothing")
    (found,) = examine(missing, ContainerSettings(), "alice")
    assert found.state is State.PROBLEM
    assert "kubernetes.kubeconfig" in found.fix
