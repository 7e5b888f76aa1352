"""deploy/kubernetes: the manifests and the chart say the same, a cluster accepts both, and they
grant no more than the runner needs."""

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]
from manifests.files import PLACE, chart, manifests
from typer.testing import CliRunner
from wire.settings import ContainerSettings

from runner.cli.app import app
from runner.config.models import Config
from runner.tiers.base import Port
from runner.tiers.kubernetes import names, policies
from runner.tiers.kubernetes.permissions import NEEDED
from runner.tiers.kubernetes.settings import KubernetesSettings, settings_of
from runner.workspace.mounts import Role
from tests.support.settings import load_config

AGAIN = "if this change was decided: .venv/bin/python -m tools.manifests"
DIGEST = "sha256:" + "ab" * 32
EVERYTHING: dict[str, Any] = {
    "users": ["alice", "bob-2"],
    "settings": '[agent]\nprovider = "openai"\nmodel = "m"\napi_key_env = "K"\n'
    '\n[users.alice.agent]\nmodel = "n"\n',
    "images": {
        "registry": "registry.example.com:5000/oxydra",
        "tag": "next",
        "pullSecrets": ["one", "two"],
        "agent": {"digest": DIGEST},
        "runner": {"digest": DIGEST},
    },
    "runner": {
        "records": {"accessMode": "ReadWriteMany", "storageClass": "shared"},
        "nodeSelector": {"pool": "agents"},
        "tolerations": [{"key": "agents", "operator": "Exists"}],
    },
    "kubernetes": {
        "storageClass": "fast",
        "keepClaims": False,
        "runtimeClass": "gvisor",
        "nodeSelector": ["example.com/pool=agents"],
        "dnsLabels": ["app=coredns"],
        "privateRanges": ["203.0.113.0/24", "2001:db8::/32"],
    },
    "serve": {
        "enabled": True,
        "secret": "certificate",
        "url": "https://agents.example.org",
        "hosts": ["agents.internal"],
        "from": [{"ipBlock": {"cidr": "198.51.100.0/24"}}],
    },
    "embedder": {"replicas": 3, "reranker": "cross-encoder/some", "nodeSelector": {"a": "b"}},
    "memoryServer": {"enabled": True, "storageClass": "fast", "image": f"sqld@{DIGEST}"},
    "rbac": {"clusterReader": True},
    "quota": {"pods": "200"},
    "limits": [{"type": "Container", "max": {"memory": "4Gi"}}],
}


MEMORY = {"memoryServer": {"enabled": True, "image": f"sqld@{DIGEST}"}}


@cache
def rendered(values: str = "{}", namespace: str = "oxydra") -> str:
    with helm_python.Chart.load(PLACE / "chart") as loaded:
        made = loaded.render(json.loads(values), name="oxydra", namespace=namespace)
    return "\n---\n".join(text for name, text in sorted(made.items()) if name.endswith(".yaml"))


def from_chart(values: dict[str, Any] | None = None, namespace: str = "oxydra") -> list[Any]:
    return objects_in(rendered(json.dumps(values or {}), namespace))


def objects_in(text: str) -> list[Any]:
    return [each for each in yaml.safe_load_all(text) if each]


def plain(*files: str) -> list[Any]:
    return [each for name in files for each in objects_in((PLACE / "plain" / name).read_text())]


def listed() -> list[str]:
    found = yaml.safe_load((PLACE / "plain" / "kustomization.yaml").read_text())["resources"]
    return list(found)


def all_plain() -> list[Any]:
    files = sorted(path.name for path in (PLACE / "plain").glob("*.yaml"))
    return plain(*(name for name in files if name != "kustomization.yaml"))


def one(objects: list[Any], kind: str, name: str) -> Any:
    (found,) = (
        each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name
    )
    return found


