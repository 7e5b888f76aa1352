"""A memory in one line of `runner status`."""

from datetime import UTC, datetime, timedelta

import pytest
from wire.v1 import gateway_pb2

from runner.cli.memory.output import memory_line

Reply = gateway_pb2.MemoryStatisticsReply
OTHERS = [gateway_pb2.ModelVectors(model="old", vectors=204)]


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (Reply(store="local", state="ready"), "0 passages · local ready"),
        (Reply(passages=1, passages_embedded=1), "1 passage, all embedded"),
        (
            Reply(
                passages=1204,
                passages_embedded=1000,
                embedder="ready",
                embedding_model="new",
                vectors=OTHERS,
                encrypted=True,
            ),
            "1,204 passages, 83 % embedded (re-embedding with new) · encrypted",
        ),
        (
            Reply(passages=1000, passages_embedded=999, embedder="ready", embedding_model="new"),
            "1,000 passages, 99 % embedded (embedding with new)",
        ),
        (
            Reply(
                passages=1000,
                passages_embedded=500,
                embedder="ready",
                embedding_model="new",
                embedding_seconds_left=400,
            ),
            "1,000 passages, 50 % embedded (embedding with new, about 7 minutes left)",
        ),
        (Reply(passages=1, passages_embedded=1, foreign_percent=0), "1 passage, all embedded"),
        (
            Reply(passages=1, passages_embedded=1, foreign_percent=10),
            "1 passage, all embedded · 10 % of the notes are not in English, which alone the model "
            'knows: set [embedder] model = "multilingual"',
        ),
        (
            Reply(passages=4, passages_embedded=1, embedder="loading"),
            "4 passages, 25 % embedded (the embedder is not ready)",
        ),
    ],
)
def test_what_the_line_says(found: Reply, line: str) -> None:
    assert memory_line(found) == line


def test_the_age_of_the_local_copy() -> None:
    moment = (datetime.now(UTC) - timedelta(seconds=30)).isoformat().replace("+00:00", "Z")
    shown = memory_line(Reply(store="remote", state="away", replica_synced_at=moment))
    assert shown.startswith("0 passages · remote away · local copy 3")
