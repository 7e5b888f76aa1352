"""A save that failed is told in one sentence, once, however often it was tried."""

from dataclasses import replace

from wire.errors import Code

from guest.agent.receipts.ledger import Ledger
from guest.errors import ToolError
from guest.tools.base import MemoryChange, ToolContext, ToolOutput
from guest.tools.pipeline import ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from tests.support.tools.pipelines import ALICE, EchoArguments, registry, tool


async def test_one_sentence_once() -> None:
    why = ["the memory is full: 1 note of at most 1"]

    async def full(_: ToolContext, __: EchoArguments) -> ToolOutput:
        raise ToolError(f"not saved: {why[0]}", Code.RESOURCE_EXHAUSTED)

    save = replace(tool("memory_save", full), changes=lambda _: MemoryChange("saved"))
    ledger = Ledger(ToolPipeline(registry(save), scrubber=Scrubber()), None)
    for text in ("tea", "coffee", "tea"):
        result = await ledger.call(ALICE, "memory_save", {"text": text})
        assert result.text == f"not saved: {why[0]}"
    assert [(each.outcome, each.reason) for each in ledger.all()] == [("failed", why[0])]
    why[0] = "the disk is full"
    await ledger.call(ALICE, "memory_save", {"text": "tea"})
    assert [each.reason for each in ledger.all()][1:] == ["the disk is full"]
