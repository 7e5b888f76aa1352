"""Erasure on a server and in its replica on this machine."""

from guest.errors import StorageError
from guest.memory.replica.replica import Replica, Unasked
from guest.memory.storage.base import Database
from guest.memory.storage.erasure import Eraser


class ReplicaEraser(Eraser):
    """An `Eraser` for a store with a replica.

    What other clients delete is erased from the replica when it is next brought up to date.
    """

    def __init__(self, database: Database, replica: Replica, *, delay_s: float) -> None:
        super().__init__(database, delay_s=delay_s)
        self._replica = replica

    async def erase(self) -> None:
        await super().erase()
        try:
            await self._replica.erase()
        except Unasked as error:
            raise StorageError(
                error.problem.code,
                "it is deleted on the memory server, and not yet from the copy on this machine",
                details=f"{error.problem.brief}: {error.problem.details}",
                resolution="nothing to do: it goes as soon as the server can be reached",
            ) from error
