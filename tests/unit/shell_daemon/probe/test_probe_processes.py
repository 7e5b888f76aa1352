"""Processes, their memory and their descriptors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shell_daemon.probe import filesystem, mounts, processes
from shell_daemon.probe.libc import trace
from shell_daemon.probe.world import BoundaryHit, World
from tests.support.boundary.probed_guest import UID, ProbedGuest


def process(guest: ProbedGuest, pid: int, name: str, uid: int = UID, parent: int = 0) -> None:
    guest.write(f"{pid}/comm", f"{name}\n")
    guest.write(f"{pid}/status", f"Name:\t{name}\nPPid:\t{parent}\nUid:\t{uid}\t{uid}\t1\t1\n")


def test_the_guests_own_processes_pass(guest: ProbedGuest) -> None:
    process(guest, 1, "init")
    process(guest, 2, "bash")
    assert processes.processes(guest.look()) == "2 visible, all of this guest"


def test_threads_of_the_kernel_are_a_hit(guest: ProbedGuest) -> None:
    process(guest, 2, "kthreadd")
    with pytest.raises(BoundaryHit, match="the kernel's threads are visible"):
        processes.processes(guest.look())


def test_a_process_of_another_user_is_a_hit(guest: ProbedGuest) -> None:
    process(guest, 9, "agent", uid=UID + 1)
    with pytest.raises(BoundaryHit, match=r"process 9 \(agent\) of another user is visible"):
        processes.processes(guest.look(uid=UID + 2))


def test_a_concealed_process_of_the_guest_is_known_by_its_status(guest: ProbedGuest) -> None:
    """Such a process belongs to root in /proc."""
    process(guest, 9, "oxydra-shell", uid=UID + 2)
    assert processes.processes(guest.look(uid=UID + 2))


def family(guest: ProbedGuest) -> World:
    """The probe, its shell, the daemon; of the latter nothing can be opened."""
    process(guest, 1, "oxydra-shell")
    process(guest, 5, "bash", parent=1)
    guest.status(PPid="5")
    (guest.proc / "self/root").symlink_to(guest.root)
    return guest.look()


def test_a_daemon_that_keeps_to_itself_passes(
    guest: ProbedGuest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "trace", _refuse)
    assert processes.process_memory(family(guest)) == "closed in 1 processes of the daemon"


def _refuse(_pid: int) -> None:
    raise PermissionError


@pytest.mark.parametrize("name", ["environ", "mem"])
def test_a_readable_daemon_is_a_hit(
    guest: ProbedGuest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(processes, "trace", _refuse)
    guest.write(f"1/{name}", "token")
    with pytest.raises(BoundaryHit, match=f"^oxydra-shell's {name} can be read$"):
        processes.process_memory(family(guest))


@pytest.mark.parametrize("name", ["cwd", "fd/0"])
def test_a_daemon_whose_files_can_be_followed_is_a_hit(
    guest: ProbedGuest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(processes, "trace", _refuse)
    (guest.proc / "1" / name).parent.mkdir(parents=True, exist_ok=True)
    (guest.proc / "1" / name).symlink_to("/nowhere")
    with pytest.raises(BoundaryHit, match=f"^oxydra-shell's {name} can be followed$"):
        processes.process_memory(family(guest))


def test_a_daemon_that_can_be_traced_is_a_hit(
    guest: ProbedGuest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "trace", lambda _pid: None)
    with pytest.raises(BoundaryHit, match=r"^oxydra-shell can be traced$"):
        processes.process_memory(family(guest))


def test_a_real_process_can_be_traced_and_goes_on() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        trace(child.pid)
        child.communicate(b"\n")
        assert child.returncode == 0


def test_without_a_daemon_above_it_nothing_was_tried(guest: ProbedGuest) -> None:
    """Nor does somebody else who takes the daemon's name count."""
    process(guest, 3, "oxydra-shell")
    process(guest, 5, "bash")
    guest.status(PPid="5")
    (guest.proc / "self/root").symlink_to(guest.root)
    with pytest.raises(BoundaryHit, match="the shell daemon is not visible"):
        processes.process_memory(guest.look())


def test_another_root_directory_is_a_hit(
    guest: ProbedGuest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(processes, "trace", _refuse)
    world = family(guest)
    (guest.proc / "5/root").symlink_to(tmp_path)
    with pytest.raises(BoundaryHit, match=r"process 5 \(bash\) has another root directory"):
        processes.process_memory(world)


def test_a_directory_that_was_opened_outside_is_a_hit(guest: ProbedGuest, tmp_path: Path) -> None:
    process(guest, 1, "init")
    (guest.proc / "1/fd").mkdir()
    (guest.proc / "1/fd/3").symlink_to(tmp_path)
    guest.write("1/fdinfo/3", "pos:\t0\nmnt_id:\t20\n")
    assert processes.descriptors(guest.look()) == "none of 1 leads out"
    guest.write("1/fdinfo/3", "pos:\t0\nmnt_id:\t77\n")
    with pytest.raises(BoundaryHit, match="descriptor 3 of process 1 leads out"):
        processes.descriptors(guest.look())


def test_a_log_that_was_opened_outside_is_none(guest: ProbedGuest, tmp_path: Path) -> None:
    log = tmp_path / "shell.log"
    log.write_text("")
    process(guest, 1, "init")
    (guest.proc / "1/fd").mkdir()
    (guest.proc / "1/fd/2").symlink_to(log)
    guest.write("1/fdinfo/2", "mnt_id:\t77\n")
    assert processes.descriptors(guest.look())


def test_a_child_that_dies_is_not_taken_for_a_refusal() -> None:
    with pytest.raises(ChildProcessError):
        mounts.in_child(lambda: os._exit(3))


def test_what_a_child_saw_comes_back() -> None:
    assert mounts.in_child(lambda: (True, ["seen"])) == (True, ["seen"])


def test_a_way_to_make_devices_is_a_hit(
    guest: ProbedGuest, monkeypatch: pytest.MonkeyPatch
) -> None:
    (guest.root / "tmp").mkdir()
    monkeypatch.setattr(os, "mknod", lambda path, _mode, _device: Path(path).touch())
    with pytest.raises(BoundaryHit, match=r"^mknod makes devices$"):
        filesystem.devices(guest.look())
    assert list((guest.root / "tmp").iterdir()) == []
