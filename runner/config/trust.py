"""Which files may tell the runner what to do, and where it may keep its own: nothing that a guest
or another account may have made or could replace.

Settings decide where the model's key is sent, and a database what the agent believes of its user.
"""

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Final

from wire.errors import Code

from runner.errors import ConfigError

_MARKS: Final = (".oxydra", "shared", "vault", "ipc")
"""Directories that every workspace has. Commands cannot make or remove them."""
_FOR_ALL: Final = stat.S_IWOTH | stat.S_ISVTX
_LINKS_MAX: Final = 40
_ALL_UIDS: Final = 2**32 - 1


def workspace_around(path: Path, roots: Iterable[Path] = ()) -> Path | None:
    """The workspace, or the one of `roots`, in which `path` lies by its name or by its links."""
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
    is neither ours nor root's, can be changed by all, or lies where another account could have put
    it. With sudo, the account that called it is ours."""
    if found.st_uid not in own_accounts(environ):
        why = f"it belongs to the account with uid {found.st_uid}"
    elif found.st_mode & stat.S_IWOTH:
        why = "every account can change it"
    elif not (why := writable_by_others(path, environ)):
        return
    raise ConfigError(
        Code.PERMISSION_DENIED,
        f"the configuration file {path} is not used",
        details=f"{why}, and its settings decide where the model's key is sent",
        resolution=f"run this from another directory, or, if you trust it: --config {path}",
    )


def writable_by_others(path: Path, environ: Mapping[str, str] = os.environ) -> str:
    """How another account could put something else at `path`, in words; empty if none can.

    Every directory on the way, also where links lead, must belong to us or to root, and if all
    accounts may write in it, none may replace what is another's (the sticky bit of /tmp). What is
    missing has no owner yet. A group to which somebody has opened a directory counts as asked in.
    """
    ours = own_accounts(environ)
    here, links = Path("/"), 0
    left = list(reversed(Path(os.path.abspath(path)).parts[1:]))  # noqa: PTH100 - links are ours to read
    while left:
        if (name := left.pop()) == "..":
            here = here.parent
            continue
        try:
            found = (here / name).lstat()
        except OSError:
            return ""
        if found.st_uid not in ours:
            return f"{here / name} belongs to the account with uid {found.st_uid}"
        if stat.S_ISLNK(found.st_mode):
            if (links := links + 1) > _LINKS_MAX:
                return f"{path} leads through more than {_LINKS_MAX} links"
            target = PurePath(os.readlink(here / name))  # noqa: PTH115 - a name, nothing is opened
            here = Path("/") if target.is_absolute() else here
            left += reversed(target.parts[target.is_absolute() :])
            continue
        here /= name
        if stat.S_ISDIR(found.st_mode) and found.st_mode & _FOR_ALL == stat.S_IWOTH:
            return f"every account can replace files in {here}"
    return ""


def own_accounts(environ: Mapping[str, str]) -> frozenset[int]:
    """The accounts that may decide for us: ourselves, root and, with sudo, who called it. In a user
    namespace, where only some accounts have a number, the others count as the machine's."""
    ours = {os.geteuid(), 0}
    if os.geteuid() == 0 and environ.get("SUDO_UID", "").isdecimal():
        ours.add(int(environ["SUDO_UID"]))
    if not _all_accounts_have_numbers():
        ours.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    return frozenset(ours)


def _all_accounts_have_numbers() -> bool:
    try:
        spans = Path("/proc/self/uid_map").read_text().split()
    except OSError:
        return True
    return sum(map(int, spans[2::3])) >= _ALL_UIDS
