"""What turns changed in the files of projects, shown and taken back."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from wire.errors import Code
from wire.text import visible_name
from wire.v1 import gateway_pb2 as pb

from guest.errors import GuestError
from guest.projects.file_versions import Changed
from guest.tools.files.restore import Restorer

PATHS_MAX = 1_000


@dataclass(repr=False, eq=False)
class FileReceipts:
    """The RPCs about changed files. `require` checks that a session is the user's."""

    restorer: Restorer
    require: Callable[[str], Awaitable[str]]

    def __post_init__(self) -> None:
        self.changes = self.restorer.changes

    async def diff(self, request: pb.TurnDiffRequest) -> pb.TurnDiffReply:
        await self.require(request.session_id)
        return await asyncio.to_thread(self._diff, request)

    async def undo(self, request: pb.UndoFilesRequest) -> pb.UndoFilesReply:
        if len(request.paths) > PATHS_MAX:
            raise GuestError(Code.INVALID_ARGUMENT, f"bad paths: more than {PATHS_MAX}")
        await self.require(request.session_id)
        undoing = asyncio.ensure_future(asyncio.to_thread(self._undo, request))
        return await asyncio.shield(undoing)

    def _diff(self, request: pb.TurnDiffRequest) -> pb.TurnDiffReply:
        paths = {request.path} if request.path else set()
        turn_id, files, changed = self._found(request.session_id, request.turn_id, paths)
        diff, cut = self.changes.diff(changed)
        reply = pb.TurnDiffReply(turn_id=turn_id, files=files, diff=diff, cut=cut)
        if request.path:
            reply.before, first_cut = self.changes.text(changed[0].before)
            reply.after, then_cut = self.changes.text(changed[0].after)
            reply.cut |= first_cut or then_cut
        return reply

    def _undo(self, request: pb.UndoFilesRequest) -> pb.UndoFilesReply:
        _, files, changed = self._found(request.session_id, request.turn_id, set(request.paths))
        reply = self.restorer.take_back(
            request.session_id,
            changed,
            not_only_tools=request.not_only_tools,
            overwrite=request.overwrite,
        )
        reply.files.CopyFrom(files)
        return reply

    def _found(
        self, session_id: str, turn_id: str, paths: set[str]
    ) -> tuple[str, pb.FileChanges, list[Changed]]:
        """A turn with what it changed at all, or at these paths, then the directories that it made
        last. Raises `GuestError`."""
        found = None
        if self.changes.versions.exists:
            found = self.changes.versions.of_turn(session_id, turn_id)
        if found is None:
            which = f"the turn {turn_id} has" if turn_id else "no turn of this session has"
            raise GuestError(Code.NOT_FOUND, f"{which} changed {'no ' * bool(turn_id)}files")
        turn_id, files, changed = found
        made = [each for each in changed if each.is_directory]
        of_files = [each for each in changed if not each.is_directory]
        if missing := paths - {visible_name(each.whole) for each in of_files}:
            raise GuestError(
                Code.NOT_FOUND, f"the turn has not changed {visible_name(min(missing))[:200]}"
            )
        if paths:
            changed = [each for each in of_files if visible_name(each.whole) in paths] + made
        elif files.files and not changed:
            raise GuestError(Code.NOT_FOUND, "what that turn changed is kept no longer")
        return turn_id, files, changed
