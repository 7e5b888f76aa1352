"""What gVisor's kernel does not have or hide: what stands in for it, there and nowhere else."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from wire.boundary import KERNEL_OF_GVISOR

from shell_daemon.probe import filesystem, kernel, libc, mounts, processes
from shell_daemon.probe.walk import walk
from shell_daemon.probe.world import BoundaryHit, World
from tests.support.boundary.probed_guest import UID, ProbedGuest


@pytest.fixture
def gvisor(guest: ProbedGuest) -> ProbedGuest:
    guest.in_gvisor()
    return guest


def test_gvisors_kernel_says_what_it_is(gvisor: ProbedGuest) -> None:
    assert kernel.kernel(gvisor.look()) == KERNEL_OF_GVISOR


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("sys/kernel/random/boot_id", "boot-of-the-host\n"),
        ("sys/kernel/random/boot_id", ""),
        ("cmdline", "BOOT_IMAGE=/vmlinuz quiet\n"),
        ("cmdline", "BOOT_IMAGE=/vmlinuz name=BOOT_IMAGE=/vmlinuz-4.4.0-gvisor\n"),
    ],
)
def test_no_other_kernel_is_taken_for_it(gvisor: ProbedGuest, file: str, content: str) -> None:
    """What is missing in gVisor's kernel is a hit in every other."""
    gvisor.write(file, content)
    gvisor.first_process()
    world = gvisor.look()
    assert not world.gvisor
    for check in (kernel.capabilities, kernel.no_new_privileges):
        with pytest.raises(KeyError):
            check(world)


def test_a_tier_that_promises_no_kernel_of_its_own_has_no_gvisor(gvisor: ProbedGuest) -> None:
    assert not gvisor.look(own_kernel=False).gvisor


def test_what_it_does_not_list_is_judged_by_what_it_does(gvisor: ProbedGuest) -> None:
    world = gvisor.look()
    assert kernel.capabilities(world) == "none"
    assert "gVisor's kernel answers" in kernel.seccomp(world, list)
    if libc.no_new_privileges():
        assert "gVisor" in kernel.no_new_privileges(world)
    else:
        with pytest.raises(BoundaryHit):
            kernel.no_new_privileges(world)


def test_without_the_daemons_own_filter_it_is_a_hit_there_too(gvisor: ProbedGuest) -> None:
    gvisor.status(Seccomp="0")
    with pytest.raises(BoundaryHit, match="no system call filter around commands"):
        kernel.seccomp(gvisor.look(), list)


def test_its_inode_numbers_identify_nothing(gvisor: ProbedGuest) -> None:
    path = gvisor.share("/shared")
    found = path.stat()
    world = gvisor.look()
    assert not world.is_same(found, found.st_dev, found.st_ino)
    with pytest.raises(BoundaryHit, match="/shared is another directory of the host"):
        mounts.mounts(world)


def test_a_beacon_shows_the_right_directory(gvisor: ProbedGuest) -> None:
    path = gvisor.share("/shared")
    rows = [row._replace(beacon=".oxydra-1") for row in gvisor.spec.shared]
    with pytest.raises(BoundaryHit, match="/shared is another directory of the host"):
        mounts.mounts(gvisor.look(shared=tuple(rows)))
    (path / ".oxydra-1").touch()
    assert "/shared" in mounts.mounts(gvisor.look(shared=tuple(rows)))


def test_the_directories_of_users_are_left_to_the_runner(gvisor: ProbedGuest) -> None:
    (gvisor.share("/shared") / "a").touch()
    (gvisor.share("/ipc") / "b").touch()
    assert walk(gvisor.look()).seen == 1
    assert walk(gvisor.look(own_kernel=False)).seen == 2


