"""`file_read` of documents, through the tools' pipeline to readers in real shell guests."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from wire.tools import READER

from guest.tools.base import ToolContext
from guest.tools.files import documents, file_tools
from guest.tools.files.documents import Documents
from guest.tools.files.roots import Roots
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from guest.tools.shell.client import Ended, ShellClient, StreamEnds
from tests.support import made_documents as made
from tests.support import parties
from tests.support.guests.shell_backends import TOKEN, Guest, in_bubblewrap, ready_daemon

ALICE = ToolContext("alice", "session-1", "turn-1", "test")


@dataclass
class Place:
    """A workspace, its file tools, and what they tell beside their answers."""

    root: Path
    pipeline: ToolPipeline
    notes: str = ""

    async def read(self, path: str, **arguments: Any) -> Any:
        result = await self.pipeline.call(ALICE, "file_read", {"path": path, **arguments})
        answer, _, self.notes = result.text.partition("\nNote: ")
        return result.text if result.is_error else json.loads(answer)

    def put(self, name: str, content: bytes) -> None:
        (self.root / name).write_bytes(content)


@asynccontextmanager
async def place(root: Path, shell: ShellClient | None, why: str = "") -> AsyncIterator[Place]:
    (root / "vault").mkdir(exist_ok=True)
    roots = Roots({name: root / name for name in ("shared", "tmp", "vault")})
    tools = file_tools(roots, "", Documents(roots, shell, why))
    yield Place(root, ToolPipeline(Registry(tools), scrubber=Scrubber([])))
    roots.close()


@pytest.fixture
async def reading() -> AsyncIterator[Place]:
    async with ready_daemon() as daemon:
        client = ShellClient(parties.shell(daemon.endpoint, TOKEN))
        async with place(daemon.root, client) as found:
            yield found
        await client.close()


async def test_a_document_is_read_by_pages_and_lines(reading: Place) -> None:
    (reading.root / "shared/a b").mkdir()
    reading.put("shared/a b/-n 'x'.pdf", made.pdf(["first", "second", "third"]))
    path = "/shared/a b/-n 'x'.pdf"
    whole = await reading.read(path)
    assert whole["content"].startswith("[page 1 of 3]\nfirst\n\n[page 2 of 3]\nsecond\n")
    assert (whole["unit"], whole["count"]) == ("page", 3)
    assert (await reading.read(path, pages="2"))["content"] == "[page 2 of 3]\nsecond\n\n"
    assert (await reading.read(path, pages="2-"))["content"].count("[page") == 2
    part = await reading.read(path, limit=2, offset=4)
    assert (part["content"], part["next_offset"]) == ("[page 2 of 3]\nsecond\n", 6)
    reading.put("shared/mail.EML", made.mail("dear b"))
    assert "dear b" in (await reading.read("/shared/mail.EML"))["content"]


async def test_of_what_cannot_be_read_the_kind_and_the_reason_are_told(reading: Place) -> None:
    for name, (content, why) in made.refused().items():
        if "bomb" in name or "old" in name:
            reading.put(f"tmp/{name}", content)
            told = await reading.read(f"/tmp/{name}")
            assert told["binary"]
            assert f"its text cannot be read: it {why}" in reading.notes
    reading.put("shared/plain.zip", made.packed({"a": "b"}))
    assert (await reading.read("/shared/plain.zip"))["kind"].startswith("ZIP archive")
    assert reading.notes == ""
    reading.put("vault/a.pdf", made.pdf(["x"]))
    assert (await reading.read("/vault/a.pdf"))["binary"]
    assert "commands do not see /vault; copy it to /shared" in reading.notes
    reading.put("shared/a.pdf", made.pdf(["x"]))
    assert (await reading.read("/shared/a.pdf", pages="7"))["binary"]
    assert "it has 1 pages, no 7" in reading.notes


async def test_a_picture_is_shown(reading: Place) -> None:
    reading.put("shared/a.png", made.png(3, 3))
    result = await reading.pipeline.call(ALICE, "file_read", {"path": "/shared/a.png"})
    assert result.pictures == (made.png(3, 3),)
    assert result.material == ("/shared/a.png",)


async def test_a_reader_that_takes_too_long_is_ended(
    reading: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "READ_S", 0.01)
    reading.put("shared/a.pdf", made.pdf(["x"]))
    await reading.read("/shared/a.pdf")
    assert "its text cannot be read: it takes more than 0.01 s" in reading.notes


async def test_without_a_shell_guest_documents_are_not_opened(tmp_path: Path) -> None:
    for name in ("shared", "tmp"):
        (tmp_path / name).mkdir()
    async with place(tmp_path, None, "bubblewrap is not installed") as found:
        found.put("shared/a.pdf", made.pdf(["x"]))
        assert (await found.read("/shared/a.pdf"))["kind"] == "PDF document"
        assert found.notes.strip() == ("documents cannot be read here: bubblewrap is not installed")


HOSTILE = [
    (b'{"count": 1, "unit": "' + b"x" * 200_000 + b'"}\nwords', "words"),
    (b'{"count": "1"}\nwords', "binary"),
    (b"[" * 100_000, "something else"),
    (b"", "something else"),
    (b"\xff\n" + b"y" * 3_000_000, "something else"),
]


@pytest.mark.parametrize(("said", "shown"), HOSTILE, ids=range(len(HOSTILE)))
async def test_a_reader_that_was_taken_over_gives_no_more_than_text(
    tmp_path: Path, said: bytes, shown: str
) -> None:
    class Shell(ShellClient):
        async def run(self, *_: Any) -> Ended:
            ended = Ended(StreamEnds(1024 * 1024), StreamEnds(1))
            ended.stdout.add(0, said)
            return ended

    for name in ("shared", "tmp"):
        (tmp_path / name).mkdir()
    shell = Shell(parties.shell(f"unix:{tmp_path}/none", TOKEN))
    async with place(tmp_path, shell) as found:
        found.put("shared/a.pdf", made.pdf(["x"]))
        result = await found.pipeline.call(ALICE, "file_read", {"path": "/shared/a.pdf"})
    assert shown in result.text
    assert not result.is_error
    assert len(result.text) < 20_000
    await shell.close()


@pytest.mark.bubblewrap
async def test_the_reader_is_there_in_bubblewrap() -> None:
    async with in_bubblewrap() as guest:
        assert await text_in(guest) == b"[page 2 of 2]\nb\n\n"


async def text_in(guest: Guest) -> bytes:
    (guest.shared / "a.pdf").write_bytes(made.pdf(["a", "b"]))
    ran = await guest.run("read", "", argv=[READER, "a.pdf", "2", "2"])
    assert ran.exit.exit_code == 0, ran.stderr
    return ran.stdout.partition(b"\n")[2]
