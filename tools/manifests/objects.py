"""What stands in the cluster: the runner with its rights, the embedder, who may connect to whom.

Only kinds and versions that Kubernetes has had since 1.20 and still has.
"""

import zlib
from typing import Any, Final

from runner.tiers.base import Port
from runner.tiers.kubernetes.names import (
    LABEL_MANAGER,
    LABEL_NAME,
    LABEL_NAMESPACE,
    LABEL_ROLE,
    LABEL_USER,
    LEASE,
    OURS,
    SERVICE,
    Owner,
)
from runner.tiers.kubernetes.policies import MEMORY_PORT
from runner.workspace.mounts import Role

from .nodes import OMITTED, Each, Either, If, Names, Node, Set, Value
from .settings import GUESTS, image, with_defaults
from .values import defaults

NAMESPACE: Final = "oxydra"
UID: Final = 10001
EMBEDDER_UID: Final = 20001
MEMORY_UIDS: Final = range(20002, 30001)
"""Users' memory servers have them, by their user ids. Users' guests have those from 10002 on."""
_CERTIFICATE: Final = "name a Secret with the certificate (kubectl create secret tls)"
_SQLD: Final = "name an image with sqld by its digest (docker buildx imagetools inspect IMAGE)"
READER: Final = "oxydra-doctor"
_RBAC: Final = "rbac.authorization.k8s.io"


