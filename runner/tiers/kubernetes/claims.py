"""A user's volumes: `state` for the agent alone, `work` for agent and shell.

Two claims and never parts of one: engines that ignore `subPath` would show the shell everything.
"""

from typing import Any, Final

from wire.errors import Code

from runner.errors import TierError
from runner.tiers.kubernetes.cluster import Cluster
from runner.tiers.kubernetes.names import Owner
from runner.tiers.kubernetes.settings import KubernetesSettings
from runner.workspace.mounts import Role

STATE: Final = "state"
WORK: Final = "work"
OF_ROLE: Final[dict[Role, tuple[str, ...]]] = {
    Role.AGENT: (STATE, WORK),
    Role.SHELL: (WORK,),
    Role.EGRESS: (),
    Role.SHELL_EGRESS: (),
    Role.EMBEDDER: (),
}


def claim(owner: Owner, which: str, settings: KubernetesSettings) -> dict[str, Any]:
    """The claim for one of a user's volumes. SQLite needs a file system of one node, so only one
    may mount it."""
    size = settings.state_size if which == STATE else settings.work_size
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "volumeMode": "Filesystem",
        "resources": {"requests": {"storage": size}},
    }
    if settings.storage_class:
        spec["storageClassName"] = settings.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": owner.metadata(which),
        "spec": spec,
    }


async def ensure(cluster: Cluster, owner: Owner, role: Role, settings: KubernetesSettings) -> None:
    """Create the claims of `role` that are missing.

    Raises `TierError` if one cannot be made, is being removed, may be mounted by many nodes, or is
    still in the runner's namespace.
    """
    core = cluster.core
    for which in OF_ROLE[role]:
        wanted = claim(owner, which, settings)
        if cluster.apart:
            await _require_moved(cluster, owner.name(which))
        found = await cluster.made(
            "claim",
            core.create_namespaced_persistent_volume_claim,
            core.read_namespaced_persistent_volume_claim,
            wanted,
        )
        _check(found, owner)


async def claims_of(cluster: Cluster, owner: Owner) -> dict[str, dict[str, Any] | None]:
    """A user's claims by their names; None for one that is not there."""
    return {
        name: await cluster.find(
            f"read the claim {name}",
            cluster.core.read_namespaced_persistent_volume_claim,
            name,
            cluster.namespace,
        )
        for name in (owner.name(STATE), owner.name(WORK))
    }


def size_of(claim: dict[str, Any]) -> str:
    """What a claim asks for."""
    return str(claim["spec"]["resources"]["requests"]["storage"])


async def remove(cluster: Cluster, owner: Owner) -> None:
    """Remove all claims of a user, and with them what they hold, as their class says. Raises
    `TierError` if one is somebody else's."""
    found = [each for each in (await claims_of(cluster, owner)).values() if each is not None]
    for each in found:
        _require_ours(each, owner)
    for each in found:
        name = each["metadata"]["name"]
        await cluster.find(
            f"remove the claim {name}",
            cluster.core.delete_namespaced_persistent_volume_claim,
            name,
            cluster.namespace,
            body={"preconditions": {"uid": each["metadata"]["uid"]}},
        )


async def _require_moved(cluster: Cluster, name: str) -> None:
    """Refuse to make an empty claim beside one that was made when guests had no namespace of their
    own."""
    read = cluster.core.read_namespaced_persistent_volume_claim
    if await cluster.find(f"read the claim {name}", read, name, cluster.home) is not None:
        raise TierError(
            Code.FAILED_PRECONDITION,
            f"the claim {name} is in the namespace {cluster.home}, guests are in "
            f"{cluster.namespace}",
            details="a new claim would be empty",
            resolution="move its volume (docs/guide/kubernetes.md, Upgrade), or set "
            f'kubernetes.namespace = "{cluster.home}"',
        )


def _require_ours(found: dict[str, Any], owner: Owner) -> None:
    name, labels = found["metadata"]["name"], found["metadata"].get("labels") or {}
    namespace = found["metadata"]["namespace"]
    if not owner.labels.items() <= labels.items():
        wanted = " ".join(f"{key}={value}" for key, value in owner.labels.items())
        raise TierError(
            Code.ALREADY_EXISTS,
            f"the claim {name} is somebody else's",
            details="it lacks the labels that the runner gives its own",
            resolution=f"if it is this user's: kubectl -n {namespace} label pvc {name} {wanted}",
        )


def _check(found: dict[str, Any], owner: Owner) -> None:
    name, within = found["metadata"]["name"], f"-n {found['metadata']['namespace']}"
    _require_ours(found, owner)
    if found["metadata"].get("deletionTimestamp"):
        raise TierError(
            Code.FAILED_PRECONDITION,
            f"the claim {name} is being removed",
            details="it goes when the last pod that mounts it has gone",
            resolution=f"kubectl {within} get pods,pvc; then again when {name} is gone",
        )
    if found["spec"].get("accessModes") != ["ReadWriteOnce"]:
        raise TierError(
            Code.FAILED_PRECONDITION,
            f"the claim {name} has the access modes {found['spec'].get('accessModes')}",
            details="memory is SQLite's, which several nodes at once would damage",
            resolution="give the user a claim with ReadWriteOnce; see docs/guide/kubernetes.md",
        )
