"""Mounts with mapped ids: whose the files are that a guest makes in a project, and what goes when
they are taken away."""

import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from runner.boundary.spec import build_spec
from runner.config.models import Config
from runner.host.launch import ShellLauncher
from runner.host.removal import clear_leftovers
from runner.host.runtime import Runtime
from runner.projects.mapped import MappedMounts, Source
from runner.tiers.base import Confinement
from runner.tiers.process.driver import ProcessDriver
from runner.workspace.workspace import Workspace
from tests.support import parties
from tests.support.ordinary_user import ordinary_user

OWNER = 1000
GUEST = (15_023, 15_023)
NAMES = ("plain", "with blank", "new\nline", "-dash")


class Project:
    """A directory of another account's, and the mounts of one host."""

    def __init__(self, base: Path) -> None:
        self.path = base / "project"
        self.path.mkdir(mode=0o755)
        self.path.chmod(0o755)
        self.make("script", b"#!/bin/sh\r\n", 0o755)
        for name in NAMES:
            self.make(name, b"x")
        (self.path / "link").symlink_to("script")
        os.chown(self.path / "link", OWNER, OWNER, follow_symlinks=False)
        os.chown(self.path, OWNER, OWNER)
        self.place = base / "runtime" / "projects"
        self.place.parent.mkdir(mode=0o700)
        self.mounts = MappedMounts(self.place)

    def make(self, name: str, content: bytes, mode: int = 0o640, owner: int = OWNER) -> Path:
        path = self.path / name
        path.write_bytes(content)
        path.chmod(mode)
        os.chown(path, owner, owner)
        return path

    def source(self, guest: tuple[int, int] = GUEST, *, writable: bool = True) -> Source:
        fd = os.open(self.path, os.O_PATH | os.O_DIRECTORY)
        try:
            return self.mounts.source_for("p", self.path, fd, guest, writable=writable)
        finally:
            os.close(fd)


def as_guest(source: Source, script: str, guest: tuple[int, int] = GUEST) -> str:
    """What a script of the guest's says of what it cannot do. It has no capability."""
    become = f"setpriv --reuid={guest[0]} --regid={guest[1]} --clear-groups --bounding-set=-all"
    done = subprocess.run(
        [*become.split(), "--inh-caps=-all", "sh", "-c", script],
        cwd=source.path,
        capture_output=True,
        text=True,
        umask=0o022,
        check=False,
    )
    return done.stderr


def listed(path: Path) -> dict[str, tuple[int, ...]]:
    """Owner, mode, kind, size and time of everything there, by its name."""
    found = dict[str, tuple[int, ...]]()
    for place in (path, *path.rglob("*")):
        status = place.lstat()
        found[str(place.relative_to(path))] = (
            *(status.st_uid, status.st_gid, status.st_mode, status.st_ino),
            *(status.st_mtime_ns, status.st_nlink, status.st_size),
        )
    return found


@pytest.fixture(params=["/tmp", "/dev/shm"], ids=["ext4", "tmpfs"])
def project(request: pytest.FixtureRequest) -> Iterator[Project]:
    base = Path(tempfile.mkdtemp(dir=request.param, prefix="oxm-"))
    found = Project(base)
    yield found
    found.mounts.clear()
    shutil.rmtree(base)


@pytest.mark.root
@pytest.mark.parametrize("guest", [GUEST, (0, 0)], ids=["container", "bubblewrap"])
def test_what_a_guest_makes_is_the_owners(project: Project, guest: tuple[int, int]) -> None:
    before = listed(project.path)
    source = project.source(guest)
    assert (source.path.stat().st_uid, source.writable, source.reason) == (guest[0], True, "")
    assert listed(project.path) == before
    script = "echo a > made; mkdir dir; echo b > dir/in; ln -s made way; echo c >> script"
    assert as_guest(source, script, guest) == ""
    found = listed(project.path)
    assert {each[:2] for each in found.values()} == {(OWNER, OWNER)}
    modes = {name: oct(found[name][2] & 0o777) for name in ("made", "dir", "dir/in", "script")}
    assert modes == {"made": "0o644", "dir": "0o755", "dir/in": "0o644", "script": "0o755"}
    assert (project.path / "script").read_bytes() == b"#!/bin/sh\r\nc\n"
    assert os.readlink(project.path / "link") == "script"
    for name in NAMES:
        assert found[name] == before[name]


