import pytest
from wire.errors import Code

from guest.errors import StorageError
from guest.memory.storage.availability import WatchedDatabase
from guest.memory.storage.hrana import NoAnswer
from guest.memory.storage.remote import from_any


class Away:
    """A server that does not answer."""

    async def execute(self, sql: str, args: object = ()) -> None:
        raise from_any(NoAnswer("it did not answer in time", sent=True), "http://here")

    async def close(self) -> None:
        pass


async def test_those_who_come_later_hear_once_why_and_that_nothing_was_changed() -> None:
    async def prepare(database: object) -> None:
        pass

    watched = WatchedDatabase(Away(), prepare, start_wait_s=60)  # type: ignore[arg-type]
    await watched.start()
    with pytest.raises(StorageError, match="http://here cannot be reached"):
        await watched.execute("SELECT 1")
    with pytest.raises(StorageError) as raised:
        await watched.execute("SELECT 1")
    assert raised.value.code == Code.UNAVAILABLE
    assert raised.value.details == "it did not answer in time; nothing was changed there"
    await watched.close()


async def test_a_start_asks_again_while_the_way_to_the_server_is_starting_too() -> None:
    refusals = [from_any(NoAnswer("no way there yet", sent=False), "http://here")] * 3

    async def prepare(database: object) -> None:
        if refusals:
            raise refusals.pop()

    watched = WatchedDatabase(Away(), prepare, start_wait_s=60)  # type: ignore[arg-type]
    await watched.start()
    assert watched.problem is None
    await watched.close()


async def test_a_start_does_not_wait_for_ever() -> None:
    async def prepare(database: object) -> None:
        raise from_any(NoAnswer("no way there", sent=False), "http://here")

    watched = WatchedDatabase(Away(), prepare, start_wait_s=600)  # type: ignore[arg-type]
    await watched.start()
    assert watched.problem is not None
    await watched.close()
