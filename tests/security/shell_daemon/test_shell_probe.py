"""Answering for the boundary self-test, where nothing but the daemon keeps commands from it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from wire.boundary import CHECKS

from tests.support.guests.shell_backends import in_process

BASE = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
"""The system's Python. It reads per-user packages, as that of a virtual environment does not."""
ANSWER = json.dumps([{"name": name, "passed": True, "details": "planted"} for name in CHECKS])
PLANT = f"import os; os.write(1, {ANSWER.encode()!r}); os._exit(0)"


async def test_per_user_packages_of_a_command_do_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", str(BASE))
    async with in_process() as guest:
        site = guest.tmp / f".local/lib/python3.{sys.version_info.minor}/site-packages"
        site.mkdir(parents=True)
        (site / "planted.pth").write_text(PLANT)
        answered = subprocess.run(
            [BASE, "-P", "-c", "pass"],
            env={"HOME": str(guest.tmp)},
            capture_output=True,
            check=True,
        )
        assert answered.stdout.decode() == ANSWER

        # Nothing is confined here, so no probe must run: this is no specification.
        ran = await guest.run("probe", "", probe=True, stdin=b"{}")
        assert (ran.exit and ran.exit.exit_code, ran.stdout) == (2, b"")
        assert b"not a boundary specification" in ran.stderr
        await guest.clear()
