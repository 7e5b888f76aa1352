"""The guest's directories as the host sees them, for guests whose kernel numbers files itself."""

import os
import socket
from pathlib import Path

import pytest
from wire.boundary import BoundarySpec, PrivatePath, SharedDirectory

from runner.boundary.directories import beacons, reachable
from runner.workspace.mounts import BoundMount, Role, bind
from tests.support.boundary.probed_guest import ProbedGuest


@pytest.fixture
def mounts(tmp_path: Path) -> tuple[BoundMount, ...]:
    found = bind(Role.SHELL, tmp_path / "alice")
    for bound in found:
        bound.host_path.mkdir(parents=True)
    (tmp_path / "alice/vault").mkdir()
    return found


@pytest.fixture
def spec(tmp_path: Path, mounts: tuple[BoundMount, ...]) -> BoundarySpec:
    rows = tuple(SharedDirectory(bound.mount.virtual, True, 0, 0) for bound in mounts)
    return ProbedGuest(tmp_path / "guest").spec._replace(shared=rows)


def named(mounts: tuple[BoundMount, ...], virtual: str) -> Path:
    return next(bound.host_path for bound in mounts if bound.mount.virtual == virtual)


def test_beacons_burn_during_the_test_only(
    spec: BoundarySpec, mounts: tuple[BoundMount, ...]
) -> None:
    with beacons(spec, mounts) as lit:
        names = {row.virtual: row.beacon for row in lit.shared}
        assert {virtual for virtual, name in names.items() if name} == {
            bound.mount.virtual for bound in mounts
        }
        assert len(set(names.values())) == len(mounts)
        for bound in mounts:
            assert [path.name for path in bound.host_path.iterdir()] == [names[bound.mount.virtual]]
    assert [list(bound.host_path.iterdir()) for bound in mounts] == [[] for _ in mounts]


def test_a_beacon_that_a_command_took_away_is_no_failure(
    spec: BoundarySpec, mounts: tuple[BoundMount, ...]
) -> None:
    shared = named(mounts, "/shared")
    with beacons(spec, mounts):
        (beacon,) = shared.iterdir()
        beacon.unlink()
        beacon.mkdir()
    assert beacon.is_dir()


def test_a_directory_that_is_a_link_is_not_followed(
    spec: BoundarySpec, mounts: tuple[BoundMount, ...], tmp_path: Path
) -> None:
    shared = named(mounts, "/shared")
    shared.rmdir()
    shared.symlink_to(tmp_path / "alice/vault")
    with pytest.raises(OSError), beacons(spec, mounts):
        pass
    assert list((tmp_path / "alice/vault").iterdir()) == []


def test_a_clean_directory_has_nothing(spec: BoundarySpec, mounts: tuple[BoundMount, ...]) -> None:
    (named(mounts, "/shared") / "notes").mkdir()
    assert not any(reachable(spec, mounts).values())


def test_a_private_file_under_another_name_is_found(
    spec: BoundarySpec, mounts: tuple[BoundMount, ...], tmp_path: Path
) -> None:
    deed, bobs = tmp_path / "alice/vault/deed", tmp_path / "bob"
    deed.write_text("x")
    bobs.write_text("x")
    here = named(mounts, "/shared") / "a/b"
    here.mkdir(parents=True)
    os.link(deed, here / "holiday.jpg")
    os.link(bobs, named(mounts, "/tmp") / "c")
    private = PrivatePath("a file of vault", "", deed.stat().st_dev, deed.stat().st_ino)
    other = (bobs.stat().st_dev, bobs.stat().st_ino)
    found = reachable(spec._replace(private=(private,), other_users=(other,)), mounts)
    assert found["private_paths"] == ["a file of vault is there as /shared/a/b/holiday.jpg"]
    assert found["other_users"] == ["a directory of another user's workspace is there as /tmp/c"]


def test_a_mounted_directory_that_is_itself_private_is_found(
    spec: BoundarySpec, mounts: tuple[BoundMount, ...]
) -> None:
    status = named(mounts, "/shared").stat()
    private = PrivatePath("vault", "", status.st_dev, status.st_ino)
    found = reachable(spec._replace(private=(private,)), mounts)
    assert found["private_paths"] == ["vault is there as /shared"]


def test_a_socket_that_is_not_served_by_the_guest_is_found(
    spec: BoundarySpec, mounts: tuple[BoundMount, ...]
) -> None:
    """Here the shell's own socket is served by this process, so that no guest can be told."""
    left = named(mounts, "/shared")
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(left / "left.sock"))
    assert not any(reachable(spec, mounts).values())
    with socket.socket(socket.AF_UNIX) as ours, socket.socket(socket.AF_UNIX) as foreign:
        for listener, path in ((ours, named(mounts, "/ipc") / "shell.sock"), (foreign, left / "f")):
            listener.bind(str(path))
            listener.listen()
        found = reachable(spec, mounts)["unix_sockets"]
    assert "/shared/f is served from outside the guest" in found


@pytest.mark.root
def test_a_socket_of_another_user_is_found(
    spec: BoundarySpec, mounts: tuple[BoundMount, ...]
) -> None:
    path = named(mounts, "/tmp") / "theirs"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        os.chown(path, 7, 7)
        found = reachable(spec, mounts)["unix_sockets"]
    assert found == ["/tmp/theirs is there, a socket of another user"]
