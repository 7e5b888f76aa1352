"""A pod as a container of the engine: what a kubelet would tell its runtime."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.support.kubernetes.volumes import Mounted

Object = dict[str, Any]
Sources = dict[tuple[str, str], dict[str, str]]
"""What ConfigMaps and Secrets hold that variables come from, by kind and name."""
RUNTIMES: Final = {"runsc": "runsc-pods", "runc": "runc"}
"""The engine's runtime for each handler of a RuntimeClass."""
_UNITS: Final = {"k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_PERIOD_US: Final = 100_000
_VARIABLE: Final = re.compile(r"\$\$|\$\((\w+)\)")
_NO_SUCH: Final = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace")
_NO_SUCH_IN_CONTAINER: Final = ("lifecycle", "livenessProbe", "startupProbe")
_SOURCES: Final = ("configMap", "secret")


class UnsupportedError(Exception):
    """The stand-in cannot do what a pod asks for."""


class ConfigError(Exception):
    """A container that a kubelet would not create, either."""


@dataclass(frozen=True)
class Place:
    """Where a pod is put on its node."""

    network: str
    ip: str
    host_ip: str
    resolv_conf: str
    runtime: str
    pids_limit: int


def name_of(pod: Object) -> str:
    """Namespace and name."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def container_in(pod: Object) -> Object:
    """The one container of a pod. Raises `UnsupportedError` for what is not done here."""
    spec = pod["spec"]
    for each in _NO_SUCH:
        if spec.get(each):
            raise UnsupportedError(f"the stand-in has no {each}")
    if len(spec["containers"]) != 1:
        raise UnsupportedError("the stand-in runs one container per pod")
    container: Object = spec["containers"][0]
    for each in _NO_SUCH_IN_CONTAINER:
        if container.get(each):
            raise UnsupportedError(f"the stand-in has no {each}")
    if (container.get("securityContext") or {}).get("privileged"):
        raise UnsupportedError("the stand-in runs nothing privileged")
    for each in container.get("volumeMounts") or ():
        if each.get("subPath") or each.get("subPathExpr"):
            raise UnsupportedError("the stand-in has no subPath")
    return container


def those_first(pod: Object) -> list[Object]:
    """The pod as it is for each container that must succeed before its own."""
    spec = pod["spec"]
    return [
        {**pod, "spec": {**spec, "containers": [each], "initContainers": []}}
        for each in spec.get("initContainers") or ()
    ]


def sources_of(container: Object) -> Iterator[tuple[str, Object]]:
    """Each ConfigMap and Secret that variables come from: its kind, and what names it."""
    named = [(each, "Ref") for each in container.get("envFrom") or ()]
    named += [(each.get("valueFrom") or {}, "KeyRef") for each in container.get("env") or ()]
    for source, ending in named:
        for kind in _SOURCES:
            if (asked := source.get(kind + ending)) is not None:
                yield kind, asked


def container_of(
    pod: Object,
    image: Object,
    place: Place,
    mounts: list[Mounted],
    variables: dict[str, str],
    sources: Sources,
) -> Object:
    """What the engine is asked to create.

    Raises `ConfigError` if the pod must not run as root and would, or if a variable is to come
    from a key that is not there; `UnsupportedError`.
    """
    container = container_in(pod)
    environment = dict(variables)
    for each in container.get("envFrom") or ():
        for kind in _SOURCES:
            if (named := each.get(f"{kind}Ref")) is not None:
                prefix = each.get("prefix", "")
                held = sources[kind, named["name"]]
                environment |= {prefix + key: value for key, value in held.items()}
    for each in container.get("env") or ():
        if "valueFrom" not in each:
            environment[each["name"]] = _expanded(str(each.get("value", "")), environment)
        elif (value := _value(each["valueFrom"], pod, place, sources)) is not None:
            environment[each["name"]] = value
    command = [_expanded(each, environment) for each in container.get("command") or ()]
    arguments = [_expanded(each, environment) for each in container.get("args") or ()]
    asked: Object = {
        "Image": container["image"],
        "Hostname": (pod["spec"].get("hostname") or pod["metadata"]["name"])[:63],
        "User": _user(pod, container, image),
        "Env": [f"{name}={value}" for name, value in environment.items()],
        "OpenStdin": bool(container.get("stdin")),
        "StdinOnce": bool(container.get("stdinOnce")),
        "Tty": bool(container.get("tty")),
        "HostConfig": _host(pod, container, place, mounts),
        "NetworkingConfig": {
            "EndpointsConfig": {place.network: {"IPAMConfig": {"IPv4Address": place.ip}}}
        },
    }
    if command:
        asked["Entrypoint"] = command
    if command or arguments:
        asked["Cmd"] = arguments
    if container.get("workingDir"):
        asked["WorkingDir"] = container["workingDir"]
    return asked


def quantity(text: str | int) -> float:
    """A number with a unit of Kubernetes."""
    found = re.fullmatch(r"([0-9.]+)(m|[kMG]i?|)", str(text))
    if found is None:
        raise UnsupportedError(f"the stand-in does not know the quantity {text!r}")
    number, unit = float(found[1]), found[2]
    return number / 1000 if unit == "m" else number * _UNITS.get(unit, 1)


def _host(pod: Object, container: Object, place: Place, mounts: list[Mounted]) -> Object:
    whole = pod["spec"].get("securityContext") or {}
    own = container.get("securityContext") or {}
    capabilities = own.get("capabilities") or {}
    limits = (container.get("resources") or {}).get("limits") or {}
    security = []
    if own.get("allowPrivilegeEscalation") is False:
        security.append("no-new-privileges")
    profile = (own.get("seccompProfile") or whole.get("seccompProfile") or {}).get("type")
    if profile not in ("RuntimeDefault", None, "Unconfined"):
        raise UnsupportedError(f"the stand-in has no seccomp profile {profile}")
    if profile != "RuntimeDefault":
        security.append("seccomp=unconfined")
    groups = [*(whole.get("supplementalGroups") or ()), *_group(whole)]
    at = {each.name: each for each in mounts}
    binds = [f"{place.resolv_conf}:/etc/resolv.conf:ro"]
    for mount in container.get("volumeMounts") or ():
        volume = at[mount["name"]]
        way = "ro" if mount.get("readOnly") or volume.read_only else "rw"
        binds.append(f"{volume.directory}:{mount['mountPath']}:{way}")
    return {
        "NetworkMode": place.network,
        "Runtime": place.runtime,
        "ReadonlyRootfs": bool(own.get("readOnlyRootFilesystem")),
        "CapDrop": capabilities.get("drop") or [],
        "CapAdd": capabilities.get("add") or [],
        "SecurityOpt": security,
        "GroupAdd": [str(each) for each in groups],
        "Memory": int(quantity(limits.get("memory", 0))),
        "MemorySwap": int(quantity(limits.get("memory", 0))),
        "PidsLimit": place.pids_limit or None,
        "CpuPeriod": _PERIOD_US if "cpu" in limits else 0,
        "CpuQuota": int(quantity(limits.get("cpu", 0)) * _PERIOD_US),
        "Binds": binds,
        "LogConfig": {"Type": "json-file"},
    }


def _group(whole: Object) -> list[int]:
    return [whole["fsGroup"]] if "fsGroup" in whole else []


def _user(pod: Object, container: Object, image: Object) -> str:
    whole = pod["spec"].get("securityContext") or {}
    both = {**whole, **(container.get("securityContext") or {})}
    of_image = str(image.get("User") or "")
    user = both.get("runAsUser", of_image.partition(":")[0] or 0)
    if both.get("runAsNonRoot"):
        if str(user) == "0":
            raise ConfigError("container has runAsNonRoot and image will run as root")
        if not str(user).isdecimal():
            raise ConfigError("container has runAsNonRoot and image has non-numeric user")
    if "runAsGroup" in both:
        return f"{user}:{both['runAsGroup']}"
    return str(both["runAsUser"]) if "runAsUser" in both else of_image


def _value(source: Object, pod: Object, place: Place, sources: Sources) -> str | None:
    """What a variable is to be. It is not set if what it comes from is optional and not there."""
    for kind in _SOURCES:
        if (asked := source.get(f"{kind}KeyRef")) is not None:
            held = sources[kind, asked["name"]]
            if asked["key"] not in held and not asked.get("optional"):
                raise ConfigError(f"couldn't find key {asked['key']} in {kind} {asked['name']}")
            return held.get(asked["key"])
    path = (source.get("fieldRef") or {}).get("fieldPath")
    known = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "metadata.uid": pod["metadata"]["uid"],
        "spec.nodeName": pod["spec"]["nodeName"],
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", "default"),
        "status.podIP": place.ip,
        "status.hostIP": place.host_ip,
    }
    if path not in known:
        raise UnsupportedError(f"the stand-in has no variable from {source}")
    return str(known[path])


def _expanded(text: str, variables: dict[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else variables.get(found[1], found[0])

    return _VARIABLE.sub(value, text)
