"""What turns changed in the files of projects, shown and taken back."""

from dataclasses import dataclass

from wire.errors import Code
from wire.v1 import gateway_pb2 as pb

from guest.errors import GuestError


@dataclass(repr=False, eq=False)
class FileReceipts:
    """The RPCs about changed files."""

    async def diff(self, request: pb.TurnDiffRequest) -> pb.TurnDiffReply:
        raise _nothing(request.turn_id)

    async def undo(self, request: pb.UndoFilesRequest) -> pb.UndoFilesReply:
        raise _nothing(request.turn_id)


def _nothing(turn_id: str) -> GuestError:
    which = f"turn {turn_id}" if turn_id else "no turn of this session"
    return GuestError(Code.NOT_FOUND, f"{which} has changed {'no ' * bool(turn_id)}files")
