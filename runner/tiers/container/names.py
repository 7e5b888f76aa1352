"""Names of guests' containers and networks, and the labels that mark them as ours."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Final

from wire.errors import Code

from runner.errors import TierError
from runner.tiers.base import LaunchSpec
from runner.workspace.mounts import Role

LABEL_ROLE: Final = "oxydra.role"
LABEL_USER: Final = "oxydra.user"
LABEL_LAUNCH: Final = "oxydra.launch"
LABEL_WORKSPACE: Final = "oxydra.workspace"
LABEL_VERSION: Final = "oxydra.version"

_SHORT: Final = 8


@dataclass(frozen=True)
class ObjectNames:
    """The guests of one home on this host. All users of an engine share its names.

    `user_id` is empty for the embedder, which serves all users.
    """

    user_id: str
    digest: str
    """SHA-256 of the home's real path."""

    @classmethod
    def of(cls, user_id: str, home: Path) -> "ObjectNames":
        return cls(user_id, hashlib.sha256(bytes(home.resolve())).hexdigest())

    @classmethod
    def of_launch(cls, spec: LaunchSpec) -> "ObjectNames":
        return cls.of(spec.user_id, spec.home)

    @property
    def prefix(self) -> str:
        return "-".join(filter(None, ("oxydra", self.digest[:_SHORT], self.user_id)))

    def container(self, role: Role, tool: str = "") -> str:
        return f"{self.prefix}-tool-{tool}-{role}" if tool else f"{self.prefix}-{role}"

    @property
    def labels(self) -> dict[str, str]:
        return {LABEL_USER: self.user_id, LABEL_WORKSPACE: self.digest}

    @property
    def filters(self) -> dict[str, list[str]]:
        return {"label": [f"{name}={value}" for name, value in self.labels.items()]}

    def require_own(self, kind: str, name: str, labels: Mapping[str, str] | None) -> None:
        """Raise `TierError` if the labels of the container or network `name` are not ours."""
        if not self.labels.items() <= (labels or {}).items():
            remove = "rm --force" if kind == "container" else "network rm"
            raise TierError(
                Code.ALREADY_EXISTS,
                f"the {kind} name {name} is taken",
                details=f"a {kind} that the runner did not make bears it",
                resolution=f"docker {remove} {name}",
            )


def launch_labels(spec: LaunchSpec) -> dict[str, str]:
    """All labels of a guest's container. None is secret."""
    return {
        **ObjectNames.of_launch(spec).labels,
        LABEL_ROLE: str(spec.role),
        LABEL_LAUNCH: spec.launch_id,
        LABEL_VERSION: installed_version("oxydra"),
    }
