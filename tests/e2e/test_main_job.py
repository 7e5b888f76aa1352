"""The main job through the real command, piped: an agent that remembers."""

import re
import time
from pathlib import Path

import pytest

from tests.support.commands.household import Household

README = Path(__file__).parents[2] / "README.md"
TURNS = (
    "remember that my name is Shantanu",
    "what do you know about my name?",
    "correct that: I prefer to be called SG",
    "what do you know about my name?",
    "read /../.oxydra/memory.db",
    "forget my name",
    "what do you know about my name?",
)
EMBEDDERS = [
    pytest.param("sentence-transformers", marks=pytest.mark.model),
    "hashing",
    "none",
]


def answers(transcript: str) -> list[tuple[str, str]]:
    """Each turn with everything that was shown for it."""
    parts = re.split(r"^> (.*)\n", transcript, flags=re.MULTILINE)
    assert parts[0] == ""
    return list(zip(parts[1::2], parts[2::2], strict=True))


def shown_by_the_readme() -> str:
    return README.read_text().split("| make run\n")[1].split("```")[0]


def comparable(transcript: str) -> list[str]:
    """Without ids."""
    return re.sub(r"note-[0-9a-f-]{8,36}", "note-…", transcript).strip().splitlines()


def check_main_job(transcript: str) -> None:
    """`TURNS` were answered as they must be."""
    shown = answers(transcript)
    assert [turn for turn, _ in shown] == list(TURNS)
    saved, found, updated, renamed, denied, forgotten, gone = (answer for _, answer in shown)
    assert "● memory_save my name is Shantanu → Stored\n" in saved
    told = r'\[id: ((note-[0-9a-f]{8})[\w-]+)\]\n✓ saved "my name is Shantanu" \(\2\)$'
    stored = re.search(told, saved, re.MULTILINE)
    assert stored, saved
    note_id, short_id = stored.groups()
    assert "● memory_search my name → " in found
    assert "my name is Shantanu" in found
    assert note_id in found
    assert "● memory_update my name: I prefer to be called SG → Updated\n" in updated
    now = '"my name: I prefer to be called SG"'
    assert f'✓ updated "my name is Shantanu" → {now} ({short_id}, version 2)\n' in updated
    assert "I prefer to be called SG" in renamed
    assert note_id in renamed
    assert "Shantanu" not in renamed
    assert "● file_read /../.oxydra/memory.db ✗ path is outside /shared, /tmp" in denied
    assert f"● memory_delete {short_id} → Deleted\n" in forgotten
    assert f"✓ deleted {now} ({short_id})\n" in forgotten
    assert "know nothing about your name" in gone
    assert "SG" not in gone
    assert "Shantanu" not in gone


@pytest.mark.parametrize("backend", EMBEDDERS)
def test_the_main_job(household: Household, backend: str) -> None:
    """README's transcript is what happens, also while the model is loading, and without one."""
    household.environment["OXYDRA_EMBEDDER__BACKEND"] = backend

    done = household.run("chat", stdin="\n".join(TURNS) + "\n")

    assert done.returncode == 0, done.stdout + done.stderr
    check_main_job(done.stdout)
    assert comparable(done.stdout) == comparable(shown_by_the_readme())
    assert str(household.path) not in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert household.left_behind() == []


@pytest.mark.parametrize("backend", ["hashing", "none"])
def test_a_second_run_in_a_new_session_still_knows(household: Household, backend: str) -> None:
    household.environment["OXYDRA_EMBEDDER__BACKEND"] = backend
    household.environment["OXYDRA_SHELL__ENABLED"] = "false"
    first = household.run("chat", stdin=TURNS[0] + "\n")
    assert first.returncode == 0, first.stdout + first.stderr
    assert household.left_behind() == []

    second = household.run("chat", stdin="what do you know about my name?\n/sessions\n")

    assert second.returncode == 0, second.stdout + second.stderr
    (_, found), (_, sessions) = answers(second.stdout)
    assert "my name is Shantanu" in found
    assert len(sessions.strip().splitlines()) == 3
    assert household.left_behind() == []


@pytest.mark.model
def test_the_main_job_by_meaning_once_the_model_is_ready(household: Household) -> None:
    started = household.run("start", "--detach")
    assert started.returncode == 0, started.stderr
    while household.embedder_state() != "ready":
        time.sleep(0.5)
    saved = household.run("chat", stdin="remember that I am allergic to peanuts\n")
    turns = ("what do you know about food that makes me ill?", *TURNS)
    main_job = household.run("chat", stdin="\n".join(turns) + "\n")
    household.run("stop")

    assert saved.returncode == main_job.returncode == 0
    asked, *shown = [answer for _, answer in answers(main_job.stdout)]
    assert "allergic to peanuts" in asked, main_job.stdout
    assert "semantic search is unavailable" not in main_job.stdout
    assert "Shantanu" in shown[1]
    assert "I prefer to be called SG" in shown[3]
    assert "Shantanu" not in shown[3]
    assert "Shantanu" not in shown[6]
    assert "SG" not in shown[6]
    assert household.settles()


def test_the_greeting_says_who_answers(household: Household) -> None:
    household.environment["OXYDRA_SHELL__ENABLED"] = "false"
    household.environment["OXYDRA_EMBEDDER__BACKEND"] = "none"
    done = household.run("chat")
    assert done.returncode == 0
    assert done.stdout == ""
    assert re.search(r"^Oxydra [\d.]+ · user default · process tier · offline$", done.stderr, re.M)
    assert "offline model" in done.stderr
    assert household.left_behind() == []
