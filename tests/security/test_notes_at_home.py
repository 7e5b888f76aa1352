"""Notes with the tag `local`, with a word planted in them, and two servers of models that record
what they are sent: one on this machine, one elsewhere."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.models import Model
from wire.settings import AgentSettings, MemorySettings
from wire.tools import TOOLS, offered
from wire.v1 import gateway_pb2

from guest import composition
from guest.agent.answer_form import NO_FORM, AnswerForm
from guest.agent.models.at_home import is_home
from guest.agent.models.models import Models
from guest.agent.models.providers import build_model
from guest.agent.turn import FromClient, Progress, TurnRequest
from guest.agent.turn_loop import TurnLoop
from guest.memory.memory import Memory
from guest.memory.models import SCRATCHPAD, Details, Note, Origin
from guest.tools.base import Reply, ToolContext
from guest.tools.files import file_tools
from guest.tools.files.roots import Roots
from guest.tools.memory.provenance import tags_in
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from tests.support.servers import openai_server as wire
from tests.support.servers.model_servers import ollama, serving, tag
from tests.support.servers.openai_server import OpenAIServer, openai_server
from tests.support.settings import memory_config

WORD = "Xylophon"
OPEN = "Marzipan"
NOTE = f"The code of the safe in the cellar is {WORD}."
OTHER = f"The code of the bicycle in the cellar is {OPEN}."
ASKED = "What is the code of the safe in the cellar?"
ANSWER = f"The code of the safe in your cellar, behind the wine, is {WORD}"
AWAY = "groq:away"

stopped = pytest.mark.attempt
BY = "requests to models elsewhere are made without what is tagged local, and what came of it"


class House:
    """Alice's agent, with a model here, and one elsewhere which answers also where that here fails.
    No request to the one elsewhere has a planted word when it ends."""

    def __init__(self, path: Path, here: OpenAIServer, away: OpenAIServer) -> None:
        self._path = path
        self.here, self.away = here, away
        self.stack = AsyncExitStack()
        self._turns = 0
        self._sessions: set[str] = set()
        self.memory: Memory
        self.events: list[Progress] = []

    async def open(self, own: AgentSettings | None = None, **settings: Any) -> None:
        """Start the agent, anew if it runs; with these settings of its `own`, or with these of two
        models."""
        await self.stack.aclose()
        config = memory_config(self._path / "memory.db")
        self.memory = await Memory.open(config, None, "alice")
        self.stack.push_async_callback(self.memory.close)
        roots = Roots({name: self._path / name for name in ("shared", "tmp", "vault")})
        self.stack.callback(roots.close)
        tools = [*composition.tools_of_memory(self.memory, "user"), *file_tools(roots)]
        on = offered(("memory", "typed_memory", "working_memory", "files"), ())
        pipeline = ToolPipeline(Registry(tools), disabled=set(TOOLS) - on, scrubber=Scrubber())
        agent = AgentSettings.model_construct(
            provider="openai",
            model="here",
            base_url=self.here.base_url,
            fallbacks=[AWAY],
            **settings,
        )
        models = Models(own) if own else Models(agent, {"groq": "k"}, build=self._build)
        tokens = MemorySettings().context_tokens
        self._loop = TurnLoop(models, self.memory, pipeline, agent, tokens, str)

    def _build(self, settings: AgentSettings, key: str) -> Model:
        server = self.here if settings.provider == "openai" else self.away
        there = {"provider": "openai", "base_url": server.base_url}
        return build_model(settings.model_copy(update=there), key)

    async def ask(
        self,
        text: str,
        *replies: wire.Reply,
        away: bool = False,
        session: str = "s",
        form: AnswerForm = NO_FORM,
    ) -> list[gateway_pb2.MemoryReceipt]:
        """A turn, of which the server that is asked answers so; the receipts."""
        self._turns += 1
        server = self.away if away else self.here
        server.replies[:] = replies or [wire.says("I see.")]
        self.events = []
        context = ToolContext("alice", session, f"t{self._turns}", "test")
        model, client = AWAY if away else "", FromClient(form=form)
        request = TurnRequest(context, text, model=model, client=client)
        if session not in self._sessions:
            self._sessions.add(session)
            await self.memory.conversations.create(session)
        await self._loop.run(request, self._watch)
        await self._loop.summarised(session)
        return [each for each in self.events if isinstance(each, gateway_pb2.MemoryReceipt)]

    async def _watch(self, progress: Progress) -> None:
        self.events.append(progress)

    async def keep(self, text: str, *tags: str) -> Note:
        return (await self.memory.save(text, tags, Origin("user"))).note


def last(server: OpenAIServer) -> str:
    """What the server was sent last."""
    return json.dumps(server.requests[-1].body["messages"], ensure_ascii=False)


def call(tool: str, **arguments: Any) -> wire.Reply:
    return wire.calls(("c1", tool, json.dumps(arguments)))


@asynccontextmanager
async def opened(path: Path, **settings: Any) -> AsyncIterator[House]:
    for name in ("shared", "tmp", "vault"):
        (path / name).mkdir()
    async with (
        openai_server(wire.says("I see.")) as here,
        openai_server(wire.says("I see.")) as away,
    ):
        house = House(path, here, away)
        await house.open(**settings)
        try:
            yield house
        finally:
            await house.stack.aclose()
        for each in away.requests:
            assert WORD.lower() not in json.dumps(each.body).lower()


@stopped(
    "having a note that stays here recalled for, or found by, a model elsewhere", stopped_by=BY
)
async def test_it_is_recalled_and_found_here_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as house:
        await house.keep(NOTE, "Local")
        await house.keep(OTHER)
        await house.ask(ASKED)
        assert WORD in last(house.here)
        assert OPEN in last(house.here)
        asked = {"query": "code cellar"}
        searches = wire.calls(
            ("c1", "memory_search", json.dumps(asked)),
            ("c2", "search_memory", json.dumps(asked)),
            ("c3", "memory_context", json.dumps(asked)),
            ("c4", "recall", json.dumps(asked)),
            ("c5", "recall", "{}"),
        )
        for server in (house.away, house.here):
            away = server is house.away
            await house.ask("hello", searches, wire.says("x"), away=away, session=f"{away}")
            results = [m for m in server.requests[-1].body["messages"] if m["role"] == "tool"]
            both = [OPEN in each["content"] for each in results]
            assert all(both)
            assert [WORD in each["content"] for each in results] == [not away] * 5
        await house.ask(ASKED, away=True, session="other")
        assert OPEN in last(house.away)


@stopped("reading a note elsewhere that was tagged late, or what it was made of", stopped_by=BY)
async def test_what_was_shown_and_said_before_stays_too(tmp_path: Path) -> None:
    async with opened(tmp_path) as house:
        late = await house.keep(f"The code of the shed is {WORD}.")
        await house.ask("What is the code of the shed?")
        assert WORD in last(house.here)
        await house.memory.update(late.note_id, late.text, ("local",), Origin("user"))
        read = Origin("agent", link=f"/shared/{WORD}.txt", material=True)
        await house.memory.save("The shed has a lamp.", ("local",), read)
        made = call("memory_save", content="A lamp is in the shed.")
        await house.ask("Is there a lamp?", made, wire.says("ok"), away=True, session="lamp")
        await house.ask("Is a lamp in the shed?", away=True, session="lamps")
        assert "A lamp is in the shed" in last(house.away)
        await house.ask("And of the cellar?", away=True)
        asked = f"Remember that the code of the attic is {WORD}, at home only, please."
        attic = {"content": f"The code of the attic is {WORD}.", "tags": ["local"]}
        await house.ask(asked, call("memory_save", **attic), wire.says("Yes."), session="attic")
        again = "What is there to remember of the code of the attic, at home only?"
        for session in ("s", "t"):
            await house.ask(again, away=True, session=session)
        await house.ask(again, session="at home")
        assert "at home only" in last(house.here)


@stopped("having a model elsewhere told what one here has answered, called and read", stopped_by=BY)
@pytest.mark.parametrize("restarts", [False, True])
async def test_what_came_of_it_stays_too(tmp_path: Path, restarts: bool) -> None:
    async with opened(tmp_path) as house:
        await house.keep(NOTE, "local")
        await house.ask(
            ASKED,
            call("file_write", path="/shared/code.txt", content=f"It is {WORD}."),
            call("file_read", path="/shared/code.txt"),
            call(WORD),
            call("file_read", path=f"/shared/{WORD}"),
            wire.says(f"{ANSWER}."),
        )
        await house.ask("And who made it?", wire.says(f"{WORD} has", " made it", then="abort"))
        if restarts:
            await house.open()
        await house.ask("Good. And what is two and two?", away=True)
        assert "two and two" in last(house.away)
        await house.ask("Good. And three and three?")
        assert last(house.here).count(WORD) >= 6
        await house.ask(ASKED, away=True, session="other")
        search = call("memory_search", query="code of the safe", include_conversation=True)
        await house.ask("hello", search, wire.says("x"), away=True, session="third")
        await house.ask(ASKED, session="fourth")
        assert ANSWER in last(house.here)


@stopped("falling back to a model elsewhere within a turn that has read it", stopped_by=BY)
async def test_each_request_of_a_turn_is_decided_by_itself(tmp_path: Path) -> None:
    async with opened(tmp_path) as house:
        await house.keep(NOTE, "local")
        search = call("memory_search", query="code safe")
        house.away.replies[:] = [search, wire.says("I do not know.")]
        await house.ask(ASKED, search, wire.error("401 Unauthorized"))
        assert WORD in last(house.here)
        assert len(house.away.requests) == 2
        house.away.replies[:] = [search, wire.error("401 Unauthorized")]
        await house.ask(ASKED, wire.error("401 Unauthorized"), wire.says("ok"), session="back")
        assert WORD in last(house.here)
        plain = wire.error("400 Bad Request", "Conversation roles must alternate user/assistant")
        house.away.replies[:] = [plain, wire.says("OK.")]
        await house.ask(ASKED, search, plain, wire.says("ok"), session="plain")
        assert "memory_search gives" in last(house.here)
        assert WORD in last(house.here)
        for session, name in (("known", "memory_search"), ("unknown", WORD)):
            called = call(name, query="code safe")
            await house.ask(ASKED, called, wire.error("401 Unauthorized"), session=session)
            assert house.away.requests[-1].body["messages"][-1]["role"] == "user"
        assert len(house.away.requests) == 6
        claims = wire.says(f"I have saved {WORD} for you.")
        asked = f"{ASKED} Remember my answer."
        await house.ask(asked, claims, wire.error("401 Unauthorized"), session="once more")
        assert len(house.away.requests) == 7
        house.away.replies[:] = [wire.says('{"code": 1}')]
        form = AnswerForm({"type": "object", "properties": {"code": {"type": "integer"}}})
        unfit = wire.says(json.dumps({"code": WORD}))
        await house.ask(ASKED, unfit, wire.error("401 Unauthorized"), session="form", form=form)
        assert len(house.away.requests) == 8


@stopped(
    "having a note tagged otherwise, or a summary, carry it to a model elsewhere", stopped_by=BY
)
async def test_notes_and_summaries_made_of_it_stay(tmp_path: Path) -> None:
    async with opened(tmp_path, history_turns=2, summary_min_turns=1) as house:
        note = await house.keep(NOTE, "local")
        await house.keep(OTHER)
        risk = Details(type="risk")
        lamp = (await house.memory.save("The lamp is green.", (), Origin("user"), risk)).note
        changed = {"note_id": note.note_id, "content": f"{WORD}!", "tags": []}
        saved = await house.ask(
            ASKED,
            wire.calls(
                ("c1", "memory_save", json.dumps({"content": f"{WORD} opens the safe."})),
                ("c2", "remember", json.dumps({"content": "A code", "rationale": WORD})),
                ("c3", "write_memory", json.dumps({"key": WORD.lower(), "content": "x"})),
                ("c4", "scratch_note", json.dumps({"mode": "replace", "content": WORD})),
                ("c5", "write_session_handoff", json.dumps({"content": WORD})),
                ("c6", "memory_update", json.dumps(changed)),
            ),
            wire.says("Done."),
        )
        assert [each.reason for each in saved] == [
            "tagged local, because it came of what stays on this machine"
        ] * 6
        forget = call("forget", memory_id=lamp.note_id, reason=WORD)
        await house.ask("The lamp is gone.", forget, wire.says("Done."))
        notes, _ = await house.memory.list(50)
        made = [each.tags for each in notes if WORD in f"{each.text} {each.details.rationale}"]
        assert set(made) == {("local",)}
        cat_is = call("memory_save", content="My cat is called Tom.")
        await house.ask("My cat is called Tom.", cat_is, wire.says("ok"))
        (cat,) = [each for each in (await house.memory.list(50))[0] if "Tom" in each.text]
        assert cat.tags == ()
        for session in ("s", "next"):
            await house.ask(ASKED, away=True, session=session)
            assert OPEN in last(house.away)
        await house.ask("hello", session="inside")
        assert last(house.here).count(f"> {WORD}") == 2  # handoff and scratchpad
        for tool, arguments in (
            ("scratch_note", {"mode": "read"}),
            ("recall", {}),
            ("recall", {"type": "risk", "include_superseded": True}),
            ("memory_update", {"note_id": note.note_id, "content": "x", "version": 1}),
            ("memory_save", {"content": f"The code of the safe is {OPEN}."}),
        ):
            called = call(tool, **arguments)
            await house.ask("hello", called, wire.says("x"), away=True, session="next")
        await house.memory.keyed.clear(SCRATCHPAD)
        await house.ask("hello", away=True, session="next")
        await house.ask(ASKED, wire.says(f"{ANSWER}."), session="kept")
        await house.ask("Save this.", away=True, session="kept")
        (kept,) = [each for each in (await house.memory.list(50))[0] if ANSWER in each.text]
        assert kept.tags == ("local",)
        for number in range(4):
            await house.ask(f"{number} plus {number}?", wire.says(f"{WORD} {number}"))
        stored = await house.memory.state_of.read("s", "summary")
        assert stored is not None
        assert "0 plus 0" in str(stored)
        assert WORD not in str(stored)
        await house.ask("And now?", away=True)


@stopped("taking a model for one here that a server here passes on", stopped_by=BY)
async def test_a_model_that_a_server_here_passes_on_is_elsewhere(tmp_path: Path) -> None:
    async with opened(tmp_path) as house:
        await house.keep(NOTE, "local")
        await house.ask(ASKED)
        assert WORD in last(house.here)
        house.here.shown = {"remote_host": "https://ollama.com:443", "remote_model": "m"}
        await house.ask(ASKED)
        assert WORD not in last(house.here)
        house.here.shown = {"details": {}}
        await house.ask(ASKED)
        assert WORD in last(house.here)


@pytest.mark.parametrize(("remote", "stays"), [("", True), ("https://ollama.com:443", False)])
async def test_so_is_one_of_ollamas_own_api(remote: str, stays: bool, tmp_path: Path) -> None:
    with serving(ollama(tag("m", "tools", at=remote, context_length=30_000))) as server:
        where = f"http://127.0.0.1:{server.port}/v1"
        async with opened(tmp_path) as house:
            await house.open(AgentSettings(provider="ollama", model="m", base_url=where))
            await house.keep(NOTE, "local")
            await house.ask(ASKED)
        chats = [b for b, name in zip(server.bodies, server.asked, strict=True) if "chat" in name]
        assert (WORD in json.dumps(chats)) is stays


@pytest.mark.parametrize(
    ("url", "home"),
    [
        ("http://127.0.0.1:11434/v1", True),
        ("http://models.localhost/v1", False),
        ("http://192.168.1.5/v1", False),
        ("http://127.0.0.1.example.com/v1", False),
        ("", False),
    ],
)
def test_home_is_this_machine_alone(url: str, home: bool) -> None:
    assert is_home(url) is home


def test_a_sentence_that_the_user_has_just_said_has_not_come_of_it() -> None:
    context = ToolContext("alice", "s", "t", "test", asked="My cat is called Tom.", local=True)
    assert tags_in(context, "The user's cat is called Tom.", ("pets",)) == ("pets",)
    assert tags_in(context, "Tom opens the safe.", ("pets",)) == ("local", "pets")


def test_a_model_does_not_take_the_tag_off_and_its_user_does() -> None:
    client = ToolContext("alice", "s", "t", "test")
    assert tags_in(client, "x", (), ("Local",)) == ()
    assert tags_in(replace(client, reply=Reply()), "x", (), ("Local",)) == ("local",)
