"""What memory did in one turn, from the tools' results and never from anybody's words."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Literal

from wire.errors import Code, WireError
from wire.v1 import gateway_pb2 as pb

from guest.errors import AfterChangeError, ChangeUnknownError
from guest.memory.models import Receipt
from guest.tools.base import Approve, MemoryChange, ToolContext, ToolResult
from guest.tools.memory.answers import asked_by
from guest.tools.pipeline import ToolPipeline
from guest.tools.results import data_of

_PASSING = frozenset({"scratch_note"})
"""Tools whose notes are overwritten by contract: what they keep is not kept for good."""


class Ledger:
    """Calls the tools of one turn, and has a receipt for each change of memory.

    Attributes:
        receipts: The changes whose calls have ended, in that order.
        kept: Whether memory was changed in a way that is meant to last.
        wrote: Whether something other than memory may have been changed, such as a file.
    """

    def __init__(self, pipeline: ToolPipeline, approve: Approve | None) -> None:
        self._pipeline = pipeline
        self._approve = approve
        self._tools = {tool.name: tool for tool in pipeline.tools()}
        self._running: list[Receipt] = []
        self._answered = 0
        self._nowhere = {""}
        self._words: dict[tuple[str, str, int], tuple[str, ...]] = {}
        self.receipts: list[Receipt] = []
        self.kept = False
        self.wrote = False

    @property
    def changed(self) -> bool:
        return any(receipt.outcome == "done" for receipt in self.receipts)

    def words_of(self, receipt: Receipt) -> tuple[str, ...]:
        """The beginning of what the changed note says, after what it said before."""
        return self._words.get((receipt.action, receipt.note_id, receipt.version), ())

    def next_reply(self) -> None:
        """The model has seen what came of its calls so far: those that follow may make up for
        them."""
        self._answered = len(self.receipts)

    def all(self) -> list[Receipt]:
        """The receipts of the turn as it ends now: a change that still runs is unknown."""
        return [*self.receipts, *self._running]

    def change_of(self, tool: str, arguments: Any) -> MemoryChange | None:
        """What a call with these arguments is to change in memory; None for nothing."""
        known = self._tools.get(tool)
        if known is None or known.changes is None:
            return None
        return known.changes(parsed(arguments))

    async def call(
        self, context: ToolContext, tool: str, arguments: str | Mapping[str, object]
    ) -> ToolResult:
        """Run one call; what an operator must mend is an error of its result, too."""
        change = self.change_of(tool, arguments)
        if change is None:
            result = await self._run(context, tool, arguments, None)
            read_only = tool not in self._tools or self._tools[tool].safety == "read_only"
            self.wrote |= not (result.is_error or read_only or _failed(result))
            return result
        running = _receipt(change, context, "unknown", "the turn ended before its answer came")
        self._running.append(running)
        try:
            result = await self._run(context, tool, arguments, change)
        finally:
            self._running = [each for each in self._running if each is not running]
        for each in result.receipts:
            self._add(each)
            self._words[each.action, each.note_id, each.version] = result.words
        done = any(each.outcome == "done" for each in result.receipts)
        self.kept |= done and tool not in _PASSING
        return result

    def lost(self, reason: str) -> Receipt:
        """Add the receipt of a save of the runtime that no tool could be called for."""
        self._add(Receipt("saved", "failed", asked_by="runtime", reason=reason))
        return self.receipts[-1]

    def annotate(self, receipt: Receipt, about: str) -> Receipt:
        """`receipt`, which is one of these, with `about` said before its reason."""
        told = replace(receipt, reason="; ".join(filter(None, (about, receipt.reason))))
        self.receipts = [told if each is receipt else each for each in self.receipts]
        return told

    def _add(self, receipt: Receipt) -> None:
        """Add a receipt, in place of failures of earlier replies that it makes up for. Attempts
        that failed alike have one."""
        if _failure(receipt) in {_failure(each) for each in self.receipts} - {None}:
            return
        seen, running = self.receipts[: self._answered], self.receipts[self._answered :]
        seen = [each for each in seen if not self._makes_up(receipt, each)]
        self._answered = len(seen)
        self.receipts = [*seen, *running, receipt]

    def _makes_up(self, later: Receipt, failed: Receipt) -> bool:
        """Whether a later attempt is what came of one that failed: another failure of the same, or
        success with that note, or in place of one for which there was no note."""
        if failed.outcome != "failed" or later.outcome == "unknown":
            return False
        saves = ("saved", "updated")
        alike = later.action == failed.action or (
            later.action in saves and failed.action == "saved"
        )
        return alike and failed.note_id in (later.note_id, *self._nowhere)

    async def _run(
        self,
        context: ToolContext,
        tool: str,
        arguments: str | Mapping[str, object],
        change: MemoryChange | None,
    ) -> ToolResult:
        try:
            result = await self._pipeline.call(context, tool, arguments, self._approve)
        except WireError as error:
            text = f"the tool is unavailable: {error.brief}"
            result = ToolResult(text=text, is_error=True, summary=text, duration_ms=0)
            if change is None:
                return result
            receipt = _receipt(change, context, _outcome_of(error), error.brief)
            return replace(result, receipts=(receipt,))
        if change is None or not result.is_error:
            return result
        if result.code is Code.NOT_FOUND:
            self._nowhere.add(change.note_id)
        unknown = result.code is Code.TIMEOUT
        reason = result.summary.removeprefix("not saved: ")  # a receipt says that already
        receipt = _receipt(change, context, "unknown" if unknown else "failed", reason)
        return replace(result, receipts=(receipt,))


def to_message(receipt: Receipt, turn_id: str, words: tuple[str, ...] = ()) -> pb.MemoryReceipt:
    """`receipt` as the surfaces get it, with the `words` of the note."""
    return pb.MemoryReceipt(turn_id=turn_id, words=words, **asdict(receipt))


def parsed(arguments: Any) -> dict[str, Any]:
    """A call's arguments as the model wrote them; empty where they are no JSON object."""
    data = data_of(arguments) if isinstance(arguments, str) else arguments
    return dict(data) if isinstance(data, Mapping) else {}


def _outcome_of(error: WireError) -> Literal["done", "failed", "unknown"]:
    if isinstance(error, AfterChangeError):
        return "done"
    return "unknown" if isinstance(error, ChangeUnknownError) else "failed"


def _receipt(
    change: MemoryChange,
    context: ToolContext,
    outcome: Literal["done", "failed", "unknown"],
    reason: str,
) -> Receipt:
    return Receipt(
        change.action,
        outcome,
        change.note_id,
        durable=outcome == "done",
        asked_by=asked_by(context),
        reason=reason,
    )


def _failure(receipt: Receipt) -> tuple[str, ...] | None:
    """One report for attempts that failed alike; None for one that did not fail."""
    alike = receipt.action, receipt.note_id, receipt.reason
    return alike if receipt.outcome == "failed" else None


def _failed(result: ToolResult) -> bool:
    """Whether a command ran and failed."""
    data = data_of(result.text)
    return isinstance(data, dict) and data.get("exit_code", 0) != 0
