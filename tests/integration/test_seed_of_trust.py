"""The seed of trust: users' turns interleave by the hundred and never meet.

Several gateways on sockets of their own share one memory, one pipeline and one
loop, the tightest arrangement there could be. Every text of a user carries that
user's marker, and no marker may ever appear anywhere in what another user sees.
"""

import asyncio
import random
import re
from typing import Any

import pytest
from google.protobuf.message import Message
from wire.v1 import gateway_pb2 as pb

from tests.support.examples import scaled
from tests.support.gateway.gateways import Client, hashing, open_gateways

USERS = ("alice", "bob", "carol", "dave")
TURNS_EACH = scaled(36)
SESSIONS_EACH = 3


def marker(user: str) -> str:
    return f"mark{user}mark"


class Talker:
    """One user, talking in several sessions at once and keeping all that comes back."""

    def __init__(self, user: str, client: Client) -> None:
        self.user = user
        self.client = client
        self.seen: list[Message] = []
        self.answers: list[str] = []
        self._random = random.Random(user)  # a fixed order for each user

    async def talk(self) -> None:
        sessions = [await self.client.session() for _ in range(SESSIONS_EACH)]
        await asyncio.gather(*(self._session(session) for session in sessions))
        for session in sessions:
            request = pb.GetSessionRequest(session_id=session, limit=1000)
            self.seen.append(await self.client.stub.GetSession(request))
        await self._look_around()

    async def _session(self, session: str) -> None:
        for number in range(TURNS_EACH // SESSIONS_EACH):
            for event in await self.client.say(session, self._words(session, number)):
                self.seen.append(event)
                if event.WhichOneof("event") == "failed":
                    raise AssertionError(event)
                if event.WhichOneof("event") == "completed":
                    self.answers.append(event.completed.text)

    def _words(self, session: str, number: int) -> str:
        # Everybody uses the same words but for the marker, so that any search without its
        # namespace would find the others.
        subject = self._random.choice(["name", "dog", "birthday", "password"])
        own = f"{marker(self.user)} {session[-6:]} {number}"
        return self._random.choice(
            [
                f"remember that my {subject} is {own}",
                f"remember that my {subject} is {own}",
                f"what do you know about my {subject}?",
                f"what do you know about my {subject}?",
                f"correct that: my {subject} was {own}",
                f"forget my {subject}",
                f"write /shared/{self.user}-{number}.txt: {own}",
                f"{own} and nothing in particular",
            ]
        )

    async def _look_around(self) -> None:
        stub = self.client.stub
        self.seen.append(await stub.ListNotes(pb.ListNotesRequest(limit=1000)))
        self.seen.append(await stub.ListSessions(pb.ListSessionsRequest()))
        queries = ["name dog birthday password", *(marker(user) for user in USERS)]
        for query in queries:
            request = pb.SearchNotesRequest(query=query, top_k=20, include_conversation=True)
            self.seen.append(await stub.SearchNotes(request))


def markers_in(messages: list[Any]) -> set[str]:
    return set(re.findall(r"mark[a-z]+mark", "\n".join(map(str, messages))))


@pytest.mark.parametrize(
    ("users", "embedded"),
    [(USERS, True), (USERS[:2], False)],
    ids=["four users, hybrid", "two users, keyword"],
)
async def test_hundreds_of_interleaved_turns_never_meet(
    users: tuple[str, ...], embedded: bool
) -> None:
    async with open_gateways(embedder=hashing() if embedded else None) as gateways:
        talkers = [Talker(user, await gateways.serve(user)) for user in users]
        await asyncio.gather(*(talker.talk() for talker in talkers))
        for talker in talkers:
            assert len(talker.answers) == TURNS_EACH
            assert markers_in(talker.seen) == {marker(talker.user)}
        # Not vacuous: there was something to find, and the owner found it.
        assert any("This is what I know" in answer for t in talkers for answer in t.answers)
        for talker in talkers:
            counts = await talker.client.stub.MemoryStatistics(pb.MemoryStatisticsRequest())
            assert counts.sessions == SESSIONS_EACH
            assert counts.notes > 0


async def test_a_user_cannot_reach_anothers_notes_by_id_or_session_by_name() -> None:
    async with open_gateways(embedder=hashing()) as gateways:
        alice, bob = await gateways.serve("alice"), await gateways.serve("bob")
        await alice.session("hers")
        await bob.session("his")
        await alice.answer("hers", "remember that my name is markalicemark")
        (note,) = (await alice.stub.ListNotes(pb.ListNotesRequest())).notes
        unknown = note.note_id[:-1] + ("0" if note.note_id[-1] != "0" else "1")
        for text in ("forget {}", "update {}: mine now"):
            real = await bob.answer("his", text.format(note.note_id))
            made_up = await bob.answer("his", text.format(unknown))
            assert real.replace(note.note_id, unknown) == made_up
        (untouched,) = (await alice.stub.ListNotes(pb.ListNotesRequest())).notes
        assert (untouched.text, untouched.version) == ("my name is markalicemark", 1)
