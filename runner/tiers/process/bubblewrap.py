"""bubblewrap around the shell guest of the process tier: its own file system, processes, users and
network, from the same mount table as the container.

The programs are those of this installation, mounted read-only at their own paths. Nothing else of
the host is there: no home, and of `/etc` only what programs need to run.
"""

import os
import shutil
import subprocess
import sys
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from wire.errors import Code

from runner.errors import TierError
from runner.tiers.base import Confinement, LaunchSpec
from runner.tiers.process import prologue
from runner.workspace.mounts import Access

GUEST_UID: Final = 10_001
"""The uid and gid inside, whatever the owner's uid on the host."""

_ACCOUNTS: Final = Path(__file__).parent / "etc"

_INSTALL: Final = "apt-get install bubblewrap (or your system's package of that name)"
ALLOW_BUBBLEWRAP: Final = (
    "printf '%s\\n' 'abi <abi/4.0>,' "
    "'profile bwrap /usr/bin/bwrap flags=(unconfined) { userns, }' | "
    "sudo tee /etc/apparmor.d/bwrap && sudo apparmor_parser -r /etc/apparmor.d/bwrap"
)
"""Lets bubblewrap alone make user namespaces where AppArmor keeps ordinary programs from it."""
_ETC: Final = (
    "alternatives",
    "ca-certificates",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "ssl/certs",
    "terminfo",
)
_TOP: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_PROC_READ_ONLY: Final = (
    *("acpi", "asound", "bus", "driver", "dynamic_debug", "fs", "irq", "pressure", "scsi"),
    *("sys", "sysrq-trigger", "tty"),
)
"""Files through which the host's root could change the kernel from any namespace."""

_RUN_BYTES: Final = 16 * 1024 * 1024
_SHARED_MEMORY_BYTES: Final = 64 * 1024 * 1024
_OPEN_FILES: Final = 4096
_TRY_S: Final = 10.0
_HOSTNAME: Final = "oxydra-shell"


