"""The benchmark of many users on one machine runs, with too few of them to say anything."""

import pytest

from bench import full_machine

pytestmark = [pytest.mark.long, pytest.mark.docker, pytest.mark.model, pytest.mark.timeout(300)]


async def test_two_users_of_one_machine() -> None:
    lines = await full_machine.run(users=2)
    print("\n".join(lines))
    assert any("all ready" in line for line in lines)
    assert any("memory, PSS" in line for line in lines)
    assert any("6 searches" in line for line in lines)
    assert any("6 turns" in line for line in lines)
