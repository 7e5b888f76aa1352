"""A directory of the operator's, given to the agent by the command line."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands.household import Household
from tests.support.servers.scripted_provider import Seen, calls, says, scripted

pytestmark = pytest.mark.bubblewrap


@pytest.fixture(autouse=True)
def offline(household: Household) -> None:
    household.environment["OXYDRA_AGENT__PROVIDER"] = "offline"
    household.environment["OXYDRA_EMBEDDER__BACKEND"] = "none"


@pytest.fixture
def api() -> Iterator[Path]:
    """A git checkout, on a disk: below /dev, where the household is, nothing can be a project."""
    place = tempfile.mkdtemp(dir="/var/tmp")
    directory = Path(place) / "api"
    directory.mkdir(mode=0o755)
    subprocess.run(["git", "init", "--quiet", str(directory)], check=True)
    (directory / "a.py").write_text("print(1)\n")
    (directory / ".env").write_text("KEY=abc\n")
    yield directory
    shutil.rmtree(place)


def test_a_question_about_a_directory(household: Household, api: Path) -> None:
    listed = household.run("ask", "--with", f"{api}:ro", "--hide", ".env", "list /projects/api")
    assert listed.returncode == 0, listed.stderr
    assert "/projects/api/a.py" in listed.stdout
    assert f"/projects/api is {api} · read-only" in listed.stderr
    refused = household.run(
        "ask", "--with", f"{api}:ro", "--hide", ".env", "read /projects/api/.env"
    )
    assert "KEY" not in refused.stdout
    assert household.left_behind() == []


def test_commands_work_in_it_but_not_in_what_git_runs(household: Household, api: Path) -> None:
    done = household.works(
        "ask",
        *("--with", str(api)),
        "run cd /projects/api && echo two > b.txt && git status --short; "
        "mv .git .git2; echo x > .git/hooks/post-checkout",
    )
    assert "?? b.txt" in done
    assert (api / "b.txt").read_text() == "two\n"
    assert (api / "b.txt").stat().st_uid == api.stat().st_uid
    assert not (api / ".git2").exists()
    assert not (api / ".git" / "hooks" / "post-checkout").exists()


def test_a_directory_comes_and_goes_while_the_agent_runs(household: Household, api: Path) -> None:
    household.works("start", "--detach")
    nothing = household.works("projects", "list")
    assert "projects open DIR" in nothing
    told = household.run("ask", "--with", str(api), "list /projects/api").stderr
    assert "started anew" in told
    assert "started anew" not in household.run("ask", "--with", str(api), "list /projects").stderr
    assert "read-write, but for .git" in household.works("projects", "list")
    assert "/projects/api is" in household.works("status")
    other = household.run("projects", "open", "/")
    assert other.returncode == 1
    assert "cannot use / as a project" in other.stderr
    assert "fix: " in other.stderr
    household.works("projects", "close", "api")
    assert "api" not in household.works("projects", "list")
    assert "a.py" not in household.works("ask", "list /projects/api")
    gone = household.run("projects", "close", "api")
    assert "no project api is open" in gone.stderr
    household.works("stop")


def test_a_directory_that_cannot_be_used_starts_nothing(household: Household) -> None:
    refused = household.run("ask", "--with", "nowhere", "hello")
    assert refused.returncode == 1
    assert "nowhere: No such file or directory" in refused.stderr
    assert household.left_behind() == []


def test_a_turn_that_runs_is_not_disturbed(household: Household, api: Path) -> None:
    household.works("start", "--detach")
    asked = household.begin("ask", "run touch /shared/begun && sleep 3 && echo ended")
    assert asked.stdin is not None
    asked.stdin.close()  # a question waits for what a pipe brings
    asked.stdin = None
    begun = household.workspaces / "default" / "shared" / "begun"
    while not begun.exists():
        assert asked.poll() is None, "the question failed"
        time.sleep(0.05)
    refused = household.run("projects", "open", str(api))
    assert "a turn runs, and the agent has to start anew" in refused.stderr
    assert "wait for its end" in refused.stderr
    answer, _ = asked.communicate(timeout=60)
    assert "ended" in answer
    assert household.run("projects", "open", str(api)).returncode == 0
    household.works("stop")


def test_where_something_is_decided_is_found_in_2000_files_changed_and_tested(
    household: Household, api: Path
) -> None:
    for package in range(40):
        place = api / "code" / f"package_{package}"
        place.mkdir(parents=True)
        for module in range(50):
            text = f"def compute(n: int) -> int:\n    return n + {module}\n"
            (place / f"module_{module}.py").write_text(f'"""Timeouts are elsewhere."""\n{text}' * 3)
    decided = "code/package_17/module_31.py"
    (api / decided).write_text("RETRIES_MAX = 3  # how often a request is sent again\r\n")
    (api / decided).chmod(0o755)
    (api / "test_retries.py").write_text(
        "import runpy, unittest\n\n\nclass Retries(unittest.TestCase):\n"
        "    def test_five(self) -> None:\n"
        f"        found = runpy.run_path('{decided}')\n"
        "        self.assertEqual(found['RETRIES_MAX'], 5)\n"
    )
    before = {each: each.stat() for each in api.rglob("*") if ".git" not in each.parts}
    tests = {"command": "python3 -B -m unittest test_retries 2>&1"}

    def found(seen: Seen) -> str:
        (match,) = seen.result(1)["matches"]
        return str(match["path"])

    with scripted() as model:
        household.environment |= {
            "OXYDRA_AGENT__PROVIDER": "openai",
            "OXYDRA_AGENT__MODEL": "m",
            "OXYDRA_AGENT__BASE_URL": model.base_url,
            "OPENAI_API_KEY": "sk-x",
        }
        model.play(
            calls("shell_exec", **tests),
            calls("file_search", query="RETRIES_MAX", path="code"),
            calls("file_edit", path=found, old="MAX = 3", new="MAX = 5"),
            calls("shell_exec", **tests),
            says("Done."),
        )
        done = household.run("ask", "--with", str(api), "send a request again five times")
        results = model.seen[-1].results
    assert done.returncode == 0, done.stderr
    assert "FAILED" in results[0]
    assert "OK" in results[3]
    changed = b"RETRIES_MAX = 5  # how often a request is sent again\r\n"
    assert (api / decided).read_bytes() == changed
    for path, status in before.items():
        now = path.stat()
        assert (now.st_uid, now.st_gid, now.st_mode) == (
            *(status.st_uid, status.st_gid),
            status.st_mode,
        )
        assert path.is_dir() or path == api / decided or now.st_mtime_ns == status.st_mtime_ns
