"""Sessions are forgotten and vectors made anew on a server too, and in the copy of it here;
the tests of their state are run once more."""
# ruff: noqa: F403

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from guest.memory.models import Details, Only, SessionNotFound
from tests.support.memory.store import ORIGIN, FakeEmbedder, embedded, opened
from tests.unit.guest.memory.test_retention import names, used
from tests.unit.guest.memory.test_session_state import *
from tests.unit.guest.memory.test_usage import *

pytestmark = [pytest.mark.sqld, pytest.mark.usefixtures("memory_on_a_server")]

ALICE = "alice"


def bytes_here(path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in path.parent.rglob("*") if each.is_file())


async def test_a_session_is_forgotten_on_the_server_and_in_the_copy(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        for session_id, words in (("kept", "the roses"), ("gone", "code word quixotry")):
            await memory.conversations.create(session_id)
            await memory.conversations.append(
                session_id, turn_id="t", role="user", text=words * 100, payload="[]", title=words
            )
        assert (await memory.conversations.get("gone")).title == "code word quixotry"
        passages = (await memory.statistics()).passages
        await embedded(memory, passages)
        found = await memory.search("quixotry", include_conversation=True)
        assert "quixotry" in found.results[0].text
        assert b"quixotry" in bytes_here(path), "the test would see nothing"
        await memory.sessions.forget("gone")
        with pytest.raises(SessionNotFound):
            await memory.conversations.history("gone", 10)
        found = await memory.search("quixotry roses", include_conversation=True)
        assert found.results
        assert all("quixotry" not in hit.text for hit in found.results)
        assert b"quixotry" not in bytes_here(path)
        assert (await memory.statistics()).passages < passages


async def test_notes_of_a_forgotten_session_go_from_the_server_and_the_copy(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        await memory.conversations.create("gone")
        await memory.save("the roses", [], ORIGIN)
        here = Details(type="decision", rationale="because zephyrine", scope_session="gone")
        await memory.save("code word quixotry", [], ORIGIN, here)
        await embedded(memory, 2)
        assert (await memory.search("quixotry", only=Only("gone"))).results
        assert b"quixotry" in bytes_here(path), "the test would see nothing"
        await memory.sessions.forget("gone")
        for only in (Only("gone"), Only("gone", superseded=True)):
            found = await memory.search("quixotry roses", only=only)
            assert all("quixotry" not in hit.text for hit in found.results)
        assert b"quixotry" not in bytes_here(path)
        assert len((await memory.list(9, include_superseded=True))[0]) == 1


async def test_conversations_are_forgotten_for_their_age(path: Path) -> None:
    now = datetime.now(UTC)
    async with opened(path, retention_days=30) as memory:
        await used(memory, "old", now - timedelta(days=40))
        await used(memory, "fresh", now)
        assert await memory.retention().look() == 1
        assert await names(memory) == {"fresh"}


async def test_vectors_made_anew_never_meet_the_old_ones_in_the_copy(path: Path) -> None:
    embedder = FakeEmbedder()
    async with opened(path, embedder) as memory:
        for word in ("tea", "rain", "trains"):
            await memory.save(f"likes {word}", [], ORIGIN)
        await embedded(memory, 3)
        assert (await memory.search("tea")).results[0].matched_by == "both"
        embedder.refuses = lambda text: text.startswith("likes")
        assert await memory.reembed() == 3
        assert (await memory.statistics()).vectors == {"": 3}
        found = await memory.search("tea")
        assert found.results[0].matched_by == "keyword"
        assert "3 passages have no vector yet" in found.passing
