"""Whose a workspace is, and what root does to make it so."""

import os
import subprocess
from pathlib import Path

import pytest
from wire.disk.walk import walk
from wire.settings import ContainerSettings

from runner.config.models import Config
from runner.errors import WorkspaceError
from runner.workspace.directories import Owner, descriptor
from runner.workspace.workspace import Workspace

GUEST = 10_777


def located(root: Path, tier: str) -> Workspace:
    config = Config.model_validate(
        {"workspace_root": root, "tier": tier, "container": {"guest_uid": GUEST}}
    )
    return Workspace.locate(config, "alice")


def owners(workspace: Workspace) -> set[int]:
    return {path.lstat().st_uid for path in (workspace.path, *workspace.path.rglob("*"))}


def test_an_ordinary_user_owns_workspaces_in_every_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(os, "getegid", lambda: 99)
    for tier in ("process", "container", "micro_vm"):
        owner = Owner.of(Config.model_validate({"tier": tier}))
        assert owner == Owner(1234, 99, frozenset({1234}))


def test_roots_guests_are_never_root_in_a_tier_of_containers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    config = Config(container=ContainerSettings(guest_uid=GUEST))
    assert Owner.of(config) == Owner(GUEST, GUEST, frozenset({0, GUEST}))
    process = Owner.of(config.model_copy(update={"tier": "process"}))
    assert (process.uid, process.accepted) == (0, frozenset({0, GUEST}))


@pytest.mark.root
def test_tiers_may_take_turns(tmp_path: Path) -> None:
    for tier, uid in (("process", 0), ("container", GUEST), ("process", 0), ("container", GUEST)):
        workspace = located(tmp_path / "ws", tier)
        workspace.provision()
        made = workspace.path / "shared" / f"by-{tier}"
        made.write_text("x")
        (workspace.internal / "memory.db").write_text("x")
        workspace.adopt()
        assert owners(workspace) == {uid}
    assert (tmp_path / "ws").stat().st_uid == 0


@pytest.mark.root
def test_adopting_follows_no_link_and_takes_nothing_from_strangers(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    workspace = located(tmp_path / "ws", "container")
    workspace.provision()
    shared = workspace.path / "shared"
    (shared / "link").symlink_to(outside)
    (shared / "directory").symlink_to(tmp_path)
    (shared / "second-name").hardlink_to(outside)
    foreign = shared / "foreign"
    foreign.write_text("x")
    os.chown(foreign, 4711, 4711)
    workspace.adopt()
    assert outside.stat().st_uid == 0
    assert tmp_path.stat().st_uid == 0
    assert foreign.stat().st_uid == 4711


@pytest.mark.root
def test_a_directory_of_a_strangers_is_refused(tmp_path: Path) -> None:
    workspace = located(tmp_path / "ws", "container")
    workspace.provision()
    os.chown(workspace.path / "shared", 4711, 4711)
    with pytest.raises(WorkspaceError, match="cannot use") as raised:
        workspace.provision()
    assert "uid 4711" in raised.value.details


@pytest.mark.root
def test_a_tree_of_any_depth_is_adopted_to_its_end(tmp_path: Path) -> None:
    workspace = located(tmp_path / "ws", "container")
    workspace.provision()
    here = os.open(workspace.path / "shared", os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    (workspace.path / "shared" / "z").write_text("beside it")
    try:
        workspace.adopt()
        assert os.fstat(here).st_uid == GUEST
        assert (workspace.path / "shared" / "z").stat().st_uid == GUEST
    finally:
        os.close(here)
        subprocess.run(["rm", "-rf", workspace.path / "shared"], check=True)


def test_a_walk_goes_nowhere_else_when_a_directory_is_moved(tmp_path: Path) -> None:
    (tmp_path / "tree" / "a" / "b").mkdir(parents=True)
    (tmp_path / "elsewhere" / "precious").mkdir(parents=True)
    found = []
    with descriptor(tmp_path / "tree", os.O_RDONLY | os.O_DIRECTORY) as start:
        for entry in walk(start):
            found.append(entry.name)
            if entry.name == "b":
                (tmp_path / "tree" / "a" / "b").rename(tmp_path / "elsewhere" / "b")
                (tmp_path / "elsewhere" / "b" / "c").mkdir()
    assert "precious" not in found