class Objects:
    """The objects of one version of Oxydra."""

    def __init__(self, version: str) -> None:
        self._version = version

    def namespaces(self) -> list[Node]:
        """Only in the manifests: with Helm, the operator makes them."""
        levels = ("enforce", "audit", "warn")
        labels = {f"pod-security.kubernetes.io/{level}": "restricted" for level in levels}
        return [
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {
                    "name": name,
                    "labels": {**self._labels(), LABEL_NAMESPACE: name, **labels},
                },
            }
            for name in (NAMESPACE, GUESTS.plain)
        ]

    def account(self) -> Node:
        return {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": self._named("oxydra-runner", "runner"),
            "automountServiceAccountToken": False,
        }

    def rights(self) -> list[Node]:
        """What the runner may do: pods where guests are, and no Secret, no ConfigMap, no exec.
        At home it may look for claims of guests, which were there once."""
        guests = [
            _rule("", "pods", "get", "list", "watch", "create", "delete"),
            _rule("", "pods/attach", "get", "create"),
            _rule("", "pods/log", "get"),
            _rule("", "persistentvolumeclaims", "get", "create", "delete"),
            _rule("networking.k8s.io", "networkpolicies", "get", "create", "update", "delete"),
            {**_rule("", "namespaces", "get"), "resourceNames": [GUESTS]},
        ]
        home = [
            _rule("", "persistentvolumeclaims", "get"),
            _rule("coordination.k8s.io", "leases", "create"),
            {**_rule("coordination.k8s.io", "leases", "get", "update"), "resourceNames": [LEASE]},
            {**_rule("", "endpoints", "create", "update"), "resourceNames": [SERVICE]},
        ]
        made: list[Node] = []
        for name, rules, where in (
            ("oxydra-runner", home, _namespace()),
            ("oxydra-guests", guests, GUESTS),
        ):
            named = {**self._named(name, "runner"), "namespace": where}
            made += [
                {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": named, "rules": rules},
                {
                    "apiVersion": f"{_RBAC}/v1",
                    "kind": "RoleBinding",
                    "metadata": named,
                    **_binding("Role", name),
                },
            ]
        return made

    def reader(self) -> list[Node]:
        """What `runner doctor` may look at in the whole cluster."""
        name = Either(f"{READER}-{NAMESPACE}", f"{READER}-{{{{ $.Release.Namespace }}}}")
        metadata = {"name": name, "labels": self._labels("runner")}
        rules = [
            _rule("storage.k8s.io", "storageclasses", "get", "list"),
            _rule("node.k8s.io", "runtimeclasses", "get", "list"),
        ]
        return [
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": "ClusterRole",
                "metadata": metadata,
                "rules": rules,
            },
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": metadata,
                **_binding("ClusterRole", name),
            },
        ]

    def settings(self) -> Node:
        text = with_defaults(self._version, defaults())
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": self._named("oxydra-runner", "runner"),
            "data": {"runner.toml": Either(text, 'include "oxydra.settings" $', block=True)},
        }

    def records(self) -> Node:
        """The claim with what the runner knows of users, and what a successor needs. It outlives
        the chart."""
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                **self._named("oxydra-records", "runner"),
                "annotations": Either(OMITTED, '{"helm.sh/resource-policy": keep}'),
            },
            "spec": _claim("runner.records"),
        }

    def runner(self) -> Node:
        served = Set("serve.enabled")
        certificate = Either("", _required("serve.secret", _CERTIFICATE))
        env_from = [{"secretRef": {"name": Value("runner.secret"), "optional": True}}]
        mounts = [
            {"name": "records", "mountPath": "/var/lib/oxydra"},
            {"name": "settings", "mountPath": "/etc/oxydra", "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
            If(served, {"name": "tls", "mountPath": "/etc/oxydra-tls", "readOnly": True}),
        ]
        container = {
            "name": "runner",
            "image": image("runner", "runner", self._version),
            "imagePullPolicy": Value("images.pullPolicy"),
            "command": Either(
                ["runner", "start", "--all"],
                '[runner, {{ if $.Values.serve.enabled }}serve{{ else }}start{{ end }}, "--all"]',
            ),
            "env": [{"name": "OXYDRA_CONFIG", "value": "/etc/oxydra/runner.toml"}],
            "envFrom": If(Set("runner.secret"), env_from),
            "ports": If(served, [{"name": "https", "containerPort": Value("serve.port")}]),
            "resources": Value("runner.resources"),
            "securityContext": _confined(),
            "volumeMounts": mounts,
        }
        pod = {
            "serviceAccountName": "oxydra-runner",
            "automountServiceAccountToken": True,
            **_common("runner", UID),
            "terminationGracePeriodSeconds": 60,
            "affinity": If(
                Set("runner.records.accessMode", "ReadWriteOnce"),
                {"podAffinity": _together("runner")},
            ),
            "containers": [container],
            "volumes": [
                {"name": "records", "persistentVolumeClaim": {"claimName": "oxydra-records"}},
                {"name": "settings", "configMap": {"name": "oxydra-runner"}},
                {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
                If(
                    served,
                    {"name": "tls", "secret": {"secretName": certificate, "defaultMode": 0o440}},
                ),
            ],
        }
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": self._named("oxydra-runner", "runner"),
            "spec": {
                "replicas": Value("runner.replicas"),
                "minReadySeconds": 5,
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
                },
                "selector": _selected("runner"),
                "template": {
                    "metadata": {
                        "labels": self._labels("runner"),
                        "annotations": Either(
                            OMITTED,
                            '{"oxydra.io/settings": '
                            '"{{ include "oxydra.settings" $ | sha256sum }}"}',
                        ),
                    },
                    "spec": pod,
                },
            },
        }

    def runner_policy(self) -> Node:
        """The address of the API server is another one in each cluster, and the runner needs it;
        so its way out is open."""
        coming = {
            "ports": [{"protocol": "TCP", "port": Value("serve.port")}],
            "from": If(Set("serve.from"), Value("serve.from")),
        }
        return self._policy(
            "oxydra-runner",
            _selected("runner"),
            ingress=If(Set("serve.enabled"), [coming]),
            egress=[{}],
        )

    def default_policy(self) -> Node:
        """What the runner makes is cut off until its user's own policies are there."""
        ours = {"matchLabels": OURS}
        return _among_guests(self._policy("oxydra-default", ours))

    def service(self) -> Node:
        """Leads to the active replica, which makes itself the Service's endpoint: by the labels of
        one only, an update would wait for the other for ever."""
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self._named(SERVICE, "runner"),
            "spec": {
                "ports": [{"name": "https", "port": 443, "targetPort": Value("serve.port")}],
            },
        }

    def embedder(self) -> Node:
        """Where guests are, because the runner gives it its envelope."""
        command = [
            *("oxydra-embedder", "--bootstrap-stdin", "--socket", Port.EMBEDDER.listener),
            *("--lease", Either("120", '"{{ $.Values.embedder.leaseSeconds }}"')),
            *("--backend", Value("embedder.backend"), "--model", Value("embedder.model")),
            *(
                If(Set("embedder.reranker"), each)
                for each in ("--reranker", Value("embedder.reranker"))
            ),
        ]
        container = {
            "name": "guest",
            "image": image("embedder", "embedder", self._version),
            "imagePullPolicy": Value("images.pullPolicy"),
            "command": command,
            "stdin": True,
            "stdinOnce": True,
            "ports": [{"name": "grpc", "containerPort": Port.EMBEDDER.value}],
            # It listens once the runner has given it its identity.
            "readinessProbe": {"tcpSocket": {"port": "grpc"}, "periodSeconds": 5},
            "resources": Value("embedder.resources"),
            "securityContext": _confined(),
            "volumeMounts": [
                {"name": "run", "mountPath": "/run"},
                {"name": "tmp", "mountPath": "/tmp"},
            ],
        }
        pod = {
            "automountServiceAccountToken": False,
            **_common("embedder", EMBEDDER_UID),
            "terminationGracePeriodSeconds": 10,
            "containers": [container],
            "volumes": [
                {"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
                {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
            ],
        }
        return _among_guests(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": self._named("oxydra-embedder", "embedder"),
                "spec": {
                    "replicas": Value("embedder.replicas"),
                    "selector": _selected("embedder"),
                    "template": {"metadata": {"labels": self._labels("embedder")}, "spec": pod},
                },
            }
        )

    def embedder_policy(self) -> Node:
        coming = {
            "from": [
                {"podSelector": _selected("agent")},
                {**_inside(_namespace()), "podSelector": _selected("runner")},
            ],
            "ports": [{"protocol": "TCP", "port": Port.EMBEDDER.value}],
        }
        selected = _selected("embedder")
        return _among_guests(self._policy("oxydra-embedder", selected, ingress=[coming]))

    def memory(self) -> list[Node]:
        """A memory server for each user, which takes the tokens of that user's key and connections
        of that user's egress."""
        parts = (self._memory_server, self._memory_policy, self._memory_service)
        return [Each("users", part) for part in parts]

    def _memory_server(self, user: Node) -> Node:
        name = _memory_of(user)
        key = {"configMapKeyRef": {"name": name, "key": "public.pem"}}
        container = {
            "name": "sqld",
            "image": Either("NAME@sha256:DIGEST", _required("memoryServer.image", _SQLD)),
            "imagePullPolicy": Value("images.pullPolicy"),
            "command": [
                *("sqld", "--no-welcome", "--db-path=/var/lib/sqld"),
                f"--http-listen-addr=0.0.0.0:{MEMORY_PORT}",
            ],
            "env": [{"name": "SQLD_AUTH_JWT_KEY", "valueFrom": key}],
            "ports": [{"name": "http", "containerPort": MEMORY_PORT}],
            "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 5},
            "resources": Value("memoryServer.resources"),
            "securityContext": _confined(),
            "volumeMounts": [
                {"name": "data", "mountPath": "/var/lib/sqld"},
                {"name": "tmp", "mountPath": "/tmp"},
            ],
        }
        pod = {
            "automountServiceAccountToken": False,
            **_common(None, _memory_uid(user)),
            "terminationGracePeriodSeconds": 30,
            "containers": [container],
            "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}}],
        }
        return {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": self._named(name, "memory"),
            "spec": {
                "serviceName": name,
                "replicas": 1,
                "selector": _of_user("memory", user),
                "template": {
                    "metadata": {
                        "labels": {**self._labels("memory"), LABEL_USER: _slug_of(user)},
                    },
                    "spec": pod,
                },
                "volumeClaimTemplates": [
                    {
                        "metadata": {"name": "data"},
                        "spec": _claim("memoryServer", mode="ReadWriteOnce"),
                    }
                ],
            },
        }

    def _memory_policy(self, user: Node) -> Node:
        coming = {
            "from": [{**_inside(GUESTS), "podSelector": _of_user(Role.EGRESS.value, user)}],
            "ports": [{"protocol": "TCP", "port": MEMORY_PORT}],
        }
        return self._policy(_memory_of(user), _of_user("memory", user), ingress=[coming])

    def _memory_service(self, user: Node) -> Node:
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self._named(_memory_of(user), "memory"),
            "spec": {
                "clusterIP": "None",
                "selector": _of_user("memory", user)["matchLabels"],
                "ports": [{"name": "http", "port": MEMORY_PORT, "targetPort": "http"}],
            },
        }

    def quota(self) -> Node:
        return _among_guests(
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": self._named("oxydra"),
                "spec": {"hard": Value("quota")},
            }
        )

    def limits(self) -> Node:
        return _among_guests(
            {
                "apiVersion": "v1",
                "kind": "LimitRange",
                "metadata": self._named("oxydra"),
                "spec": {"limits": Value("limits")},
            }
        )

    def _labels(self, role: str = "") -> dict[str, Node]:
        found = {
            LABEL_NAME: "oxydra",
            LABEL_MANAGER: Either("kubectl", "{{ $.Release.Service }}"),
            "app.kubernetes.io/version": self._version,
        }
        return {**found, LABEL_ROLE: role} if role else found

    def _named(self, name: Node, role: str = "") -> dict[str, Node]:
        return {"name": name, "namespace": _namespace(), "labels": self._labels(role)}

    def _policy(self, name: Node, pods: Node, **ways: Node) -> Any:
        """What is in no way may neither come nor go."""
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": self._named(name),
            "spec": {"podSelector": pods, "policyTypes": ["Ingress", "Egress"], **ways},
        }


