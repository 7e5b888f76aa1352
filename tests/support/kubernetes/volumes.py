"""Volumes: directories of this machine, some of which a small provisioner makes for claims."""

import base64
import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.kubernetes.api import Api, ApiError

Object = dict[str, Any]
CLASS: Final = "standin"
PROVISIONER: Final = "oxydra.io/standin"
_BY: Final = "volume.beta.kubernetes.io/storage-provisioner"
_SELECTED: Final = "volume.kubernetes.io/selected-node"


class NotYetError(Exception):
    """Something that a volume needs is not there yet; a kubelet waits for it."""


class NoSuchVolumeError(Exception):
    """The stand-in cannot mount such a volume."""


@dataclass(frozen=True)
class Mounted:
    """A volume of a pod as a directory of this machine."""

    name: str
    directory: Path
    read_only: bool = False


async def make_class(api: Api) -> None:
    """The default class: a volume comes when its first pod has a node."""
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


async def provision(api: Api, directory: Path, claims: list[Object]) -> None:
    """Make volumes in `directory` for claims that wait for one."""
    for claim in claims:
        marks = claim["metadata"].get("annotations") or {}
        if claim["spec"].get("volumeName") or marks.get(_BY) != PROVISIONER:
            continue
        if marks.get(_SELECTED):
            if (policy := await _reclaim_policy(api, claim)) is None:
                continue
            volume = _volume(claim, directory, policy)
            Path(volume["spec"]["hostPath"]["path"]).mkdir(parents=True, exist_ok=True)
            await api.insist(lambda made=volume: _made(api, made))  # type: ignore[misc]


async def reclaim(api: Api, volumes: list[Object]) -> None:
    """Remove volumes whose claim is gone, with what they hold, unless their class keeps them."""
    for volume in volumes:
        spec = volume["spec"]
        ours = (volume["metadata"].get("annotations") or {}).get(
            "pv.kubernetes.io/provisioned-by"
        ) == PROVISIONER
        gone = volume.get("status", {}).get("phase") in ("Released", "Failed")
        if ours and gone and spec["persistentVolumeReclaimPolicy"] == "Delete":
            shutil.rmtree(spec["hostPath"]["path"], ignore_errors=True)
            await api.delete(f"/api/v1/persistentvolumes/{volume['metadata']['name']}")


async def _reclaim_policy(api: Api, claim: Object) -> str | None:
    """What becomes of a claim's volume; nothing if its class is gone."""
    found: list[str] = []
    path = f"/apis/storage.k8s.io/v1/storageclasses/{claim['spec']['storageClassName']}"

    async def ask() -> None:
        found.append(str((await api.get(path))["reclaimPolicy"]))

    return found[-1] if await api.insist(ask) else None


async def _made(api: Api, volume: Object) -> None:
    try:
        await api.post("/api/v1/persistentvolumes", volume)
    except ApiError as error:
        if error.status != 409:
            raise


def _volume(claim: Object, directory: Path, policy: str) -> Object:
    meta = claim["metadata"]
    name = f"pvc-{meta['uid']}"
    return {
        "metadata": {
            "name": name,
            "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER},
        },
        "spec": {
            "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
            "accessModes": claim["spec"]["accessModes"],
            "persistentVolumeReclaimPolicy": policy,
            "storageClassName": claim["spec"]["storageClassName"],
            "hostPath": {"path": str(directory / name)},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
            },
        },
    }


