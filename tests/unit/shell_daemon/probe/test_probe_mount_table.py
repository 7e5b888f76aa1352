"""The mount table and what lies below it."""

import os
import resource
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from wire import network_probe
from wire.boundary import PrivatePath
from wire.kernel.mounts import mounts as mounts_in

from shell_daemon.probe import filesystem, mounts, network, processes, secrets
from shell_daemon.probe.walk import walk
from shell_daemon.probe.world import (
    BoundaryHit,
    Budget,
    Budgets,
    World,
    opened,
    refused,
)
from tests.support.boundary.probed_guest import ProbedGuest

HARMLESS = [
    "21 20 0:41 / /proc rw,nosuid - proc proc rw",
    "22 21 0:42 /null /proc/keys rw,nosuid - tmpfs tmpfs rw",
    "23 21 0:43 / /proc/acpi ro - tmpfs tmpfs ro",
    "24 20 0:44 / /sys ro - sysfs sysfs ro",
    "25 24 0:29 /docker/1 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu",
    "26 20 0:45 / /dev rw - tmpfs tmpfs rw",
    "27 26 0:6 /null /dev/null rw - devtmpfs devtmpfs rw",
    "28 26 0:46 / /dev/pts rw - devpts devpts rw",
    "29 20 0:47 / /run rw - tmpfs tmpfs rw",
]


def test_the_table_alone_passes(guest: ProbedGuest) -> None:
    guest.share("/shared")
    guest.share("/ipc")
    for line in HARMLESS:
        guest.mount(line)
    assert "/shared, /ipc" in mounts.mounts(guest.look())


def test_a_path_with_a_space_is_read_as_it_is() -> None:
    line = r"30 20 254:0 /a\040b\134 /da\011ta rw,nosuid - ext4 /dev/vda rw"
    (mount,) = mounts_in(line)
    assert (mount.root, mount.point, mount.read_only) == ("/a b\\", "/da\tta", False)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            "40 20 254:0 /ws/.oxydra /data rw - ext4 /dev/vda rw",
            "/data is mounted from /ws/.oxydra",
        ),
        ("40 20 254:0 /x /shared/in rw - ext4 /dev/vda rw", "/shared/in is mounted from /x"),
        ("40 20 0:25 / /run rw - tmpfs tmpfs rw", "/run is mounted from / (tmpfs)"),
        ("40 20 0:50 /docker.sock /run/d.sock rw - tmpfs tmpfs rw", "/run/d.sock is mounted from"),
        ("40 20 0:5 / /mnt rw - proc proc rw", "/mnt is mounted from / (proc)"),
        ("40 20 254:0 /boot /sys/boot ro - ext4 /dev/vda rw", "/sys/boot is mounted from /boot"),
        ("40 20 0:60 / /afar rw - nfs4 server:/ rw", "/afar is mounted from / (nfs4)"),
        ("40 20 254:0 / / rw - ext4 /dev/vda rw", "the root file system is mounted read-write"),
        ("40 20 254:0 /py /usr rw - ext4 /dev/vda rw", "/usr is mounted read-write"),
    ],
)
def test_whatever_is_not_in_the_table_is_a_hit(guest: ProbedGuest, line: str, found: str) -> None:
    guest.share("/shared")
    guest.mount(line)
    with pytest.raises(BoundaryHit) as hit:
        mounts.mounts(guest.look(read_only=("/usr",)))
    assert str(hit.value).startswith(found)


def test_a_row_that_is_another_directory_is_a_hit(guest: ProbedGuest) -> None:
    guest.share("/shared")
    (row,) = guest.spec.shared
    with pytest.raises(BoundaryHit, match=r"^/shared is another directory of the host"):
        mounts.mounts(guest.look(shared=(row._replace(inode=row.inode + 1),)))
    with pytest.raises(BoundaryHit, match=r"^/shared is another directory of the host"):
        mounts.mounts(guest.look(shared=(row._replace(device=row.device + 1),)))


def test_in_a_kernel_of_its_own_only_the_inode_counts(guest: ProbedGuest) -> None:
    guest.share("/shared")
    (row,) = guest.spec.shared
    mounts.mounts(guest.look(own_kernel=True, shared=(row._replace(device=row.device + 1),)))


def test_in_a_kernel_of_its_own_other_file_systems_numbers_mean_nothing(guest: ProbedGuest) -> None:
    """A small inode number of the host's memory is no file of the guest's disk."""
    inside = guest.share("/shared") / "x"
    inside.touch()
    place = PrivatePath("a token", "", inside.stat().st_dev + 1, inside.stat().st_ino)
    assert filesystem.private_paths(guest.look(own_kernel=True, private=(place,)))
    place = place._replace(device=inside.stat().st_dev)
    with pytest.raises(BoundaryHit, match=r"^a token is there as /shared/x$"):
        filesystem.private_paths(guest.look(own_kernel=True, private=(place,)))


