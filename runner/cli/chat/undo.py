"""`/undo`: takes back what the last turn that changed memory has saved and changed."""

from typing import Final

from wire.errors import Code, WireError
from wire.v1.gateway_pb2 import MemoryReceipt, Note

from runner.cli.chat.calls import receipt_line
from runner.cli.chat.conversation import Conversation
from runner.cli.chat.screen import Screen, Style

_EVENTS: Final = 200
_NOTHING: Final = "nothing that was saved or changed in this session can be undone"


async def undo(conversation: Conversation, screen: Screen) -> None:
    """Undo each change of that turn, the last one first, and say what came of it. A note that the
    turn saved is forgotten; one that somebody has changed since stays as it is.

    Raises `WireError` where there is no such turn.
    """
    client, session_id = conversation.client, conversation.session_id
    receipts = (await client.get_session(session_id, _EVENTS)).receipts if session_id else ()
    done = [
        each
        for each in receipts
        if each.outcome == "done" and each.turn_id not in conversation.undone
    ]
    if not done:
        raise WireError(Code.FAILED_PRECONDITION, _NOTHING, resolution="runner memory history")
    versions: dict[str, int] = {}  # of the notes that were undone already
    for change in reversed([each for each in done if each.turn_id == done[-1].turn_id]):
        told = MemoryReceipt(action="undone", outcome="failed", note_id=change.note_id)
        try:
            note = await client.get_note(change.note_id) if change.action != "deleted" else None
            told.reason = _refusal(note, change, versions.get(change.note_id, 0))
            if note is not None and not told.reason:
                reply = await client.undo_change(change.note_id, note.version, may_forget=True)
                versions[change.note_id] = told.version = reply.note.version
                told.action = "deleted" if reply.done == "forgotten" else "restored"
                told.outcome, told.words[:] = "done", [reply.note.text or note.text]
                conversation.undone.add(change.turn_id)
        except WireError as error:
            told.reason = error.brief
        style = Style.FAILURE if told.reason else Style.RECEIPT
        await screen.line(receipt_line(told), style)


def _refusal(note: Note | None, change: MemoryReceipt, undone: int) -> str:
    """Why a change is not undone; empty where its turn has left the note as it is."""
    if note is None:
        return "a deletion is final"
    if note.superseded != (change.action == "superseded"):
        return "it was changed since"
    if note.superseded or note.version == undone:
        return ""
    if note.version != change.version:
        return f"it was changed since, and has version {note.version} now"
    return "" if note.origin.turn_id == change.turn_id else "the note was there before that turn"
