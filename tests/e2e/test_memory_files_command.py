"""`runner memory export`, `import` and `stats` with real agents."""

import json
import os
import pty
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.commands.household import Household

pytestmark = pytest.mark.xdist_group("memory_files_command")


@pytest.fixture(scope="module")
def house() -> Iterator[Household]:
    """Two users' agents; the first one remembers something."""
    made = Household()
    made.environment["OXYDRA_EMBEDDER__BACKEND"] = "none"
    made.environment["OXYDRA_SHELL__ENABLED"] = "false"
    for user in ("default", "bob"):
        started = made.run("--user", user, "start", "--detach")
        assert started.returncode == 0, started.stderr
    made.run(
        "chat", stdin="remember that my tea is green 🍵\nremember that the cat is called Ada\n"
    )
    yield made
    for user in ("default", "bob"):
        made.run("--user", user, "stop")
    made.remove()


def lines_of(house: Household, user: str) -> list[str]:
    done = house.run("--user", user, "memory", "export")
    assert (done.returncode, done.stderr) == (0, _insecure(done.stderr))
    return done.stdout.splitlines()[1:-1]


def _insecure(errors: str) -> str:
    """The notice that may stand there."""
    return errors if errors.startswith("process tier: ") and errors.count("\n") == 2 else ""


def test_a_memory_becomes_a_private_file_and_another_users_memory(house: Household) -> None:
    file = house.working_directory / "memory.jsonl"
    done = house.run("memory", "export", file.name)
    assert done.returncode == 0, done.stderr
    assert "2 notes, 1 sessions" in done.stdout
    assert file.stat().st_mode & 0o777 == 0o600
    refused = house.run("memory", "export", file.name)
    assert refused.returncode == 1
    assert "is there already" in refused.stderr
    assert house.run("memory", "export", file.name, "--force").returncode == 0
    assert [path.name for path in house.working_directory.iterdir()] == [file.name]
    here = lines_of(house, "default")
    assert file.read_text().split("\n")[1:-2] == here

    tried = house.run("--user", "bob", "memory", "import", file.name, "--dry-run", "--json")
    assert json.loads(tried.stdout) == {
        "created": len(here),
        "updated": 0,
        "unchanged": 0,
        "problems": [],
        "dry_run": True,
    }
    assert lines_of(house, "bob") == []
    done = house.run("--user", "bob", "memory", "import", "-", stdin=file.read_text())
    assert done.returncode == 0, done.stderr
    assert f"{len(here)} created" in done.stdout
    for field in ("actor", "source"):  # it was not bob who said it
        here = [line.replace(f'"{field}":"user"', f'"{field}":"import"') for line in here]
    assert lines_of(house, "bob") == here
    assert "imported" in house.works("--user", "bob", "memory", "list")
    again = house.run("--user", "bob", "memory", "import", file.name)
    assert again.returncode == 0
    assert f"{len(here)} unchanged" in again.stdout
    answer = house.run("--user", "bob", "chat", stdin="what do you know about tea?\n")
    assert "my tea is green 🍵" in answer.stdout


def test_a_file_that_was_cut_is_imported_as_far_as_it_goes_and_said_to_be_cut(
    house: Household,
) -> None:
    whole = house.run("memory", "export").stdout
    cut = whole[: whole.rindex('"kind":"event"') + 40]
    done = house.run("--user", "bob", "memory", "import", "-", "--json", stdin=cut)
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report["created"] + report["unchanged"] == cut.count("\n") - 1
    assert [each["line"] for each in report["problems"]] == [cut.count("\n") + 1] * 2
    assert report["problems"][1]["problem"] == "the end line is missing: the file was cut off here"


def test_a_terminal_gets_a_bar_and_the_file_none_of_it(house: Household) -> None:
    file = house.working_directory / "shown.jsonl"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*house.command, "memory", "export", file.name],
        stderr=theirs,
        stdout=subprocess.PIPE,
        env={**house.environment, "TERM": "xterm"},
        cwd=house.working_directory,
    )
    os.close(theirs)
    shown = b""
    while b"exporting" not in shown:
        shown += os.read(ours, 4096)
    process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0
    assert file.read_text().split("\n")[1:-2] == lines_of(house, "default")