def remove(directory: Path) -> None:
    """Remove a directory with all that is mounted in it."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        place = Path(line.split()[1])
        if place.is_relative_to(directory):
            subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)
    shutil.rmtree(directory, ignore_errors=True)


class Volumes:
    """The volumes of one pod. What is of this pod alone lies in `scratch`."""

    def __init__(self, api: Api, pod: Object, scratch: Path) -> None:
        self._api = api
        self._pod = pod
        self._scratch = scratch
        self._namespace = f"/api/v1/namespaces/{pod['metadata']['namespace']}"
        self._context = pod["spec"].get("securityContext") or {}
        self._group: int | None = self._context.get("fsGroup")

    async def mount(self) -> list[Mounted]:
        """Make them all. Raises `NotYetError`, `NoSuchVolumeError`."""
        return [await self._mount(each) for each in self._pod["spec"].get("volumes") or ()]

    async def _mount(self, volume: Object) -> Mounted:
        name = volume["name"]
        match volume:
            case {"emptyDir": {"medium": "Memory"} as empty}:
                return Mounted(name, self._memory(name, empty))
            case {"emptyDir": _}:
                place = self._made(name)
                self._own(place)
                return Mounted(name, place)
            case {"persistentVolumeClaim": claim}:
                place = await self._claimed(claim["claimName"])
                self._own(place)
                return Mounted(name, place, read_only=bool(claim.get("readOnly")))
            case {"configMap": source}:
                return await self._filled(name, [{"configMap": source}], source)
            case {"secret": source}:
                named = {**source, "name": source["secretName"]}
                return await self._filled(name, [{"secret": named}], source)
            case {"projected": source}:
                return await self._filled(name, source["sources"], source)
        raise NoSuchVolumeError(f"the stand-in has no volume like {sorted(volume)}")

    def _memory(self, name: str, empty: Object) -> Path:
        """A file system in memory. The engine's own would take the mode of what is below it."""
        place = self._made(name)
        if not place.is_mount():
            options = "nosuid,nodev,mode=0777"
            if self._group is not None:
                options = f"nosuid,nodev,mode=2777,gid={self._group}"
            if size := str(empty.get("sizeLimit", "")).rstrip("i").lower():
                options += f",size={size}"
            command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
            subprocess.run(command, check=True, capture_output=True)
        return place

    def _made(self, name: str, kind: str = "kubernetes.io~empty-dir") -> Path:
        place = self._scratch / "volumes" / kind / name
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o777)
        return place

    def _own(self, place: Path) -> None:
        """Give a volume to the pod's group, as `fsGroupChangePolicy` says."""
        if self._group is None:
            return
        found = place.stat()
        wanted = stat.S_ISGID | 0o070
        fits = found.st_gid == self._group and found.st_mode & wanted == wanted
        if fits and self._context.get("fsGroupChangePolicy") == "OnRootMismatch":
            return
        for folder, _, files in os.walk(place, topdown=False):
            for file in files:
                self._share(Path(folder) / file, 0o660)
            self._share(Path(folder), stat.S_ISGID | 0o770)

    def _share(self, path: Path, mode: int) -> None:
        assert self._group is not None
        os.chown(path, -1, self._group, follow_symlinks=False)
        if not path.is_symlink():
            path.chmod(stat.S_IMODE(path.stat().st_mode) | mode)

    async def _claimed(self, claim: str) -> Path:
        try:
            found = await self._api.get(f"{self._namespace}/persistentvolumeclaims/{claim}")
        except ApiError as error:
            raise NotYetError(f"the claim {claim}: {error}") from None
        if found.get("status", {}).get("phase") != "Bound":
            raise NotYetError(f"the claim {claim} is not bound")
        if elsewhere := await self._user_elsewhere(claim):
            raise NotYetError(f"Multi-Attach error: the claim {claim} is in use by {elsewhere}")
        volume = await self._api.get(f"/api/v1/persistentvolumes/{found['spec']['volumeName']}")
        if "hostPath" not in volume["spec"]:
            raise NoSuchVolumeError("the stand-in mounts volumes with a hostPath only")
        place = Path(volume["spec"]["hostPath"]["path"])
        if not place.exists():
            place.mkdir(parents=True)
            place.chmod(0o755)
        return place

    async def _user_elsewhere(self, claim: str) -> str:
        """A pod of another node that has the claim: a volume is one node's at a time."""
        for pod in (await self._api.get(f"{self._namespace}/pods"))["items"]:
            names = [
                (each.get("persistentVolumeClaim") or {}).get("claimName")
                for each in pod["spec"].get("volumes") or ()
            ]
            node = pod["spec"].get("nodeName") or self._pod["spec"]["nodeName"]
            ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
            if claim in names and node != self._pod["spec"]["nodeName"] and not ended:
                return str(pod["metadata"]["name"])
        return ""

    async def _filled(self, name: str, sources: list[Object], options: Object) -> Mounted:
        place = self._made(name, "kubernetes.io~projected")
        mode = int(options.get("defaultMode", 0o644))
        for source in sources:
            for path, content in (await self.content(source)).items():
                file = place / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
                file.chmod(mode)
                if self._group is not None:
                    os.chown(file, -1, self._group)
                    file.chmod(mode | 0o440)
        return Mounted(name, place, read_only=True)

    async def content(self, source: Object) -> dict[str, bytes]:
        """The files of a source. Raises `NotYetError`, `NoSuchVolumeError`."""
        match source:
            case {"serviceAccountToken": asked}:
                return {asked["path"]: (await self._token(asked)).encode()}
            case {"configMap": asked}:
                found = (await self._object("configmaps", asked)).get("data") or {}
                return _items(asked, {key: value.encode() for key, value in found.items()})
            case {"secret": asked}:
                found = (await self._object("secrets", asked)).get("data") or {}
                return _items(asked, {k: base64.b64decode(v) for k, v in found.items()})
            case {"downwardAPI": asked}:
                return {
                    each["path"]: self._field(each["fieldRef"]["fieldPath"]).encode()
                    for each in asked["items"]
                }
        raise NoSuchVolumeError(f"the stand-in projects nothing like {sorted(source)}")

    def _field(self, path: str) -> str:
        kind, _, name = path.partition(".")
        if kind != "metadata" or name not in ("name", "namespace", "uid"):
            raise NoSuchVolumeError(f"the stand-in projects no {path}")
        return str(self._pod["metadata"][name])

    async def _object(self, kind: str, asked: Object) -> Object:
        try:
            return await self._api.get(f"{self._namespace}/{kind}/{asked['name']}")
        except ApiError as error:
            if error.status == 404 and asked.get("optional"):
                return {}
            raise NotYetError(f"{kind} {asked['name']}: {error}") from None

    async def _token(self, asked: Object) -> str:
        meta = self._pod["metadata"]
        account = self._pod["spec"].get("serviceAccountName", "default")
        bound = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
        audiences = [asked["audience"]] if asked.get("audience") else []
        answer = await self._api.post(
            f"{self._namespace}/serviceaccounts/{account}/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {
                    "audiences": audiences,
                    "expirationSeconds": asked.get("expirationSeconds", 3600),
                    "boundObjectRef": bound,
                },
            },
        )
        return str(answer["status"]["token"])


def _items(asked: Object, found: dict[str, bytes]) -> dict[str, bytes]:
    """The keys that are asked for, at their paths; without a choice all."""
    if not asked.get("items"):
        return found
    return {each["path"]: found[each["key"]] for each in asked["items"] if each["key"] in found}
