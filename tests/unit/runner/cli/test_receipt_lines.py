"""How a turn's receipts are drawn, and how model text that looks like one is told apart."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from wire.errors import Code
from wire.v1 import gateway_pb2

from runner.cli.chat.answer import ModelText
from runner.cli.chat.calls import receipt_line
from tests.support.gateway.fake_gateway import Event, FakeGateway, completed, text
from tests.unit.runner.cli.test_piped_chat import TurnRequest, chat

NOTE = "note-103637e5-0000-4000-8000-000000000001"
Receipt = gateway_pb2.MemoryReceipt


@pytest.mark.parametrize(
    ("receipt", "line"),
    [
        (Receipt(action="saved", outcome="done", note_id=NOTE, version=1), "✓ saved note-103637e5"),
        (
            Receipt(action="updated", outcome="done", note_id=NOTE, version=3),
            "✓ updated note-103637e5 (version 3)",
        ),
        (Receipt(action="deleted", outcome="done", note_id=NOTE), "✓ deleted note-103637e5"),
        (Receipt(action="superseded", outcome="done", note_id="note-a"), "✓ superseded note-a"),
        (
            Receipt(action="saved", outcome="done", note_id=NOTE, version=1, asked_by="runtime"),
            "✓ saved note-103637e5 (by the runtime)",
        ),
        (
            Receipt(
                action="deleted", outcome="done", note_id=NOTE, words=['my "dog"\n✓ is\x1b[1m']
            ),
            "✓ deleted \"my 'dog' ✓ is␛[1m\" (note-103637e5)",
        ),
        (
            Receipt(
                action="updated", outcome="done", note_id=NOTE, version=2, words=["四" * 40, "b"]
            ),
            f'✓ updated "{"四" * 19}…" → "b" (note-103637e5, version 2)',
        ),
        (
            Receipt(action="updated", outcome="done", note_id=NOTE, version=2, words=["a", "a"]),
            '✓ updated "a" (note-103637e5, version 2)',
        ),
        (Receipt(action="saved", outcome="failed", reason="full"), "✗ not saved: full"),
        (
            Receipt(action="deleted", outcome="failed", note_id=NOTE, reason="a\n✓ saved"),
            "✗ not deleted note-103637e5: a ✓ saved",
        ),
        (
            Receipt(action="saved", outcome="unknown", reason="no answer"),
            "? may be saved: no answer",
        ),
    ],
)
def test_a_receipt_is_one_line(receipt: Receipt, line: str) -> None:
    assert receipt_line(receipt) == line


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("✓ saved note-7", "│ ✓ saved note-7"),
        ("ok\n○ memory unchanged\n", "ok\n│ ○ memory unchanged\n"),
        ("  ✗ not saved", "  │ ✗ not saved"),
        ("\u200b\u00a0✓ saved", "\u200b\u00a0│ ✓ saved"),
        ("✅ Stored: tea", "│ ✅ Stored: tea"),
        ("? may be saved", "│ ? may be saved"),
        ("Done ✓ saved. Why?", "Done ✓ saved. Why?"),
        ("- ✓ one\n- ✗ two", "- ✓ one\n- ✗ two"),
    ],
)
def test_what_begins_like_a_receipt_is_set_behind_a_bar(said: str, shown: str) -> None:
    whole, letters = ModelText(), ModelText()
    assert whole.marked(said) == shown
    assert "".join(map(letters.marked, said)) == shown


async def test_every_turn_ends_with_what_memory_did(gateway: FakeGateway) -> None:
    saved = Receipt(action="saved", outcome="done", note_id=NOTE, version=1)
    lost = Receipt(action="updated", outcome="unknown", note_id=NOTE, reason="no answer")

    async def script(_: FakeGateway, request: TurnRequest) -> AsyncIterator[Event]:
        yield text("I did nothing.\n✓ saved note-7")
        if request.text == "fail":
            failure = gateway_pb2.TurnFailed(code=Code.CANCELLED, receipts=[saved, lost])
            yield Event(failed=failure)
        else:
            yield Event(receipt=saved)
            yield completed("I did nothing.", saved)

    gateway.script = script
    _, out, _ = await chat(gateway, "go\nfail")
    assert out == (
        "> go\nI did nothing.\n│ ✓ saved note-7\n✓ saved note-103637e5\n\n"
        "> fail\nI did nothing.\n│ ✓ saved note-7\n✗ cancelled\n✓ saved note-103637e5\n"
        "? may be updated note-103637e5: no answer\n\n"
    )


async def test_a_resumed_session_shows_its_receipts(gateway: FakeGateway) -> None:
    gateway.sessions["old"] = gateway_pb2.Session(session_id="old", turns=2)
    said: list[dict[str, Any]] = [
        {"turn_id": "t1", "role": "user", "text": "keep\nit"},
        {
            "turn_id": "t1",
            "role": "tool",
            "text": f"memory_save: Stored: [id: {NOTE}]\nmore",
            "tool": "memory_save",
            "told": "it",
        },
        {"turn_id": "t1", "role": "assistant", "text": "✓ saved note-7"},
        {"turn_id": "t2", "role": "user", "text": "hi"},
    ]
    gateway.history["old"] = [
        gateway_pb2.HistoryEvent(sequence=number, **event) for number, event in enumerate(said)
    ]
    gateway.receipts = [Receipt(turn_id="t1", action="saved", outcome="done", note_id=NOTE)]
    _, _, err = await chat(gateway, "", session="old")
    assert err.splitlines()[1:8] == [
        "> keep",
        "  it",
        "● memory_save it → Stored",
        "│ ✓ saved note-7",
        "✓ saved note-103637e5",
        "",
        "> hi",
    ]


async def test_a_turn_that_broke_off_shows_what_is_stored(gateway: FakeGateway) -> None:
    async def script(_: FakeGateway, request: TurnRequest) -> AsyncIterator[Event]:
        yield text("half a sentence")
        stored = Receipt(turn_id=request.turn_id, action="saved", outcome="done", note_id=NOTE)
        gateway.receipts = [stored]
        restarts.append(asyncio.create_task(restart()))
        await asyncio.sleep(60)

    async def restart() -> None:
        await gateway.stop()
        await gateway.start()

    restarts: list[asyncio.Task[None]] = []
    gateway.script = script
    _, out, _ = await chat(gateway, "die")
    assert out.endswith("if you still want it\n✓ saved note-103637e5\n\n")
