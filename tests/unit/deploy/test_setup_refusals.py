"""Set-up says at once where Oxydra cannot run. The machine is made up, by a `uname` of its own."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[3] / "tools" / "setup.sh"
READ = ("pyproject.toml", "constraints.txt", "tools/web_libraries.py", "web/package-lock.json")
PROGRAMS = ("bash", "cat", "cut", "dirname", "sha256sum")


def set_up(place: Path, system: str, release: str, machine: str, *has: str) -> tuple[int, str]:
    """Run it in a clone with nothing in it. Returns the exit code, and what it says."""
    for name in READ:
        file = place / name
        file.parent.mkdir(exist_ok=True)
        file.touch()
    shutil.copy(SETUP, place / "tools")
    programs = place / "programs"
    programs.mkdir()
    for name in PROGRAMS:
        found = shutil.which(name)
        assert found
        (programs / name).symlink_to(found)
    answers = f"-s) echo {system} ;; -r) echo {release} ;; -m) echo {machine} ;;"
    made = {"uname": f'case "$1" in {answers} esac', "python3": "exit 1", **dict.fromkeys(has, "")}
    for name, script in made.items():
        (programs / name).write_text(f"#!{programs / 'bash'}\n{script}\n")
        (programs / name).chmod(0o755)
    done = subprocess.run(
        [programs / "bash", place / "tools" / "setup.sh"],
        env={"PATH": os.fspath(programs)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("machine", "told"),
    [
        (("Darwin", "24.1.0", "arm64"), "this is Darwin; use a Linux machine"),
        (("MINGW64_NT-10.0", "3.4", "x86_64"), "this is MINGW64_NT-10.0; use a Linux machine"),
        (("Linux", "4.4.0-19041-Microsoft", "x86_64"), "this is WSL 1"),
        (("Linux", "6.8.0", "aarch64"), "no built package for aarch64; to build it: apt-get"),
    ],
)
def test_where_it_cannot_run_it_says_so_in_one_line(
    tmp_path: Path, machine: tuple[str, str, str], told: str
) -> None:
    code, said = set_up(tmp_path, *machine)
    assert code == 1
    assert said.startswith("Oxydra does not run here: ")
    assert told in said
    assert said.count("\n") == 1
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize(
    ("machine", "has"),
    [
        (("Linux", "6.8.0", "x86_64"), ()),
        (("Linux", "6.6.87.2-microsoft-standard-WSL2", "x86_64"), ()),
        (("Linux", "6.8.0", "aarch64"), ("cargo", "cmake")),
    ],
)
def test_elsewhere_it_goes_on(
    tmp_path: Path, machine: tuple[str, str, str], has: tuple[str, ...]
) -> None:
    code, said = set_up(tmp_path, *machine, *has)
    assert code == 1
    assert said.startswith("Oxydra needs Python 3.11 or newer"), said
