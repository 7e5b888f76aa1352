"""The model's text as a person sees it: as Markdown, and marked where it imitates the runtime.

A receipt is a line that begins in the first column with one of `_SIGNS`. A line of the model that
would begin so gets a bar in front, so that the two differ also without colours.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from typing import ClassVar, Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, TableElement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from runner.cli.output import neutralise

_SIGNS: Final = frozenset("✓✗?○✔✘☑☒✅❌❎√×╳？⁇❓❔◯⭕⚪●⬤🔴🟢")
"""Signs at the start of receipts and tool calls, and characters that look like them."""
_BAR: Final = "│ "
_GROWTH: Final = 1.2
_CODE_INDENT: Final = 2
_NOTE: Final = re.compile(r"[ \n]\[id: ((note-[0-9a-f]{8})-[0-9a-f-]{27})\]")
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n?|\n)")


class ModelText:
    """Marks the text of one answer, piece by piece."""

    def __init__(self) -> None:
        self._at_line_start = True

    def marked(self, text: str) -> str:
        """`text`, with a bar before every line that begins like a receipt."""
        marked: list[str] = []
        for char in text:
            if self._at_line_start and char in _SIGNS:
                marked.append(_BAR)
            marked.append(char)
            self._at_line_start = char in "\r\n" or (self._at_line_start and _is_unseen(char))
        return "".join(marked)


def _is_unseen(char: str) -> bool:
    """Whether `char` is invisible, so that a line seems to begin after it."""
    return char.isspace() or unicodedata.category(char) in ("Cf", "Mn", "Cc", "Zs")


class Blocks:
    """One Markdown text that arrives in pieces.

    `unfinished` is its end: the last paragraph, list, table or other block, which may still change.
    """

    def __init__(self) -> None:
        self.unfinished = ""
        self._look_again_at = 0.0

    def add(self, text: str) -> str:
        """Add a piece. Returns the blocks that nothing can change any more; empty if there is none.

        A block that grows is parsed again only when it has grown by a fifth, so that a long one
        costs no more than a few times its length.
        """
        self.unfinished += text
        whole = self.unfinished.rfind("\n") + 1
        if "\n" not in text or whole < self._look_again_at:
            return ""
        lines = _LINE.findall(self.unfinished[:whole])
        begins = _first_lines(_parsed("".join(lines)))
        finished = "".join(lines[: begins[-1]]) if begins else ""
        self.unfinished = self.unfinished[len(finished) :]
        self._look_again_at = 0.0 if finished else whole * _GROWTH
        return finished

    def rest(self) -> str:
        """What is still unfinished, which is forgotten."""
        rest, self.unfinished, self._look_again_at = self.unfinished, "", 0.0
        return rest


def rows(console: Console, markup: str, receipted: Container[str] = ()) -> list[Text]:
    """A Markdown text of the model as rows that fit the console, without blank ones at its ends.

    An id of a note in brackets is short, as in tables, and left out if it is one of `receipted`.

    Text that a rendering would leave out, as a table without room does, is shown as it was written.
    No row holds anything that a terminal would obey.
    """

    def named(mark: re.Match[str]) -> str:
        return "" if mark[1] in receipted else f" [{mark[2]}]"

    markup = _NOTE.sub(named, neutralise(markup))
    markdown = _Answer(markup)
    shown = _rendered(console, markdown)
    if _letters(markup) - markdown.left_out - _letters("".join(row.plain for row in shown)):
        shown = _rendered(console, Text(markup))
    return [Text(_BAR).append_text(row) if _imitates(row.plain) else row for row in shown]


class _Code(CodeBlock):
    """Code as it is, without colours: highlighting would run grammars over text of the model."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = Text(str(self.text).rstrip(), style="markdown.code", overflow="fold")
        yield Padding(code, (0, 0, 0, _CODE_INDENT))


class _Heading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Table(TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            if isinstance(table, Table):
                for column in table.columns:
                    column.overflow = "fold"
            yield table


class _Answer(Markdown):
    """Markdown that shows links with their addresses, and keeps the lines of the text.

    `left_out` are the letters of languages named at code, which are not shown.
    """

    elements: ClassVar = {
        **Markdown.elements,
        "fence": _Code,
        "code_block": _Code,
        "heading_open": _Heading,
        "table_open": _Table,
    }

    def __init__(self, markup: str) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = _parsed(markup)
        self.left_out = _letters("".join(block.info for block in self.parsed))
        for block in self.parsed:
            for part in block.children or ():
                if part.type == "softbreak":
                    part.type = "hardbreak"


def _parsed(markup: str) -> list[Token]:
    """The tokens of a text. What would hide what the model wrote, such as HTML, is plain text."""
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    return parser.disable(["image", "entity", "reference"]).parse(markup)


def _first_lines(tokens: Iterable[Token]) -> list[int]:
    """Where the outermost blocks begin."""
    return [token.map[0] for token in tokens if token.level == 0 and token.map]


def _rendered(console: Console, renderable: RenderableType) -> list[Text]:
    lines = console.render_lines(renderable, pad=False)
    shown = [
        Text.assemble(*((neutralise(part.text), part.style or "") for part in line))
        for line in lines
    ]
    for row in shown:
        row.rstrip()
    return _without_blank_ends(shown)


def _without_blank_ends(shown: Sequence[Text]) -> list[Text]:
    filled = [number for number, row in enumerate(shown) if row.plain]
    return list(shown[filled[0] : filled[-1] + 1]) if filled else []


def _letters(text: str) -> Counter[str]:
    return Counter(filter(str.isalpha, text))


def _imitates(row: str) -> bool:
    return ModelText().marked(row) != row
