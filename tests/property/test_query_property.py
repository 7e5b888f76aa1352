"""Queries of any kind at all."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.memory.store import ORIGIN, FakeEmbedder, opened
from tests.support.scratch import SCRATCH

QUERY = st.one_of(
    st.text(max_size=60),
    st.text(alphabet="\"*^():+-{}'\\ANDORNOTEAR ab\0\ud800\u0301_", max_size=40),
    st.lists(st.sampled_from(["AND", "OR", "NOT", "NEAR(", '"', "tea", "body:", "*", ")"])).map(
        " ".join
    ),
)


@examples(20)
@given(st.lists(QUERY, min_size=10, max_size=40))
def test_no_query_makes_a_search_raise(queries: list[str]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
            async with opened(Path(scratch) / "memory.db", FakeEmbedder()) as memory:
                await memory.save("tea and a b AND OR NOT", ["x"], ORIGIN)
                await memory.conversations.create("s")
                await memory.conversations.append(
                    "s", turn_id="t", role="user", text="tea NEAR a", payload="[]"
                )
                for query in queries:
                    for conversation in (False, True):
                        found = await memory.search(query, include_conversation=conversation)
                        assert "could not be searched" not in "".join(found.warnings)
                        assert all(0 <= hit.score <= 1 for hit in found.results)

    asyncio.run(run())
