"""When the boundary is looked at anew: a file's number may be another one's by then."""

from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest
from wire.v1.control_pb2 import BoundaryCheck, BoundaryReport

from runner.boundary import local


def report(*failed: str) -> BoundaryReport:
    names = ("private_paths", "other_users", "mounts")
    checks = [BoundaryCheck(name=each, passed=each not in failed) for each in names]
    return BoundaryReport(passed=not failed, checks=checks)


@pytest.mark.parametrize(
    ("reports", "looks", "passed"),
    [
        ([report()], 1, True),
        ([report("private_paths"), report()], 2, True),
        ([report("private_paths", "other_users"), report("other_users")], 2, False),
        ([report("private_paths", "mounts")], 1, False),
        ([report("mounts")], 1, False),
    ],
)
async def test_only_what_is_known_by_its_number_is_listed_anew_and_once(
    reports: list[BoundaryReport], looks: int, passed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Mock()
    monkeypatch.setattr(local, "build_spec", listed)
    monkeypatch.setattr(local, "check_boundary", AsyncMock(side_effect=reports))
    boundary = local.LocalBoundary(Mock(), Mock(), Path(), Path())
    found = await boundary.of_shell(Mock(), Mock(), {}, "")
    assert (found.passed, listed.call_count) == (passed, looks)
