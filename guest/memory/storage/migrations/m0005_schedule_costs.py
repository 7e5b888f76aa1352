"""What the runs of a schedule have cost, in billionths of a US dollar; its slots are trimmed.

`spent`: all; `spent_month` and `spent_day`: those that ended in the month and on the day of
`spent_on`, in the schedule's zone.
"""

from typing import Final

NAME: Final = "schedule_costs"

STATEMENTS: Final = (
    "ALTER TABLE schedules ADD COLUMN spent INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE schedules ADD COLUMN spent_month INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE schedules ADD COLUMN spent_day INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE schedules ADD COLUMN spent_on TEXT NOT NULL DEFAULT ''",
    """
    UPDATE schedules SET spent = COALESCE(
        (SELECT SUM(cost) FROM slots WHERE slots.schedule_id = schedules.schedule_id), 0)
    """,
)
