"""What a cluster makes for a user: today's schemas know it, no pod may do more than the strictest
standard for pods allows, and what a pod says of itself is understood."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from runner.tiers.kubernetes import claims
from runner.tiers.kubernetes.names import Owner
from runner.tiers.kubernetes.pods import pod_of
from runner.tiers.kubernetes.policies import policies
from runner.tiers.kubernetes.settings import KubernetesSettings
from runner.tiers.kubernetes.watching import hopeless, is_running, why_waiting
from runner.workspace.mounts import Role
from tests.support.boundary.pod import pod_launch

Object = dict[str, Any]
ALICE = Owner("alice")
PLAIN = KubernetesSettings()
SPECIAL = KubernetesSettings(
    runtime_class="gvisor",
    storage_class="fast",
    node_selector=("pool=agents",),
    image_pull_secrets=("registry",),
)


GUESTS = [role for role in Role if role is not Role.EMBEDDER]


def pod(role: Role, settings: KubernetesSettings = PLAIN) -> Object:
    return pod_of(replace(pod_launch(), role=role), settings, "oxydra")


def containers(made: Object) -> list[Object]:
    return [*made["spec"].get("initContainers", ()), *made["spec"]["containers"]]


@pytest.mark.parametrize("settings", [PLAIN, SPECIAL], ids=["plain", "special"])
@pytest.mark.parametrize("release", [kubernetes_validate.utils.all_versions()[0], "newest"])
def test_a_cluster_of_today_knows_all_of_it(release: str, settings: KubernetesSettings) -> None:
    wanted = kubernetes_validate.latest_version() if release == "newest" else release
    made = [pod(role, settings) for role in GUESTS]
    made += [claims.claim(ALICE, which, settings) for which in (claims.STATE, claims.WORK)]
    for each in (*made, *policies(ALICE, settings)):
        kubernetes_validate.validate(each, wanted, strict=True)


@pytest.mark.parametrize("settings", [PLAIN, SPECIAL], ids=["plain", "special"])
@pytest.mark.parametrize("role", GUESTS)
def test_each_container_is_confined(role: Role, settings: KubernetesSettings) -> None:
    made = pod(role, settings)
    spec = made["spec"]
    assert spec["automountServiceAccountToken"] is spec["enableServiceLinks"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostUsers"} & spec.keys()
    assert {kind for each in spec["volumes"] for kind in each} <= {
        *("name", "emptyDir", "persistentVolumeClaim")
    }
    for each in containers(made):
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert set(each["resources"]["limits"]) == {"cpu", "memory", "ephemeral-storage"}
        assert not [mount for mount in each["volumeMounts"] if "subPath" in mount]


def test_with_a_runtime_class_something_is_in_tmp_before_the_shell_starts(tmp_path: Path) -> None:
    others = [(role, SPECIAL) for role in GUESTS if role is not Role.SHELL]
    for role, settings in ((Role.SHELL, PLAIN), *others):
        assert "initContainers" not in pod(role, settings)["spec"]
    (first,) = pod(Role.SHELL, SPECIAL)["spec"]["initContainers"]
    assert first["stdin"] is False
    place = tmp_path / "work"
    command = [word.replace("/work/", f"{place}/") for word in first["command"]]
    tmp, kept = place / "tmp", place / "tmp/.kept"

    def run() -> None:
        subprocess.run(command, check=True)

    run()
    assert kept.read_bytes() == b""
    assert (place / "shared").is_dir()
    (tmp / "theirs").touch()
    kept.unlink()
    run()
    assert [each.name for each in tmp.iterdir()] == ["theirs"]
    for planted in ("nowhere", "shared", str(tmp_path)):
        subprocess.run(["rm", "-rf", tmp], check=True)
        tmp.symlink_to(planted)
        run()
        assert not tmp.is_symlink()
        assert kept.exists()


@pytest.mark.parametrize(
    ("state", "is_hopeless", "words"),
    [
        ({"waiting": {"reason": "ImagePullBackOff", "message": "gone"}}, True, "gone"),
        ({"waiting": {"reason": "PodInitializing"}}, False, "PodInitializing"),
        ({"running": {"startedAt": "now"}}, False, ""),
        ({"terminated": {"exitCode": 1}}, False, ""),
    ],
)
def test_a_pod_waits_for_what_must_succeed_first(
    state: Object, is_hopeless: bool, words: str
) -> None:
    own = {"state": {"waiting": {"reason": "PodInitializing"}}}
    status = {
        "phase": "Pending",
        "initContainerStatuses": [{"state": state}],
        "containerStatuses": [own],
    }
    found = {"metadata": {"name": "pod"}, "status": status}
    assert hopeless(found) is is_hopeless
    assert words in why_waiting(found)
    assert not is_running(found)


def test_what_has_succeeded_first_counts_no_more() -> None:
    status = {
        "phase": "Running",
        "initContainerStatuses": [{"state": {"terminated": {"exitCode": 0}}}],
        "containerStatuses": [{"state": {"running": {}}}],
    }
    assert is_running({"metadata": {"name": "pod"}, "status": status})
