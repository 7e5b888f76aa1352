"""What was read in a turn, whole, and the notes that it becomes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guest.agent.receipts.saving import (
    MATERIAL_MAX_CHARS,
    Call,
    ReadFile,
    Source,
    parts_of,
    read_in,
)
from guest.tools.base import ToolContext, ToolResult
from guest.tools.files import file_tools
from guest.tools.files.roots import Roots
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber


class Files:
    """The real file tools over one directory."""

    def __init__(self, path: Path) -> None:
        directories = {name: path / name for name in ("shared", "tmp", "vault")}
        for directory in directories.values():
            directory.mkdir()
        self.shared = directories["shared"]
        self.roots = Roots(directories)
        self._pipeline = ToolPipeline(
            Registry(file_tools(self.roots)), scrubber=Scrubber(["s3cret-t0ken"])
        )

    async def read(self, arguments: dict[str, object]) -> ToolResult:
        context = ToolContext("alice", "s1", "t1", "test")
        return await self._pipeline.call(context, "file_read", arguments)

    async def called(self, **arguments: Any) -> Call:
        return Call("file_read", arguments, await self.read(arguments))


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    opened = Files(tmp_path)
    yield opened
    opened.roots.close()


async def never(_: dict[str, object]) -> ToolResult:
    raise AssertionError("nothing needs to be read")


def shell(command: str, stdout: str, **more: Any) -> Call:
    text = json.dumps({"exit_code": 0, "stdout": stdout, "stderr": ""} | more)
    return Call("shell_exec", {"command": command}, ToolResult(text, False, "exit code 0", 1))


async def only(call: Call, read: ReadFile = never) -> Source:
    (source,) = await read_in([call], read)
    return source


async def test_a_file_that_was_read_whole_is_not_read_again(files: Files) -> None:
    (files.shared / "a.md").write_text("Tea.\n\nMilk.\n")
    source = await only(await files.called(path="/shared/a.md"))
    assert source == Source("Tea.\n\nMilk.\n", "/shared/a.md", material=True)


@pytest.mark.parametrize("seen", [{"limit": 3}, {"offset": 400}, {}])
async def test_a_file_that_was_read_in_part_is_kept_whole(
    files: Files, seen: dict[str, int]
) -> None:
    text = "".join(f"line {number} of the file\n" for number in range(3000))
    (files.shared / "a.md").write_text(text)
    source = await only(await files.called(path="/shared/a.md", **seen), files.read)
    assert (source.text, source.left_out) == (text, "")


async def test_of_more_than_the_most_that_is_kept_the_rest_is_named(files: Files) -> None:
    (files.shared / "a.md").write_text("twenty characters..\n" * 15_000)
    source = await only(await files.called(path="/shared/a.md"), files.read)
    assert len(source.text) == MATERIAL_MAX_CHARS
    assert source.left_out == "only its first 200,000 characters"


async def test_lines_that_were_cut_are_told(files: Files) -> None:
    (files.shared / "a.md").write_text("x" * 50_000 + "\nend\n")
    source = await only(await files.called(path="/shared/a.md"), files.read)
    assert source.text.endswith("x\nend\n")
    assert source.left_out == "lines that are too long to be read were cut"


async def test_a_file_that_vanishes_meanwhile_is_kept_as_far_as_it_was_seen(
    files: Files,
) -> None:
    (files.shared / "a.md").write_text("one\ntwo\nthree\n")
    call = await files.called(path="/shared/a.md", limit=2)
    (files.shared / "a.md").unlink()
    source = await only(call, files.read)
    assert source.text == "one\ntwo\n"
    assert source.left_out.startswith("the rest could not be read: ")


async def test_secrets_stay_hidden(files: Files) -> None:
    (files.shared / "a.md").write_text("the token is s3cret-t0ken\n" * 1000)
    source = await only(await files.called(path="/shared/a.md"), files.read)
    assert "s3cret" not in source.text


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (shell("curl -s https://x.org", "a page"), True),
        (shell("ls", "a.md"), False),
        (shell("curl -s https://x.org", " "), False),
        (Call("file_read", {"path": "/shared/x"}, ToolResult("no file", True, "", 1)), False),
        (Call("memory_search", {}, ToolResult('[{"text": "x"}]', False, "1 result", 1)), False),
        (
            Call("file_read", {"path": "/shared/x"}, ToolResult('{"binary": true}', False, "", 1)),
            False,
        ),
    ],
)
async def test_what_counts_as_content_that_was_read(call: Call, found: bool) -> None:
    assert bool(await read_in([call], never)) is found


async def test_output_that_was_cut_says_so() -> None:
    source = await only(shell("curl x", "a […] z", truncated=True))
    assert source.left_out == "without its middle, which was not shown"


def test_parts_hold_all_words_in_order_and_stay_the_same() -> None:
    paragraphs = [f"Paragraph {number} " + "tea " * (number % 300) for number in range(200)]
    source = Source("\n\n".join(paragraphs), "/shared/a.md", material=True)
    parts = parts_of(source, 4000)
    assert parts == parts_of(source, 4000)
    assert all(len(part) <= 4000 for part in parts)
    heads = [part.split("\n", 1)[0] for part in parts]
    assert heads == [
        f"From /shared/a.md, part {number} of {len(parts)}:" for number in range(1, len(parts) + 1)
    ]
    words = " ".join(part.split("\n", 1)[1] for part in parts).split()
    assert words == source.text.split()


def test_a_text_without_any_break_is_cut_anyway() -> None:
    parts = parts_of(Source("x" * 10_000, "/shared/a.md"), 4000)
    assert all(len(part) <= 4000 for part in parts)
    assert parts[0].startswith("From /shared/a.md, part 1 of 3:\n\nxxx")
    assert sum(part.count("x") for part in parts) == 10_000


def test_the_users_short_words_stay_as_they_are() -> None:
    assert parts_of(Source(" I like tea \n"), 4000) == ["I like tea"]
