"""`python -m bench.quality.projects development|test`: how often the right note comes first in the
session of a project, with each bonus for the project's own notes.

Questions of a project are asked in its session, those that are said to be of any `project` in the
session of each; those whose answer is a general note in all sessions.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Final
from unittest import mock

from bench.quality.model import InProcess
from guest.memory.memory import Memory
from guest.memory.models import Hit, MemoryConfig, Only, Origin
from guest.memory.search import ranking

_ROOT: Final = Path(__file__).parent / "projects"
_BONUSES: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)


def _rows(half: str, name: str) -> list[list[str]]:
    text = (_ROOT / half / f"{name}.tsv").read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines()]


async def main(half: str) -> None:
    notes, questions = _rows(half, "notes"), _rows(half, "questions")
    projects = sorted({of for of, _ in notes} - {"general"})
    embedder = await InProcess.load()
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oxq-") as scratch:
        memory = await Memory.open(MemoryConfig(str(Path(scratch) / "m.db")), embedder, "alice")
        for of, text in notes:
            tags = [] if of == "general" else [f"project:{of}"]
            assert (await memory.save(text, tags, Origin("user"))).searchable == "semantic"
        for bonus in _BONUSES:
            counts = {"project": [0, 0], "general": [0, 0]}
            with mock.patch.object(ranking, "PROJECT_BONUS", bonus):
                for here in projects:
                    tag = f"project:{here}"
                    for of, asked, wanted in questions:
                        if of not in ("project", "general", here):
                            continue
                        found = await memory.search(asked, only=Only(project_tag=tag))
                        count = counts["general" if of == "general" else "project"]
                        count[0] += _answers(
                            found.results, wanted, () if of == "general" else (tag,)
                        )
                        count[1] += 1
            print(f"{bonus:4}", *(f"{kind} {a}/{b}" for kind, (a, b) in counts.items()), sep="  ")
        await memory.close()
        await embedder.close()


def _answers(results: tuple[Hit, ...], wanted: str, tags: tuple[str, ...]) -> bool:
    first = results[0] if results else None
    return (
        first is not None
        and first.tags == tags
        and any(each in first.text for each in wanted.split("|"))
    )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