def helper(guest: ProbedGuest, pid: int, name: str, parent: int) -> Path:
    """A process of the daemon's, as gVisor shows it; the directory of its descriptors."""
    guest.write(f"{pid}/comm", f"{name}\n")
    guest.write(f"{pid}/status", f"Name:\t{name}\nPPid:\t{parent}\nUid:\t{UID}\t{UID}\t1\t1\n")
    guest.write(f"{pid}/environ", "")
    descriptors = guest.proc / str(pid) / "fd"
    descriptors.mkdir()
    (descriptors / "0").symlink_to("/dev/null")
    return descriptors


@pytest.fixture
def helpers(gvisor: ProbedGuest, monkeypatch: pytest.MonkeyPatch) -> ProbedGuest:
    """The zygote first, a supervisor below it, and the probe."""

    def refuse(_pid: int) -> None:
        raise PermissionError

    monkeypatch.setattr(processes, "trace", refuse)
    helper(gvisor, 1, "oxydra-zygote", 0)
    helper(gvisor, 2, "oxydra-superv", 1)
    gvisor.status(PPid="2")
    (gvisor.proc / "self/root").symlink_to(gvisor.root)
    return gvisor


def test_helpers_without_anything_to_take_pass(helpers: ProbedGuest, tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    with listener:
        (helpers.proc / "2/fd/5").symlink_to(tmp_path / "s")
        assert processes.process_memory(helpers.look()) == "closed in 2 processes of the daemon"


def open_pipe(guest: ProbedGuest) -> None:
    os.mkfifo(guest.proc / "pipe")
    (guest.proc / "1/fd/2").symlink_to(guest.proc / "pipe")


@pytest.mark.parametrize(
    ("weaken", "found"),
    [
        (lambda guest: helper(guest, 9, "oxydra-shell", 0), "the shell daemon is visible"),
        (
            lambda guest: guest.write("1/comm", "bash\n"),
            "the zygote is not the first process, so that the daemon may be visible",
        ),
        (
            lambda guest: guest.write("1/environ", "KEY=x"),
            "oxydra-zygote's environment can be read",
        ),
        (open_pipe, "oxydra-zygote's descriptor 2 can be opened"),
        (lambda guest: guest.write("2/mem", "x"), "oxydra-superv's mem can be read"),
        (
            lambda guest: (guest.proc / "2/cwd").symlink_to("/"),
            "oxydra-superv's cwd can be followed",
        ),
    ],
)
def test_whatever_can_be_taken_from_a_helper_is_a_hit(
    helpers: ProbedGuest, weaken: Callable[[ProbedGuest], object], found: str
) -> None:
    weaken(helpers)
    with pytest.raises(BoundaryHit, match=f"^{found}$"):
        processes.process_memory(helpers.look())


def test_a_descriptor_is_judged_by_the_place_that_it_names(
    gvisor: ProbedGuest, tmp_path: Path
) -> None:
    descriptors = helper(gvisor, 1, "bash", 0)
    gvisor.write("1/fdinfo/0", "flags:\t0\n")
    gvisor.write("1/fdinfo/3", "flags:\t0\n")
    gvisor.write("self/mountinfo", "")
    (descriptors / "3").symlink_to(tmp_path)
    everything_here = World(gvisor.spec, proc=gvisor.proc, root=Path("/"))
    assert processes.descriptors(everything_here) == "none of 2 leads out"
    with pytest.raises(BoundaryHit, match="descriptor 3 of process 1 leads out"):
        processes.descriptors(gvisor.look())


@pytest.mark.skipif(UID != 0, reason="only root makes devices")
def test_its_own_devices_are_harmless_in_it_only(
    gvisor: ProbedGuest, monkeypatch: pytest.MonkeyPatch
) -> None:
    (gvisor.root / "dev/net").mkdir(parents=True)
    (gvisor.root / "tmp").mkdir()
    os.mknod(gvisor.root / "dev/net/tun", 0o20666, os.makedev(10, 200))

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "mknod", refuse)
    assert filesystem.devices(gvisor.look()) == "net/tun"
    with pytest.raises(BoundaryHit, match=r"further devices: .*tun"):
        filesystem.devices(gvisor.look(own_kernel=False))
