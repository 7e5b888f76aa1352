"""Texts in other encodings are read, searched and edited, and stay in theirs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guest.tools.base import ToolContext
from guest.tools.files import file_tools
from guest.tools.files.content import LOOK_BYTES, encoding_of
from guest.tools.files.roots import Roots
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber

ALICE = ToolContext("alice", "session-1", "turn-1", "test")
TEXTS = {
    "gb18030": "标题:报告\r\n# 作者:张三\r\nprint('你好')\r\n",
    "cp932": "こんにちは世界\n# 作者:田中\n",
    "cp1252": "Le café est très agréable, déjà vu à Noël.\n",
    "big5": "這是一個測試檔案,包含中文字元。第二行有更多的內容。\n",
    "euc_kr": "이것은 테스트 파일입니다. 한국어 문장을 씁니다.\n",
    "cp1251": "Это тестовый файл на русском языке.\n",
    "utf-16-le": "\ufeffnaïve 日本\r\nsecond\r\n",
    "utf-16-be": "\ufeffnaïve 日本\nsecond\n",
}


class Files:
    def __init__(self, base: Path, roots: Roots) -> None:
        self.shared = base / "shared"
        self.pipeline = ToolPipeline(Registry(file_tools(roots)), scrubber=Scrubber([]))

    async def __call__(self, name: str, path: str, **arguments: Any) -> Any:
        result = await self.pipeline.call(ALICE, name, {"path": path, **arguments})
        return result.text if result.is_error else json.loads(result.text.split("\nNote: ")[0])


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    for name in ("shared", "tmp", "vault"):
        (tmp_path / name).mkdir()
    roots = Roots({name: tmp_path / name for name in ("shared", "tmp", "vault")})
    yield Files(tmp_path, roots)
    roots.close()


@pytest.mark.parametrize("encoding", TEXTS)
async def test_a_text_is_read_searched_and_edited_in_its_encoding(
    files: Files, encoding: str
) -> None:
    text = TEXTS[encoding]
    path = files.shared / "text"
    path.write_bytes(text.encode(encoding))
    read = await files("file_read", "/shared/text")
    assert (read["content"], read["encoding"]) == (text, encoding)
    word = text.split()[0].lstrip("\ufeff")
    (match,) = (await files("file_search", "/shared", query=word))["matches"]
    assert match["line"] == 1
    assert (await files("file_edit", "/shared/text", old=word, new=f"{word}2"))["line"] == 1
    assert path.read_bytes() == text.replace(word, f"{word}2").encode(encoding)


async def test_a_mark_and_line_ends_stay_and_new_lines_get_them(files: Files) -> None:
    path = files.shared / "text"
    path.write_bytes("\ufeffone\r\ntwo\r\n".encode("utf-16-le"))
    await files("file_edit", "/shared/text", old="two", new="2\n3")
    assert path.read_bytes() == "\ufeffone\r\n2\r\n3\r\n".encode("utf-16-le")


async def test_a_character_that_the_encoding_lacks_is_refused(files: Files) -> None:
    path = files.shared / "text"
    path.write_bytes(TEXTS["cp1252"].encode("cp1252"))
    answer = await files("file_edit", "/shared/text", old="café", new="茶")
    assert answer.startswith("/shared/text is written in cp1252, which has no '茶' (U+8336)")
    assert path.read_bytes() == TEXTS["cp1252"].encode("cp1252")


async def test_what_could_not_be_written_back_is_not_edited(files: Files) -> None:
    path = files.shared / "text"
    broken = "\ufeffone two".encode("utf-16-le") + b"\0\xd8"
    path.write_bytes(broken)
    answer = await files("file_edit", "/shared/text", old="one", new="1")
    assert "is damaged text (utf-16-le)" in answer
    assert path.read_bytes() == broken


async def test_a_broken_character_far_in_makes_no_other_encoding(files: Files) -> None:
    path = files.shared / "text"
    path.write_bytes("naïve line\n".encode() * LOOK_BYTES + b"needle \xff\n")
    (match,) = (await files("file_search", "/shared", query="needle"))["matches"]
    assert match["line"] == LOOK_BYTES + 1
    answer = await files("file_edit", "/shared/text", old="needle", new="pin")
    assert "is damaged text (utf-8)" in answer


async def test_pages_of_a_text_are_refused(files: Files) -> None:
    (files.shared / "text").write_text("words")
    assert "has no pages" in await files("file_read", "/shared/text", pages="2")


@pytest.mark.parametrize(
    "content",
    [
        bytes(range(256)),
        b"\0\1\2",
        b"a\0b\0\0\0",
        b"\x1f\x8b\x08",
        b"\x00\xd8\x01\x00" * 40,
        b"\xff" * 99,
    ],
)
def test_what_is_no_text_has_no_encoding(content: bytes) -> None:
    assert encoding_of(content) == ""


def test_the_first_character_beyond_ascii_decides_however_late_it_comes() -> None:
    text = "plain words\n" * LOOK_BYTES + TEXTS["gb18030"] * 2_000
    assert encoding_of(text.encode("gb18030")) == "gb18030"


def test_no_character_is_cut_where_looking_ends() -> None:
    assert encoding_of(("日本" * LOOK_BYTES).encode()[:LOOK_BYTES]) == "utf-8"
    lines = "第二行有更多的内容\n".encode("gb18030") * LOOK_BYTES
    assert {encoding_of(lines[:end]) for end in range(LOOK_BYTES, LOOK_BYTES + 4)} == {"gb18030"}
