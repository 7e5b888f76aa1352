"""What memory did, as the chat shows it."""

from collections.abc import Iterable
from typing import Final

from wire.v1 import gateway_pb2

from runner.cli.chat.calls import short_ids
from runner.cli.chat.screen import Screen, Style
from runner.cli.output import one_line

UNCHANGED: Final = "○ memory unchanged"
_ACTIONS: Final = frozenset({"saved", "updated", "superseded", "deleted", "restored"})
_STYLES: Final = {"done": Style.RECEIPT, "failed": Style.FAILURE, "unknown": Style.FAILURE}


def receipt_line(receipt: gateway_pb2.MemoryReceipt) -> str:
    """One receipt: `✓ saved note-103637e5`, `✗ not saved: …` or `? may be saved: …`."""
    note = short_ids(one_line(receipt.note_id))
    action = one_line(receipt.action)
    if receipt.outcome == "done":
        told = [f"version {receipt.version}"] if receipt.version > 1 else []
        told += ["by the runtime"] if receipt.asked_by == "runtime" else []
        told += [one_line(receipt.reason)] if receipt.reason else []
        more = f" ({', '.join(told)})" if told else ""
        return f"✓ {action} {note}".rstrip() + more
    sign, how = ("✗", "not") if receipt.outcome == "failed" else ("?", "may be")
    line = f"{sign} {how} {action} {note}" if action in _ACTIONS else f"{sign} {action} {note}"
    line = line.rstrip()
    return f"{line}: {one_line(receipt.reason)}" if receipt.reason else line


async def show_receipts(screen: Screen, receipts: Iterable[gateway_pb2.MemoryReceipt]) -> None:
    """End a turn with its receipts."""
    shown = list(receipts)
    for receipt in shown:
        await screen.line(receipt_line(receipt), _STYLES.get(receipt.outcome, Style.FAILURE))
    if not shown:
        await screen.line(UNCHANGED, Style.NOTICE)


def by_event(
    history: gateway_pb2.SessionHistory,
) -> list[tuple[gateway_pb2.HistoryEvent, list[gateway_pb2.MemoryReceipt]]]:
    """The events of a session. The last event of each turn comes with the receipts of the turn."""
    last = {event.turn_id: event.sequence for event in history.events}
    found = []
    for event in history.events:
        ends = last[event.turn_id] == event.sequence
        found.append((event, [r for r in history.receipts if ends and r.turn_id == event.turn_id]))
    return found
