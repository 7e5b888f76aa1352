"""Backups on request: the memory's own, told in the contract's words."""

from wire.v1 import gateway_pb2

from guest.memory.backup import Backups


async def back_up(backups: Backups) -> gateway_pb2.BackupMemoryReply:
    made = await backups.make()
    return gateway_pb2.BackupMemoryReply(
        name=made.name,
        bytes=made.bytes,
        sha256=made.sha256,
        notes=made.notes,
        sessions=made.sessions,
    )
