"""Schedules from the command line, with an agent that stays."""

import json
import time

from tests.support.commands.household import Household


def test_work_that_begins_by_itself_is_made_run_told_and_taken_away(household: Household) -> None:
    household.works("start", "--detach")
    try:
        made = household.works(
            *("schedules", "create", "0 7 * * 1-5"),
            *("what do you know about tea", "--name", "build"),
        )
        assert made.count("07:00") == 3
        assert "build" in household.works("schedules", "list")
        household.works("schedules", "run", "build")
        deadline = time.monotonic() + 120
        runs: list[dict[str, str]] = []
        while not runs or runs[0]["state"] == "running":
            assert time.monotonic() < deadline
            runs = json.loads(household.works("schedules", "runs", "build", "--json"))
        assert runs[0]["state"] == "done"
        assert "ran at" in runs[0]["told"]
        shown = " ".join(household.works("schedules", "runs", "build").split())
        assert f"sent 1 notice: {runs[0]['answer'].split()[0]}" in shown
        assert "sent 1 notice: " in " ".join(household.works("notices").split())
        turns = household.works("sessions", "show", runs[0]["session_id"])
        assert "what do you know about tea" in turns
        assert "schedule: ran at " in turns
        assert "paused" in household.works("schedules", "pause", "build")
        assert "07:00" in household.works("schedules", "resume", "build")
        assert household.works("schedules", "show", "build").startswith(made[:12])
        refused = household.run("schedules", "create", "soon", "x")
        assert refused.returncode
        assert "when: 'soon' is not a time such as" in refused.stderr
        household.works("schedules", "delete", "build")
        assert "there is no schedule" in household.works("schedules", "list")
    finally:
        household.stop()
