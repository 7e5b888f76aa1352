"""`make bench-quality`: recall and reciprocal rank of search, by kind of question.

`ARGS="--half test"` measures on the half that nobody has tuned on, `ARGS="--model …"` with another
embedding model, an id or a directory. `--locomo FILE` and `--longmemeval FILE` measure on a public
corpus instead; `--results FILE` keeps what was found, and compares with what an earlier run has
kept there.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.quality import corpus, public
from bench.quality.measure import (
    Figures,
    Result,
    Table,
    answers,
    figures_by_kind,
    interval,
    measure,
    of_sessions,
    recall,
    scopes,
)
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


async def of_others(
    forms: public.Scopes, model: str, cache: Path | None, kept: Path | None
) -> None:
    """Print the figures of a public corpus, each person's part in a memory of its own."""
    embedder = await InProcess.load(model)
    found: dict[str, list[Result]] = {}
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oxq-") as scratch:
        for form, parts in forms.items():
            found[form] = []
            for owner, part in parts.items():
                path = Path(scratch) / f"{form}-{owner}.db"
                table = await answers(path, embedder, {owner: part}, ways=("hybrid",), cache=cache)
                found[form] += table[owner]["hybrid"]
    earlier = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    for form, results in found.items():
        for level, of_level in (("turns", results), ("sessions", of_sessions(results))):
            print(f"\n{form}, {level:9} questions      R@5   R@10    MRR")
            for kind, figures in figures_by_kind(of_level).items():
                print(f"  {kind:26}{figures.questions:6}  {_cells(figures)}")
        if form in earlier:
            differences = [
                recall(question, names, 10) - recall(question, before, 10)
                for (question, names), before in zip(results, earlier[form], strict=True)
            ]
            mean, low, high = (100 * value for value in interval(differences))
            print(f"  R@10 of turns against {kept}: {mean:+.1f} [{low:+.1f}, {high:+.1f}]")
    if kept is not None and not earlier:
        names = {form: [names for _, names in results] for form, results in found.items()}
        kept.write_text(json.dumps(names), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="make bench-quality")
    parser.add_argument("--half", choices=corpus.HALVES, default=corpus.HALVES[0])
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--locomo", type=Path, metavar="FILE")
    parser.add_argument("--longmemeval", type=Path, metavar="FILE")
    parser.add_argument("--cache", type=Path, metavar="FILE.npz", help="keeps vectors")
    parser.add_argument("--results", type=Path, metavar="FILE", help="kept, or compared with")
    arguments = parser.parse_args()
    if arguments.locomo or arguments.longmemeval:
        forms = (
            public.locomo(arguments.locomo)
            if arguments.locomo
            else public.longmemeval(arguments.longmemeval)
        )
        asyncio.run(of_others(forms, arguments.model, arguments.cache, arguments.results))
    else:
        asyncio.run(main(arguments.half, arguments.model))
