"""A user's pair in containers, brought up as an integrator would: the mount table read back
from inside both guests, cell by cell, and what one user sees of another."""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil
import pytest
from testcontainers.core.exceptions import ContainerStartException
from testcontainers.core.wait_strategies import ExecWaitStrategy, LogMessageWaitStrategy

from runner.testing import GuestContainer, UserPair
from runner.workspace.mounts import MOUNTS, SERVED, Access, Role
from tests.support import made_documents as made
from tests.support.guests.background import server_outlives_its_turn_and_ends_with_its_guest
from tests.support.guests.engine import docker, engine_objects
from tests.support.scratch import SCRATCH

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("container_pair")]

ABSENT: Final = "absent"
SYSTEM: Final = (
    "/proc",
    "/sys",
    "/dev",
    "/etc/",
    "/run",
    "/sbin/docker-init",
    "/usr/sbin/docker-init",
)
"""Below these everything is the engine's own."""


def table() -> dict[Role, dict[str, str]]:
    """Each role's cells: every path that any role mounts, and what this one may do there."""
    rows = {
        role: {mount.virtual: str(mount.access) for mount in mounts}
        for role, mounts in MOUNTS.items()
    }
    rows[Role.AGENT]["/embedder"] = str(Access.READ_ONLY)
    paths = {path for cells in rows.values() for path in cells}
    return {role: {path: cells.get(path, ABSENT) for path in paths} for role, cells in rows.items()}


CELLS: Final = [
    (role, path, cell)
    for role, row in table().items()
    for path, cell in sorted(row.items())
    if not (role in SERVED and path == "/tmp")  # they have the image's own, which is empty
]


SOMETHING_LEAVES: Final = {
    role: {"allow": ["example.org"]} for role in (Role.AGENT.value, Role.SHELL.value)
}


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="oxq-") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def alice(root: Path) -> Iterator[UserPair]:
    with UserPair("alice", root=root, egress=SOMETHING_LEAVES) as pair:
        yield pair


@pytest.fixture(scope="module")
def bob(root: Path) -> Iterator[UserPair]:
    with UserPair("bob", root=root, egress=SOMETHING_LEAVES) as pair:
        yield pair


def guest(pair: UserPair, role: Role) -> GuestContainer:
    found = {Role.AGENT: pair.agent, Role.SHELL: pair.shell, Role.EGRESS: pair.egress}
    return {**found, Role.SHELL_EGRESS: pair.shell_egress}[role]


def cell(container: GuestContainer, path: str) -> str:
    """What the guest's own user can do at `path`."""
    script = f"[ -e {path} ] || {{ echo {ABSENT}; exit; }}; ls -A {path} >/dev/null || exit 3; "
    script += f"touch {path}/.cell 2>/dev/null && rm {path}/.cell && echo rw || echo ro"
    for _ in range(3):  # the engine sometimes loses what a command has printed
        done = container.exec(["sh", "-c", script])
        assert done.exit_code == 0, done.output
        if done.output:
            break
    return done.output.decode().strip()


@pytest.mark.parametrize(("role", "path", "expected"), CELLS)
def test_a_cell_of_the_mount_table(alice: UserPair, role: Role, path: str, expected: str) -> None:
    assert cell(guest(alice, role), path) == expected


@pytest.mark.parametrize("role", MOUNTS)
def test_the_kernel_shows_these_mounts_and_no_other(alice: UserPair, role: Role) -> None:
    shown = guest(alice, role).exec("cat /proc/self/mountinfo").output.decode()
    mounted = {}
    for line in shown.splitlines():
        fields = line.split()
        if not fields[4].startswith(SYSTEM):
            mounted[fields[4]] = fields[5].split(",")[0]
    present = {path: cell for path, cell in table()[role].items() if cell != ABSENT}
    assert mounted == {"/": "ro", **present}


