"""What containers and networks of guests are called, and the labels that make them ours."""

import hashlib
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from pathlib import Path, PurePosixPath
from typing import Final

from runner.tiers.base import LaunchSpec
from runner.workspace.mounts import MOUNTS, Role

LABEL_ROLE: Final = "oxydra.role"
LABEL_USER: Final = "oxydra.user"
LABEL_LAUNCH: Final = "oxydra.launch"
LABEL_WORKSPACE: Final = "oxydra.workspace"
LABEL_SPEC: Final = "oxydra.spec"
LABEL_VERSION: Final = "oxydra.version"

_SHORT: Final = 8


@dataclass(frozen=True)
class Place:
    """One user's guests on this host: an engine's names are shared by all who use it."""

    user_id: str
    digest: str
    """SHA-256 of the workspace's real path."""

    @classmethod
    def of(cls, user_id: str, workspace: Path) -> "Place":
        return cls(user_id, hashlib.sha256(bytes(workspace.resolve())).hexdigest())

    @classmethod
    def of_launch(cls, spec: LaunchSpec) -> "Place":
        return cls.of(spec.user_id, workspace_of(spec))

    @property
    def prefix(self) -> str:
        return f"oxydra-{self.digest[:_SHORT]}-{self.user_id}"

    def container(self, role: Role) -> str:
        return f"{self.prefix}-{role}"

    @property
    def labels(self) -> dict[str, str]:
        """What every container and network of this place bears."""
        return {LABEL_USER: self.user_id, LABEL_WORKSPACE: self.digest}

    @property
    def filters(self) -> dict[str, list[str]]:
        """For the engine's lists."""
        return {"label": [f"{name}={value}" for name, value in self.labels.items()]}


def launch_labels(spec: LaunchSpec, spec_hash: str) -> dict[str, str]:
    """All labels of a guest's container; none is secret."""
    return {
        **Place.of_launch(spec).labels,
        LABEL_ROLE: str(spec.role),
        LABEL_LAUNCH: spec.launch_id,
        LABEL_SPEC: spec_hash,
        LABEL_VERSION: installed_version("oxydra"),
    }


def workspace_of(spec: LaunchSpec) -> Path:
    """The workspace that the mounts of `spec` come from."""
    rows = {mount.directory for mount in MOUNTS[spec.role]}
    for bound in spec.mounts:
        if bound.mount.directory in rows:
            return bound.host_path.parents[len(PurePosixPath(bound.mount.directory).parts) - 1]
    raise ValueError(f"launch {spec.launch_id} mounts nothing of a workspace")