def compared(objects: list[Any]) -> dict[tuple[str, str], Any]:
    """By kind and name, without what says that Helm has made them."""
    text = json.dumps(objects, sort_keys=True)
    text = re.sub(r'("app.kubernetes.io/managed-by": )"(Helm|kubectl)"', r'\1"it"', text)
    text = re.sub(
        r'"annotations": {"(helm.sh/resource-policy|oxydra.io/settings)": "\w+"}, ', "", text
    )
    return {(each["kind"], each["metadata"]["name"]): each for each in json.loads(text)}


def settings_in(objects: list[Any], tmp_path: Path) -> Config:
    file = tmp_path / "runner.toml"
    file.write_text(one(objects, "ConfigMap", "oxydra-runner")["data"]["runner.toml"])
    return load_config(file, environ={})


def pods_in(objects: list[Any]) -> Iterator[tuple[str, Any]]:
    for each in objects:
        if each["kind"] in ("Deployment", "StatefulSet"):
            yield each["metadata"]["name"], each["spec"]["template"]


@pytest.mark.parametrize(("folder", "made"), [("plain", manifests), ("chart", chart)])
def test_the_files_are_what_their_source_makes(folder: str, made: Any) -> None:
    place = PLACE / folder
    found = {
        str(path.relative_to(place)): path.read_text()
        for path in place.rglob("*")
        if path.is_file()
    }
    assert found == made(), AGAIN


def test_the_chart_makes_what_the_manifests_are() -> None:
    expected = compared(plain(*(name for name in listed() if name != "namespace.yaml")))
    assert compared(from_chart()) == expected
    extras = {**MEMORY, "rbac": {"clusterReader": True}}
    expected |= compared(plain("memory-server.yaml", "doctor-role.yaml"))
    container = expected["StatefulSet", "memory-default"]["spec"]["template"]["spec"]["containers"]
    assert container[0]["image"] == "NAME@sha256:DIGEST", "which no cluster runs"
    container[0]["image"] = f"sqld@{DIGEST}"
    assert compared(from_chart(extras)) == expected


def test_helm_finds_nothing_wrong_with_the_chart() -> None:
    for values in ({}, EVERYTHING):
        report = helm_python.lint(PLACE / "chart", values, strict=True)
        assert report["errors"] == []
        assert [each for each in report["messages"] if each["severity"] > 1] == []


@pytest.mark.parametrize("release", [kubernetes_validate.utils.all_versions()[0], "newest"])
def test_a_cluster_accepts_every_object(release: str) -> None:
    wanted = kubernetes_validate.latest_version() if release == "newest" else release
    for each in (*all_plain(), *from_chart(EVERYTHING)):
        kubernetes_validate.validate(each, wanted, strict=True)


@pytest.mark.parametrize(
    ("values", "guests"),
    [(EVERYTHING, "elsewhere-guests"), ({"kubernetes": {"namespace": "apart"}}, "apart")],
)
def test_the_chart_stays_in_its_namespace_and_that_of_the_guests(
    values: dict[str, Any], guests: str, tmp_path: Path
) -> None:
    """In the guests' is nothing with a Secret, and nothing that has an account."""
    objects = from_chart(values, "elsewhere")
    for each in objects:
        if each["kind"].startswith("Cluster"):
            assert each["metadata"]["name"] == "oxydra-doctor-elsewhere"
        elif each["metadata"]["namespace"] == guests:
            assert each["kind"] not in ("ServiceAccount", "Secret", "ConfigMap", "StatefulSet")
            assert "serviceAccountName" not in json.dumps(each)
            assert "secretName" not in json.dumps(each)
        else:
            assert each["metadata"]["namespace"] == "elsewhere"
    assert one(objects, "Deployment", "oxydra-embedder")["metadata"]["namespace"] == guests
    assert one(objects, "NetworkPolicy", "oxydra-default")["metadata"]["namespace"] == guests
    assert settings_of(settings_in(objects, tmp_path)).namespace == guests
    assert "namespace: oxydra" not in rendered(json.dumps(values), "elsewhere")


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"runner": {"replica": 3}}, "replica"),
        ({"users": ["Alice"]}, "users"),
        ({"images": {"agent": {"digest": "latest"}}}, "digest"),
        ({"kubernetes": {"stateSize": "5"}}, "stateSize"),
        ({"serve": {"enabled": True}}, "serve.secret"),
        ({"memoryServer": {"enabled": True}}, "memoryServer.image"),
        ({"memoryServer": {"enabled": True, "image": "sqld:v0.24.32"}}, "image"),
    ],
)
def test_values_that_mean_nothing_are_refused_by_their_names(
    values: dict[str, Any], named: str
) -> None:
    with (
        helm_python.Chart.load(PLACE / "chart") as loaded,
        pytest.raises(helm_python.HelmError, match=named),
    ):
        loaded.render(values, name="oxydra", namespace="oxydra")