@pytest.mark.parametrize("role", MOUNTS)
def test_a_mount_is_the_directory_of_the_table(alice: UserPair, role: Role) -> None:
    for bound in alice.workspace.mounts(role):
        mark = bound.host_path / ".mark"
        mark.write_text("from the host")
        inside = f"{bound.mount.virtual}/.mark"
        read = guest(alice, role).exec(["stat", "--format", "%s", inside])
        mark.unlink()
        assert read.output.decode().strip() == "13", inside
        assert bound.host_path.stat().st_uid == alice.workspace.owner.uid


def test_the_agent_can_neither_rename_nor_replace_what_is_the_shells(alice: UserPair) -> None:
    attack = """
        exec 2>&1  # two streams would meet within a line
        for p in /shell /ipc /shared /tmp; do mv $p $p.old && echo "WON mv $p"; done
        rm -f /shell/shell.sock && echo "WON rm"
        mv /shell/shell.sock /ipc/ && echo "WON mv socket"
        ln -s /vault /shell/link && echo "WON ln"; mkdir /shell/d && echo "WON mkdir"
        ln -sfn /vault /shell && echo "WON replace"; ls -d /ipc/shell && echo "WON it is in /ipc"
        test -S /shell/shell.sock && echo there
    """
    said = guest(alice, Role.AGENT).exec(["sh", "-c", attack]).output.decode()
    assert "WON" not in said, said
    assert "there" in said.splitlines()
    assert not alice.call_tool("shell_exec", {"command": "true"}).is_error


def test_a_command_of_the_agent_sees_the_shell_guests_files_only(alice: UserPair) -> None:
    command = "ls -d /.oxydra /vault /embedder /shell /logs /shared /tmp /ipc 2>&1"
    done = alice.call_tool("shell_exec", {"command": command})
    assert not done.is_error
    assert done.text.count("No such file or directory") == 5


def test_a_document_is_read_in_the_shell_guest(alice: UserPair) -> None:
    shared = alice.workspace.path / "shared"
    for name, content in {
        "a.pdf": made.pdf(["one", "two"]),
        "b.xlsx": made.xlsx([["sum"]]),
    }.items():
        (shared / name).write_bytes(content)
    read = alice.call_tool("file_read", {"path": "/shared/a.pdf", "pages": "2"}).text
    assert "[page 2 of 2]" in read, read
    assert "sum" in alice.call_tool("file_read", {"path": "/shared/b.xlsx"}).text
    own = guest(alice, Role.AGENT).exec(
        ["sh", "-c", "find / -xdev -name '*pdfium*' -o -name openpyxl 2>/dev/null"]
    )
    assert own.output == b""


def test_two_users_see_nothing_of_each_other(alice: UserPair, bob: UserPair) -> None:
    secret = "the-word-of-alice-4711"
    assert not alice.call_tool("memory_save", {"content": f"my word is {secret}"}).is_error
    (alice.workspace.path / "shared" / "alice.txt").write_text(secret)
    found = bob.call_tool("memory_search", {"query": f"my word {secret}"})
    assert secret not in found.text
    for role in MOUNTS:
        seen = guest(bob, role).exec(["sh", "-c", "grep -rs 4711 /shared /tmp /ipc; true"])
        assert seen.output == b""
        theirs = guest(bob, role).get_wrapped_container().attrs
        assert "/alice" not in str(theirs["Mounts"])
        ours = guest(alice, role).get_wrapped_container().attrs
        assert "/bob" not in str(ours["Mounts"])
    networks = [
        {each["NetworkID"] for each in settings["Networks"].values()}
        for settings in (
            pair.egress.get_wrapped_container().attrs["NetworkSettings"] for pair in (alice, bob)
        )
    ]
    assert networks[0]
    assert not networks[0] & networks[1]


