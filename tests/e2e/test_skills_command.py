"""A skill that somebody else wrote: added, read by the model, its script run; and one in an archive
and in a repository, which only the shell guest opens."""

import shlex
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands.household import Household
from tests.support.servers.scripted_provider import calls, says, scripted

pytestmark = pytest.mark.bubblewrap

TEXT = """---
name: roman-numbers
description: Writes numbers as Romans did. Use when a year is to be carved in stone.
---
Run `python3 scripts/roman.py NUMBER`. Requires `pip install nothing`.
"""
ABOUT = "Writes numbers as Romans did. Use when a year is to be carved in stone."
COMMIT = (
    "mkdir three && cd three && "
    "sed s/roman-numbers/three/ /skills/roman-numbers/SKILL.md > SKILL.md "
    "&& git init -q && git add . && git -c user.name=a -c user.email=a@b.test commit -qm a"
)
SCRIPT = """import sys
number, text = int(sys.argv[1]), ""
for value, letters in ((1000, "M"), (900, "CM"), (100, "C"), (10, "X"), (1, "I")):
    text += letters * (number // value)
    number %= value
print("carve", text)
"""


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    place = tmp_path / "roman-numbers"
    (place / "scripts").mkdir(parents=True)
    (place / "SKILL.md").write_text(TEXT)
    (place / "scripts" / "roman.py").write_text(SCRIPT)
    return place


def packed(skill: Path) -> Iterator[Path]:
    """The skill in an archive; two in another, which tries to leave its place; one with a link."""
    with tarfile.open(skill.parent / "roman.tar.gz", "w:gz") as tar:
        tar.add(skill, "roman-numbers")
        yield skill.parent / "roman.tar.gz"
    with zipfile.ZipFile(skill.parent / "it's.zip", "w") as archive:
        for name in ("one", "two"):
            archive.writestr(f"a/{name}/SKILL.md", TEXT.replace("roman-numbers", name))
        archive.writestr("../../outside.txt", "x")
        yield skill.parent / "it's.zip"
    (skill / "passwd").symlink_to("/etc/passwd")
    with tarfile.open(skill.parent / "hostile.tar", "w") as tar:
        tar.add(skill, "roman-numbers")
        yield skill.parent / "hostile.tar"
    (skill / "passwd").unlink()


def test_skills_of_others_are_added_read_and_run(household: Household, skill: Path) -> None:
    good, several, hostile = packed(skill)
    assert "runner skills add DIR" in household.works("skills", "list")
    unasked = household.run("skills", "add", str(skill))
    assert unasked.returncode == 1
    assert "nobody can be asked whether to add roman-numbers" in unasked.stderr
    assert f"skills add {skill} --yes" in unasked.stderr
    assert "no runner runs" in household.run("skills", "add", str(good), "--yes").stderr
    shown = household.works("skills", "add", str(skill), "--yes")
    assert "description: Writes numbers as Romans did." in shown
    assert "files: SKILL.md, scripts/roman.py" in shown
    assert "SKILL.md:5 may download: Run `python3" in shown
    assert "digest: sha256:" in household.works("skills", "show", "roman-numbers")
    household.works("skills", "check")
    household.environment["OXYDRA_EMBEDDER__BACKEND"] = "none"
    own = "/skills/roman-numbers"
    with scripted() as model:
        household.environment |= {
            "OXYDRA_AGENT__PROVIDER": "openai",
            "OXYDRA_AGENT__MODEL": "m",
            "OXYDRA_AGENT__BASE_URL": model.base_url,
            "OPENAI_API_KEY": "sk-x",
        }
        model.play(
            calls("file_read", path=f"{own}/SKILL.md"),
            calls("shell_exec", command=f"cd {own} && python3 scripts/roman.py 1900"),
            calls(
                "shell_exec", command=f"cd {own} && echo x > SKILL.md; rm -r scripts; mv . /tmp/"
            ),
            calls("file_write", path=f"{own}/SKILL.md", content="x"),
            calls("file_delete", path=f"{own}/scripts/roman.py"),
            calls("shell_exec", command=COMMIT),
            says("Done."),
        )
        household.works("start", "--detach")
        household.works("ask", "carve the year 1900")
        assert f"> roman-numbers: {ABOUT}" in model.seen[0].system
        read, ran, spoiled, written, deleted, committed = model.seen[-1].results
        assert "Run `python3 scripts/roman.py NUMBER`" in read
        assert "carve MCM" in ran
        assert "Read-only file system" in spoiled
        assert "/skills is read-only" in written
        assert "/skills is read-only" in deleted
        assert '"exit_code": 0' in committed or '"exit_code":0' in committed
        place = household.workspaces / "default"
        assert (place / "skills" / "roman-numbers" / "SKILL.md").read_text() == TEXT

        household.works("skills", "remove", "roman-numbers")
        household.works("skills", "add", str(good), "--yes")
        which = household.run("skills", "add", str(several), "--yes").stderr
        assert "it has several: a/one, a/two" in which
        assert f"skills add {shlex.quote(str(several))} a/one" in which
        household.works("skills", "add", str(several), "a/two", "--yes")
        assert "passwd is a link" in household.run("skills", "add", str(hostile), "--yes").stderr
        household.works("skills", "add", "/shared/three", "--yes")
        nowhere = household.run("skills", "add", "https://nowhere.test/a", "--yes").stderr
        assert "the shell cannot unpack it" in nowhere
        assert "Could not resolve host: nowhere.test" in nowhere
        assert "egress allow nowhere.test; or get it yourself" in nowhere
        _, *listed = household.works("skills", "list").splitlines()
        assert [each.split("\t")[0] for each in listed] == ["roman-numbers", "three", "two"]
        assert list((place / "tmp").glob("skill-*")) == list((place / "skills").glob(".*")) == []

        (place / "skills" / "two" / "SKILL.md").write_text(
            TEXT.replace("roman-numbers", "two").replace("Romans", "Etruscans")
        )
        failed = household.run("skills", "check")
        assert failed.returncode == 1
        assert "two\tit is not as it was added\n" in failed.stdout
        assert "skills add SOURCE, or: " in failed.stderr
        household.works("restart")
        told = household.said("/skills")
        assert told.endswith("\nthree          Writes numbers as Romans did.\n\n")
        why = "the agent does not get the skill two: it is not as it was added; "
        assert why in household.works("status")
        model.play(calls("shell_exec", command=f"python3 {own}/scripts/roman.py 1000"), says("No."))
        household.works("ask", "and 1000?")
        assert "> three: " in model.seen[-1].system
        assert "> two: " not in model.seen[-1].system
        assert "carve M" in model.seen[-1].results[0]
        household.works("stop")