def _namespace() -> Either:
    return Either(NAMESPACE, "{{ $.Release.Namespace }}")


def _among_guests(made: Any) -> Node:
    """The object in the guests' namespace."""
    return {**made, "metadata": {**made["metadata"], "namespace": GUESTS}}


def _inside(namespace: Node) -> dict[str, Node]:
    """What a peer of a policy has if it is in `namespace`."""
    return {"namespaceSelector": {"matchLabels": {LABEL_NAMESPACE: namespace}}}


def _rule(group: str, resource: str, *verbs: str) -> dict[str, Node]:
    return {"apiGroups": [group], "resources": [resource], "verbs": [*verbs]}


def _binding(kind: str, name: Node) -> dict[str, Node]:
    account = {"kind": "ServiceAccount", "name": "oxydra-runner", "namespace": _namespace()}
    return {
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name},
        "subjects": [account],
    }


def _selected(role: str) -> dict[str, Node]:
    return {"matchLabels": {LABEL_NAME: "oxydra", LABEL_ROLE: role}}


def _memory_of(user: Node) -> Node:
    """The name of all that is a user's memory server."""
    return f"memory-{user}" if isinstance(user, str) else Either("", '"memory-{{ . }}"')


def _memory_uid(user: Node) -> Node:
    """The uid of a user's memory server. A volume of another one is given to it by its group."""
    if isinstance(user, str):
        return MEMORY_UIDS[zlib.adler32(user.encode()) % len(MEMORY_UIDS)]
    first, count = MEMORY_UIDS[0], len(MEMORY_UIDS)
    return Either("", f"{{{{ add {first} (mod (adler32sum . | int64) {count}) }}}}")


