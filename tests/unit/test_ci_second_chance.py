"""Which failures CI may run again, and which stand."""

from pathlib import Path

import pytest
import second_chance

_REPORT = """<testsuites><testsuite>
<testcase classname="tests.unit.a" name="fine"/>
<testcase classname="tests.unit.a" name="wrong"><failure/></testcase>
<testcase classname="tests.e2e.b" name="broken"><error/></testcase>
<testcase classname="tests.e2e.b" name="left_out"><skipped/></testcase>
</testsuite></testsuites>"""


def test_failures_and_breakages_are_named() -> None:
    assert second_chance.failed(_REPORT) == ["tests.unit.a::wrong", "tests.e2e.b::broken"]


def test_a_few_may_be_run_again() -> None:
    assert second_chance.refusal(["tests.unit.a::wrong", "tests.e2e.b::broken"]) == ""


def test_many_stand() -> None:
    assert "4 tests failed" in second_chance.refusal([f"tests.unit.a::{i}" for i in range(4)])


def test_names_of_all_reports_are_listed_and_counted_together(tmp_path: Path) -> None:
    report, used = tmp_path / "report.xml", tmp_path / "unstable"
    report.write_text(_REPORT)
    second_chance.main(report, used)
    assert used.read_text() == "tests.unit.a::wrong\ntests.e2e.b::broken\n"
    with pytest.raises(SystemExit, match="4 tests failed; only up to 3 are run again"):
        second_chance.main(report, used)


def test_a_report_without_failures_excuses_nothing() -> None:
    assert second_chance.refusal([]) != ""


def test_what_must_never_fail_stands() -> None:
    for name in (
        "tests.security.boundary.test_x::test_y",
        "tests.security.test_forgetting::test_y",
        "tests.faults.test_faults::test_y",
        "tests.integration.test_crash_sessions::test_y",
        "tests.integration.test_keyed_crash::test_y[1]",
        "tests.integration.test_crash.TestX::test_y",
        "tests.conformance.test_database::test_y",
        "tests.integration.test_database_files::test_y",
        "tests.integration.test_x::test_a_change_is_never_claimed_falsely[slow]",
        "tests.integration.test_x::test_killed_at_any_moment_the_old_is_there",
        "tests.integration.test_x::test_a_kill_loses_no_note",
        "tests.integration.test_x::test_all_write_at_once_and_nothing_is_lost",
    ):
        assert name in second_chance.refusal([name])


def test_a_name_that_only_sounds_like_it_may_be_run_again() -> None:
    for name in (
        "tests.unit.guest.test_z::test_absent_settings_take_their_defaults",
        "tests.unit.guest.test_z::test_a_crashing_model_fails_the_turn",
        "tests.unit.runner.doctor.test_doctor_database::test_y",
        "tests.integration.test_bad_network::test_one_fault_per_request_stops_nothing",
        "tests.e2e.test_x::test_sessions_are_listed_and_forgotten",
    ):
        assert second_chance.refusal([name]) == ""
