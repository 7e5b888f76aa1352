"""Turns that begin by themselves.

- `schedules.timing`, `zone`, `starts`: what `guest.schedules.timing` reads. `handled`: when a slot
  was last run or passed by; `due`: the slot that comes next, empty while there is none or the
  schedule is paused. `material`: what the model had read when it made the schedule, as JSON;
  `made_by`: "user" or "agent". `session_id`: the session of its runs; empty: each has its own.
- `slots`: what became of a schedule's slots. A claim is a row, written before the turn begins: the
  primary key lets a slot run once. `turn_id` is new with each claim. `renewed`: when its agent
  last said that it runs, by the clock of the database. `missed`: how many slots were missed, from
  this one on; such a row is a microsecond later than the first of them, in nobody's way. `told`: 1
  once its notice is stored, 2 if there is nothing to tell.
"""

from typing import Final

NAME: Final = "schedules"

STATEMENTS: Final = (
    """
    CREATE TABLE schedules (
        schedule_id TEXT PRIMARY KEY,
        user_id TEXT NOT NULL,
        name TEXT NOT NULL,
        instructions TEXT NOT NULL,
        timing TEXT NOT NULL,
        zone TEXT NOT NULL,
        starts TEXT NOT NULL,
        session_id TEXT NOT NULL,
        tools TEXT NOT NULL,
        budget INTEGER NOT NULL,
        again INTEGER NOT NULL,
        queue INTEGER NOT NULL,
        made_by TEXT NOT NULL,
        made_in TEXT NOT NULL,
        material TEXT NOT NULL,
        created_at TEXT NOT NULL,
        paused INTEGER NOT NULL DEFAULT 0,
        handled TEXT NOT NULL,
        due TEXT NOT NULL
    )
    """,
    "CREATE INDEX schedules_due ON schedules (user_id, due) WHERE due <> ''",
    "CREATE INDEX schedules_by_user ON schedules (user_id, created_at)",
    "CREATE INDEX schedules_by_session ON schedules (session_id) WHERE session_id <> ''",
    "CREATE INDEX schedules_by_maker ON schedules (made_in) WHERE made_in <> ''",
    """
    CREATE TABLE slots (
        schedule_id TEXT NOT NULL REFERENCES schedules (schedule_id) ON DELETE CASCADE,
        slot TEXT NOT NULL,
        state TEXT NOT NULL,
        owner TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        session_id TEXT NOT NULL,
        turn_id TEXT NOT NULL,
        began TEXT NOT NULL,
        renewed INTEGER NOT NULL,
        ended TEXT NOT NULL DEFAULT '',
        cost INTEGER NOT NULL DEFAULT 0,
        calls INTEGER NOT NULL DEFAULT 0,
        notes INTEGER NOT NULL DEFAULT 0,
        missed INTEGER NOT NULL DEFAULT 0,
        detail TEXT NOT NULL DEFAULT '',
        told INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (schedule_id, slot)
    )
    """,
    "CREATE INDEX slots_running ON slots (schedule_id) WHERE state = 'running'",
    "CREATE INDEX slots_untold ON slots (schedule_id) WHERE told = 0",
    "CREATE INDEX slots_by_session ON slots (session_id) WHERE session_id <> ''",
)
