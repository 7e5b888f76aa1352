"""The main job in the container tier, by the real command as an operator types it."""

import json
import re
import tarfile
import time
from collections.abc import Iterator

import pytest

from tests.e2e.test_main_job import TURNS, answers, check_main_job
from tests.support.commands.household import Household

pytestmark = pytest.mark.docker


@pytest.fixture
def containers() -> Iterator[Household]:
    made = Household(containers=True)
    made.environment["OXYDRA_EMBEDDER__BACKEND"] = "hashing"
    yield made
    made.stop("alice")
    made.remove()


def test_start_detach_then_chat(containers: Household) -> None:
    started = containers.run("--tier", "container", "--user", "alice", "start", "--detach")
    assert started.returncode == 0, started.stderr

    done = containers.run("--user", "alice", "chat", stdin="\n".join(TURNS) + "\n")
    assert done.returncode == 0, done.stdout + done.stderr
    check_main_job(done.stdout)
    assert str(containers.path) not in done.stdout
    assert re.search(r"^Oxydra .* · user alice · container tier · offline$", done.stderr, re.M)

    commands = (
        "run echo written > /shared/note.txt; id -u",
        "run cat /shared/note.txt; wc -c < /shared/note.txt",
        "run ls /.oxydra /vault",
        "read /shared/note.txt",
    )
    shell = containers.run("--user", "alice", "chat", stdin="\n".join(commands) + "\n")
    wrote, read, hidden, seen = (answer for _, answer in answers(shell.stdout))
    assert re.search("^● shell_exec .* → exit code 0$", wrote, re.MULTILINE)
    assert "written\n8" in read
    assert "exit code 2" in hidden
    assert hidden.count("No such file or directory") == 2
    assert "written" in seen

    skill, archive = containers.path / "SKILL.md", containers.path / "here" / "skill.tgz"
    skill.write_text("---\nname: greeting\ndescription: How to greet.\n---\nSay ahoy.\n")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(skill, "greeting/SKILL.md")
    containers.works("--user", "alice", "skills", "add", str(archive), "--yes")
    containers.works("--user", "alice", "restart")
    read = containers.works("--user", "alice", "ask", "read /skills/greeting/SKILL.md")
    assert "Say ahoy." in read
    command = "run tail -n 1 /skills/greeting/SKILL.md; touch /skills/x /skills/greeting/x"
    assert "Say ahoy." in (ran := containers.works("--user", "alice", "ask", command))
    assert ran.count("Read-only file system") == 2

    status = json.loads(containers.run("--user", "alice", "status", "--json").stdout)
    assert status["tier"] == "container"
    assert {guest["role"]: guest["state"] for guest in status["guests"]} == {
        "agent": "ready",
        "shell": "ready",
        "egress": "disabled",
        "shell-egress": "disabled",
        "embedder": "ready",
    }
    assert status["boundary"]["passed"]
    assert len(status["boundary"]["checks"]) > 15
    following = containers.begin("--user", "alice", "notices", "--follow")
    yearly = ("create", "0 7 1 1 *", "what do you know about tea", "--name", "yearly")
    for words in (yearly, ("run", "yearly")):
        containers.works("--user", "alice", "schedules", *words)
    assert following.stdout is not None
    assert "yearly: ran at" in following.stdout.readline()
    following.terminate()
    containers.works("--user", "alice", "schedules", "delete", "yearly")
    stopped = containers.run("--user", "alice", "stop")
    assert (stopped.returncode, stopped.stdout) == (0, "stopped\n")
    assert containers.settles(), containers.left_behind()
    again = containers.run("--user", "alice", "stop")
    assert (again.returncode, again.stdout) == (0, "not running\n")


def test_chat_alone_brings_up_a_pair_and_takes_it_down(containers: Household) -> None:
    first = containers.run("--user", "alice", "chat", stdin=TURNS[0] + "\n")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "· container tier ·" in first.stderr
    assert "process tier" not in first.stderr
    assert containers.settles(), containers.left_behind()

    second = containers.run("--user", "alice", "chat", stdin=TURNS[1] + "\nrun id -u\n")
    (_, found), (_, ran) = answers(second.stdout)
    assert "my name is Shantanu" in found
    assert re.search("^● shell_exec .* → exit code 0$", ran, re.MULTILINE)
    assert containers.settles(), containers.left_behind()


@pytest.mark.model
def test_by_meaning_with_the_model_in_its_own_container(containers: Household) -> None:
    containers.environment["OXYDRA_EMBEDDER__BACKEND"] = "sentence-transformers"
    started = containers.run("--user", "alice", "start", "--detach")
    assert started.returncode == 0, started.stderr
    deadline = time.monotonic() + 120
    while (state := containers.embedder_state("alice")) != "ready":
        assert time.monotonic() < deadline, state
        time.sleep(0.2)
    turns = (
        "remember that I am allergic to peanuts",
        "what do you know about food that makes me ill?",
        *TURNS,
    )
    done = containers.run("--user", "alice", "chat", stdin="\n".join(turns) + "\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "allergic to peanuts" in answers(done.stdout)[1][1]
    assert "semantic search is unavailable" not in done.stdout
    assert "Shantanu" in answers(done.stdout)[3][1]
    assert containers.run("--user", "alice", "stop").returncode == 0
    assert containers.settles(), containers.left_behind()
