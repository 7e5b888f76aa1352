"""Linters, types and architecture are tests: the same checks everywhere."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def test_lint() -> None:
    run(str(BIN / "ruff"), "check", ".")


def test_format() -> None:
    run(str(BIN / "ruff"), "format", "--check", ".")


@pytest.mark.timeout(600)
def test_types() -> None:
    run(str(BIN / "mypy"))


def test_architecture() -> None:
    run(str(BIN / "lint-imports"), "--no-cache")
