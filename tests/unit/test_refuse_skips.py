from refuse_skips import skipped


def test_skips_are_found_and_strict_expected_failures_are_not() -> None:
    report = """<testsuites><testsuite>
      <testcase classname="a" name="passed"/>
      <testcase classname="a" name="out"><skipped type="pytest.skip" message="no x"/></testcase>
      <testcase classname="a" name="expected"><skipped type="pytest.xfail" message="y"/></testcase>
    </testsuite></testsuites>"""
    assert skipped(report) == ["a::out: no x"]
