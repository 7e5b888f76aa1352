"""The kernel's checks on machines that have and lack what guests need."""

import errno
from pathlib import Path

import pytest

from runner.doctor import kernel
from runner.doctor.finding import State
from runner.tiers.process.bubblewrap import ALLOW_BUBBLEWRAP, Bubblewrap
from runner.tiers.process.cgroup import HOW, ControlGroups


class Machine:
    """A root directory with the few files that the kernel would show."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/self/ns/user", "")
        self.write("proc/sys/user/max_user_namespaces", "15000\n")

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_user_namespaces_are_there(machine: Machine) -> None:
    assert kernel.user_namespaces(machine.root, privileged=False).state is State.OK


def test_a_kernel_without_user_namespaces(machine: Machine) -> None:
    (machine.root / "proc/self/ns/user").unlink()
    found = kernel.user_namespaces(machine.root)
    assert (found.state, found.what) == (State.PROBLEM, "the kernel has none")


def test_user_namespaces_that_are_switched_off(machine: Machine) -> None:
    machine.write("proc/sys/user/max_user_namespaces", "0\n")
    found = kernel.user_namespaces(machine.root)
    assert found.state is State.PROBLEM
    assert found.fix == "sudo sysctl user.max_user_namespaces=15000"


@pytest.mark.parametrize(
    ("switch", "off", "fix"),
    [
        ("unprivileged_userns_clone", "0", "sudo sysctl kernel.unprivileged_userns_clone=1"),
        ("apparmor_restrict_unprivileged_userns", "1", ALLOW_BUBBLEWRAP),
    ],
)
def test_user_namespaces_that_ordinary_users_may_not_make(
    machine: Machine, switch: str, off: str, fix: str
) -> None:
    machine.write(f"proc/sys/kernel/{switch}", f"{off}\n")
    found = kernel.user_namespaces(machine.root, privileged=False)
    assert (found.state, found.fix) == (State.WARNING, fix)
    assert switch in found.what
    assert kernel.user_namespaces(machine.root, privileged=True).state is State.OK


def _bwrap(directory: Path, script: str) -> Bubblewrap:
    path = directory / "bwrap"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Bubblewrap(str(path))


def test_bubblewrap_that_works(tmp_path: Path) -> None:
    found = kernel.bubblewrap(_bwrap(tmp_path, "exit 0"), needed=True)
    assert (found.state, found.what) == (State.OK, "works")


def test_bubblewrap_that_does_not_work_says_what_it_said(tmp_path: Path) -> None:
    broken = _bwrap(tmp_path, "echo 'bwrap: No permissions to create new namespace' >&2; exit 1")
    found = kernel.bubblewrap(broken, needed=True)
    assert found.state is State.WARNING
    assert "No permissions to create new namespace" in found.what
    assert found.fix.startswith("sysctl kernel.")


def test_missing_bubblewrap_matters_where_the_shell_runs_in_it() -> None:
    found = kernel.bubblewrap(Bubblewrap(""), needed=True)
    assert found.state is State.WARNING
    assert found.fix.startswith("apt-get install bubblewrap (")
    found = kernel.bubblewrap(Bubblewrap(""), needed=False)
    assert (found.state, found.fix) == (State.OK, "")
    assert "only the process tier" in found.what


def test_what_holds_the_shell_to_its_memory(tmp_path: Path) -> None:
    found = kernel.control_groups(ControlGroups(tmp_path))
    assert (found.state, found.fix) == (State.WARNING, HOW)
    assert "the shell guest watches its own memory" in found.what
    for controller in ("pids", "memory", "cpu"):
        (tmp_path / controller).mkdir()
    found = kernel.control_groups(ControlGroups(tmp_path))
    assert found.state is State.OK
    assert found.what == f"limited by the kernel, in a control group in {tmp_path}/pids"


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (errno.EINVAL, State.OK),
        (errno.EFAULT, State.OK),
        (errno.ENOSYS, State.PROBLEM),
        (errno.EPERM, State.PROBLEM),
    ],
)
def test_openat2_is_judged_by_how_it_fails(code: int, state: State) -> None:
    assert kernel.openat2(code).state is state


def test_openat2_is_really_called() -> None:
    assert kernel.openat2().state is State.OK


def test_security_modules_are_named(machine: Machine) -> None:
    assert kernel.security_modules(machine.root).what == "SELinux off, AppArmor off"
    machine.write("sys/fs/selinux/enforce", "1")
    machine.write("sys/module/apparmor/parameters/enabled", "Y\n")
    assert kernel.security_modules(machine.root).what == "SELinux enforcing, AppArmor on"
    machine.write("sys/fs/selinux/enforce", "0")
    assert kernel.security_modules(machine.root).what.startswith("SELinux permissive")


def test_kvm_matters_to_the_micro_vm_tier(machine: Machine) -> None:
    found = kernel.virtual_machines(machine.root, needed=True)
    assert found.state is State.WARNING
    assert "modprobe kvm_intel" in found.fix
    assert kernel.virtual_machines(machine.root, needed=False).state is State.OK
    machine.write("dev/kvm", "")
    assert kernel.virtual_machines(machine.root, needed=True).what == "available"
