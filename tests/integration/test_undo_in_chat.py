"""`/undo` in the chat, over a real gateway and memory: what the last turn saved or changed."""

import re
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel
from wire.v1 import gateway_pb2

from tests.support.agent.scripted_turns import calls, save
from tests.support.gateway.fake_gateway import FakeGateway
from tests.support.gateway.gateways import ALICE, Client, open_gateways
from tests.unit.runner.cli.test_piped_chat import chat

Replies = list[Any]


@pytest.fixture
def replies() -> Replies:
    return []


@pytest.fixture
async def alice(replies: Replies) -> AsyncIterator[Client]:
    async def script(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        yield replies.pop(0) if replies else "ok"

    async with open_gateways(
        with_model=FunctionModel(stream_function=script),
        second_chance=False,
    ) as gateways:
        yield await gateways.serve(ALICE)


async def typed(alice: Client, *lines: str) -> list[str]:
    """What a chat of session s1 has shown of its last line, and of which turns it was."""
    stand_in = SimpleNamespace(endpoint=alice.address, peer=alice.peer)
    _, out, err = await chat(cast("FakeGateway", stand_in), "\n".join(lines), session="s1")
    alice.undone = re.findall("of the turn > (.+)", err)  # type: ignore[attr-defined]
    return out.rpartition(f"> {lines[-1]}\n")[2].rstrip("\n").split("\n")


async def test_each_undo_goes_one_turn_back(alice: Client, replies: Replies) -> None:
    note_id = await alice.save("Rex is 4")
    both = calls(
        ("memory_update", {"note_id": note_id, "content": "Rex is 5"}),
        ("memory_save", {"content": "cheese"}),
    )
    replies += [both, "ok", save("milk"), "ok"]
    shown = await typed(alice, "Rex is 5, cheese", "milk", "hello", "/undo")
    assert [line.partition(" (note-")[0] for line in shown] == ['✓ deleted "milk"']
    assert alice.undone == ["milk"]  # type: ignore[attr-defined]
    assert sorted(await alice.texts()) == ["Rex is 5", "cheese"]
    shown = await typed(alice, "/undo")
    assert "✗ not undone" in shown[0], "of another chat, which does not know of the undo"
    replies += [save("milk"), "ok"]
    shown = await typed(alice, "milk", "/undo", "/undo", "/undo")
    assert "✗ not undone" in shown[0]


async def test_a_note_saved_and_changed_in_one_turn_is_gone(
    alice: Client, replies: Replies
) -> None:
    write = ("write_memory", {"key": "plan", "content": "one"})
    append = ("write_memory", {"key": "plan", "content": "two", "mode": "append"})
    replies += [calls(write, append), "ok"]
    shown = await typed(alice, "plan", "/undo")
    assert [line.partition(" (note-")[0] for line in shown] == [
        '✓ restored "one"',
        '✓ deleted "one"',
    ]
    assert await alice.notes() == []


async def test_what_was_set_aside_counts_again(alice: Client, replies: Replies) -> None:
    note_id = await alice.save("Rex is 4")
    replies += [calls(("forget", {"memory_id": note_id})), "ok"]
    (shown,) = await typed(alice, "forget it", "/undo")
    assert shown.startswith('✓ restored "Rex is 4" (note-')
    assert not (await alice.note(note_id)).superseded


async def test_what_is_not_as_the_turn_left_it_stays_with_the_reason(
    alice: Client, replies: Replies
) -> None:
    there, changed, gone = [await alice.save(each) for each in ("there", "changed", "gone")]
    replies += [
        calls(
            ("memory_save", {"content": "there"}),
            ("memory_update", {"note_id": changed, "content": "by the turn"}),
            ("memory_delete", {"note_id": gone}),
        ),
        "ok",
    ]
    await typed(alice, f"forget {gone}")
    edit = gateway_pb2.EditNoteRequest(note_id=changed, text="by a person")
    await alice.stub.EditNote(edit)
    shown = await typed(alice, "/undo")
    assert {line.partition(": ")[2] for line in shown} == {
        "a deletion is final",
        "it was changed since, and has version 3 now",
        "the note was there before that turn",
    }
    assert all(line.startswith("✗ not undone note-") for line in shown)
    assert (await alice.note(there)).text == "there"
    assert (await alice.note(changed)).text == "by a person"


async def test_without_any_change_there_is_nothing_to_undo(alice: Client) -> None:
    shown = await typed(alice, "hello", "/undo")
    assert "nothing that was saved or changed in this session can be undone" in shown[0]
