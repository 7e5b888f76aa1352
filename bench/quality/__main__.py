"""`make bench-quality`: recall and reciprocal rank of search, by kind of question."""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.quality import corpus
from bench.quality.measure import SCOPES, Figures, Table, measure
from bench.quality.model import InProcess
from bench.quality.prompt import prompted
from guest.embedding.backends import DEFAULT_MODEL


def report(table: Table) -> Iterator[str]:
    """Lines of the report."""
    for scope in SCOPES:
        ways = table[scope]
        yield ""
        yield f"{scope:12} questions" + "".join(f"{way:>26}" for way in ways)
        yield " " * 22 + "    R@5   R@10    MRR   " * len(ways)
        for kind in (*corpus.KINDS, "all"):
            cells = "   ".join(_cells(figures[kind]) for figures in ways.values())
            count = next(iter(ways.values()))[kind].questions
            yield f"  {kind:12}{count:7} {cells}"


def _cells(figures: Figures) -> str:
    shares = (figures.recall_5, figures.recall_10, figures.reciprocal_rank)
    return "".join(f"{share * 100:7.1f}" for share in shares)


async def main() -> None:
    began = time.perf_counter()
    embedder = await InProcess.load()
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oxq-") as scratch:
        path = Path(scratch) / "memory.db"
        table = await measure(path, embedder)
        brought = await prompted(path, embedder)
    noted, said = corpus.notes(), corpus.conversations()
    print(
        f"{len(noted.entries)} notes, {len(said.entries)} turns, {DEFAULT_MODEL}; percent; "
        f"{time.perf_counter() - began:.0f} s"
    )
    print("\n".join(report(table)))
    print(
        f"\nwhat memory brings into a prompt by itself: {brought.recall:.1%} of the answers, with "
        f"{brought.notes:.1f} notes and {brought.tokens:.0f} tokens a question; "
        f"{brought.idle_notes:.1f} notes for small talk"
    )


if __name__ == "__main__":
    asyncio.run(main())
