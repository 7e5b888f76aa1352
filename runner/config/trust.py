"""Which files may tell the runner what to do: none that a guest or another account may have made.

Settings decide where the model's key is sent, and a database what the agent believes of its user.
"""

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from wire.errors import Code

from runner.errors import ConfigError

_MARKS: Final = (".oxydra", "shared", "vault", "ipc")
"""Directories that every workspace has. Commands cannot make or remove them."""


def workspace_around(path: Path, roots: Iterable[Path] = ()) -> Path | None:
    """The workspace, or the directory of workspaces among `roots`, in which `path` lies: by its
    name, or where its links lead."""
    known = {os.path.realpath(root) for root in roots}
    for named in (os.path.abspath(path), os.path.realpath(path)):  # noqa: PTH100 - lexical
        for parent in Path(named).parents:
            marked = all(os.path.isdir(parent / name) for name in _MARKS)  # noqa: PTH112
            if marked or str(parent) in known:
                return parent
    return None


def check_place(path: Path, roots: Iterable[Path]) -> None:
    """Raises `ConfigError` if a configuration file lies in a workspace or below one of `roots`."""
    if (found := workspace_around(path, roots)) is None:
        return
    raise ConfigError(
        Code.PERMISSION_DENIED,
        f"the configuration file {path} is not used",
        details=f"it lies below {found}, where tools and commands of an agent can write",
        resolution="run this from another directory, or keep the file in another place and name it "
        "with --config",
    )


def check_owner(path: Path, found: os.stat_result, environ: Mapping[str, str]) -> None:
    """Raises `ConfigError` if a configuration file that nobody has named belongs to an account that
    is neither ours nor root's, or can be changed by all. With sudo, the account that called it is
    ours."""
    ours = {os.geteuid(), 0}
    if os.geteuid() == 0 and environ.get("SUDO_UID", "").isdecimal():
        ours.add(int(environ["SUDO_UID"]))
    if found.st_uid not in ours:
        why = f"it belongs to the account with uid {found.st_uid}"
    elif found.st_mode & stat.S_IWOTH:
        why = "every account can change it"
    else:
        return
    raise ConfigError(
        Code.PERMISSION_DENIED,
        f"the configuration file {path} is not used",
        details=f"{why}, and its settings decide where the model's key is sent",
        resolution=f"run this from another directory, or, if you trust it: --config {path}",
    )
