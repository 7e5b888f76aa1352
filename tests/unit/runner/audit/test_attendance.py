"""A stream to a guest that is left."""

import asyncio

import grpc
from wire.identity import Party

from runner.audit.attendance import Attendance
from tests.support import parties


async def test_one_that_loses_a_cancellation_is_left_all_the_same() -> None:
    """As gRPC does in the moment in which a call begins."""
    lost = 0

    async def hear(_channel: grpc.aio.Channel, _token: str) -> None:
        nonlocal lost
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            lost += 1
            if lost > 1:
                raise

    attendance = Attendance("nobody", hear)
    attendance.begin(parties.peer("unix:/nowhere.sock", Party.EGRESS, "token"))
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await attendance.leave()
    assert lost
