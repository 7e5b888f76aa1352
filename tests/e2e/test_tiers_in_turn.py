"""A user's tiers take turns, as root, and memory, files and shell work in each: to bubblewrap, root
is nobody in a directory of another uid."""

import os
import re
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.test_main_job import answers
from tests.support.commands.household import Household

pytestmark = [pytest.mark.docker, pytest.mark.root, pytest.mark.bubblewrap]

EVERY_CHANGE = ("process", "container", "micro_vm", "process", "micro_vm", "container", "process")

FOUND_MAX = 5
"""How many notes a search gives."""


@pytest.fixture
def house() -> Iterator[Household]:
    made = Household(containers=True)
    made.environment["OXYDRA_EMBEDDER__BACKEND"] = "none"
    yield made
    made.stop()
    made.remove()


def chosen(tier: str) -> tuple[str, ...]:
    return ("--insecure",) if tier == "process" else ("--tier", tier)


def check_turn(house: Household, tier: str, turn: int) -> None:
    """What was kept and written in all turns before is there, and more is."""
    done = house.works(
        *chosen(tier),
        "chat",
        stdin=f"remember that turn {turn} was in the dory\nwhat do you know about the dory\n"
        f"run echo {turn} >> /shared/turns; cat /shared/turns\n",
    )
    (_, kept), (_, known), (_, ran) = answers(done)
    assert "saved" in kept, kept
    found = {int(each) for each in re.findall(r"turn (\d+) was", known)}
    assert len(found) == min(turn + 1, FOUND_MAX), known
    assert "→ exit code 0" in ran, ran
    assert re.findall(r"^\s*(\d+)$", ran, re.M) == [str(each) for each in range(turn + 1)], ran


def planted(house: Household) -> list[Path]:
    """What lies outside, with ways to it from the workspace."""
    outside = house.path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "precious").write_text("x")
    shared = house.workspaces / "default" / "shared"
    (shared / "link").symlink_to(outside)
    (shared / "second-name").hardlink_to(outside / "precious")
    return [outside, outside / "precious"]


def test_process_and_container_in_turn(house: Household) -> None:
    check_turn(house, "process", 0)
    outside = planted(house)
    before = [each.stat()[stat.ST_MODE : stat.ST_SIZE] for each in outside]
    assert house.works("stop") == "not running\n"  # the default tier's, which settles the workspace
    check_turn(house, "container", 1)
    check_turn(house, "process", 2)
    assert [each.stat()[stat.ST_MODE : stat.ST_SIZE] for each in outside] == before


@pytest.mark.long
@pytest.mark.runsc
@pytest.mark.timeout(900)
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_every_change_between_three_tiers(house: Household, end: str) -> None:
    house.environment["OXYDRA_CONTAINER__RUNTIME"] = "runsc"
    for turn, tier in enumerate(EVERY_CHANGE):
        started = house.works(*chosen(tier), "start", "--detach")
        check_turn(house, tier, turn)
        if end == "stop":
            house.works("stop")
            house.works("stop")
        else:
            pid = int(re.findall(r"pid (\d+)", started)[0])
            os.kill(pid, signal.SIGKILL)
            psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=60)
