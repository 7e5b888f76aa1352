"""The values of the chart: their defaults, what they mean, and what is accepted."""

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from .nodes import lines

_TEXT: Final = {"type": "string"}
_SWITCH: Final = {"type": "boolean"}
_TABLE: Final = {"type": "object"}
_LABELS: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_LABEL: Final = {"type": "string", "pattern": "^[A-Za-z0-9./_-]+=[A-Za-z0-9._-]*$"}
_NAME: Final = {"type": "string", "pattern": "^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)?$"}
_NAMESPACE: Final = {"type": "string", "pattern": "^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$"}
_SIZE: Final = {"type": "string", "pattern": "^[1-9][0-9]{0,8}(Mi|Gi|Ti)$"}
_RANGE: Final = {"type": "string", "pattern": "^[0-9a-fA-F.:]+/[0-9]{1,3}$"}


def _list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _one_of(*names: str) -> dict[str, Any]:
    return {"type": "string", "enum": [*names]}


def _number(low: int, high: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high}


def _digest(role: str, image: str) -> "Setting":
    return Setting(
        f"images.{role}.digest",
        "",
        f"Of {image}: sha256:…; it counts more than the tag.",
        {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    )


@dataclass(frozen=True)
class Setting:
    """One value. `accepted` is a JSON schema."""

    path: str
    default: Any
    meaning: str
    accepted: dict[str, Any]


def _resources(place: str, cpu: str, memory: str, cpu_most: str, memory_most: str) -> Setting:
    return Setting(
        f"{place}.resources",
        {
            "requests": {"cpu": cpu, "memory": memory, "ephemeral-storage": "64Mi"},
            "limits": {"cpu": cpu_most, "memory": memory_most, "ephemeral-storage": "512Mi"},
        },
        "What it may use.",
        _TABLE,
    )


_GROUPS: Final = {
    "images": "The images, as `runner images build` makes them and you push them. Name them by "
    "digest where you can: a tag can be moved.",
    "runner": "The runner: two replicas, of which one holds the Lease and runs all hosts.",
    "kubernetes": "The pods that the runner makes for each user; [kubernetes] in runner.toml.",
    "serve": "The web console and other programs over HTTP; docs/guide/serve.md.",
    "embedder": "What turns text into vectors, for all users of this namespace.",
    "memoryServer": "A libSQL server for each user, memory-USER; docs/guide/remote.md.",
    "rbac": "What the runner may look at beyond its namespace.",
}

SETTINGS: Final = (
    Setting(
        "users",
        ["default"],
        "Whose agents run: user ids.",
        _list({"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,31}$"}),
    ),
    Setting(
        "settings",
        "",
        "More of runner.toml, as its text: [agent], [egress.shell], [users.alice.agent] and so on. "
        "All sections but [kubernetes], [embedder] and [serve], which the values below make; and "
        "no keys, whose place is a Secret (runner.secret).",
        _TEXT,
    ),
    Setting(
        "images.registry",
        "",
        "Where the images were pushed to: registry.example.com/oxydra. Empty for images that each "
        "node has already.",
        {"type": "string", "pattern": "^([a-z0-9][a-z0-9._:/-]*[a-z0-9])?$"},
    ),
    Setting("images.tag", "", "Empty for the version of the chart.", _TEXT),
    Setting(
        "images.pullPolicy",
        "IfNotPresent",
        "When nodes pull them.",
        _one_of("IfNotPresent", "Always", "Never"),
    ),
    Setting("images.pullSecrets", [], "Names of Secrets with which nodes pull them.", _list(_NAME)),
    _digest("runner", "oxydra-runner"),
    _digest("agent", "oxydra-agent"),
    _digest("shell", "oxydra-shell-pod"),
    _digest("egress", "oxydra-egress"),
    _digest("embedder", "oxydra-embedder"),
    Setting(
        "runner.replicas",
        2,
        "One is active; the others are ready to take over.",
        _number(1, 5),
    ),
    Setting(
        "runner.secret",
        "oxydra-keys",
        "A Secret of yours whose entries become variables of the runner: keys of model providers, "
        "tokens of memory servers. It need not exist.",
        _NAME,
    ),
    Setting(
        "runner.records.accessMode",
        "ReadWriteOnce",
        "How the claim with the runner's records is mounted. With ReadWriteOnce all replicas are "
        "on one node; with ReadWriteMany, on whichever, so that a lost node takes no runner along.",
        _one_of("ReadWriteOnce", "ReadWriteMany"),
    ),
    Setting("runner.records.size", "5Gi", "The size of that claim.", _SIZE),
    Setting("runner.records.storageClass", "", "Empty for the cluster's default class.", _NAME),
    Setting(
        "runner.logLevel",
        "info",
        "How much is logged.",
        _one_of("debug", "info", "warning", "error"),
    ),
    _resources("runner", "250m", "512Mi", "4", "4Gi"),
    Setting("runner.nodeSelector", {}, "Which nodes run it.", _LABELS),
    Setting("runner.tolerations", [], "Which taints of nodes it tolerates.", _list(_TABLE)),
    Setting(
        "kubernetes.namespace",
        "",
        "Where guests are: a namespace without Secrets, because pods that the runner makes can "
        "mount all of their namespace. Empty for the release's namespace with -guests behind it.",
        _NAMESPACE,
    ),
    Setting("kubernetes.storageClass", "", "Empty for the cluster's default class.", _NAME),
    Setting(
        "kubernetes.stateSize",
        "5Gi",
        "Each user's volume for memory and vault. Small where memory is on a server.",
        _SIZE,
    ),
    Setting("kubernetes.workSize", "10Gi", "Each user's volume for /shared and /tmp.", _SIZE),
    Setting(
        "kubernetes.keepClaims",
        True,
        "Whether the volumes of a removed user stay.",
        _SWITCH,
    ),
    Setting(
        "kubernetes.runtimeClass",
        "",
        "The RuntimeClass of users' pods: gvisor, kata. A cluster without it runs none of them.",
        _NAME,
    ),
    Setting(
        "kubernetes.nodeSelector",
        [],
        "Which nodes run guests: labels as pool=agents.",
        _list(_LABEL),
    ),
    Setting(
        "kubernetes.dnsLabels",
        ["k8s-app=kube-dns"],
        "The labels of the pods that resolve names.",
        _list(_LABEL),
    ),
    Setting(
        "kubernetes.dnsNamespace",
        "kube-system",
        "The namespace of those pods. Before Kubernetes 1.21 it must be labelled once: "
        "kubernetes.io/metadata.name=kube-system.",
        _NAMESPACE,
    ),
    Setting(
        "kubernetes.privateRanges",
        [],
        "What egress must not reach besides addresses that are private everywhere: the ranges of "
        "pods, services and nodes, if those are public ones.",
        _list(_RANGE),
    ),
    Setting(
        "kubernetes.leaseSeconds",
        240,
        "How long a guest lives that hears of no runner.",
        _number(20, 3600),
    ),
    Setting(
        "kubernetes.startSeconds",
        180,
        "How long a pod may take until it runs: volumes, image, node.",
        _number(10, 3600),
    ),
    Setting(
        "serve.enabled",
        False,
        "Whether the replica that is active serves HTTP, and the Service oxydra leads there.",
        _SWITCH,
    ),
    Setting(
        "serve.secret",
        "",
        "A Secret of type kubernetes.io/tls with the certificate that the server shows. It serves "
        "nothing in clear.",
        _NAME,
    ),
    Setting(
        "serve.port", 8443, "Where it listens. The Service's port is 443.", _number(1024, 65535)
    ),
    Setting(
        "serve.url",
        "",
        "What browsers call it by, where an Ingress or a Gateway stands before it: "
        "https://agents.example.org.",
        _TEXT,
    ),
    Setting("serve.hosts", [], "More names that it is called by.", _list(_TEXT)),
    Setting(
        "serve.from",
        [],
        "Who may connect, as a NetworkPolicy says it. Empty for everybody.",
        _list(_TABLE),
    ),
    Setting("embedder.enabled", True, "Without it, search goes by words alone.", _SWITCH),
    Setting(
        "embedder.replicas",
        1,
        "How many there are; agents are told of one that is ready.",
        _number(1, 100),
    ),
    Setting(
        "embedder.backend",
        "sentence-transformers",
        "What computes vectors; hashing needs no model and finds less.",
        _one_of("sentence-transformers", "hashing"),
    ),
    Setting("embedder.model", "all-MiniLM-L6-v2", "One that is in the image.", _TEXT),
    Setting(
        "embedder.reranker",
        "",
        "A cross-encoder that reads the first results once more; empty for none.",
        _TEXT,
    ),
    Setting(
        "embedder.leaseSeconds",
        120,
        "How long it lives without hearing of a runner; it then begins anew and waits.",
        _number(20, 3600),
    ),
    _resources("embedder", "250m", "512Mi", "2", "2Gi"),
    Setting("embedder.nodeSelector", {}, "Which nodes run it.", _LABELS),
    Setting("embedder.tolerations", [], "Which taints of nodes it tolerates.", _list(_TABLE)),
    Setting(
        "memoryServer.enabled",
        False,
        "Needs for each user the ConfigMap that memory-users.sh makes, and user ids without an "
        "underscore and without a hyphen at the end.",
        _SWITCH,
    ),
    Setting(
        "memoryServer.image",
        "",
        "An image with sqld by its digest, NAME@sha256:…, as a tag can be moved; such as that of "
        "ghcr.io/tursodatabase/libsql-server:v0.24.32, or one that deploy/compose/sqld.Dockerfile "
        "makes.",
        {"type": "string", "pattern": "^((.+@)?sha256:[0-9a-f]{64})?$"},
    ),
    Setting("memoryServer.storageClass", "", "Empty for the cluster's default class.", _NAME),
    Setting("memoryServer.size", "5Gi", "The size of each server's volume.", _SIZE),
    _resources("memoryServer", "20m", "64Mi", "1", "512Mi"),
    Setting(
        "rbac.clusterReader",
        False,
        "A ClusterRole to get and list StorageClasses and RuntimeClasses. Only `runner doctor` "
        'uses it, and says "not known" without it. Who installs this must be allowed to give it.',
        _SWITCH,
    ),
    Setting(
        "quota",
        {},
        'The `hard` part of a ResourceQuota: {pods: "200", persistentvolumeclaims: "120"}. '
        "Empty for none.",
        _TABLE,
    ),
    Setting("limits", [], "The `limits` of a LimitRange. Empty for none.", _list(_TABLE)),
)


def defaults() -> dict[str, Any]:
    """The default values as the chart has them."""
    found: dict[str, Any] = {}
    for setting in SETTINGS:
        *above, name = setting.path.split(".")
        place = found
        for each in above:
            place = place.setdefault(each, {})
        place[name] = setting.default
    return found


def values_yaml() -> str:
    """`values.yaml`, with what each value means."""
    written = [
        "# The values of the chart and their defaults. Made by tools/manifests; change them in a",
        "# file of your own: helm upgrade --values FILE.",
    ]
    written += _values(defaults(), ())
    return "\n".join(written) + "\n"


def _values(table: dict[str, Any], above: tuple[str, ...]) -> Iterator[str]:
    meanings = {setting.path: setting.meaning for setting in SETTINGS}
    indent = 2 * len(above)
    for name, value in table.items():
        path = ".".join((*above, name))
        if not above:
            yield ""
        comment = meanings.get(path, _GROUPS.get(path, ""))
        for line in textwrap.wrap(comment, 96 - indent):
            yield f"{' ' * indent}# {line}"
        if path in meanings:
            yield from (f"{' ' * indent}{line}" for line in lines({name: value}))
        else:
            yield f"{' ' * indent}{name}:"
            yield from _values(value, (*above, name))


def schema() -> str:
    """`values.schema.json`."""
    root: dict[str, Any] = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart oxydra",
        **_object(),
    }
    for setting in SETTINGS:
        *above, name = setting.path.split(".")
        place = root["properties"]
        for each in above:
            place = place.setdefault(each, _object())["properties"]
        place[name] = {**setting.accepted, "description": setting.meaning}
    root["properties"]["global"] = {"type": "object"}
    return json.dumps(root, indent=2, ensure_ascii=False) + "\n"


def _object() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}
