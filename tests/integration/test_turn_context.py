"""What the request for an answer was made of, as the runtime has recorded it."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from wire.errors import Code
from wire.v1 import gateway_pb2 as pb

from tests.support.gateway.gateways import Client, hashing, open_gateways, refusal

BOAT, BERTH = "my boat is called Fram", "the berth of the harbour costs forty"


def calls(tool: str, **arguments: Any) -> dict[int, DeltaToolCall]:
    return {0: DeltaToolCall(tool, json.dumps(arguments), tool_call_id="c1")}


def answering(*replies: Any) -> FunctionModel:
    waiting = list(replies)

    async def model(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        yield waiting.pop(0)

    return FunctionModel(stream_function=model)


async def context(alice: Client, session: str, turn_id: str = "") -> pb.TurnContext:
    return await alice.stub.GetTurnContext(
        pb.GetTurnContextRequest(session_id=session, turn_id=turn_id)
    )


@pytest.mark.parametrize("temporary", [False, True])
async def test_the_notes_that_the_model_saw_with_the_search_that_found_each(
    temporary: bool,
) -> None:
    model = answering(calls("memory_search", query="berth of the harbour"), "Fram, forty.", "Bye.")
    async with open_gateways(
        with_model=model, embedder=hashing(), context_window=20_000
    ) as gateways:
        alice = await gateways.serve("alice")
        ids = {}
        for text in (BOAT, BERTH):
            ids[text] = (await alice.stub.SaveNote(pb.SaveNoteRequest(text=text))).note_id
        made = await alice.stub.CreateSession(pb.CreateSessionRequest(temporary=temporary))
        session = made.session_id
        assert (
            await refusal(alice.stub.GetTurnContext(pb.GetTurnContextRequest(session_id=session)))
        ).code is Code.NOT_FOUND
        await alice.answer(session, "what is my boat called?")
        found = await context(alice, session)
        assert found.text == "what is my boat called?"
        by = {note.note_id: (note.matched_by, note.tool) for note in found.notes}
        assert by[ids[BOAT]] == ("both", "")
        assert by[ids[BERTH]] == ("both", "memory_search")
        assert min(found.rules, found.tools, found.memory, found.turn) > 0
        assert (found.window, found.window_set) == (20_000, 20_000)
        await alice.answer(session, "goodbye")
        later = await context(alice, session)
        assert later.text == "goodbye"
        assert not later.notes, "nothing is looked up for courtesy"
        assert later.history > found.history
        assert (await context(alice, session, found.turn_id)).notes == found.notes
        bob = await gateways.serve("bob")
        for turn_id in ("", found.turn_id):
            asked = pb.GetTurnContextRequest(session_id=session, turn_id=turn_id)
            assert (await refusal(bob.stub.GetTurnContext(asked))).code is Code.NOT_FOUND


async def test_a_note_that_had_no_room_is_not_named() -> None:
    async with open_gateways(with_model=answering("Yes."), context_window=8_000) as gateways:
        alice = await gateways.serve("alice")
        for number in range(6):
            text = f"{BOAT} {number}{' and sails' * 80}"
            await alice.stub.SaveNote(pb.SaveNoteRequest(text=text))
        session = await alice.session()
        await alice.answer(session, f"what is my boat called? {'x ' * 13_200}")
        found = await context(alice, session)
        assert not found.notes
        assert not found.memory
        assert found.rules + found.tools + found.memory + found.history + found.turn <= 8_000
