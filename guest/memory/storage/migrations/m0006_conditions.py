"""What a schedule checks before it asks a model, and what its runs are given.

`seen`: what its condition has seen before its last run. `day_budget`: the most that its runs of a
day may cost, in billionths of a US dollar; `capped`: no run fits into what is left of it on the day
of `spent_on`.
"""

from typing import Final

NAME: Final = "conditions"

STATEMENTS: Final = (
    *(
        f"ALTER TABLE schedules ADD COLUMN {name} TEXT NOT NULL DEFAULT ''"
        for name in ("condition", "seen", "model", "project")
    ),
    "ALTER TABLE schedules ADD COLUMN day_budget INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE schedules ADD COLUMN capped INTEGER NOT NULL DEFAULT 0",
)