def _slug_of(user: Node) -> Node:
    """`Owner.slug`, by which the runner labels the user's guests."""
    chart = '"{{ include "oxydra.slug" . }}"'
    return Owner(user).slug if isinstance(user, str) else Either("", chart)


def _of_user(role: str, user: Node) -> Node:
    found = _selected(role)["matchLabels"]
    return {"matchLabels": {**found, LABEL_USER: _slug_of(user)}}


def _claim(place: str, mode: Node = None) -> Node:
    return {
        "accessModes": [mode or Value(f"{place}.accessMode")],
        "resources": {"requests": {"storage": Value(f"{place}.size")}},
        "storageClassName": If(Set(f"{place}.storageClass"), Value(f"{place}.storageClass")),
    }


def _common(place: str | None, uid: Node) -> dict[str, Node]:
    """What all pods are like."""
    found: dict[str, Node] = {
        "enableServiceLinks": False,
        "imagePullSecrets": If(Set("images.pullSecrets"), Names("images.pullSecrets")),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": uid,
            "runAsGroup": uid,
            "fsGroup": uid,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    for key in ("nodeSelector", "tolerations") if place else ():
        found[key] = If(Set(f"{place}.{key}"), Value(f"{place}.{key}"))
    return found


def _confined() -> Node:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _together(role: str) -> Node:
    """On one node, which is the only one that may mount the claim. The first selects itself."""
    term = {"labelSelector": _selected(role), "topologyKey": "kubernetes.io/hostname"}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _required(path: str, what: str) -> str:
    """The template of a value that is not empty; `what` says what it is to be."""
    return f'{{{{ required "{path}: {what}" $.Values.{path} | toJson }}}}'