def test_a_row_with_too_much_access_is_a_hit(guest: ProbedGuest) -> None:
    guest.share("/shared")
    (row,) = guest.spec.shared
    with pytest.raises(BoundaryHit, match="read-write instead of read-only"):
        mounts.mounts(guest.look(shared=(row._replace(writable=False),)))


def test_a_row_that_is_not_mounted_is_a_hit(guest: ProbedGuest) -> None:
    guest.share("/shared")
    guest.mountinfo = guest.mountinfo[:1]
    with pytest.raises(BoundaryHit, match=r"^/shared is not mounted$"):
        mounts.mounts(guest.look())


def private(path: Path, shown: str = "") -> tuple[PrivatePath, ...]:
    found = path.stat()
    return (PrivatePath("the database", shown, found.st_dev, found.st_ino),)


def test_a_private_path_is_a_hit_under_its_own_name(guest: ProbedGuest) -> None:
    (guest.root / "vault").mkdir()
    with pytest.raises(BoundaryHit, match=r"^/vault is there$"):
        filesystem.private_paths(guest.look())


def test_a_private_file_is_a_hit_under_its_hosts_path(guest: ProbedGuest) -> None:
    place = guest.root / "srv"
    place.mkdir()
    with pytest.raises(BoundaryHit, match="by its host path"):
        filesystem.private_paths(guest.look(private=private(place, "/srv")))


def test_a_directory_that_only_has_the_name_is_none(guest: ProbedGuest) -> None:
    (guest.root / "srv").mkdir()
    elsewhere = private(guest.proc, "/srv")
    filesystem.private_paths(guest.look(private=elsewhere))


def test_a_private_file_is_a_hit_deep_below_the_table(guest: ProbedGuest) -> None:
    deep = guest.share("/shared") / "a" / "b"
    deep.mkdir(parents=True)
    database = guest.root.parent / "memory.db"  # on the same file system, for the hard link
    database.write_text("x")
    (deep / "link").symlink_to(database)
    filesystem.private_paths(guest.look(private=private(database)))
    (deep / "innocent.txt").hardlink_to(database)
    with pytest.raises(BoundaryHit, match=r"^the database is there as /shared/a/b/innocent\.txt$"):
        filesystem.private_paths(guest.look(private=private(database)))


def test_an_empty_private_directory_is_a_hit_as_a_mount_point(guest: ProbedGuest) -> None:
    """Nothing lies in it, and the listing above it shows the number of what it covers."""
    place = guest.root / "data"
    place.mkdir()
    guest.mount("40 20 254:0 /ws/vault /data rw - ext4 /dev/vda rw")
    with pytest.raises(BoundaryHit, match=r"^the database is there as /data$"):
        filesystem.private_paths(guest.look(private=private(place)))


def test_another_users_directory_is_a_hit_that_names_nobody(guest: ProbedGuest) -> None:
    theirs = guest.share("/shared") / "x"
    theirs.mkdir()
    found = theirs.stat()
    with pytest.raises(BoundaryHit, match=r"^a directory of another user's workspace"):
        filesystem.other_users(guest.look(other_users=((found.st_dev, found.st_ino),)))
    assert filesystem.other_users(guest.look(other_users=((found.st_dev, 1),)))


def test_a_walk_goes_to_the_end_of_what_commands_nest(guest: ProbedGuest) -> None:
    """Also beyond what the kernel allows a path to be long."""
    shared = guest.share("/shared")
    database = guest.root.parent / "memory.db"
    database.write_text("x")
    nest(shared, 3000, database)
    world = guest.look(private=private(database))
    with pytest.raises(BoundaryHit, match=r"^the database is there as /shared/d/d/"):
        filesystem.private_paths(world)
    assert walk(world).seen == 3001
    assert walk(world).unfinished == {}
    subprocess.run(["rm", "-rf", shared], check=True)


