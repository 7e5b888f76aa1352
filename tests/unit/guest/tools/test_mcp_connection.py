"""The connection to a program of an MCP server: what is said of its end."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import mcp_types as types
from mcp.shared.message import SessionMessage

from guest.tools.mcp.connection import ProgramConnection
from guest.tools.shell.program import ProgramLostError

WHY = "it ended with exit code 126: nothere: no such program"


class Ended:
    """A program whose end is heard of after it could not be written to."""

    def __init__(self) -> None:
        self._refused = asyncio.Event()

    async def write(self, _: bytes) -> None:
        self._refused.set()
        raise ProgramLostError("standard input is closed")

    async def output(self) -> AsyncGenerator[bytes]:
        await self._refused.wait()
        raise ProgramLostError(WHY)
        yield b""


async def test_a_program_that_has_ended_says_why_and_not_that_it_cannot_be_written_to() -> None:
    program: Any = Ended()
    connection = ProgramConnection(program, lambda: None)
    async with connection.transport() as (_, outgoing):
        ping = types.JSONRPCRequest(jsonrpc="2.0", id=1, method="ping")
        await outgoing.send(SessionMessage(ping))
        assert await connection.lost == WHY
