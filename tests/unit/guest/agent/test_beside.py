"""What stood beside messages stands there again, and outlives no note."""

from pydantic_ai.messages import ModelMessagesTypeAdapter

from guest.agent import history
from guest.agent.prompt.beside import Beside
from guest.memory.models import Event
from tests.support.gateway.gateways import open_gateways
from tests.support.servers import openai_server as wire
from tests.support.servers.openai_server import openai_server


def said(turn_id: str) -> Event:
    payload = history.to_payload(history.user_message("and the dog?"))
    return Event(1, turn_id, "user", "and the dog?", payload, "now")


def shown(events: list[Event]) -> list[list[str]]:
    read = [ModelMessagesTypeAdapter.validate_json(event.payload) for event in events]
    return [[str(getattr(p, "content", "")) for p in message.parts] for (message,) in read]


def test_each_turn_has_its_own_again_until_a_note_is_deleted() -> None:
    deleted: list[str] = []
    beside = Beside(deleted)
    beside.keep("s", "t1", "Rex is 5")
    beside.keep("s", "t1", "Rex is 6")
    events = [said("t1"), said("t2")]
    assert shown(beside.restored("s", events)) == [["Rex is 6", "and the dog?"], ["and the dog?"]]
    assert beside.restored("other", events) == events
    deleted.append("note-1")
    assert beside.restored("s", events) == events


def test_what_cannot_be_read_stays_as_it_is_and_old_sessions_go() -> None:
    beside = Beside([])
    broken = Event(1, "t1", "user", "hi", "{", "now")
    beside.keep("s", "t1", "Rex is 5")
    assert beside.restored("s", [broken]) == [broken]
    for number in range(4_000):
        beside.keep(f"s{number}", "t1", "later")
    event = said("t1")
    assert beside.restored("s", [event]) == [event]


async def test_no_event_of_a_conversation_has_a_copy_of_a_recalled_note() -> None:
    async with (
        openai_server(wire.says("It is a boat."), wire.says("Yes.")) as server,
        open_gateways(
            provider="openai",
            model="test-model",
            base_url=server.base_url,
            api_key="sk-test-0123456789abcdef",
        ) as gateways,
    ):
        alice = await gateways.serve("alice")
        await alice.session("s")
        note_id = await alice.save("The boat is called Nina")
        await alice.say("s", "what is the boat called?")
        assert "Nina" in str(server.requests[0].body["messages"])
        events = await gateways.memory.conversations.history("s", 64)
        assert len(events) == 2
        assert not any("Nina" in f"{event.text} {event.payload}" for event in events)
        await gateways.memory.delete(note_id)
        await alice.say("s", "and is it a boat?")
        assert "Nina" not in str(server.requests[1].body["messages"])
