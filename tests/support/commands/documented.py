"""The command lines of README and the documentation: in blocks of a shell, and quoted in prose."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
PAGES: Final = tuple(
    page
    for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/guide/*.md")])
    if page.name not in ("CHANGELOG.md", "attempts.md")
)
"""What tells a reader what to type: neither what has changed, nor dated decisions, nor a table that
tests write."""

_PROGRAMS: Final = (
    r"(?:oxydra|runner|make|docker|systemctl|systemd-run|sudo|apt-get|git clone|pip|uv|hf|chown"
    r"|fuser|python -m|tools/|deploy/compose/\S+\.sh|\.venv/bin/|printf|openssl)"
)
_BLOCK: Final = re.compile(r"^```(sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_QUOTED: Final = re.compile(rf"`({_PROGRAMS}[^`\n]*)`")
_COMMENT: Final = re.compile(r"\s{2,}#\s.*$")


@dataclass(frozen=True)
class Documented:
    """One command line; `output` is what the page shows after it, if it shows any."""

    place: str
    line: str
    output: str = ""


def documented(pages: tuple[Path, ...] = PAGES) -> list[Documented]:
    """Every command line, in the order of the pages; continued lines are joined."""
    return [each for page in pages for each in (*_blocks(page), *_quoted(page))]


def _blocks(page: Path) -> list[Documented]:
    text = page.read_text()
    found = []
    for block in _BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(2)) + 1
        body = re.sub(r"\\\n\s*", "", block[2])
        for number, part in enumerate(_parts(body, console=block[1] == "console")):
            line, _, output = part.partition("\n")
            if line := _COMMENT.sub("", line).strip():
                found.append(Documented(f"{_name(page)}:{first + number}", line, output))
    return found


def _parts(body: str, *, console: bool) -> list[str]:
    """Commands of a block, in a console each with its output."""
    if console:
        return re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]
    return [line for line in body.splitlines() if not line.startswith("#")]


def _quoted(page: Path) -> list[Documented]:
    text = _FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), page.read_text())
    return [
        Documented(f"{_name(page)}:{text.count(chr(10), 0, each.start()) + 1}", each[1].strip())
        for each in _QUOTED.finditer(text)
        if " " in each[1].strip() and "…" not in each[1]
    ]


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))
