"""A host in whose guests one weakness is tried."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.boundary.guarded_host import GuardedHost, guarded_host


@pytest_asyncio.fixture
async def guarded() -> AsyncIterator[GuardedHost]:
    async with guarded_host() as guarded:
        yield guarded
