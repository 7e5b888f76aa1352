"""What the runner must be allowed to do in the guests' namespace, asked of the API server."""

import asyncio
from collections.abc import Sequence
from typing import Final

from kubernetes_asyncio import client

from runner.tiers.kubernetes.cluster import Cluster
from runner.tiers.kubernetes.names import LEASE

NEEDED: Final = (
    *(("", "pods", verb) for verb in ("get", "list", "watch", "create", "delete")),
    *(("", "pods/attach", verb) for verb in ("get", "create")),
    ("", "pods/log", "get"),
    *(("", "persistentvolumeclaims", verb) for verb in ("get", "create", "delete")),
    *(
        ("networking.k8s.io", "networkpolicies", verb)
        for verb in ("get", "create", "update", "delete")
    ),
    *(("coordination.k8s.io", "leases", verb) for verb in ("get", "create", "update")),
)
"""Group, resource and verb of each. To attach is "get" or, in newer versions, "create"."""

UNNEEDED: Final = (
    ("", "secrets", "get"),
    ("", "secrets", "list"),
    ("", "configmaps", "get"),
    *(("", "pods/exec", verb) for verb in ("get", "create")),
    ("rbac.authorization.k8s.io", "rolebindings", "create"),
)
"""What would be of use to whoever gets hold of the runner."""


async def missing_permissions(cluster: Cluster) -> list[str]:
    """What is not allowed, in words such as "create pods"."""
    return await _among(cluster, cluster.namespace, NEEDED, allowed=False)


async def excessive_permissions(cluster: Cluster) -> list[str]:
    """What is allowed that the runner has no use for, in such words."""
    found = await _among(cluster, cluster.namespace, UNNEEDED, allowed=True)
    if cluster.apart:
        at_home = (*UNNEEDED, ("", "pods", "create"))
        more = await _among(cluster, cluster.home, at_home, allowed=True)
        found += [f"{each} in {cluster.home}" for each in more]
    return found


async def _among(
    cluster: Cluster, place: str, actions: Sequence[tuple[str, str, str]], *, allowed: bool
) -> list[str]:
    answers = await asyncio.gather(*(_allowed(cluster, place, *each) for each in actions))
    pairs = zip(actions, answers, strict=True)
    return [f"{verb} {resource}" for (_, resource, verb), answer in pairs if answer is allowed]


async def _allowed(cluster: Cluster, place: str, group: str, resource: str, verb: str) -> bool:
    name, _, part = resource.partition("/")
    asked = {"namespace": place, "group": group, "resource": name, "verb": verb}
    if name == "leases":
        asked["namespace"] = cluster.home
        asked["name"] = LEASE if verb != "create" else ""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**asked, "subresource": part}},
    }
    answer = await cluster.ask(
        "say what the runner may do",
        client.AuthorizationV1Api(cluster.api).create_self_subject_access_review,
        review,
    )
    return bool(answer["status"]["allowed"])
