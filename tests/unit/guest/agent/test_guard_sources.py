"""What is kept when a user points at something, and in which parts."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guest.agent.guard.deeds import Call
from guest.agent.guard.intent import Wish
from guest.agent.guard.parts import parts_of
from guest.agent.guard.sources import MATERIAL_MAX_CHARS, NothingMeant, ReadFile, Source, sources_of
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
        self._roots = Roots(directories)
        self._pipeline = ToolPipeline(
            Registry(file_tools(self._roots)), scrubber=Scrubber(["s3cret-t0ken"])
        )

    def close(self) -> None:
        self._roots.close()

    async def read(self, arguments: dict[str, object]) -> ToolResult:
        context = ToolContext("alice", "s1", "t1", "test")
        return await self._pipeline.call(context, "file_read", arguments)

    async def called(self, **arguments: Any) -> Call:
        return Call("file_read", arguments, await self.read(arguments))


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    opened = Files(tmp_path)
    yield opened
    opened.close()


async def never(_: dict[str, object]) -> ToolResult:
    raise AssertionError("nothing needs to be read")


def shell(command: str, stdout: str, **more: Any) -> Call:
    text = json.dumps({"exit_code": 0, "stdout": stdout, "stderr": ""} | more)
    return Call("shell_exec", {"command": command}, ToolResult(text, False, "exit code 0", 1))


async def meant(
    wish: Wish, *calls: Call, read: ReadFile = never, answer: str = "", previous: str = ""
) -> list[Source]:
    return await sources_of(wish, calls, read, answer=answer, previous=previous)


async def test_given_words_come_before_everything_else() -> None:
    page = shell("curl x", "a page")
    assert await meant(Wish(words=("a", "b")), page, previous="p") == [Source("a"), Source("b")]


async def test_a_file_that_was_read_whole_is_not_read_again(files: Files) -> None:
    (files.shared / "a.md").write_text("Tea.\n\nMilk.\n")
    call = await files.called(path="/shared/a.md")
    (source,) = await meant(Wish(rest="read it"), call, previous="said")
    assert source == Source("Tea.\n\nMilk.\n", "/shared/a.md", material=True)


@pytest.mark.parametrize("seen", [{"limit": 3}, {"offset": 400}, {}])
async def test_a_file_that_was_read_in_part_is_kept_whole(
    files: Files, seen: dict[str, int]
) -> None:
    text = "".join(f"line {number} of the file\n" for number in range(3000))
    (files.shared / "a.md").write_text(text)
    call = await files.called(path="/shared/a.md", **seen)
    (source,) = await meant(Wish(), call, read=files.read)
    assert (source.text, source.left_out) == (text, "")


async def test_of_more_than_the_most_that_is_kept_the_rest_is_named(files: Files) -> None:
    (files.shared / "a.md").write_text("twenty characters..\n" * 15_000)
    (source,) = await meant(Wish(), await files.called(path="/shared/a.md"), read=files.read)
    assert len(source.text) == MATERIAL_MAX_CHARS
    assert source.left_out == "only its first 200,000 characters"


async def test_lines_that_were_cut_are_told(files: Files) -> None:
    (files.shared / "a.md").write_text("x" * 50_000 + "\nend\n")
    (source,) = await meant(Wish(), await files.called(path="/shared/a.md"), read=files.read)
    assert source.text.endswith("x\nend\n")
    assert source.left_out == "lines that are too long to be read were cut"


async def test_a_file_that_vanishes_meanwhile_is_kept_as_far_as_it_was_seen(
    files: Files,
) -> None:
    (files.shared / "a.md").write_text("one\ntwo\nthree\n")
    call = await files.called(path="/shared/a.md", limit=2)
    (files.shared / "a.md").unlink()
    (source,) = await meant(Wish(), call, read=files.read)
    assert source.text == "one\ntwo\n"
    assert source.left_out.startswith("the rest could not be read: ")


async def test_secrets_stay_hidden(files: Files) -> None:
    (files.shared / "a.md").write_text("the token is s3cret-t0ken\n" * 1000)
    (source,) = await meant(Wish(), await files.called(path="/shared/a.md"), read=files.read)
    assert "s3cret" not in source.text


async def test_only_the_named_one_of_several_is_kept(files: Files) -> None:
    for name in "ab":
        (files.shared / f"{name}.md").write_text(name)
    calls = [await files.called(path=f"/shared/{name}.md") for name in "ab"]
    both = await meant(Wish(), *calls)
    assert [source.name for source in both] == ["/shared/a.md", "/shared/b.md"]
    (named,) = await meant(Wish(named=("/shared/b.md",)), *calls)
    assert named.name == "/shared/b.md"


async def test_what_was_named_and_not_read_is_told_and_not_replaced() -> None:
    wish = Wish(named=("https://x.org/a", "https://www.x.org/b/"))
    a, b, other = (shell(f"curl {url}", url) for url in ("https://x.org/a", "x.org/b", "y.org"))
    (only,) = await meant(wish, a, other)
    assert (only.text, only.left_out) == (
        "https://x.org/a",
        "https://www.x.org/b/ was not read in this turn",
    )
    assert [source.left_out for source in await meant(wish, a, b)] == ["", ""]
    with pytest.raises(NothingMeant, match=r"x\.org/a, https://www\.x\.org/b/ was not read"):
        await meant(wish, other)
    assert len(await meant(wish, shell('curl "$URL"', "a page"))) == 1


async def test_what_is_read_by_the_way_is_not_what_was_meant() -> None:
    notes = shell("cat /shared/notes.md", "old notes")
    assert await meant(Wish(rest="I moved", told=True), notes) == [Source("I moved")]
    assert await meant(Wish(said=True), notes, previous="p") == [Source("p", "my previous answer")]
    made = Wish(result=True, made=True, rest="Summarise it")
    assert await meant(made, notes, answer="short") == [Source("short", "this answer")]
    assert [source.text for source in await meant(made, notes)] == ["old notes"]


async def test_an_address_is_kept_itself_unless_its_page_was_read() -> None:
    wish = Wish(("https://x.org/a",), named=("https://x.org/a",))
    assert await meant(wish) == [Source("https://x.org/a")]
    (page,) = await meant(wish, shell("curl https://x.org/a", "a page"))
    assert page.text == "a page"


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (shell("curl -s https://x.org", "a page"), True),
        (shell("ls", "a.md"), False),
        (shell("curl -s https://x.org", " "), False),
        (
            Call("file_read", {"path": "/shared/x"}, ToolResult("no file", True, "no file", 1)),
            False,
        ),
        (Call("memory_search", {}, ToolResult('[{"text": "x"}]', False, "1 result", 1)), False),
        (
            Call("file_read", {"path": "/shared/x"}, ToolResult('{"binary": true}', False, "", 1)),
            False,
        ),
    ],
)
async def test_what_counts_as_content_that_was_read(call: Call, found: bool) -> None:
    (source,) = await meant(Wish(), call, previous="what I said")
    assert source.material is found


async def test_output_that_was_cut_says_so() -> None:
    (source,) = await meant(Wish(), shell("curl x", "a […] z", truncated=True))
    assert source.left_out == "without its middle, which was not shown"


@pytest.mark.parametrize(
    ("wish", "text", "name"),
    [
        (Wish(said=True, rest="my words"), "before", "my previous answer"),
        (Wish(result=True, rest="explain it"), "now", "this answer"),
        (Wish(rest="my words"), "my words", ""),
        (Wish(rest="- a\n- b", attached=True, said=True), "- a\n- b", ""),
        (Wish(), "before", "my previous answer"),
    ],
)
async def test_without_material_it_is_the_message_or_an_answer(
    wish: Wish, text: str, name: str
) -> None:
    assert await meant(wish, answer="now", previous="before") == [Source(text, name)]


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        (Wish(), "nothing was said or read before"),
        (Wish(said=True), "nothing was said or read before"),
        (Wish(result=True), "there is no answer"),
        (Wish(named=("/shared/a.md",), rest="read it"), "/shared/a.md was not read in this turn"),
    ],
)
async def test_where_nothing_is_meant_that_is_said(wish: Wish, why: str) -> None:
    with pytest.raises(NothingMeant, match=why):
        await meant(wish)


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
    parts = parts_of(Source("x" * 10_000), 4000)
    assert all(len(part) <= 4000 for part in parts)
    assert parts[0].startswith("What the user said, part 1 of 3:\n\nxxx")
    assert sum(part.count("x") for part in parts) == 10_000


def test_the_users_short_words_stay_as_they_are() -> None:
    assert parts_of(Source(" I like tea \n"), 4000) == ["I like tea"]
