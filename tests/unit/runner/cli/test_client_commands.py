"""What commands import that only ask a running host or its agent, here one that does not run."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

_SCRIPT: Final = """
import sys
from runner.cli.app import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
_FOR_HOSTS: Final = {
    "cryptography",
    "docker",
    "numpy",
    "prompt_toolkit",
    "httpx2",
    "runner.serve.server",
    "runner.host.host",
    "runner.host.launch",
    "runner.tiers.container.driver",
    "runner.tiers.process.driver",
    "starlette",
}


@pytest.mark.parametrize(
    "command",
    [
        "status",
        "stop",
        "usage",
        "logs",
        "memory list",
        "memory search tea",
        "memory stats",
        "sessions list",
        "credentials list",
        "notices",
        "turns",
    ],
)
def test_a_command_that_asks_a_host_imports_nothing_to_be_one(command: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _SCRIPT, *command.split()],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "OXYDRA_WORKSPACE_ROOT": str(tmp_path / "workspaces"),
            "OXYDRA_RUNTIME_DIR": str(tmp_path / "runtime"),
        },
    )
    imported = set(done.stderr.split())
    assert "runner.config.models" in imported
    assert imported & _FOR_HOSTS == set()
