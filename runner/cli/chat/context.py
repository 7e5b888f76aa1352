"""What the last answer was made of: `/why` shows the notes in its request, `/context` its size."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from wire.errors import Code, WireError
from wire.providers import larger_window
from wire.v1 import gateway_pb2

from runner.cli.chat.calls import receipt_line, short_ids
from runner.cli.chat.conversation import Conversation
from runner.cli.chat.screen import Screen, Style
from runner.cli.output import clip, one_line

HOW: Final = {
    "keyword": "by words",
    "semantic": "by meaning",
    "both": "by words and meaning",
    "weak": "as the closest match, though not a close one",
}
_WRONG: Final = re.compile(r"wrong\s+(\d+)(?:\s+(.+))?", re.DOTALL)
_USAGE: Final = "/why wrong 1 WHAT IS RIGHT corrects note 1; /why wrong 1 alone forgets it"
_PARTS: Final = ("rules", "tools", "memory", "history", "turn")
_BAR_CELLS: Final = 30
_BAR_MIN_WIDTH: Final = 60
_SUSPICIOUS: Final = 2
"""A provider that counts less than one part in so many of the estimate has not read all of it."""
_SUSPICIOUS_MIN: Final = 3_000


async def why(conversation: Conversation, screen: Screen, argument: str) -> None:
    """Show the notes of the last answer's request, or correct or forget one of them.

    Raises `WireError`.
    """
    wrong = _WRONG.fullmatch(argument)
    if argument and wrong is None:
        raise WireError(Code.INVALID_ARGUMENT, f"/why knows no {argument!r}", resolution=_USAGE)
    found = await _context(conversation)
    notes = [await _note(conversation, each.note_id) for each in found.notes]
    if wrong is not None:
        await _mend(conversation, screen, notes, int(wrong[1]), wrong[2] or "")
        return
    if not notes:
        await screen.line("the model saw no note for the last answer", Style.NOTICE)
        return
    for number, (used, note) in enumerate(zip(found.notes, notes, strict=True), 1):
        lead = f"{number:>2}  "
        text = one_line(note.text) if note else "(forgotten since)"
        await screen.line(lead + clip(text, screen.width - len(lead)))
        about = f"{short_ids(used.note_id)} · {_how(used)}"
        await screen.line(f"    {about}", Style.NOTICE)
    await screen.line(_USAGE, Style.NOTICE)


async def _note(conversation: Conversation, note_id: str) -> gateway_pb2.Note | None:
    """The note as it is now; None if it is forgotten."""
    try:
        return await conversation.client.get_note(note_id)
    except WireError as error:
        if error.code is not Code.NOT_FOUND:
            raise
        return None


def _how(used: gateway_pb2.UsedNote) -> str:
    how = HOW.get(used.matched_by, "")
    if used.tool:
        return f"{one_line(used.tool)} {f'found it {how}' if how else 'showed it'}"
    return f"found {how}" if how else "working memory, in every request"


async def _mend(
    conversation: Conversation,
    screen: Screen,
    notes: Sequence[gateway_pb2.Note | None],
    number: int,
    right: str,
) -> None:
    if not 0 < number <= len(notes):
        raise WireError(
            Code.INVALID_ARGUMENT,
            f"there is no note {number} in the last answer's request",
            resolution="/why",
        )
    if (note := notes[number - 1]) is None:
        raise WireError(Code.NOT_FOUND, f"note {number} is forgotten already")
    done = gateway_pb2.MemoryReceipt(outcome="done", note_id=note.note_id, asked_by="person")
    if right:
        request = gateway_pb2.EditNoteRequest(
            note_id=note.note_id, text=right.strip(), expected_version=note.version
        )
        done.action = "updated"
        done.version = (await conversation.client.edit_note(request)).version
    elif await screen.ask(f"forget this note, with its history?\n  {one_line(note.text)}"):
        await conversation.client.delete_note(note.note_id, note.version)
        done.action = "deleted"
    else:
        await screen.unchanged()
        return
    await screen.line(receipt_line(done), Style.RECEIPT)


async def context(conversation: Conversation, screen: Screen) -> None:
    """Show what the parts of the last answer's request took of the window. Raises `WireError`."""
    found = await _context(conversation)
    await screen.line("\n".join(_table(found, screen.width)))
    for remark in _remarks(found):
        await screen.line(remark, Style.NOTICE)


async def _context(conversation: Conversation) -> gateway_pb2.TurnContext:
    if not conversation.session_id:
        raise WireError(
            Code.FAILED_PRECONDITION, "there is no answer yet", resolution="ask something"
        )
    await conversation.ensure_connected()
    return await conversation.client.turn_context(conversation.session_id)


def _table(found: gateway_pb2.TurnContext, width: int) -> Iterator[str]:
    taken: dict[str, int] = {part: getattr(found, part) for part in _PARTS}
    whole = sum(taken.values())
    window = max(found.window, 1)
    for part, tokens in {**taken, "free": max(window - whole, 0)}.items():
        name = {"turn": "this turn"}.get(part, part)
        cells = round(_BAR_CELLS * tokens / window) or int(tokens > 0)
        bar = ("·" if part == "free" else "█") * cells if width >= _BAR_MIN_WIDTH else ""
        yield f"{name:<10}{tokens:>9,}  {bar}".rstrip()
    yield f"{whole:,} of {window:,} tokens ({100 * whole / window:.0f} %), by estimate"


def _remarks(found: gateway_pb2.TurnContext) -> Iterator[str]:
    """What else is known of the window and of what the model has read."""
    whole = sum(getattr(found, part) for part in _PARTS)
    if found.counted:
        yield f"{one_line(found.model) or 'the provider'} has counted {found.counted:,}"
    if whole > _SUSPICIOUS_MIN and 0 < found.counted * _SUSPICIOUS < whole:
        yield (
            "far less than was sent: the server may cut what its window does not hold; "
            + larger_window(one_line(found.model))
        )
    if found.window < found.window_set:
        yield (
            f"the model takes less than context_window ({found.window_set:,}), which can only "
            "lower its window: nothing is to be set"
        )
    elif found.window_known and found.window_known != found.window:
        yield (
            f"the model's own window is {found.window_known:,}; context_window in [agent] of "
            f"runner.toml is {found.window_set:,}"
        )
