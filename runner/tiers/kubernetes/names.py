"""Names and labels of a user's objects in the cluster."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from typing import Any, Final

from wire.identity import Party

from runner.workspace.mounts import Role

LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_MANAGER: Final = "app.kubernetes.io/managed-by"
LABEL_VERSION: Final = "app.kubernetes.io/version"
LABEL_ROLE: Final = "oxydra.io/role"
LABEL_USER: Final = "oxydra.io/user"
LABEL_LAUNCH: Final = "oxydra.io/launch"
LABEL_SPEC: Final = "oxydra.io/spec"
LABEL_NAMESPACE: Final = "kubernetes.io/metadata.name"
"""Each namespace has its name in it, from Kubernetes 1.21 on."""
ANNOTATION_USER: Final = "oxydra.io/user-id"

APP: Final = "oxydra"
MANAGER: Final = "oxydra-runner"
LEASE: Final = "oxydra-runner"
"""The one that says which runner is active."""
SERVICE: Final = "oxydra"
"""The one that leads to its HTTP server."""
OURS: Final = {LABEL_NAME: APP, LABEL_MANAGER: MANAGER}
RUNNER: Final = {LABEL_NAME: APP, LABEL_ROLE: Party.RUNNER.value}
EMBEDDER: Final = {LABEL_NAME: APP, LABEL_ROLE: Role.EMBEDDER.value}
_HASH_CHARS: Final = 6
_SPEC_CHARS: Final = 32


@dataclass(frozen=True)
class Owner:
    """Whose objects they are. An installation has a namespace of its own, so a user id is enough;
    it is empty for what belongs to nobody."""

    user_id: str

    @property
    def slug(self) -> str:
        """The user id, changed where names in the cluster may not hold it, and made unique again
        by a hash."""
        digest = hashlib.sha256(self.user_id.encode()).hexdigest()[:_HASH_CHARS]
        plain = re.sub(r"[^a-z0-9]+", "-", self.user_id).strip("-")
        return "-".join(filter(None, (plain, digest)))

    @property
    def labels(self) -> dict[str, str]:
        """The labels of all that is this user's."""
        return {**OURS, LABEL_USER: self.slug}

    def metadata(self, what: str) -> dict[str, Any]:
        """Of the user's pod, claim or policy."""
        mark = {ANNOTATION_USER: self.user_id}
        return {"name": self.name(what), "labels": self.labels, "annotations": mark}

    def name(self, what: str) -> str:
        """The name of the user's pod, claim or policy."""
        return f"{APP}-{self.slug}-{what}"

    def launch_labels(self, role: Role, launch_id: str, spec: str) -> dict[str, str]:
        """The labels of a guest's pod. None is secret."""
        return {
            **self.labels,
            LABEL_ROLE: role.value,
            LABEL_LAUNCH: launch_id,
            LABEL_SPEC: spec[:_SPEC_CHARS],
            LABEL_VERSION: re.sub(r"[^A-Za-z0-9._-]", "_", installed_version("oxydra")),
        }


def selector(labels: Mapping[str, str]) -> str:
    """The labels as the API server's lists select by them."""
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def labels_of(pairs: Iterable[str]) -> dict[str, str]:
    """Labels that a setting lists as `name=value`."""
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
