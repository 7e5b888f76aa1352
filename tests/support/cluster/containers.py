"""A pod's container as a container of the local engine."""

from pathlib import Path
from typing import Any, Final

import docker
import docker.types

Object = dict[str, Any]

LABEL: Final = "oxydra.test.cluster"
_UNITS: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def create(
    client: docker.APIClient,
    pod: Object,
    directories: dict[str, str],
    in_memory: dict[str, str],
    *,
    name: str,
    network: str,
    mark: str,
    resolv_conf: Path,
    environment: dict[str, str],
    runtime: str | None,
) -> str:
    """Create the only container of `pod`. Returns its id."""
    (container,) = pod["spec"]["containers"]
    whole, own = pod["spec"].get("securityContext") or {}, container.get("securityContext") or {}
    user = own.get("runAsUser", whole.get("runAsUser"))
    group = own.get("runAsGroup", whole.get("runAsGroup"))
    if (own.get("runAsNonRoot") or whole.get("runAsNonRoot")) and user in (None, 0):
        raise ValueError("it must not run as root")
    binds, tmpfs = [f"{resolv_conf}:/etc/resolv.conf:ro"], {}
    for mount in container.get("volumeMounts") or ():
        if mount.get("subPath"):
            raise ValueError("subPath")
        if mount["name"] in in_memory:
            # Of the pod's user, as an emptyDir with its fsGroup is open to it.
            options = f"rw,nosuid,nodev,size={in_memory[mount['name']]},mode=0777"
            tmpfs[mount["mountPath"]] = options
        else:
            way = "ro" if mount.get("readOnly") else "rw"
            binds.append(f"{directories[mount['name']]}:{mount['mountPath']}:{way}")
    limits = (container.get("resources") or {}).get("limits") or {}
    security = []
    if own.get("allowPrivilegeEscalation") is False:
        security.append("no-new-privileges:true")
    host = client.create_host_config(
        binds=binds,
        tmpfs=tmpfs,
        read_only=bool(own.get("readOnlyRootFilesystem")),
        cap_drop=(own.get("capabilities") or {}).get("drop") or [],
        security_opt=security,
        network_mode=network,
        group_add=[str(whole["fsGroup"])] if "fsGroup" in whole else None,
        mem_limit=_bytes(limits["memory"]) if "memory" in limits else None,
        memswap_limit=_bytes(limits["memory"]) if "memory" in limits else None,
        cpu_period=100_000 if "cpu" in limits else None,
        cpu_quota=int(_cpus(limits["cpu"]) * 100_000) if "cpu" in limits else None,
        runtime=runtime,
    )
    created = client.create_container(
        container["image"],
        command=container.get("args"),
        entrypoint=container.get("command"),
        name=name,
        hostname=pod["spec"].get("hostname") or pod["metadata"]["name"],
        user=":".join(str(each) for each in (user, group) if each is not None) or None,
        working_dir=container.get("workingDir"),
        environment={
            **environment,
            **{each["name"]: _value(each, pod) for each in container.get("env") or ()},
        },
        stdin_open=bool(container.get("stdin")),
        labels={LABEL: mark},
        host_config=host,
    )
    return str(created["Id"])


def _value(variable: Object, pod: Object) -> str:
    if "value" in variable or "valueFrom" not in variable:
        return str(variable.get("value", ""))
    path = variable["valueFrom"]["fieldRef"]["fieldPath"]
    found: Any = pod
    for part in path.split("."):
        found = found[part]
    return str(found)


def _bytes(quantity: str) -> int:
    unit = _UNITS.get(quantity[-2:])
    return int(quantity[:-2]) * unit if unit else int(quantity)


def _cpus(quantity: str | int) -> float:
    text = str(quantity)
    return int(text[:-1]) / 1000 if text.endswith("m") else float(text)
