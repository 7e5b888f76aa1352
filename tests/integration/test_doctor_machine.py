"""`runner doctor` as it is, on this machine, with its engine and its bubblewrap."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def doctor(root: Path, *words: str) -> dict[str, dict[str, str]]:
    environ = {
        **os.environ,
        "XDG_CONFIG_HOME": str(root / "config"),
        "OXYDRA_WORKSPACE_ROOT": str(root / "ws"),
        "OXYDRA_RUNTIME_DIR": f"/tmp/oxydra-test-none-{root.name}",
    }
    command = [sys.executable, "-P", "-m", "runner.cli.app", *words, "doctor", "--json"]
    done = subprocess.run(
        command, cwd=root, env=environ, capture_output=True, text=True, check=False
    )
    told = json.loads(done.stdout)
    assert told["ok"] is (done.returncode == 0), done.stderr
    assert list(root.iterdir()) == []
    return {each["name"]: each for each in told["findings"]}


@pytest.mark.docker
def test_the_engine_of_this_machine_is_asked(tmp_path: Path) -> None:
    found = doctor(tmp_path)
    assert found["engine"]["state"] == "ok"
    assert ".sock" in found["engine"]["what"]
    assert {"seccomp", "limits", "images", "OCI runtime", "KVM"} < set(found)
    assert found.get("doctor") is None


@pytest.mark.docker
def test_a_runtime_that_this_engine_lacks_is_a_problem(tmp_path: Path) -> None:
    found = doctor(tmp_path, "--tier", "micro_vm")["OCI runtime"]
    assert found["state"] == "problem"
    assert "daemon.json" in found["fix"]


@pytest.mark.bubblewrap
def test_bubblewrap_of_this_machine_is_tried(tmp_path: Path) -> None:
    found = doctor(tmp_path, "--insecure")
    assert found["bubblewrap"]["what"] == "works"
    assert "shell's memory" in found