@pytest.mark.root
def test_each_users_guests_have_a_uid_of_their_own(
    alice: UserPair, bob: UserPair, root: Path
) -> None:
    uids = []
    for pair in (alice, bob):
        guests = {guest.role: guest.pid for guest in pair.status().guests}
        uids.append({psutil.Process(guests[role]).uids().real for role in ("agent", "shell")})
        assert uids[-1] == {pair.workspace.owner.uid}
        (embedder,) = (name for name in engine_objects(root) if "embedder" in name)
        uids.append(
            {int(docker("inspect", "--format", "{{.Config.User}}", embedder).split(":")[0])}
        )
        assert not pair.call_tool("memory_save", {"content": "tea is at five"}).is_error
        until = time.monotonic() + 60
        while pair.status().memory.embedder != "ready":
            assert time.monotonic() < until, pair.status()
            time.sleep(0.1)
    assert len(set.union(*uids)) == 3


def moved(pair: UserPair) -> list[str]:
    return [notice for notice in pair.status().notices if "given to uid" in notice]


@pytest.mark.root
def test_a_workspace_of_a_version_with_one_uid_for_all_is_moved_over(root: Path) -> None:
    own = {"guest_uid": 1_210_781_000, "guest_uid_count": 3}  # nobody else's on this machine
    pair = UserPair("erin", root=root, embedder={"backend": "none"}, container=own)
    with pair:
        assert not pair.call_tool("memory_save", {"content": "tea is at five"}).is_error
        assert not pair.call_tool("shell_exec", {"command": "echo 1 > /shared/old"}).is_error
        place, uid = pair.workspace.path, pair.workspace.owner.uid
        common = pair.config.container.guest_uid
    subprocess.run(["chown", "-R", f"{common}:{common}", place], check=True)
    with pair:
        assert len(moved(pair)) == 1
        assert f"given to uid {uid}: it belonged to uid {common}" in moved(pair)[0]
        assert "tea is at five" in pair.call_tool("memory_search", {"query": "tea"}).text
        assert not pair.call_tool("shell_exec", {"command": "echo 2 >> /shared/old"}).is_error
    subprocess.run(["chown", "-R", f"{common}:{common}", place / ".oxydra"], check=True)
    with pair:  # as if the first start had been killed in the middle of the move
        assert moved(pair) == []
        assert "tea is at five" in pair.call_tool("memory_search", {"query": "tea"}).text
        assert not pair.call_tool("memory_save", {"content": "and cake at six"}).is_error
    assert {path.lstat().st_uid for path in (place, *place.rglob("*"))} <= {uid, 0}
    assert (place / ".oxydra" / "memory.db").stat().st_uid == uid
    assert (place / "shared" / "old").read_text() == "1\n2\n"


def test_wait_strategies_of_testcontainers_work_on_guests(alice: UserPair) -> None:
    assert alice.shell.status == "running"
    ExecWaitStrategy(["test", "-S", "/ipc/shell.sock"]).wait_until_ready(alice.shell)
    LogMessageWaitStrategy("ready|serving|listening").wait_until_ready(alice.agent)
    with pytest.raises(ContainerStartException, match="no port"):
        alice.agent.get_exposed_port(80)


def test_notes_survive_the_removal_of_both_containers(root: Path) -> None:
    pair = UserPair("carol", root=root)
    with pair:
        assert not pair.call_tool("memory_save", {"content": "tea is at five"}).is_error
        first = {container.get_wrapped_container().id for container in (pair.agent, pair.shell)}
    assert pair.agent.name not in " ".join(engine_objects(root))
    with pair:
        assert "tea is at five" in pair.turn("what do you know about tea?").text
        second = {container.get_wrapped_container().id for container in (pair.agent, pair.shell)}
    assert not first & second


def test_a_pair_without_a_root_leaves_nothing() -> None:
    with UserPair(embedder={"backend": "none"}).waiting_for(ExecWaitStrategy("true")) as pair:
        place = pair.config.workspace_root.parent
        turn = pair.turn("run id -u")
        assert turn.tools == [("shell_exec", True)]
        assert str(pair.workspace.owner.uid) in turn.text
        server_outlives_its_turn_and_ends_with_its_guest(pair)
        assert pair.status().boundary.passed
        with pytest.raises(RuntimeError, match="is started"):
            pair.start()
    pair.stop()
    assert not place.exists()
    assert engine_objects(place) == []
    with pytest.raises(RuntimeError, match="is not started"):
        pair.status()