@pytest.mark.root
def test_other_accounts_files_are_nobodys(project: Project) -> None:
    project.make("roots", b"x", 0o600, owner=0)
    project.make("guests", b"x", 0o644, owner=GUEST[0])
    source = project.source()
    for script in (
        "rm -f roots",
        "mv roots r",
        "cat roots",
        "echo x >> guests",
        "chmod 777 guests",
    ):
        assert as_guest(source, script), script
    assert (project.path / "guests").read_bytes() == b"x"


@pytest.mark.root
def test_a_project_that_is_not_writable_is_read_and_no_more(project: Project) -> None:
    project.path.chmod(0o700)
    source = project.source(writable=False)
    assert as_guest(source, "cat script > /dev/null") == ""
    assert "Read-only file system" in as_guest(source, "echo x > made")
    assert "Read-only file system" in as_guest(source, "echo x >> script")


@pytest.mark.root
def test_what_is_mounted_below_is_not_there(project: Project) -> None:
    below = project.path / "below"
    below.mkdir()
    below.chmod(0o755)
    subprocess.run(["mount", "-t", "tmpfs", "below", below], check=True)
    try:
        (below / "secret").write_text("x")
        source = project.source()
        assert list((source.path / "below").iterdir()) == []
        later = project.path / "plain"
        subprocess.run(["mount", "--bind", "/etc/hostname", later], check=True)
        seen = (source.path / "plain").read_bytes()
        subprocess.run(["umount", later], check=True)
        assert seen == b"x"
    finally:
        subprocess.run(["umount", below], check=True)


@pytest.mark.root
def test_the_directory_that_was_opened_is_mounted(project: Project) -> None:
    """Whatever has its name by now."""
    fd = os.open(project.path, os.O_PATH | os.O_DIRECTORY)
    project.path.rename(project.path.with_name("moved"))
    project.path.mkdir()
    source = project.mounts.source_for("p", project.path, fd, GUEST, writable=True)
    os.close(fd)
    assert sorted(os.listdir(source.path)) == sorted((*NAMES, "script", "link"))
    assert project.source().path == source.path
    assert os.listdir(source.path) == []  # what has the name now was asked for


@pytest.mark.root
def test_the_owner_itself_needs_no_mount(project: Project) -> None:
    assert project.source((OWNER, OWNER)) == Source(project.path, True)
    assert not project.place.exists()


def test_one_who_is_not_root_is_told() -> None:
    with ordinary_user() as home:
        mounts = MappedMounts(home / "projects")
        fd = os.open("/usr", os.O_PATH | os.O_DIRECTORY)
        source = mounts.source_for("p", Path("/usr"), fd, (65_534, 65_534), writable=True)
        mounts.clear()
        os.close(fd)
    assert (source.path, source.writable) == (Path("/usr"), False)
    assert "only root can mount it with mapped ids" in source.reason


@pytest.mark.root
def test_what_the_runner_lacks_is_told(project: Project) -> None:
    script = (
        "import os, sys; from pathlib import Path; from runner.projects.mapped import MappedMounts;"
        "fd = os.open(sys.argv[1], os.O_PATH); m = MappedMounts(Path(sys.argv[2]));"
        "print(m.source_for('p', Path('/p q'), fd, (15023, 15023), writable=True)); m.clear()"
    )
    command = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", sys.executable]
    said = subprocess.run(
        [*command, "-c", script, project.path, project.place], capture_output=True, check=True
    ).stdout.decode()
    assert "the runner lacks CAP_SYS_ADMIN" in said
    assert "setfacl -R -m u:15023:rwX,d:u:15023:rwX,d:u:1000:rwX '/p q'" in said


