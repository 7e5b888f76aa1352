"""Where a user's memory lies in the workspace."""

import os
from pathlib import Path
from typing import Final

from wire.errors import Code

from runner.errors import ConfigError
from runner.mounts import workspace_directories
from runner.workspace import Workspace

_GUEST_DIRECTORIES: Final = ("shared", "tmp", "vault", "ipc", "logs")


def resolve_db_path(setting: str, workspace: Workspace, *, mounted_only: bool) -> Path:
    """The database file that `memory.db_path` means for this workspace.

    "auto" is `.oxydra/memory.db`; a relative path counts from the workspace.
    Raises `ConfigError` for a place that tools or the shell could see, that is
    another user's or, with `mounted_only`, that the agent guest does not have.
    """
    if setting == "auto":
        return workspace.internal / "memory.db"
    given = Path(setting)
    if given.is_absolute() and mounted_only:
        raise _refused(setting, "this tier mounts only the workspace, so the path must be relative")
    path = Path(os.path.normpath(workspace.path / given))
    for candidate in (path, Path(os.path.realpath(path))):
        _check_place(setting, given, candidate, workspace)
    if mounted_only and not path.is_relative_to(workspace.internal):
        raise _refused(setting, "in this tier the agent guest has no directory but .oxydra for it")
    if path.is_dir() or setting.endswith("/"):
        raise _refused(setting, "it is a directory")
    if given.is_absolute() and not path.parent.is_dir():
        raise _refused(setting, f"there is no directory {path.parent}")
    return path


def prepare_parent(path: Path, workspace: Workspace) -> None:
    """Make the directory of a database inside the workspace, private to its owner."""
    if path.is_relative_to(workspace.path) and not path.parent.is_dir():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        workspace.adopt()


def _check_place(setting: str, given: Path, path: Path, workspace: Workspace) -> None:
    for root in {workspace.root, Path(os.path.realpath(workspace.root))}:
        if path.is_relative_to(root / workspace.user_id):
            inside = path.relative_to(root / workspace.user_id)
            if inside.parts and inside.parts[0] in _GUEST_DIRECTORIES:
                raise _refused(
                    setting,
                    f"{inside.parts[0]}/ is visible to tools, to the shell guest or to other "
                    "programs; what the agent remembers must not be",
                )
            if str(inside) in (".", *workspace_directories()):
                raise _refused(setting, "it is a directory")
            return
        if path.is_relative_to(root):
            raise _refused(setting, "it lies among other users' workspaces")
    if not given.is_absolute():
        raise _refused(setting, "a relative path must stay inside the workspace")


def _refused(setting: str, why: str) -> ConfigError:
    return ConfigError(
        Code.INVALID_ARGUMENT,
        f"bad setting memory.db_path: {setting!r}",
        details=why,
        resolution='use db_path = "auto", or a path such as ".oxydra/memory.db"',
    )
