"""Volumes: directories of this machine, which a small provisioner makes for claims."""

import base64
import os
import shutil
from pathlib import Path
from typing import Any, Final

from tests.support.cluster.api import Api, ApiError

Object = dict[str, Any]

CLASS: Final = "standin"
PROVISIONER: Final = "oxydra.io/standin"
_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-provisioner"
_SELECTED: Final = "volume.kubernetes.io/selected-node"


async def make_class(api: Api) -> None:
    """The default class: a volume comes when its first pod has a node."""
    try:
        await api.post(
            "/apis/storage.k8s.io/v1/storageclasses",
            {
                "metadata": {
                    "name": CLASS,
                    "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
                },
                "provisioner": PROVISIONER,
                "volumeBindingMode": "WaitForFirstConsumer",
                "reclaimPolicy": "Delete",
            },
        )
    except ApiError as error:
        if error.status != 409:
            raise


async def provision(api: Api, directory: Path, claims: list[Object]) -> None:
    """Make volumes for claims that wait for one."""
    for claim in claims:
        marks = claim["metadata"].get("annotations") or {}
        waits = claim.get("status", {}).get("phase") == "Pending"
        if not waits or marks.get(_ANNOTATION) != PROVISIONER or _SELECTED not in marks:
            continue
        name = f"pv-{claim['metadata']['uid']}"
        place = directory / name
        place.mkdir(exist_ok=True)
        node = marks[_SELECTED]
        term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        volume = {
            "metadata": {
                "name": name,
                "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER},
            },
            "spec": {
                "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
                "accessModes": claim["spec"]["accessModes"],
                "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": CLASS,
                "hostPath": {"path": str(place)},
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": claim["metadata"]["namespace"],
                    "name": claim["metadata"]["name"],
                    "uid": claim["metadata"]["uid"],
                },
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
            },
        }
        try:
            await api.post("/api/v1/persistentvolumes", volume)
        except ApiError as error:
            if error.status != 409:
                raise


async def reclaim(api: Api, volumes: list[Object]) -> None:
    """Remove volumes whose claim is gone, with what they hold."""
    for volume in volumes:
        if volume.get("status", {}).get("phase") in ("Released", "Failed"):
            shutil.rmtree(volume["spec"]["hostPath"]["path"], ignore_errors=True)
            await api.delete(f"/api/v1/persistentvolumes/{volume['metadata']['name']}")


class Mounts:
    """The volumes of one pod as binds and in-memory file systems of a container."""

    def __init__(self, api: Api, scratch: Path, pod: Object) -> None:
        self._api = api
        self._scratch = scratch
        self._pod = pod
        self._namespace = pod["metadata"]["namespace"]
        self._group = (pod["spec"].get("securityContext") or {}).get("fsGroup")

    async def prepare(self) -> dict[str, str]:
        """The directory of each volume that has one, made and filled."""
        found = {}
        for volume in self._pod["spec"].get("volumes") or ():
            name = volume["name"]
            if "persistentVolumeClaim" in volume:
                found[name] = await self._claimed(volume["persistentVolumeClaim"]["claimName"])
            elif (volume.get("emptyDir") or {}).get("medium") == "Memory":
                continue
            else:
                place = self._scratch / name
                place.mkdir(parents=True, exist_ok=True)
                await self._fill(volume, place)
                found[name] = str(place)
            self._share(Path(found[name]))
        return found

    def in_memory(self) -> dict[str, str]:
        """The size of each volume in memory."""
        found = {}
        for volume in self._pod["spec"].get("volumes") or ():
            empty = volume.get("emptyDir")
            if empty is not None and empty.get("medium") == "Memory":
                found[volume["name"]] = str(empty.get("sizeLimit", "64Mi")).rstrip("i").lower()
        return found

    def _share(self, place: Path) -> None:
        if self._group is not None:
            os.chown(place, -1, self._group)
            place.chmod(0o2775)

    async def _claimed(self, claim: str) -> str:
        path = f"/api/v1/namespaces/{self._namespace}/persistentvolumeclaims/{claim}"
        found = await self._api.get(path)
        name = found["spec"].get("volumeName")
        if not name or found["status"]["phase"] != "Bound":
            raise LookupError(f"the claim {claim} is not bound")
        volume = await self._api.get(f"/api/v1/persistentvolumes/{name}")
        return str(volume["spec"]["hostPath"]["path"])

    async def _fill(self, volume: Object, place: Path) -> None:
        if (source := volume.get("configMap")) is not None:
            await self._copy("configmaps", source["name"], place)
        if (source := volume.get("secret")) is not None:
            await self._copy("secrets", source["secretName"], place)
        for source in (volume.get("projected") or {}).get("sources") or ():
            if (token := source.get("serviceAccountToken")) is not None:
                (place / token["path"]).write_text(await self._token())
            if (config := source.get("configMap")) is not None:
                await self._copy("configmaps", config["name"], place)
            for item in (source.get("downwardAPI") or {}).get("items") or ():
                if item["fieldRef"]["fieldPath"] == "metadata.namespace":
                    (place / item["path"]).write_text(self._namespace)

    async def _copy(self, kind: str, name: str, place: Path) -> None:
        found = await self._api.get(f"/api/v1/namespaces/{self._namespace}/{kind}/{name}")
        for key, value in (found.get("data") or {}).items():
            content = base64.b64decode(value) if kind == "secrets" else value.encode()
            (place / key).write_bytes(content)

    async def _token(self) -> str:
        account = self._pod["spec"].get("serviceAccountName") or "default"
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token"
        answer = await self._api.post(
            path,
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": 3600},
            },
        )
        return str(answer["status"]["token"])