class Bubblewrap:
    """The `bwrap` program of this machine. `path` "" means that there is none."""

    def __init__(self, path: str | None = None) -> None:
        self._path = shutil.which("bwrap") or "" if path is None else path

    @cached_property
    def trial(self) -> tuple[str, str]:
        """Why it cannot be used, and what mends that; both empty if it works. Tries it once."""
        if not self._path:
            return "bubblewrap is not installed, so there is no shell", _INSTALL
        if unknown := prologue.unknown_machine():
            return f"there is no shell: {unknown}", "use another machine"
        if not shutil.which("prlimit"):
            return "the command prlimit is missing, so there is no shell", "install util-linux"
        command = prologue.begun([self._path, *_namespaces(), *_system(), "true"])
        try:
            tried = subprocess.run(  # noqa: S603
                command, capture_output=True, text=True, timeout=_TRY_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"bubblewrap cannot be run, so there is no shell: {error}", _INSTALL
        if tried.returncode == 0:
            return "", ""
        said = (tried.stderr.strip().splitlines() or ["it says nothing"])[-1]
        return f"bubblewrap does not work here, so there is no shell ({said})", _fix(said)

    @property
    def reason(self) -> str:
        """Why it cannot be used, with the fix; empty if it works."""
        return "; fix: ".join(filter(None, self.trial))

    def command(self, spec: LaunchSpec) -> list[str]:
        """The command line that runs `spec` inside; `prologue.begun` makes it complete.

        Raises `TierError` if commands could change the programs that the guest runs.
        """
        _check_programs(spec)
        words = [self._path, *_namespaces(), *_system()]
        for bound in spec.mounts:
            kind = "--ro-bind" if bound.mount.access is Access.READ_ONLY else "--bind"
            words += [kind, str(bound.host_path), bound.mount.virtual]
        words += _programs()  # last, because an installation may lie below a virtual path
        if not any(path.is_relative_to("/var/tmp") for path in _installation()):  # noqa: S108
            words += ["--symlink", "/tmp", "/var/tmp"]  # noqa: S108
        words += ["--remount-ro", "/", "--clearenv"]
        for name, value in spec.environment.items():
            words += ["--setenv", name, value]
        words += ["--chdir", str(spec.working_directory), "--", *_limits(spec), *spec.command]
        return words

    def confinement(self, spec: LaunchSpec) -> Confinement:
        """What the boundary self-test must find inside."""
        words = self.command(spec)
        bound = zip(words, words[1:], words[2:], strict=False)
        return Confinement(
            uid=GUEST_UID,
            gid=GUEST_UID,
            user_namespace=True,
            read_only=tuple(
                target for option, _, target in bound if option in ("--ro-bind", "--ro-bind-try")
            ),
        )


def _fix(said: str) -> str:
    if "unknown option" in said.lower():
        return "install bubblewrap 0.8 or newer"
    if Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").exists():
        return ALLOW_BUBBLEWRAP
    return "sysctl kernel.unprivileged_userns_clone=1"


def _namespaces() -> list[str]:
    """The shell daemon itself is process 1: bubblewrap's own process 1 would show commands the
    host's paths, in its arguments and its memory."""
    return [
        *("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent"),
        "--as-pid-1",
        *("--new-session", "--cap-drop", "ALL", "--hostname", _HOSTNAME),
        *("--uid", str(GUEST_UID), "--gid", str(GUEST_UID)),
    ]


def _system() -> list[str]:
    words = ["--ro-bind", "/usr", "/usr"]
    for name in _TOP:
        path = Path("/") / name
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    for name in _ETC:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for name in ("passwd", "group"):
        words += ["--ro-bind", str(_ACCOUNTS / name), f"/etc/{name}"]
    words += ["--proc", "/proc"]
    for name in _PROC_READ_ONLY:
        words += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
    for path in _proc_of_root():
        words += ["--ro-bind", os.devnull, str(path)]
    # Where the runner is root, commands are root to the kernel, and could change the daemon through
    # its files. And everybody may change their own score for when memory runs out.
    words += ["--remount-ro", "/proc"]
    words += ["--dev", "/dev", "--size", str(_SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm"]  # noqa: S108
    words += ["--remount-ro", "/dev", "--size", str(_RUN_BYTES), "--tmpfs", "/run"]
    return words


def _proc_of_root() -> list[Path]:
    """Files of the kernel that only root may use. They are hidden because the guest of a runner
    that is root could use them too."""
    found = []
    for path in sorted(Path("/proc").iterdir()):
        if path.is_symlink() or not path.is_file() or path.name in _PROC_READ_ONLY:
            continue
        for_all = path.stat().st_mode & 0o226 == 0o004
        if not for_all or path.name == "keys":
            found.append(path)
    return found


def _installation() -> set[Path]:
    """Where Python, its packages and ours are."""
    found = {Path(sys.base_prefix), Path(sys.prefix)}
    for name in ("wire", "shell_daemon", "reader"):
        if (spec := find_spec(name)) is not None:
            found |= {Path(place) for place in spec.submodule_search_locations or ()}
    return found


def _check_programs(spec: LaunchSpec) -> None:
    for path in _installation():
        for bound in spec.mounts:
            writable = bound.mount.access is Access.READ_WRITE
            if writable and path.resolve().is_relative_to(bound.host_path.resolve()):
                raise TierError(
                    Code.FAILED_PRECONDITION,
                    "commands could change the programs that confine them",
                    details=f"{path} lies in {bound.host_path}, which is {bound.mount.virtual} in "
                    "the shell guest",
                    resolution="install Oxydra outside of every workspace",
                )


def _programs() -> list[str]:
    """Where they are, as far as that is outside `/usr`; what lies in another is there already."""
    there, words = [Path("/usr")], list[str]()
    for path in sorted(_installation(), key=lambda path: len(path.parts)):
        if not any(path.is_relative_to(other) for other in there):
            there.append(path)
            # Below /tmp the place for it is made in the user's directory, and stays there.
            words += ["--perms", "0700", "--dir", str(path), "--ro-bind", str(path), str(path)]
    return words


def _limits(spec: LaunchSpec) -> list[str]:
    """Limits for each process and, within this user namespace, for the number of processes. They
    are set inside, because outside they would count all processes of the owner."""
    limits = {
        "nproc": spec.limits.processes,
        "data": spec.limits.memory_bytes,
        "core": 0,
        "nofile": _OPEN_FILES,
    }
    return ["prlimit", *(f"--{name}={value}:{value}" for name, value in limits.items()), "--"]
