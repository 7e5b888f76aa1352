"""`runner.testing.UserPair` before anything runs: what it takes."""

import tempfile
from pathlib import Path

import pytest
from wire.errors import WireError

from runner.testing import UserPair
from tests.support.scratch import SCRATCH


def test_the_root_may_be_a_string(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="oxp-") as directory:
        monkeypatch.chdir(directory)
        for root in (directory, "here"):
            pair = UserPair(root=root, container={"engine": "unix:///nowhere/docker.sock"})
            with pytest.raises(WireError, match="no container engine answers"):
                pair.start()
            assert pair.config.workspace_root == Path(directory, root, "w")
        monkeypatch.undo()
