"""`runner skills`: what is told of an addition, of what cannot be added, and of a list."""

import json
import os
from pathlib import Path

import pytest
from wire.v1 import gateway_pb2

from runner.cli import skills
from tests.unit.runner.cli.conftest import RunCommand

HAIKU = "---\nname: haiku\ndescription: Short poems.\n---\n"


@pytest.fixture
def haiku(tmp_path: Path) -> Path:
    for name in ("haiku/scripts", "rep/skills/a", "rep/skills/b"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name.removesuffix("/scripts") / "SKILL.md").write_text(HAIKU)
    (tmp_path / "haiku/scripts/count.py").write_text("print(17)\n")
    return tmp_path / "haiku"


def test_an_addition_says_what_it_replaces(run_command: RunCommand, haiku: Path) -> None:
    first = run_command("skills", "add", "haiku", "--yes")
    assert "added haiku;" in first.out
    assert "replace" not in first.out
    again = run_command("skills", "add", "haiku").out  # nothing to be asked
    assert again == "haiku is there already, the same as this; nothing was changed\n"
    digest = first.out.split("digest: ")[1].split()[0]
    (haiku.parent / "rep/skills/a/SKILL.md").write_text(HAIKU + "Five, seven, five.\n")
    asked = run_command("skills", "add", "rep", "skills/a")
    told = f"replaces: {digest}; other files: SKILL.md, scripts/count.py (gone)\n"
    assert told in asked.out
    assert asked.code == 1
    other = run_command("skills", "add", "rep", "skills/a", "--yes").out
    assert told in other
    assert "replaced haiku;" in other
    installed = haiku.parent / "ws/default/skills/haiku/SKILL.md"
    installed.write_text(HAIKU)
    run_command("skills", "add", "rep", "skills/a", "--yes")
    assert installed.read_text().endswith("five.\n")
    (listed,) = json.loads(run_command("skills", "list", "--json").out)
    assert listed["files"].keys() == {"SKILL.md"}
    assert (listed["name"], listed["wrong"]) == ("haiku", "")


@pytest.mark.usefixtures("haiku")
@pytest.mark.parametrize(
    ("words", "brief", "fix"),
    [
        ("./nothing", "there is no directory, archive or repository ./nothing", "skills add DIR"),
        ("haiku.zip", "there is no directory, archive or repository haiku.zip", "skills add DIR"),
        ("fifo", "there is no directory, archive or repository fifo", "skills add DIR"),
        ("haiku/SKILL.md", "repository haiku/SKILL.md", "skills add {here}/haiku\n"),
        ("rep", "it has several: skills/a, skills/b", "skills add rep skills/a\n"),
        ("rep skills/zz", "skills/zz in rep cannot be read", "skills add rep skills/a\n"),
        ("rep ../haiku", "../haiku in rep cannot be read", "skills add rep skills/a\n"),
        ("rep skills", "there is no SKILL.md in it", ""),
    ],
)
def test_what_is_not_there_is_named_with_the_command_that_works(
    run_command: RunCommand, tmp_path: Path, words: str, brief: str, fix: str
) -> None:
    os.mkfifo(tmp_path / "fifo")
    done = run_command("skills", "add", *words.split(), "--yes")
    assert done.code == 1
    assert brief in done.err
    assert f"fix: {'runner ' if fix else ''}{fix.format(here=tmp_path)}" in done.err


@pytest.mark.parametrize(
    ("source", "fix"),
    [
        (
            "https://me@git.test:8443/skills",
            "runner egress allow git.test:8443; or get it yourself",
        ),
        ("git@git.test:skills", "get it yourself"),
        ("/shared/skills", "get it yourself"),
    ],
)
def test_the_shells_own_words_are_shown(
    run_command: RunCommand, monkeypatch: pytest.MonkeyPatch, source: str, fix: str
) -> None:
    data = json.dumps({"exit_code": 128, "stdout": "", "stderr": "fatal: no\nway out\n"})
    reply = gateway_pb2.CallToolReply(text=data, data_json=data)
    monkeypatch.setattr(skills, "ask_agent", lambda *_: reply)
    done = run_command("skills", "add", source, "--yes")
    assert "the shell cannot unpack it\n  why: fatal: no\n       way out\n  fix: " in done.err
    assert fix in done.err


def test_of_a_file_that_is_no_archive_the_reason_is_told_and_no_traceback(
    run_command: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "x.zip").write_text("no zip")
    said = "Traceback (most recent call last):\n  File x\nBadZipFile: File is not a zip file\n"
    data = json.dumps({"exit_code": 1, "stdout": "", "stderr": said})
    reply = gateway_pb2.CallToolReply(text=data, data_json=data)
    monkeypatch.setattr(skills, "ask_agent", lambda *_: reply)
    done = run_command("skills", "add", str(tmp_path / "x.zip"), "--yes")
    assert "it\n  why: BadZipFile: File is not a zip file\n  fix: " in done.err
