"""What guests take, as the console shows it: each with its descendants, from one look at all."""

import os
import subprocess

import psutil
import pytest

from runner.serve.operator.samples import usage_of


def test_one_look_tells_of_all_that_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[object] = []
    look = psutil.process_iter

    def counted(names: list[str]) -> object:
        looks.append(names)
        return look(names)

    monkeypatch.setattr(psutil, "process_iter", counted)
    with subprocess.Popen(["sleep", "60"]) as child, subprocess.Popen(["true"]) as gone:
        gone.wait()
        found = usage_of([os.getpid(), child.pid, gone.pid])
        child.kill()
    assert found.keys() == {os.getpid(), child.pid}
    assert found[os.getpid()].resident_bytes > found[child.pid].resident_bytes > 0
    assert len(looks) == 1
