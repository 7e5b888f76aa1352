"""kubectl, as an operator has it."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

_WAIT_S: Final = 150.0
_SCRIPT: Final = """\
#!/usr/bin/env bash
# Commands run in a pod by way of the engine: no kubelet is here that would.
if [[ " $* " == *" exec "* ]]; then
  while [ "$1" != exec ]; do shift; done
  pod=$2
  while [ "$1" != -- ]; do shift; done
  exec docker exec -i "$(docker ps --quiet --filter "name=^oxk-$pod-")" "${{@:2}}"
fi
exec {real} --kubeconfig {config} "$@"
"""


class Kubectl:
    """Used by `run`, and by scripts that find it on the path that `environment` has."""

    def __init__(self, directory: Path, kubeconfig: Path) -> None:
        real = shutil.which("kubectl")
        assert real is not None
        directory.mkdir()
        program = directory / "kubectl"
        program.write_text(_SCRIPT.format(real=real, config=kubeconfig))
        program.chmod(0o755)
        self.environment = {
            **os.environ,
            "HOME": str(directory),
            "PATH": f"{directory}:{os.environ['PATH']}",
        }

    def run(self, *words: str) -> str:
        """What `kubectl WORDS…` prints; it must succeed."""
        return self.script("kubectl", *words)

    def script(self, program: Path | str, *words: str, **variables: str) -> str:
        """The same for a program that uses kubectl."""
        done = subprocess.run(
            [program, *words],
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=_WAIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout
