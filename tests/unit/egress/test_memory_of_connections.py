"""The memory that connections may take, against what the guest has."""

from pathlib import Path

import pytest
from wire.errors import WireError

from egress import server
from runner.host.launch import EGRESS_LIMITS


@pytest.mark.parametrize("shown", ["100000000", "max"])
def test_a_start_with_too_little_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: str
) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text(f"{shown}\n")
    monkeypatch.setattr(server, "MEMORY_LIMITS", (str(limit), "/does/not/exist"))
    if shown == "max":
        server.check_memory(1)
        return
    with pytest.raises(WireError, match="too little memory"):
        server.check_memory(1)


def test_the_runner_gives_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text(f"{EGRESS_LIMITS.memory_bytes}\n")
    monkeypatch.setattr(server, "MEMORY_LIMITS", (str(limit),))
    server.check_memory(1)
