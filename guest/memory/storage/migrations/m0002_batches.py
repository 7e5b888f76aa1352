"""The keys of applied batches, for a store that is reached over a network.

Every batch that changes something there begins with a row here, in the same
transaction. When its answer is lost it is sent again, and the primary key tells
whether the first one was applied. Local stores need none of this and leave the
table empty, so that all stores have one schema.
"""

from typing import Final

NAME: Final = "batches"

STATEMENTS: Final = (
    """
    CREATE TABLE batches (
        key TEXT PRIMARY KEY,
        applied_at INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
)
