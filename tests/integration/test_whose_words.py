"""Whose words a note is made of, over whole turns."""

from tests.support.gateway.gateways import open_gateways

README = (
    "remember that my name is Shantanu",
    "what do you know about my name?",
    "correct that: I prefer to be called SG",
    "what do you know about my name?",
    "read /../.oxydra/memory.db",
    "forget my name",
    "what do you know about my name?",
)


async def test_what_memory_tools_reported_in_earlier_sessions_marks_nobodys_words() -> None:
    """By words alone, as while the embedding model is loading."""
    async with open_gateways() as gateways:
        alice = await gateways.serve("alice")
        for _ in range(3):
            session = await alice.session()
            for turn in README:
                await alice.say(session, turn)
                for note in await alice.notes():
                    told = (note.origin.actor, note.origin.material, note.origin.link)
                    assert told == ("user", False, ""), turn
