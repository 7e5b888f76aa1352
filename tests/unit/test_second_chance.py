"""Which failures CI may run again, and which stand."""

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


def test_a_report_without_failures_excuses_nothing() -> None:
    assert second_chance.refusal([]) != ""


def test_what_must_never_fail_stands() -> None:
    for name in (
        "tests.security.boundary.test_x::test_y",
        "tests.integration.test_crash_memory::test_y",
        "tests.integration.test_faults_remote::test_y",
        "tests.unit.guest.test_z::test_forgetting_is_complete",
        "tests.conformance.test_database::test_y",
    ):
        assert name in second_chance.refusal([name])