def test_the_runner_accepts_the_settings_that_values_make(tmp_path: Path) -> None:
    config = settings_in(from_chart(EVERYTHING), tmp_path)
    found = settings_of(config)
    registry = "registry.example.com:5000/oxydra"
    assert found.agent_image == f"{registry}/oxydra-agent@{DIGEST}"
    assert found.egress_image == f"{registry}/oxydra-egress:next"
    assert found.image_pull_secrets == ("one", "two")
    assert (found.storage_class, found.runtime_class, found.keep_claims) == (
        "fast",
        "gvisor",
        False,
    )
    assert found.node_selector == ("example.com/pool=agents",)
    assert found.dns_labels == ("app=coredns",)
    assert found.private_ranges == ("203.0.113.0/24", "2001:db8::/32")
    assert config.serve.listen == "0.0.0.0:8443"
    assert config.serve.hosts == ("agents.internal",)
    assert list(config.users) == ["alice", "bob-2"]
    assert config.for_user("alice").agent.model == "n"
    assert config.for_user("bob-2").agent.model == "m"


def test_the_runner_may_do_what_it_needs_and_nothing_else() -> None:
    roles = plain("runner-role.yaml")
    at_home, granted = (
        {
            (group, resource, verb): rule.get("resourceNames")
            for rule in one(roles, "Role", name)["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        for name in ("oxydra-runner", "oxydra-guests")
    )
    doctors = ("", "namespaces", "get")
    leases = {each for each in NEEDED if each[1] == "leases"}
    leading = {("", "endpoints", verb) for verb in ("create", "update")}
    assert set(granted) == {*NEEDED, doctors} - leases
    assert granted[doctors] == ["oxydra-guests"]
    assert set(at_home) == {*leases, *leading, ("", "persistentvolumeclaims", "get")}
    assert {str(at_home[each]) for each in leading} == {"['oxydra']"}
    assert at_home["coordination.k8s.io", "leases", "update"] == ["oxydra-runner"]
    for name, namespace in (("oxydra-runner", "oxydra"), ("oxydra-guests", "oxydra-guests")):
        binding = one(roles, "RoleBinding", name)
        assert (binding["metadata"]["namespace"], binding["roleRef"]["name"]) == (namespace, name)
        assert [each["namespace"] for each in binding["subjects"]] == ["oxydra"]
    text = json.dumps([*roles, *plain("doctor-role.yaml")])
    for word in ("secrets", "configmaps", "exec", "*", "escalate", "impersonate"):
        assert f'"{word}"' not in text
        assert f'/{word}"' not in text
    cluster = one(plain("doctor-role.yaml"), "ClusterRole", "oxydra-doctor-oxydra")
    assert {verb for rule in cluster["rules"] for verb in rule["verbs"]} == {"get", "list"}


@pytest.mark.parametrize("values", [MEMORY, EVERYTHING])
def test_every_pod_has_the_restricted_profile_and_limits(values: dict[str, Any]) -> None:
    seen = set()
    for name, pod in pods_in(from_chart(values)):
        seen.add(name)
        spec = pod["spec"]
        assert spec["enableServiceLinks"] is False
        assert spec["automountServiceAccountToken"] is (name == "oxydra-runner")
        context = spec["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert context["fsGroup"] == context["runAsUser"] > 10_000
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(spec)
        for volume in spec["volumes"]:
            (kind,) = volume.keys() - {"name"}
            assert kind in ("emptyDir", "configMap", "secret", "persistentVolumeClaim")
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            limits = container["resources"]["limits"]
            assert set(limits) == {"cpu", "memory", "ephemeral-storage"}
            assert not any("subPath" in mount for mount in container["volumeMounts"])
    users = values.get("users", ["default"])
    assert seen == {"oxydra-runner", "oxydra-embedder", *(f"memory-{user}" for user in users)}


def test_the_labels_are_those_by_which_the_runner_finds_pods() -> None:
    labels = {name: pod["metadata"]["labels"] for name, pod in pods_in(all_plain())}
    assert names.RUNNER.items() <= labels["oxydra-runner"].items()
    assert names.EMBEDDER.items() <= labels["oxydra-embedder"].items()
    memory = {**policies.MEMORY, names.LABEL_USER: names.Owner("default").slug}
    assert memory.items() <= labels["memory-default"].items()
    for each in labels.values():
        assert each[names.LABEL_MANAGER] != names.MANAGER
    for each in all_plain():
        if each["kind"] in ("Deployment", "StatefulSet"):
            selected = each["spec"]["selector"]["matchLabels"]
            assert selected.items() <= labels[each["metadata"]["name"]].items()


def test_what_the_runner_makes_reaches_nothing_before_its_own_policies() -> None:
    policy = one(all_plain(), "NetworkPolicy", "oxydra-default")["spec"]
    assert policy["podSelector"] == {"matchLabels": dict(names.OURS)}
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert policy.keys().isdisjoint({"ingress", "egress"})


def test_only_agents_and_runners_reach_the_embedder() -> None:
    policy = one(all_plain(), "NetworkPolicy", "oxydra-embedder")["spec"]
    (rule,) = policy["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": Port.EMBEDDER}]
    agent = {**names.RUNNER, names.LABEL_ROLE: Role.AGENT.value}
    inside = {"matchLabels": {names.LABEL_NAMESPACE: "oxydra"}}
    assert rule["from"] == [
        {"podSelector": {"matchLabels": agent}},
        {"podSelector": {"matchLabels": dict(names.RUNNER)}, "namespaceSelector": inside},
    ]
    assert "egress" not in policy


@pytest.mark.parametrize("user", ["alice", "bob-2", "7", "a--b", "oxydra"])
def test_a_users_egress_and_nobody_else_reaches_the_users_memory_server(user: str) -> None:
    """The labels of the chart are those that the runner gives to the user's guests."""
    objects = from_chart({"users": ["someone", user], **MEMORY})
    name, owner = f"memory-{user}", names.Owner(user)
    theirs = {"matchLabels": {**policies.MEMORY, names.LABEL_USER: owner.slug}}
    server = one(objects, "StatefulSet", name)["spec"]
    assert theirs["matchLabels"].items() <= server["template"]["metadata"]["labels"].items()
    assert server["selector"] == theirs
    service = one(objects, "Service", name)["spec"]
    assert (service["clusterIP"], service["selector"]) == ("None", theirs["matchLabels"])
    policy = one(objects, "NetworkPolicy", name)["spec"]
    assert policy["podSelector"] == theirs
    (coming,) = policy["ingress"]
    assert coming["ports"] == [{"protocol": "TCP", "port": policies.MEMORY_PORT}]
    (peer,) = coming["from"]
    egress = owner.launch_labels(Role.EGRESS, "some-launch", "some-spec")
    assert peer["podSelector"]["matchLabels"].items() <= egress.items()
    assert peer["podSelector"]["matchLabels"][names.LABEL_USER] == owner.slug
    assert peer["namespaceSelector"]["matchLabels"] == {names.LABEL_NAMESPACE: "oxydra-guests"}
    assert "egress" not in policy
    (_, _, going) = next(
        each["spec"]["egress"]
        for each in policies.policies(owner, KubernetesSettings(), "oxydra")
        if each["metadata"]["name"] == owner.name("egress")
    )
    inside = {"matchLabels": {names.LABEL_NAMESPACE: "oxydra"}}
    assert going["to"] == [{"podSelector": theirs, "namespaceSelector": inside}]


def test_no_name_of_a_users_object_is_one_of_the_charts_own() -> None:
    own = {(each["kind"], each["metadata"]["name"]) for each in from_chart(EVERYTHING)}
    shadowing = [name.removeprefix("oxydra-") for _, name in own] + ["oxydra", "oxydra-runner"]
    users = [name for name in shadowing if re.fullmatch("[a-z0-9][a-z0-9-]{0,31}", name)]
    made = from_chart({**EVERYTHING, "users": sorted(set(users))})
    found = [(each["kind"], each["metadata"]["name"]) for each in made]
    assert len(found) == len(set(found))


def test_no_pod_but_the_runners_needs_a_secret() -> None:
    texts = {name: json.dumps(pod["spec"]) for name, pod in pods_in(from_chart(EVERYTHING))}
    for name, text in texts.items():
        named = set(re.findall(r'"(?:secretName|secretKeyRef|secretRef)": ("[^"]*"|{[^}]*})', text))
        assert bool(named) is (name == "oxydra-runner"), named


def test_runner_embedder_and_each_memory_server_have_uids_of_their_own() -> None:
    found = [pod["spec"]["securityContext"] for _, pod in pods_in(from_chart(EVERYTHING))]
    assert len({each["runAsUser"] for each in found}) == len(found) == 4
    guests = range(ContainerSettings().guest_uid + 1, 20_001)
    assert not [each for each in found if each["runAsUser"] in guests]


def test_a_server_has_its_users_key_and_nobody_elses() -> None:
    for name, pod in pods_in(from_chart(EVERYTHING)):
        if name.startswith("memory-"):
            (container,) = pod["spec"]["containers"]
            (key,) = container["env"]
            assert key["valueFrom"] == {"configMapKeyRef": {"name": name, "key": "public.pem"}}
            assert "--enable-namespaces" not in container["command"]
            assert not any("admin" in word for word in container["command"])


def test_nobody_connects_to_a_runner_that_serves_nothing() -> None:
    closed = one(from_chart(), "NetworkPolicy", "oxydra-runner")["spec"]
    assert "Ingress" in closed["policyTypes"]
    assert not closed.get("ingress")
    opened = one(from_chart(EVERYTHING), "NetworkPolicy", "oxydra-runner")["spec"]
    assert opened["ingress"] == [
        {
            "ports": [{"protocol": "TCP", "port": 8443}],
            "from": [{"ipBlock": {"cidr": "198.51.100.0/24"}}],
        },
    ]
    assert "selector" not in one(from_chart(EVERYTHING), "Service", names.SERVICE)["spec"]


def test_an_update_replaces_one_replica_after_the_other() -> None:
    for values in ({}, EVERYTHING):
        spec = one(from_chart(values), "Deployment", "oxydra-runner")["spec"]
        assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
        (container,) = spec["template"]["spec"]["containers"]
        assert "readinessProbe" not in container


@pytest.mark.parametrize("values", [{}, EVERYTHING])
def test_the_runner_runs_a_command_that_exists(values: dict[str, Any]) -> None:
    pod = one(from_chart(values), "Deployment", "oxydra-runner")["spec"]["template"]["spec"]
    program, *words = pod["containers"][0]["command"]
    assert program == "runner"
    assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0
    assert words[-1] == "--all"


def test_the_script_for_keys_refuses_names_that_no_service_can_have(tmp_path: Path) -> None:
    script = str(PLACE / "memory-users.sh")
    environ = {**os.environ, "SQLD_KEYS": str(tmp_path)}
    for name in ("Alice", "a_b", "..", "a-", ""):
        command = [script, "add", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
        assert done.returncode == 2
        assert "lower-case letters" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_settings_of_the_chart_are_text_that_toml_reads() -> None:
    values = {"embedder": {"model": 'a"b\\c<d>'}}
    text = one(from_chart(values), "ConfigMap", "oxydra-runner")["data"]["runner.toml"]
    assert tomllib.loads(text)["embedder"]["model"] == 'a"b\\c<d>'
