"""A launch as a pod: the whole confinement of a guest."""

import hashlib
from typing import Any, Final

from runner.images.naming import ImageRole, image_name
from runner.tiers.base import LaunchSpec
from runner.tiers.kubernetes.claims import OF_ROLE, STATE, WORK
from runner.tiers.kubernetes.cluster import as_json
from runner.tiers.kubernetes.names import (
    LABEL_LAUNCH,
    LABEL_ROLE,
    OURS,
    Owner,
    labels_of,
)
from runner.tiers.kubernetes.settings import KubernetesSettings
from runner.workspace.mounts import Role

CONTAINER: Final = "guest"
HOSTNAME_KEY: Final = "kubernetes.io/hostname"
GRACE_S: Final = 30
_MIB: Final = 1024 * 1024
_RUN_SIZE: Final = "16Mi"
_DISK: Final = "256Mi"
"""Of the node's own disk, which guests have no use for."""
_MOUNTED_AT: Final = {STATE: "/state", WORK: "/work"}
_REQUESTED: Final = {
    Role.AGENT: (192, "50m"),
    Role.SHELL: (64, "25m"),
    Role.EGRESS: (64, "10m"),
    Role.SHELL_EGRESS: (64, "10m"),
    Role.EMBEDDER: (512, "250m"),
}
"""Memory in MiB and processors of one that is idle: see docs/benchmarks.md."""
_MADE: Final = {
    Role.AGENT: ("/state/.oxydra", "/state/vault", "/state/tmp", "/work/shared", "/work/tmp"),
    Role.SHELL: ("/work/shared", "/work/tmp", "/work/cache"),
}
_MAKE: Final = (
    'umask 077; while [ "$1" != -- ]; do '
    '[ -d "$1" ] && [ ! -L "$1" ] || { rm -f "$1"; mkdir -p "$1"; }; shift; done; '
    'cd "$2"; shift 2; exec "$@"'
)
"""Makes the directories of a new volume, and goes to the guest's own: the runtime would make that
one as root. What a command has put in the place of one goes."""
_KEPT: Final = '[ -n "$(ls -A)" ] || : >.kept'
"""Leaves the directory for /tmp with something in it before the shell's container starts: over an
empty /tmp gVisor puts a file system of its own."""
_IMAGES: Final = {
    Role.AGENT: ImageRole.AGENT,
    Role.SHELL: ImageRole.SHELL_POD,
    Role.EGRESS: ImageRole.EGRESS,
    Role.SHELL_EGRESS: ImageRole.EGRESS,
    Role.EMBEDDER: ImageRole.EMBEDDER,
}


def image_of(role: Role, settings: KubernetesSettings, images: str) -> str:
    """The image of a role: the one that is set, or else the usual name."""
    own = {
        Role.AGENT: settings.agent_image,
        Role.SHELL: settings.shell_image,
        Role.EGRESS: settings.egress_image,
        Role.SHELL_EGRESS: settings.egress_image,
    }
    return own.get(role, "") or image_name(images, _IMAGES[role])


def pod_of(spec: LaunchSpec, settings: KubernetesSettings, images: str) -> dict[str, Any]:
    """The pod of a launch. Nothing in it is secret."""
    owner = Owner(spec.user_id)
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **owner.metadata(spec.role.value),
            "labels": owner.launch_labels(spec.role, "", ""),
        },
        "spec": _spec(spec, owner, settings, images),
    }
    # Equal for launches that differ only in their id and envelope.
    digest = hashlib.sha256(as_json(pod).encode()).hexdigest()
    pod["metadata"]["labels"] = owner.launch_labels(spec.role, spec.launch_id, digest)
    return pod


def launch_in(pod: dict[str, Any]) -> str:
    """The launch id in a pod's labels."""
    return str((pod["metadata"].get("labels") or {}).get(LABEL_LAUNCH, ""))


def role_in(pod: dict[str, Any]) -> str:
    """The role in a pod's labels."""
    return str((pod["metadata"].get("labels") or {}).get(LABEL_ROLE, ""))


def _spec(
    spec: LaunchSpec, owner: Owner, settings: KubernetesSettings, images: str
) -> dict[str, Any]:
    uid, gid = spec.owner
    claims = OF_ROLE[spec.role]
    found: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_S,
        "hostname": spec.role.value,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": uid,
            "runAsGroup": gid,
            "fsGroup": gid,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(spec, settings, images)],
        "volumes": [
            {"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": _RUN_SIZE}},
            *(
                {"name": each, "persistentVolumeClaim": {"claimName": owner.name(each)}}
                for each in claims
            ),
        ],
    }
    if spec.role in (Role.AGENT, Role.SHELL):
        # Neither may resolve names; egress does that for them.
        found["dnsPolicy"] = "None"
        found["dnsConfig"] = {"nameservers": ["127.0.0.1"]}
        found["affinity"] = _beside(owner)
    if settings.runtime_class:
        found["runtimeClassName"] = settings.runtime_class
        if spec.role is Role.SHELL:
            command = _made(spec.role, "/work/tmp", ["/bin/sh", "-c", _KEPT])
            found["initContainers"] = [
                {**found["containers"][0], "name": "tmp", "command": command, "stdin": False}
            ]
    if settings.node_selector:
        found["nodeSelector"] = labels_of(settings.node_selector)
    if settings.image_pull_secrets:
        found["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    return found


def _container(spec: LaunchSpec, settings: KubernetesSettings, images: str) -> dict[str, Any]:
    limits = spec.limits
    memory, cpus = _REQUESTED[spec.role]
    made = spec.role in _MADE
    command = [*spec.command]
    if made:
        command = _made(spec.role, str(spec.working_directory), command)
    return {
        "name": CONTAINER,
        "image": image_of(spec.role, settings, images),
        "imagePullPolicy": settings.image_pull_policy,
        "command": command,
        "workingDir": "/" if made else str(spec.working_directory),
        "env": [{"name": name, "value": value} for name, value in sorted(spec.environment.items())],
        "stdin": True,
        "stdinOnce": True,
        "resources": {
            "requests": {
                "memory": f"{min(memory, limits.memory_bytes // _MIB)}Mi",
                "cpu": cpus,
                "ephemeral-storage": "32Mi",
            },
            "limits": {
                "memory": f"{limits.memory_bytes // _MIB}Mi",
                "cpu": f"{round(limits.cpus * 1000)}m",
                "ephemeral-storage": _DISK,
            },
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "run", "mountPath": "/run"},
            *({"name": each, "mountPath": _MOUNTED_AT[each]} for each in OF_ROLE[spec.role]),
        ],
    }


def _made(role: Role, place: str, command: list[str]) -> list[str]:
    """A command that is run in `place` once the role's directories are there."""
    return ["/bin/sh", "-c", _MAKE, "sh", *_MADE[role], "--", place, *command]


def _beside(owner: Owner) -> dict[str, Any]:
    """On one node, because agent and shell mount a volume that only one node may have. The first
    of the two selects itself."""
    ours = {"matchLabels": {**OURS, **owner.labels}}
    roles = [{"key": LABEL_ROLE, "operator": "In", "values": [Role.AGENT.value, Role.SHELL.value]}]
    term = {
        "labelSelector": {**ours, "matchExpressions": roles},
        "topologyKey": HOSTNAME_KEY,
    }
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
