"""What a receipt of changed files costs on a project of 100,000 files, beside git's own status.

Run alone: `python -m bench.changed_files`.
"""

import asyncio
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from wire.v1.bootstrap_pb2 import Project

from bench.report import verdict
from bench.scratch import scratch
from guest.projects.changes import Changes
from guest.projects.watch import RACY_NS

GOAL_S: Final = 0.3
_DIRECTORIES: Final = 1_000
_FILES: Final = 100
_READY_S: Final = 120.0


async def run(full: bool = False) -> list[str]:
    """Lines of the report; `full` measures more rounds."""
    with scratch() as place:
        return await asyncio.to_thread(_measured, Path(place), 9 if full else 5)


def _measured(place: Path, rounds: int) -> list[str]:
    project = place / "project"
    for number in range(_DIRECTORIES):
        directory = project / f"d{number // 50}" / f"e{number}"
        directory.mkdir(parents=True)
        for file in range(_FILES):
            (directory / f"f{file}.py").write_text(f"line {number} {file}\n" * 5)
    git = ["git", "-C", str(project), "-c", "core.untrackedCache=true"]
    subprocess.run([*git, "init", "-q"], check=True)
    added = _timed(lambda: subprocess.run([*git, "add", "-A"], check=True))
    time.sleep(RACY_NS / 1e9)

    def status() -> None:
        subprocess.run([*git, "status", "--porcelain"], check=True, stdout=subprocess.DEVNULL)

    bare = [_timed(status) for _ in range(rounds + 1)][1:]
    root = os.open(project, os.O_PATH)
    given = [(root, Project(name="project", path=str(project), writable=True))]
    changes = Changes(given, place / "changed-files.db")
    try:
        began = time.monotonic()
        changes.start()
        if not changes.ready.wait(_READY_S):
            raise TimeoutError("the first look is not done")
        first = time.monotonic() - began
        receipts = []
        for number in range(rounds):
            asyncio.run(changes.begin("s t"))
            receipts.append(_timed(lambda n=number: changes.end("s t", "s", f"t{n}")))  # type: ignore[misc]
        kept = (place / "changed-files.db").stat().st_size / 1e6
    finally:
        changes.close()
        os.close(root)
    ours, git_s = statistics.median(receipts), statistics.median(bare)
    return [
        f"receipts of changed files: {_DIRECTORIES * _FILES:,} in {_DIRECTORIES:,} directories",
        f"  first look, in the background: {first:.1f} s, {kept:.0f} MB; git add: {added:.1f} s",
        f"  a turn that changed nothing: {ours:.2f} s; git status, untracked cache: {git_s:.2f} s; "
        f"goal {GOAL_S} s {verdict(ours <= GOAL_S)}",
    ]


def _timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


if __name__ == "__main__":
    print("\n".join(asyncio.run(run())))
