"""What fits no more in an import: notes, newer versions and histories, each refused by its line."""

from pathlib import Path
from typing import Any

import pytest

from guest.memory.models import User
from guest.memory.transfer.merge import Stored, StoredNotes
from guest.memory.transfer.move import copy_user
from tests.support.memory.exports import TIME, note, said, session
from tests.support.memory.store import ORIGIN, opened
from tests.unit.guest.memory.test_importing_kinds import LATER, everything, fed, outcome, stored


async def test_a_full_memory_refuses_each_note_that_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with opened(path, max_notes=3) as memory:
        await memory.save("mine", [], ORIGIN)
        lines = [note(f"n{number}", f"tea {number}") for number in range(4)]
        for dry_run in (True, False):
            report = await fed(memory, *lines, session("s1"), dry_run=dry_run)
            assert [number for number, _ in report.problems] == [4, 5]
            assert "the memory is full: 3 notes of at most 3" in report.problems[0][1]
            assert outcome(report) == (3, 0, 0, 2)
        newer = note("n0", "tea, black", 2, history=[], updated_at=LATER)
        assert outcome(await fed(memory, newer)) == (0, 1, 0, 0)
        assert {"n0", "n1", "s1"} < (await stored(memory)).keys()
    async with opened(path, max_notes=2) as memory:
        assert "3 notes of at most 2" in (await fed(memory, note("n9", "x"))).problems[0][1]


@pytest.mark.parametrize("room", [0, 1])
async def test_versions_in_an_import_count_as_all_do(tmp_path: Path, room: int) -> None:
    """A history that does not fit is a problem, in a dry run too."""
    whole = note("n1", "tea", 12)
    earlier, later = whole["history"][:5], whole["history"][5:]
    lines = [whole | {"history": later}, {"kind": "history", "note_id": "n1", "history": earlier}]
    size = sum(len(version["content"]) for version in [whole["current"], *whole["history"]])
    async with opened(tmp_path / "memory.db", max_text_bytes=size - 1 + room) as memory:
        for dry_run in (True, False, True, False):
            report = await fed(memory, *lines, dry_run=dry_run)
            assert [number for number, _ in report.problems] == [[3], []][room]
            assert not report.problems or "and this needs 25 more" in report.problems[0][1]
        assert (await memory.statistics()).note_versions == [6, 11][room]


@pytest.mark.parametrize("room", [0, 1])
async def test_a_newer_version_counts_beside_those_that_stay(tmp_path: Path, room: int) -> None:
    """What the note says here becomes a version: of those that the file has, or beside them."""
    async with opened(tmp_path / "memory.db", max_text_bytes=19 + room) as memory:
        await fed(memory, note("n1", "12345"))
        for size, done in ((14, (0, 1, 0, 0)), (15, (0, 0, 0, 1))):
            longer = note("n1", "x" * (size + room), 2, history=[], updated_at=LATER)
            assert outcome(await fed(memory, longer, dry_run=True)) == done
        second = note("n1", "1234567890", 2, history=[], updated_at=LATER)
        assert outcome(await fed(memory, second)) == (0, 1, 0, 0)
        replaced = {"written_at": TIME, "replaced_at": LATER}
        history = [said("12345", 1), second["current"], said("ab", 3)]
        fourth = note("n1", "123", 4, updated_at=LATER)
        fourth["history"] = [version | replaced for version in history]
        for dry_run in (True, False):
            report = await fed(memory, fourth, dry_run=dry_run)
            assert outcome(report) == [(0, 0, 0, 1), (0, 1, 0, 0)][room]
            assert room or "15 bytes of text of at most 19, and this needs 5" in str(report)


async def test_an_import_beside_saves_does_not_go_over_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, saves = Stored.notes, iter(["milk", "honey"])
    async with opened(tmp_path / "memory.db", max_notes=4) as memory:

        async def overtaken(self: Stored, lines: Any) -> StoredNotes:
            found = await read(self, lines)
            for text in saves:
                await memory.save(text, [], ORIGIN)
            return found

        monkeypatch.setattr(Stored, "notes", overtaken)
        report = await fed(memory, *(note(f"n{number}", f"tea {number}") for number in range(4)))
        assert [number for number, _ in report.problems] == [4, 5]
        assert "the memory is full: 4 notes of at most 4" in report.problems[0][1]
        assert len(await stored(memory)) == 4


async def test_a_copy_is_whole_though_the_memory_is_over_its_limit(tmp_path: Path) -> None:
    """A backup of a server's memory, and a move: what is there is never refused."""
    async with opened(tmp_path / "a.db") as source:
        await fed(source, *everything())
        async with opened(tmp_path / "b.db", max_notes=1) as target:
            for _ in range(2):
                await copy_user(source.store.database, target.store.database, User("alice"))
            assert await stored(target) == await stored(source)
