"""Whether the guest's user can use its directories, checked before it starts.

The check asks the kernel as that user about the open directory itself, because a bind mount does
not depend on access to the directories above.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from wire.disk import held
from wire.errors import Code

from runner.errors import TierError, file_errors
from runner.workspace.mounts import Access, BoundMount

_SCRIPT: Final = (
    'for each in "$@"; do d=/proc/self/fd/${each#*:}; '
    '{ [ -x "$d" ] || [ -f "$d" ]; } && [ -r "$d" ] && { [ "${each%%:*}" = ro ] || [ -w "$d" ]; } '
    '|| echo "${each#*:}"; done'
)
_BECOME: Final = (
    "import os, sys; os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[1])); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)
_TIMEOUT_S: Final = 60.0


def check_mounts(mounts: Sequence[BoundMount], owner: tuple[int, int]) -> None:
    """Check that all directories exist and that `owner` (uid, gid) has the access of each mount.

    Blocks. Raises `TierError` for the first directory that fails.
    """
    with ExitStack() as closing:
        opened = [closing.enter_context(held(_open(bound))) for bound in mounts]
        for fd in _unusable(mounts, opened, owner):
            raise _refused(mounts[opened.index(fd)], owner)


def _open(bound: BoundMount) -> int:
    path, kind = bound.host_path, os.O_DIRECTORY if bound.identity is None else 0
    fix = "start again: the runner makes the workspace's directories; move away what stands in "
    fix += "their place"
    with file_errors(f"cannot mount {path}", fix, because=f"{path}: ", kind=TierError):
        return os.open(path, os.O_PATH | kind | os.O_NOFOLLOW | os.O_CLOEXEC)


def _unusable(
    mounts: Sequence[BoundMount], opened: Sequence[int], owner: tuple[int, int]
) -> list[int]:
    """Those of `opened` to which `owner` lacks the access of the mount."""
    kinds = [f"{bound.mount.access}:{fd}" for bound, fd in zip(mounts, opened, strict=True)]
    uid, gid = owner
    # `user=` of `subprocess` would fork, which runs gRPC's fork handlers beside its threads and
    # sometimes kills the child.
    become = [sys.executable, "-I", "-S", "-c", _BECOME, str(uid), str(gid)]
    said = subprocess.run(  # noqa: S603
        [*(become if os.geteuid() == 0 else []), "/bin/sh", "-c", _SCRIPT, "sh", *kinds],
        pass_fds=opened,
        capture_output=True,
        env={"PATH": os.defpath},
        cwd="/",
        timeout=_TIMEOUT_S,
        check=True,
    )
    return [int(word) for word in said.stdout.split()]


def _refused(bound: BoundMount, owner: tuple[int, int]) -> TierError:
    path, (uid, gid) = bound.host_path, owner
    what = "write to" if bound.mount.access is Access.READ_WRITE else "read"
    return TierError(
        Code.PERMISSION_DENIED,
        f"the guest cannot {what} {path}",
        details=f"it runs as {uid}:{gid}; {bound.mount.virtual} would be useless to it",
        resolution=f"sudo chown -R {uid}:{gid} {path}"
        if bound.identity is None
        else f"sudo setfacl -R -m u:{uid}:rX,d:u:{uid}:rX {path}",
    )


def check_owner(owner: tuple[int, int]) -> None:
    """Raise `TierError` for an owner as whom guests must not or cannot run."""
    uid, gid = owner
    ours = os.geteuid()
    if uid == 0:
        raise TierError(
            Code.FAILED_PRECONDITION,
            "guests never run as root",
            details=f"the workspace belongs to uid 0 (gid {gid})",
            resolution="set container.guest_uid to the uid that guests shall have",
        )
    if ours not in (0, uid):
        raise TierError(
            Code.FAILED_PRECONDITION,
            f"guests cannot run as uid {uid} here",
            details=f"the runner is uid {ours} and can prepare workspaces for itself only",
            resolution=f"run as uid {uid}, or as root",
        )
