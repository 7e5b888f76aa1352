"""What the audit log says of requests, once it says it."""

import asyncio

from runner.audit.log import LogLocation
from runner.egress.log import Request, Requests


async def newest(log: LogLocation, host: str, outcome: str) -> Request:
    """The newest request, once it has this outcome."""
    async with asyncio.timeout(60):
        while True:
            found = Requests(log).list(limit=1)
            if found and (found[0].host, found[0].outcome) == (host, outcome):
                return found[0]
            await asyncio.sleep(0.05)
