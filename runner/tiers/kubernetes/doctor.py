"""The cluster of the kubernetes tier: whether it answers, and lets the runner do what it has to."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kubernetes_asyncio import client
from wire.errors import WireError
from wire.settings import ContainerSettings

from runner.doctor.finding import Finding, ok, problem, refused, warning
from runner.tiers.kubernetes.claims import claims_of, size_of
from runner.tiers.kubernetes.cluster import Cluster, RefusedError
from runner.tiers.kubernetes.leadership import holder
from runner.tiers.kubernetes.names import Owner
from runner.tiers.kubernetes.permissions import excessive_permissions, missing_permissions
from runner.tiers.kubernetes.pods import image_of
from runner.tiers.kubernetes.settings import KubernetesSettings
from runner.workspace.mounts import Role

_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_DEFAULT_POLICY: Final = "oxydra-default"
_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
_SHARED_DISKS: Final = (
    *("nfs", "smb", "cifs", "efs", "azure-file", "file.csi.azure", "filestore", "glusterfs"),
    *("cephfs", "fsx", "lustre"),
)
_APPLY: Final = "kubectl apply -k deploy/kubernetes/plain, or helm upgrade"
_UNKNOWN: Final = "not known: the runner may not read it (rbac.clusterReader gives that right)"

_Check = Callable[[], Awaitable[list[Finding]]]


def cluster(
    settings: KubernetesSettings, container: ContainerSettings, user_id: str
) -> list[Finding]:
    """All that is to be said about the cluster. Blocks."""
    return asyncio.run(_Examination(settings, container, user_id).findings())


class _Examination:
    def __init__(
        self, settings: KubernetesSettings, container: ContainerSettings, user_id: str
    ) -> None:
        self._settings = settings
        self._container = container
        self._owner = Owner(user_id)
        self._cluster = Cluster(settings)

    async def findings(self) -> list[Finding]:
        try:
            found = await self._answers()
        except WireError as error:
            return [refused("cluster", error)]
        else:
            checks: tuple[tuple[str, _Check], ...] = (
                ("permissions", self._permissions),
                ("storage class", self._storage_class),
                ("network policies", self._policies),
                ("runtime class", self._runtime_class),
                ("pod security", self._pod_security),
                ("images", self._images),
                ("volumes", self._claims),
                ("active runner", self._active),
            )
            for name, check in checks:
                try:
                    found += await check()
                except WireError as error:
                    found.append(refused(name, error))
            return found
        finally:
            await self._cluster.close()

    async def _answers(self) -> list[Finding]:
        await self._cluster.open()
        asking = client.VersionApi(self._cluster.api)
        version = await self._cluster.ask("say its version", asking.get_code)
        what = f"Kubernetes {version['gitVersion']} answers at {self._cluster.host}"
        where = f"runner in {self._cluster.home}, guests in {self._cluster.namespace}"
        return [ok("cluster", f"{what}; {where}")]

    async def _permissions(self) -> list[Finding]:
        missing = await missing_permissions(self._cluster)
        if missing:
            what = f"the runner may not: {', '.join(missing)}"
            return [problem("permissions", what, _APPLY)]
        if excessive := await excessive_permissions(self._cluster):
            what = f"the runner may do more than it needs: {', '.join(excessive)}"
            fix = "give it the Role of deploy/kubernetes alone"
            return [warning("permissions", what, fix)]
        if not self._cluster.apart:
            what = "guests are in the runner's namespace: pods that it makes can mount its Secrets"
            fix = "set kubernetes.namespace to one that has none: docs/guide/kubernetes.md, Upgrade"
            return [warning("permissions", what, fix)]
        return [ok("permissions", "what the runner needs, no exec, and no Secret of its namespace")]

    async def _storage_class(self) -> list[Finding]:
        name = "storage class"
        listing = client.StorageV1Api(self._cluster.api).list_storage_class
        try:
            found = await self._cluster.ask("list storage classes", listing)
        except RefusedError as error:
            if error.status != 403:
                raise
            return [ok(name, f"{self._settings.storage_class or 'the default one'}; {_UNKNOWN}")]
        known = {each["metadata"]["name"]: each for each in found["items"]}
        wanted = self._settings.storage_class or next(
            (key for key, each in known.items() if _is_default(each)), ""
        )
        if wanted not in known:
            what = f"there is no storage class {wanted}" if wanted else "there is no default class"
            fix = "kubectl get storageclass, then set kubernetes.storage_class to one of them"
            return [problem(name, what, fix)]
        maker = str(known[wanted].get("provisioner", ""))
        if any(word in maker.lower() for word in _SHARED_DISKS):
            what = f"{wanted} is made by {maker}, a network file system: memory is SQLite's"
            return [warning(name, what, "use a class of block devices or local disks")]
        return [ok(name, f"{wanted}, made by {maker}")]

    async def _policies(self) -> list[Finding]:
        name = "network policies"
        found = await self._cluster.find(
            f"read the policy {_DEFAULT_POLICY}",
            self._cluster.networking.read_namespaced_network_policy,
            _DEFAULT_POLICY,
            self._cluster.namespace,
        )
        if found is None:
            what = f"the policy {_DEFAULT_POLICY}, which shuts guests from everything, is missing"
            return [warning(name, what, _APPLY)]
        what = "there; whether the network enforces them, each start proves"
        return [ok(name, f"{what} (doctor --boundary)")]

    async def _runtime_class(self) -> list[Finding]:
        name, wanted = "runtime class", self._settings.runtime_class
        if not wanted:
            return [ok(name, "none is set: guests share their node's kernel")]
        found = await self._cluster.runtime_class(wanted)
        if found is None:
            return [ok(name, f"{wanted}; {_UNKNOWN}")]
        if not found:
            what = f"there is no runtime class {wanted}, so that no guest starts"
            fix = "kubectl get runtimeclass, then set kubernetes.runtime_class to one of them"
            return [problem(name, what, fix)]
        return [ok(name, f"{wanted}, handled by {found['handler']}")]

    async def _pod_security(self) -> list[Finding]:
        name, namespace = "pod security", self._cluster.namespace
        try:
            found = await self._cluster.ask(
                f"read the namespace {namespace}", self._cluster.core.read_namespace, namespace
            )
        except RefusedError as error:
            if error.status != 403:
                raise
            return [ok(name, _UNKNOWN)]
        level = (found["metadata"].get("labels") or {}).get(_ENFORCE, "")
        if level == "restricted":
            return [ok(name, f"the namespace {namespace} takes restricted pods only")]
        what = f"the namespace {namespace} takes pods that are less confined than ours"
        fix = f"kubectl label --overwrite namespace {namespace} {_ENFORCE}=restricted"
        return [warning(name, what, fix)]

    async def _images(self) -> list[Finding]:
        roles = (Role.AGENT, Role.SHELL, Role.EGRESS)
        images = [image_of(role, self._settings, self._container.images) for role in roles]
        by_tag = [image for image in images if "@sha256:" not in image]
        if by_tag:
            what = f"{', '.join(by_tag)}: a tag can be moved, and then pods of one user differ"
            return [warning("images", what, "set kubernetes.agent_image and others by digest")]
        return [ok("images", ", ".join(images))]

    async def _claims(self) -> list[Finding]:
        claims = await claims_of(self._cluster, self._owner)
        said = ", ".join(_described(name, claim) for name, claim in claims.items())
        if any(_phase(claim) == "Lost" for claim in claims.values()):
            fix = f"kubectl -n {self._cluster.namespace} describe pvc; restore a backup"
            return [problem("volumes", said, fix)]
        return [ok("volumes", said)]

    async def _active(self) -> list[Finding]:
        found = await holder(self._cluster)
        return [ok("active runner", found or "none holds the Lease now")]


def _described(name: str, claim: dict[str, Any] | None) -> str:
    if claim is None:
        return f"{name} is made at the first start"
    return f"{name} of {size_of(claim)} is {_phase(claim).lower()}"


def _phase(claim: dict[str, Any] | None) -> str:
    return str(((claim or {}).get("status") or {}).get("phase", "Pending"))


def _is_default(storage_class: dict[str, Any]) -> bool:
    marks = storage_class["metadata"].get("annotations") or {}
    return marks.get(_DEFAULT_CLASS) == "true"