def nest(directory: Path, depth: int, database: Path) -> None:
    """Directories below each other, and a hard link in the last."""
    descriptor = os.open(directory, os.O_RDONLY)
    source = os.open(database.parent, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.link(database.name, "link", src_dir_fd=source, dst_dir_fd=descriptor)
    os.close(source)
    os.close(descriptor)


@pytest.mark.parametrize(
    "check", [filesystem.private_paths, filesystem.other_users, network.unix_sockets]
)
def test_a_walk_that_did_not_end_is_a_hit(
    guest: ProbedGuest, check: Callable[[World], str]
) -> None:
    shared = guest.share("/shared")
    for number in range(30):
        (shared / f"{number}").touch()
    assert check(guest.look())
    world = guest.look(budgets=Budgets(users=Budget(20, 5.0)))
    with pytest.raises(BoundaryHit, match="/shared did not end: it has more than 20 entries"):
        check(world)
    world = guest.look(budgets=Budgets(users=Budget(100, 0.0)))
    with pytest.raises(BoundaryHit, match="/shared did not end: it took more than 0 seconds"):
        check(world)


def test_what_is_closed_to_commands_is_passed_over(guest: ProbedGuest) -> None:
    (guest.share("/shared") / "link").symlink_to("/etc")
    assert walk(guest.look()).unfinished == {}


def nothing_in_a_text(world: World) -> object:
    return list(secrets.read_end(world, "/proc/7/environ"))


@pytest.mark.parametrize(
    "look",
    [
        filesystem.kernel_settings,
        processes.descriptors,
        nothing_in_a_text,
        lambda _world: network_probe.has_route("127.0.0.1", 53),
        lambda _world: network_probe.connect([network_probe.Target("127.0.0.1", 1)]),
        lambda _world: refused(opened, Path("/dev/null"), os.O_RDONLY),
    ],
)
def test_without_descriptors_nothing_was_tried(
    guest: ProbedGuest, look: Callable[[World], object]
) -> None:
    """A command of the same user could see to that with `prlimit`."""
    for place in ("sys/fs/cgroup/cpu", "dev", "tmp"):
        (guest.root / place).mkdir(parents=True)
    guest.write("7/environ", "PATH=/bin")
    (guest.proc / "7/fd").mkdir()
    world = guest.look()
    assert look(world) is not None
    assert world.pids == [7]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(OSError):
            look(world)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_writable_system_directory_is_a_hit(guest: ProbedGuest) -> None:
    (guest.root / "usr").mkdir()
    with pytest.raises(BoundaryHit, match="/usr is on a writable file system"):
        filesystem.root_filesystem(guest.look())


def test_a_writable_file_of_the_kernel_is_a_hit(guest: ProbedGuest) -> None:
    place = guest.root / "sys/fs/cgroup/cpu"
    place.mkdir(parents=True)
    assert filesystem.kernel_settings(guest.look())
    (place / "release_agent").write_text("")
    with pytest.raises(BoundaryHit, match=r"^/sys/fs/cgroup/cpu/release_agent can be written$"):
        filesystem.kernel_settings(guest.look())


def test_a_socket_that_is_served_within_the_guest_is_no_hit(guest: ProbedGuest) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(guest.share("/tmp") / "x.sock"))
        assert network.unix_sockets(guest.look())
        listener.listen()
        assert network.unix_sockets(guest.look())


def test_a_socket_of_another_user_is_a_hit(guest: ProbedGuest) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(guest.share("/tmp") / "x.sock"))
        with pytest.raises(BoundaryHit, match=r"/tmp/x\.sock is there, a socket of another user"):
            network.unix_sockets(guest.look(uid=guest.spec.uid + 1))


def test_its_own_socket_is_no_hit_whoever_serves_it(guest: ProbedGuest) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(guest.share("/ipc") / "shell.sock"))
        assert network.unix_sockets(guest.look(uid=guest.spec.uid + 1))


def of_operators(guest: ProbedGuest) -> Path:
    """A project and its wall, which nothing protects."""
    place = guest.share("/projects/code")
    guest.share("/projects/code/.git")
    rows = (
        row._replace(operators=True, writable=not row.virtual.endswith(".git"))
        for row in guest.spec.shared
    )
    guest.spec = guest.spec._replace(shared=tuple(rows))
    return place


def test_a_wall_that_does_not_hold_is_named_and_everything_is_put_back(
    guest: ProbedGuest,
) -> None:
    place = of_operators(guest)
    (place / ".git/config").touch()
    with pytest.raises(BoundaryHit) as found:
        mounts.projects(guest.look())
    for what in ("can be moved away", "files can be made in", "directories can be made in"):
        assert f"{what} /projects/code/.git".removeprefix("can be moved away ") in str(found.value)
    assert "/projects/code/.git can be moved away" in str(found.value)
    assert [path.name for path in sorted(place.rglob("*"))] == [".git", "config"]


def test_a_wall_that_is_a_file_is_tried_too(guest: ProbedGuest) -> None:
    place = of_operators(guest)
    (place / ".git").rmdir()
    (place / ".git").write_text("gitdir: x")
    with pytest.raises(BoundaryHit, match=r"/projects/code/\.git can be written"):
        mounts.projects(guest.look())
    assert (place / ".git").read_text() == "gitdir: x"


def test_nothing_looks_through_a_project(guest: ProbedGuest) -> None:
    place = of_operators(guest)
    (place / "file").touch()
    assert walk(guest.look()).seen == 0


@pytest.mark.parametrize("same", ["both", "the directory", "an entry", "neither"])
def test_where_numbers_mean_nothing_a_project_is_known_by_its_changes(
    guest: ProbedGuest, same: str
) -> None:
    guest.in_gvisor()
    place = guest.share("/projects/code")
    (place / "a").touch()
    own, entry = place.stat().st_ctime_ns, (place / "a").stat().st_ctime_ns
    (row,) = guest.spec.shared
    row = row._replace(
        operators=True,
        changed=own if same in ("both", "the directory") else 1,
        entry="a",
        entry_changed=entry if same in ("both", "an entry") else 1,
    )
    world = guest.look(shared=(row,))
    if same != "neither":
        assert mounts.mounts(world)
        return
    with pytest.raises(BoundaryHit, match="/projects/code is another directory"):
        mounts.mounts(world)