@pytest.mark.root
def test_what_the_engine_does_not_see_is_told(project: Project) -> None:
    """As of a unit of systemd that has mounts of its own."""
    script = (
        "import os, sys; from pathlib import Path; from runner.projects.mapped import MappedMounts;"
        "fd = os.open(sys.argv[1], os.O_PATH); m = MappedMounts(Path(sys.argv[2]), by_engine=True);"
        "print(m.source_for('p', Path('/p'), fd, (15023, 15023), writable=True)); m.clear()"
    )
    copied = 'mount --make-shared / && unshare --mount --propagation=slave "$@"; true'
    command = ["unshare", "--mount", "sh", "-c", copied, "sh", sys.executable]
    said = subprocess.run(
        [*command, "-c", script, project.path, project.place], capture_output=True, check=True
    ).stdout.decode()
    assert "the engine does not see what the runner mounts" in said
    assert "writable=False" in said


@pytest.fixture
def overlay(tmp_path: Path) -> Iterator[Project]:
    places = {name: tmp_path / name for name in ("lower", "upper", "work", "merged")}
    for place in places.values():
        place.mkdir()
    options = f"lowerdir={places['lower']},upperdir={places['upper']},workdir={places['work']}"
    merged = places["merged"]
    subprocess.run(["mount", "-t", "overlay", "o", "-o", options, merged], check=True)
    yield Project(merged)
    subprocess.run(["umount", "--lazy", merged], check=True)


@pytest.mark.root
def test_a_file_system_without_them_is_read_only_until_its_owner_grants_it(
    overlay: Project,
) -> None:
    source = overlay.source()
    assert (source.path, source.writable) == (overlay.path, False)
    assert "its file system has no mounts with mapped ids" in source.reason
    assert "setfacl" in source.reason
    overlay.path.chmod(0o777)
    assert not overlay.source().writable
    named = [(0x2, uid) for uid in (OWNER, GUEST[0])]
    for kind, rights in (("access", 7), ("default", 7)):
        entries = [(0x1, 7, 2**32 - 1), *((tag, rights, uid) for tag, uid in named)]
        entries += [(0x4, 5, 2**32 - 1), (0x10, 7, 2**32 - 1), (0x20, 5, 2**32 - 1)]
        packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *each) for each in entries)
        os.setxattr(overlay.path, f"system.posix_acl_{kind}", packed)
        assert overlay.source().writable is (kind == "default")
    assert as_guest(overlay.source(), "echo x > made") == ""


def killed(project: Project, place: Path) -> None:
    """A runner that mounts the project and is gone."""
    script = (
        "import os, sys; from pathlib import Path; from runner.projects.mapped import MappedMounts;"
        "fd = os.open(sys.argv[1], os.O_PATH); m = MappedMounts(Path(sys.argv[2]));"
        "m.source_for('p', Path('p'), fd, (15023, 15023), writable=True); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", script, project.path, place], check=False)
    assert (place / "p" / "script").exists()


@pytest.mark.root
async def test_what_a_killed_runner_left_goes_at_the_next_start(project: Project) -> None:
    base = project.place.parent
    base.chmod(0o700)
    config = Config(workspace_root=base / "w", runtime_dir=base, tier="process")
    runtime = Runtime.locate(config, "alice")
    runtime.create()
    before = listed(project.path)
    for _ in range(2):  # one upon the other
        killed(project, runtime.projects)
    workspace = Workspace.locate(config, "alice")
    workspace.provision()
    driver = mock.AsyncMock(clear=mock.AsyncMock(return_value=[]))
    await clear_leftovers(runtime, workspace, driver, config)
    assert os.listdir(runtime.projects) == []
    shutil.rmtree(runtime.directory)
    assert listed(project.path) == before


@pytest.mark.root
def test_files_of_a_project_are_no_private_files_of_the_runner(project: Project) -> None:
    script = project.source().path / "script"
    runtime = project.place.parent
    (runtime / "ours").touch()
    workspace = Workspace(runtime.parent / "w", "alice")
    workspace.provision()
    driver = ProcessDriver()
    launch = ShellLauncher(Config(), workspace, driver.capabilities, parties.AUTHORITY).prepare()
    confinement = Confinement(uid=0, gid=0)
    spec = build_spec(
        launch.spec, confinement, workspace=workspace.path, runtime=runtime, tokens={}
    )
    private = {place.inode for place in spec.private}
    assert (runtime / "ours").stat().st_ino in private
    assert script.stat().st_ino not in private
