"""The benchmarks of memory run, on sizes too small to say anything."""

import pytest

from bench import many_users, remote, sizes

pytestmark = [pytest.mark.long, pytest.mark.sqld, pytest.mark.timeout(180)]


async def test_sizes() -> None:
    lines = await sizes.run(sizes=[100])
    print("\n".join(lines))
    for label in ("search, hybrid, p50 ms", "save, p50 ms", "files here, MB"):
        local, served = (line for line in lines if line.startswith(f"  {label} "))
        assert all(float(figure) > 0 for figure in (local.split()[-1], served.split()[-1]))


async def test_remote() -> None:
    lines = await remote.run(passages=100, rounds=5)
    print("\n".join(lines))
    assert len([line for line in lines if "goal: at most 1.3" in line]) == 2


async def test_many_users() -> None:
    lines = await many_users.run(users=3)
    print("\n".join(lines))
    assert [line.rpartition(":")[2] for line in lines if "other users' notes" in line] == [" 0"] * 2
