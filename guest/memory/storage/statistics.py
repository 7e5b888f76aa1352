"""Counts for one user."""

import json
from typing import Any, Final, cast

from guest.memory.models import Statistics, User
from guest.memory.storage.base import Database

_COUNT: Final = """
SELECT (SELECT COUNT(*) FROM notes WHERE namespace = ?1 AND superseded_by IS NULL),
       (SELECT COUNT(*) FROM note_versions WHERE namespace = ?1),
       (SELECT COUNT(*) FROM chunks WHERE namespace IN (SELECT value FROM json_each(?2))),
       (SELECT COUNT(*) FROM chunks_vec WHERE namespace IN (SELECT value FROM json_each(?2))
            AND model_id > '' AND (?4 = '' OR model_id = ?4)),
       (SELECT COUNT(*) FROM sessions WHERE user_id = ?3),
       (SELECT COUNT(*) FROM conversation_events JOIN sessions USING (session_id)
            WHERE sessions.user_id = ?3),
       (SELECT MAX(version) FROM memory_migrations),
       (SELECT COUNT(*) FROM sessions WHERE user_id = ?3 AND archived_at <> ''),
       (SELECT json_group_object(model_id, vectors) FROM (
            SELECT model_id, COUNT(*) AS vectors FROM chunks_vec
                WHERE namespace IN (SELECT value FROM json_each(?2)) GROUP BY model_id))
"""


async def statistics(database: Database, user: User, model_id: str) -> Statistics:
    """Counts of one user's memory; vectors only of `model_id`, if given."""
    passages = json.dumps(user.namespaces)
    result = await database.execute(_COUNT, (user.notes, passages, user.id, model_id))
    counts = cast("tuple[Any, ...]", result.rows[0])
    return Statistics(
        notes=counts[0],
        note_versions=counts[1],
        passages=counts[2],
        passages_embedded=counts[3],
        sessions=counts[4],
        conversation_events=counts[5],
        database_bytes=await database.size_bytes(),
        schema_version=counts[6],
        embedding_model=model_id,
        archived_sessions=counts[7],
        vectors=json.loads(counts[8]),
    )
