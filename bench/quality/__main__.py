"""`make bench-quality`: recall and reciprocal rank of search, by kind of question.

`ARGS="--half test"` measures on the half that nobody has tuned on, `ARGS="--model …"` with another
embedding model, an id or a directory.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.quality import corpus
from bench.quality.measure import Figures, Table, measure, scopes
from bench.quality.model import InProcess
from bench.quality.prompt import prompted
from guest.embedding.weights import DEFAULT_MODEL


def report(parts: Mapping[str, corpus.Part], table: Table) -> Iterator[str]:
    """Lines of the report."""
    for scope, part in parts.items():
        ways = table[scope]
        yield ""
        yield f"{scope:12} questions" + "".join(f"{way:>26}" for way in ways)
        yield " " * 22 + "    R@5   R@10    MRR   " * len(ways)
        for kind in (*part.kinds, "all"):
            cells = "   ".join(_cells(figures[kind]) for figures in ways.values())
            count = next(iter(ways.values()))[kind].questions
            yield f"  {kind:12}{count:7} {cells}"


def _cells(figures: Figures) -> str:
    shares = (figures.recall_5, figures.recall_10, figures.reciprocal_rank)
    return "".join(f"{share * 100:7.1f}" for share in shares)


async def main(half: corpus.Half, model: str) -> None:
    began = time.perf_counter()
    embedder = await InProcess.load(model)
    parts = scopes(half)
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oxq-") as scratch:
        path = Path(scratch) / "memory.db"
        table = await measure(path, embedder, parts)
        brought = await prompted(path, embedder) if "notes" in parts else None
    print(f"{half}: {model}; percent; {time.perf_counter() - began:.0f} s")
    for scope, part in parts.items():
        turns = sum(bool(entry.role) for entry in part.entries)
        print(f"{scope}: {len(part.entries) - turns} notes, {turns} turns")
    print("\n".join(report(parts, table)))
    if brought is not None:
        print(
            f"\nwhat memory brings into a prompt by itself: {brought.recall:.1%} of the answers, "
            f"with {brought.notes:.1f} notes and {brought.tokens:.0f} tokens a question; "
            f"{brought.idle_notes:.1f} notes for small talk"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="make bench-quality")
    parser.add_argument("--half", choices=corpus.HALVES, default=corpus.HALVES[0])
    parser.add_argument("--model", default=DEFAULT_MODEL)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.half, arguments.model))
