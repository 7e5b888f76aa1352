"""The process tier's shell guest of an account that is not root, and has no control groups.

As a program this is what that account runs: it reads commands from standard input and tells what
came of them, each a line of JSON.
"""

import asyncio
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wire.errors import Code, WireError
from wire.settings import ShellSettings

from runner.config.models import Config
from runner.tiers.process.driver import ProcessDriver
from runner.workspace.directories import Owner
from tests.support.guests.shell_backends import in_tier
from tests.support.scratch import SCRATCH

REPOSITORY = Path(__file__).resolve().parents[3]
UID = 54_321
MEMORY_MB = 256
PROCESSES = 128

_OPEN = """
set -e
closed=() places=() kept=()
while [ "$1" != -- ]; do closed+=("$1"); shift; done; shift
while [ "$1" != -- ]; do
    exec {descriptor}< "$1"
    places+=("$1") kept+=($descriptor)
    shift
done; shift
for directory in "${closed[@]}"; do mount -t tmpfs -o mode=0755 oxydra-test "$directory"; done
for number in "${!places[@]}"; do
    mkdir -p "${places[number]}"
    mount --no-canonicalize --bind "/proc/self/fd/${kept[number]}" "${places[number]}"
    descriptor=${kept[number]}
    exec {descriptor}<&-
done
exec "$@"
"""
"""Opens the way to the programs of this installation where they lie in root's home."""


class OrdinaryShell:
    """The test's side of that program."""

    def __init__(self, program: "subprocess.Popen[str]") -> None:
        self._program = program

    def run(self, command: str, timeout_ms: int = 30_000) -> dict[str, Any]:
        """What came of a command: `exit_code`, `stdout` and `stderr`, or `refused` with the reason.

        A guest that has ended is made anew; then `anew` is true.
        """
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        request = {"command": command, "timeout_ms": timeout_ms}
        self._program.stdin.write(f"{json.dumps(request)}\n")
        self._program.stdin.flush()
        answer: dict[str, Any] = json.loads(self._program.stdout.readline())
        return answer


@contextmanager
def ordinary_shell() -> Iterator[OrdinaryShell]:
    home = tempfile.mkdtemp(dir=SCRATCH, prefix="os-")
    os.chown(home, UID, UID)
    account = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
    places = [Path(sys.base_prefix).resolve(), REPOSITORY, Path(sys.prefix)]
    hidden = {str(place): str(closed) for place in places if (closed := _closed(place))}
    namespace = ["unshare", "--mount", "bash", "-c", _OPEN, "bash"]
    namespace += [*dict.fromkeys(hidden.values()), "--", *hidden, "--"]
    environment = {"PATH": os.environ["PATH"], "HOME": home, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        with subprocess.Popen(
            [
                *(*namespace, *account),
                *(sys.executable, "-m", "tests.support.guests.ordinary_shell"),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=REPOSITORY,
            env=environment,
            text=True,
        ) as program:
            yield OrdinaryShell(program)
            assert program.stdin is not None
            program.stdin.close()
            assert program.wait(60) == 0
    finally:
        shutil.rmtree(home)


def _closed(place: Path) -> Path | None:
    """The first directory on the way to `place` that other accounts cannot enter."""
    ways = [way for way in reversed(place.parents) if not way.stat().st_mode & 0o001]
    return ways[0] if ways else None


async def _serve() -> None:
    config = Config(shell=ShellSettings(memory_mb=MEMORY_MB, processes=PROCESSES))
    requests = iter(sys.stdin.readline, "")
    request = next(requests, "")
    numbers = itertools.count()
    anew = False
    while request:
        async with in_tier(ProcessDriver(), Owner.ours(), config) as guest:
            while request:
                try:
                    ran = await guest.run(f"{next(numbers)}", **json.loads(request))
                except WireError as error:
                    if error.code is Code.UNAVAILABLE:
                        anew = True
                        break
                    answer: dict[str, Any] = {"refused": f"{error.brief} {error.details}"}
                else:
                    written = {"stdout": ran.stdout.decode(), "stderr": ran.stderr.decode()}
                    answer = {"exit_code": ran.exit.exit_code, **written}
                sys.stdout.write(f"{json.dumps({**answer, 'anew': anew})}\n")
                sys.stdout.flush()
                anew = False
                request = await asyncio.to_thread(next, requests, "")


if __name__ == "__main__":
    asyncio.run(_serve())
