"""The runner's own directory: its place, its locks, its state."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import platformdirs
import pytest
from wire.errors import Code, WireError

from runner.config.models import Config
from runner.errors import HostError, WorkspaceError
from runner.host.runtime import (
    Holder,
    Runtime,
    host_lock,
    load_state,
    lock_holder,
    runtime_base,
    save_state,
)
from runner.tiers.base import Handle
from runner.workspace.mounts import Role
from tests.support.scratch import SCRATCH

HANDLE = Handle("process", Role.AGENT, "alice", "launch-1", {"pid": 7, "create_time": 1.5})


def config(tmp_path: Path) -> Config:
    return Config(workspace_root=tmp_path / "ws", runtime_dir=tmp_path / "rt")


def test_each_user_of_each_root_has_a_directory_of_its_own(tmp_path: Path) -> None:
    one = config(tmp_path)
    other = Config(workspace_root=tmp_path / "ws2", runtime_dir=tmp_path / "rt")
    found = {
        Runtime.locate(settings, user).directory
        for settings in (one, other)
        for user in ("alice", "bob")
    }
    assert len(found) == 4
    assert Runtime.locate(one, "alice").directory.name == "alice"
    assert len(Runtime.locate(one, "alice").directory.parent.name) == 8


def test_a_root_has_one_runtime_directory_however_it_is_spelled(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    spelled = Config(workspace_root=tmp_path / "link" / "ws", runtime_dir=tmp_path / "rt")
    here = Runtime.locate(config(tmp_path), "a").directory
    assert Runtime.locate(spelled, "a").directory == here


def test_it_is_made_private(tmp_path: Path) -> None:
    runtime = Runtime.locate(config(tmp_path), "alice")
    runtime.create()
    runtime.create()
    for path in (runtime.base, runtime.directory.parent, runtime.directory):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "kind", ["link", "file", pytest.param("foreign", marks=pytest.mark.root), "open"]
)
def test_a_base_that_is_not_ours_alone_is_refused(tmp_path: Path, kind: str) -> None:
    base = tmp_path / "rt"
    if kind == "link":
        (tmp_path / "real").mkdir(mode=0o700)
        base.symlink_to(tmp_path / "real")
    elif kind == "file":
        base.write_text("")
    else:
        base.mkdir(mode=0o700)
        if kind == "foreign":
            os.chown(base, 12345, -1)
        else:
            base.chmod(0o711)
    with pytest.raises(WorkspaceError) as raised:
        Runtime.locate(config(tmp_path), "alice").create()
    assert str(base) in raised.value.brief
    if kind != "file":
        assert list(base.iterdir()) == []


def test_a_configured_base_too_deep_for_a_socket_is_refused(tmp_path: Path) -> None:
    deep = Config(workspace_root=tmp_path, runtime_dir=tmp_path / ("d" * 80))
    with pytest.raises(WireError, match="socket path is too long"):
        Runtime.locate(deep, "alice")
    assert list(tmp_path.iterdir()) == []


def test_the_platforms_directory_is_used_where_it_is_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/elsewhere")
    tmp_path.chmod(0o700)
    monkeypatch.setattr(platformdirs, "user_runtime_path", lambda name: Path("/run/user/7") / name)
    assert runtime_base(Config()) == Path("/run/user/7/oxydra")


@pytest.mark.parametrize("kind", ["too long", "temporary", "none"])
def test_a_short_fallback_takes_its_place_otherwise(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def platform(name: str) -> Path:
        if kind == "none":
            raise PermissionError("runtime directory is a symlink")
        return Path("/tmp/runtime-7" if kind == "temporary" else "/" + "d" * 60) / name

    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/tmp")
    monkeypatch.setattr(platformdirs, "user_runtime_path", platform)
    home = Path(tempfile.mkdtemp(dir=SCRATCH, prefix="h-"))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert runtime_base(Config()) == home / ".local/state/oxydra/run"
    shutil.rmtree(home)
    assert runtime_base(Config()) == Path(f"/tmp/oxydra-{os.geteuid()}")


@pytest.mark.root
def test_without_a_platforms_directory_no_other_account_blocks_a_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The attack: another account makes /tmp/oxydra-UID first."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    uid = 54_321
    home = Path(tempfile.mkdtemp(dir=SCRATCH, prefix="h-"))
    taken = Path(f"/tmp/oxydra-{uid}")
    taken.mkdir(mode=0o777)
    try:
        os.chown(home, uid, uid)
        os.chown(taken, 12_345, 12_345)
        monkeypatch.setenv("HOME", str(home))
        victim = os.fork()
        if victim == 0:
            try:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
                Runtime.locate(Config(), "alice").create()
            except BaseException:
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(victim, 0)[1]) == 0
        (made,) = (home / ".local/state/oxydra/run").iterdir()
        assert (made / "alice").is_dir()
    finally:
        taken.rmdir()
        shutil.rmtree(home)


def test_a_lock_says_who_holds_it_and_is_empty_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "host.lock"
    assert lock_holder(path) is None
    with host_lock(path):
        holder = lock_holder(path)
        assert holder is not None
        assert holder.pid == os.getpid()
        again = host_lock(path)
        with pytest.raises(HostError) as raised:
            again.__enter__()
        assert raised.value.code is Code.ALREADY_EXISTS
        assert f"pid {os.getpid()}, since {holder.since}" in raised.value.details
        assert "runner stop" in raised.value.resolution
    assert lock_holder(path) is None
    assert path.read_bytes() == b""


def test_the_lock_of_a_killed_holder_is_free(tmp_path: Path) -> None:
    path = tmp_path / "host.lock"
    script = (
        "import os, sys; from pathlib import Path; from runner.host.runtime import host_lock\n"
        "with host_lock(Path(sys.argv[1])): os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert json.loads(path.read_text())["pid"] > 0
    assert lock_holder(path) is None
    with host_lock(path):
        assert lock_holder(path) != Holder()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": "x", "since": 1}', b"\xff"])
def test_a_damaged_lock_still_locks(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "host.lock"
    with host_lock(path):
        path.write_bytes(content)
        assert lock_holder(path) == Holder()


def test_state_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    assert load_state(path) == ()
    save_state(path, [HANDLE])
    assert load_state(path) == (HANDLE,)
    assert [found.name for found in tmp_path.iterdir()] == ["state.json"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"version": 2, "guests": []}',
        b'{"version": 1, "guests": [{}]}',
        b'{"version": 1, "guests": [3]}',
        b'{"version": 1, "guests": 3}',
        b"\xff",
        json.dumps({"version": 1, "guests": [{**HANDLE.to_json(), "version": 2}]}).encode(),
        json.dumps({"version": 1, "guests": [{**HANDLE.to_json(), "role": "x"}]}).encode(),
        json.dumps({"version": 1, "guests": [{**HANDLE.to_json(), "data": 3}]}).encode(),
    ],
)
def test_state_that_cannot_be_read_is_a_value_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)
    with pytest.raises(ValueError):
        load_state(path)
