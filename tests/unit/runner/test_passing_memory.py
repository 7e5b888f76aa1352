"""That a memory in a file may not persist is told where that can be seen."""

from pathlib import Path

import pytest

from runner.workspace import disk_space


@pytest.mark.parametrize("kind", ["overlay", "tmpfs", "ramfs", "aufs", "fuse.fuse-overlayfs"])
def test_a_place_that_goes_with_its_container_is_named_with_both_ways_out(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "alice" / ".oxydra" / "memory.db"
    kinds = {database: kind, tmp_path: "ext4"}
    monkeypatch.setattr(disk_space, "file_system_kind", lambda place: kinds[place])
    (notice,) = disk_space.passing(database, tmp_path)
    assert f"a local file on {kind}" in notice
    assert f"mount a volume at {tmp_path}" in notice
    assert "memory.remote_url" in notice


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "nfs4", ""])
def test_of_a_place_that_stays_nothing_is_said(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "alice" / ".oxydra" / "memory.db"
    kinds = {database: kind, tmp_path: "overlay"}  # a volume for this user alone
    monkeypatch.setattr(disk_space, "file_system_kind", lambda place: kinds[place])
    assert disk_space.passing(database, tmp_path) == []
