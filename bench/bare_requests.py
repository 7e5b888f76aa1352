"""Requests to a libSQL server with nothing around them: the yardstick for a remote memory."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import aiohttp

from guest.memory.indexing.vector_store import VectorStore
from guest.memory.models import MemoryConfig, Only, Origin, User
from guest.memory.notes.quota import Quota
from guest.memory.notes.repository import Draft, NoteRepository
from guest.memory.replica import sync
from guest.memory.search import keyword, results
from guest.memory.storage.base import Database, Result, Statement, Value
from guest.memory.storage.hrana import encoded

_NEAREST = """
SELECT chunk_id FROM chunks_vec WHERE namespace = ? AND model_id = ?
    ORDER BY vector_distance_cos(vector, ?) LIMIT 50
"""


class BareClient:
    """One warm connection pool of the same HTTP library that the memory uses."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url + "/v2/pipeline"

    async def transaction(self, statements: Sequence[Statement]) -> None:
        """All of `statements`, in one request."""
        steps: list[dict[str, Any]] = []
        for statement in statements:
            steps.append({"stmt": encoded(statement)})
            if len(steps) > 1:
                steps[-1]["condition"] = {"type": "ok", "step": len(steps) - 2}
        (answer,) = await self._send({"type": "batch", "batch": {"steps": steps}})
        if any(answer["response"]["result"]["step_errors"]):
            raise RuntimeError(f"the server refused: {answer}")

    async def queries(self, *statements: Statement) -> None:
        """Several queries, in one request."""
        await self._send(*({"type": "execute", "stmt": encoded(each)} for each in statements))

    async def _send(self, *requests: dict[str, Any]) -> list[Any]:
        body = {"requests": [*requests, {"type": "close"}]}
        async with self._session.post(self._url, json=body) as response:
            answers: list[Any] = json.loads(await response.read())["results"][:-1]
        if any(answer["type"] != "ok" for answer in answers):
            raise RuntimeError(f"the server refused: {answers}")
        return answers


@asynccontextmanager
async def bare_client(url: str) -> AsyncIterator[BareClient]:
    """A client for the database at `url`, closed at the end."""
    async with aiohttp.ClientSession() as session:
        yield BareClient(session, url)


async def saving(user: User, note_id: str, text: str) -> list[Statement]:
    """All statements that the server receives when a note is saved."""
    draft = Draft(text, (), Origin("user"), note_id=note_id)
    noted = _Noting()
    database, quota = cast(Database, noted), Quota.of(MemoryConfig(""))
    await NoteRepository(database, VectorStore(database), user, quota).insert(draft)
    return [
        Statement("PRAGMA foreign_keys = ON"),
        Statement("BEGIN IMMEDIATE"),
        Statement("INSERT INTO batches (key, applied_at) VALUES (?, unixepoch())", (note_id,)),
        *noted.statements,
        Statement("COMMIT"),
    ]


def finding(namespace: str, query: str, model_id: str, vector: bytes) -> list[Statement]:
    """The first queries of a search without a replica: passages by keyword and by vector."""
    terms = json.dumps(keyword.query_terms(query))
    return [
        Statement(keyword.statement("chunks_fts", keyword.MATCHES_MAX), (namespace, terms)),
        Statement(_NEAREST, (namespace, model_id, vector)),
    ]


async def showing(namespace: str, chunk_ids: list[int]) -> list[Statement]:
    """The second query of a search without a replica: the notes to show."""
    noted = _Noting()
    await results.notes(cast(Database, noted), namespace, chunk_ids, Only())
    return noted.statements


async def asking(namespace: str) -> list[Statement]:
    """The one query of a search with a replica: whether anything has changed."""
    noted = _Noting()
    await sync.counters(cast(Database, noted), [namespace])
    return noted.statements


class _Noting:
    """Records the statements that it is given, and runs none."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []

    async def execute(self, sql: str, args: Sequence[Value] = ()) -> Result:
        return (await self.batch([Statement(sql, args)]))[0]

    async def batch(self, statements: Sequence[Statement]) -> list[Result]:
        self.statements += statements
        return [Result((), 0) for _ in statements]
