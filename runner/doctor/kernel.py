"""What the kernel offers: user namespaces, openat2, security modules, virtual machines."""

import ctypes
import errno
import os
from pathlib import Path
from typing import Final

from runner.doctor.finding import Finding, ok, problem, warning
from runner.tiers.process.bubblewrap import ALLOW_BUBBLEWRAP, Bubblewrap
from runner.tiers.process.cgroup import HOW, ControlGroups

ROOT: Final = Path("/")
_OPENAT2: Final = 437
_NAMESPACES: Final = "user namespaces"
_SWITCHES: Final = (
    ("kernel/unprivileged_userns_clone", "0", "sudo sysctl kernel.unprivileged_userns_clone=1"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", ALLOW_BUBBLEWRAP),
)


def user_namespaces(root: Path = ROOT, *, privileged: bool | None = None) -> Finding:
    """Whether bubblewrap and rootless engines can create user namespaces."""
    privileged = os.geteuid() == 0 if privileged is None else privileged
    most = _read(root / "proc/sys/user/max_user_namespaces")
    if not (root / "proc/self/ns/user").exists():
        return problem(
            _NAMESPACES, "the kernel has none", "boot a kernel that is built with CONFIG_USER_NS"
        )
    if most == "0":
        return problem(
            _NAMESPACES, "they are switched off", "sudo sysctl user.max_user_namespaces=15000"
        )
    for switch, off, fix in _SWITCHES:
        if _read(root / "proc/sys" / switch) == off and not privileged:
            name = switch.replace("/", ".")
            return warning(
                _NAMESPACES,
                f"{name} = {off} denies them to ordinary users; bubblewrap and rootless "
                "engines may need them",
                fix,
            )
    return ok(_NAMESPACES, "available")


def bubblewrap(found: Bubblewrap | None = None, *, needed: bool) -> Finding:
    """Whether bubblewrap works, by running it. `needed`: the configured tier's shell runs in it."""
    what, fix = (found or Bubblewrap()).trial
    if not what:
        return ok("bubblewrap", "works")
    if not needed:
        return ok("bubblewrap", f"{what}; only the process tier's shell needs it")
    return warning("bubblewrap", what, fix)


def control_groups(found: ControlGroups | None = None) -> Finding:
    """What holds the shell guest of the process tier to its memory."""
    parents = (found or ControlGroups()).parents
    if parents:
        return ok("shell's memory", f"limited by the kernel, in a control group in {parents[0]}")
    return warning(
        "shell's memory",
        "no control group belongs to this account: the shell guest watches its own memory and ends "
        "commands above the limit, and nothing limits their CPU time",
        HOW,
    )


def openat2(code: int | None = None) -> Finding:
    """Whether the kernel can confine file tools. `code`: the errno of a call without arguments."""
    code = _openat2_errno() if code is None else code
    if code == errno.ENOSYS:
        return problem(
            "openat2",
            "the kernel lacks it, so file tools cannot be confined without a race",
            "boot Linux 5.6 or newer",
        )
    if code == errno.EPERM:
        return problem(
            "openat2",
            "a system call filter around this program forbids it",
            "update the engine or the sandbox that this program runs in",
        )
    return ok("openat2", "available")


def security_modules(root: Path = ROOT) -> Finding:
    """SELinux and AppArmor, for information only; neither is needed."""
    selinux = {"1": "enforcing", "0": "permissive", None: "off"}[
        _read(root / "sys/fs/selinux/enforce")
    ]
    enabled = _read(root / "sys/module/apparmor/parameters/enabled")
    return ok(
        "security modules", f"SELinux {selinux}, AppArmor {'on' if enabled == 'Y' else 'off'}"
    )


def virtual_machines(root: Path = ROOT, *, needed: bool) -> Finding:
    """Whether guests can have virtual machines. `needed`: the configured runtime makes some."""
    device = root / "dev/kvm"
    if device.exists() and os.access(device, os.R_OK | os.W_OK):
        return ok("KVM", "available")
    if not device.exists():
        what, fix = "there is no /dev/kvm", "sudo modprobe kvm_intel || sudo modprobe kvm_amd"
        what += ": hardware virtualisation is absent or switched off"
    else:
        what, fix = (
            "this user has no access to /dev/kvm",
            "sudo usermod --append --groups kvm $USER",
        )
    if needed:
        return warning("KVM", f"{what}; the engine's runtime may need it", fix)
    return ok("KVM", f"{what}; only runtimes with virtual machines need it, gVisor does not")


def _openat2_errno() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(ctypes.c_long(_OPENAT2), ctypes.c_int(-1), None, None, ctypes.c_size_t(0))
    return ctypes.get_errno()


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
