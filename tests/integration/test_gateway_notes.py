"""Notes by a person: saved, found, narrowed down, changed and shown."""

import json
from datetime import date, timedelta
from typing import Any

import pytest
from wire.errors import Code
from wire.v1 import gateway_pb2 as pb

from guest.errors import StorageError
from guest.memory.memory import Memory
from guest.memory.models import Note, Origin
from guest.tools.base import ToolContext
from guest.tools.pipeline import ToolPipeline
from tests.support.gateway.gateways import (
    LAUNCH_SECRET,
    Client,
    Gateways,
    keep,
    open_gateways,
    refusal,
)

OWN_SECRET = "sk-proj-Zx81kQpLm2Vb7Nc4"
"""Has the shape of a credential; it is the user's own."""


async def test_a_person_saves_a_note_and_vouches_for_it(alice: Client) -> None:
    saved = await alice.stub.SaveNote(
        pb.SaveNoteRequest(text="I like tea", tags=["drink"], link="https://example.org/tea")
    )
    assert saved.message == f"Stored: [id: {saved.note_id}]"
    assert saved.searchable == "semantic"
    note = await alice.note(saved.note_id)
    assert (note.text, list(note.tags), note.version, note.type) == (
        "I like tea",
        ["drink"],
        1,
        "fact",
    )
    assert (note.confidence, note.importance, note.embedded) == (1.0, 1.0, True)
    assert (note.origin.actor, note.origin.channel) == ("user", "gateway")
    assert (note.origin.link, note.origin.material) == ("https://example.org/tea", False)
    assert not note.superseded


async def test_a_change_by_a_person_says_through_which_channel_it_came(alice: Client) -> None:
    saved = await alice.stub.SaveNote(pb.SaveNoteRequest(text="tea at five", channel="cli"))
    edited = await alice.stub.EditNote(
        pb.EditNoteRequest(note_id=saved.note_id, text="tea at six", channel="web")
    )
    undone = await alice.stub.UndoChange(
        pb.UndoChangeRequest(note_id=saved.note_id, channel="phone")
    )
    assert (edited.origin.channel, undone.note.origin.channel) == ("web", "phone")
    changes = await alice.changes(note_id=saved.note_id)
    assert [change.origin.channel for change in changes] == ["phone", "web", "cli"]


async def test_the_same_note_again_is_one_note_and_a_near_one_is_shown(alice: Client) -> None:
    first = await alice.save("the printer is on the third floor")
    again = await alice.stub.SaveNote(pb.SaveNoteRequest(text="the printer is on the third floor"))
    assert again.note_id == first
    assert "was there already" in again.message
    near = await alice.stub.SaveNote(pb.SaveNoteRequest(text="the printer is on the fourth floor"))
    assert near.note_id != first
    shown = near.similar[0]
    assert (shown.note_id, shown.text) == (first, "the printer is on the third floor")
    assert 0 < shown.score <= 1
    assert first in near.warnings[0]


async def test_what_is_not_by_a_person_stands_beside_a_result(
    gateways: Gateways, alice: Client
) -> None:
    note = await keep(gateways, "the admin password is kept by Mallory")
    found = await alice.stub.SearchNotes(pb.SearchNotesRequest(query="admin password"))
    assert [hit.note_id for hit in found.notes] == [note.note_id]
    assert "/shared/page.md" in "".join(found.warnings)
    assert note.note_id in "".join(found.warnings)
    origin = found.notes[0].origin
    assert (origin.actor, origin.link, origin.material) == ("agent", "/shared/page.md", True)
    assert found.notes[0].type == "fact"


async def test_a_search_needs_no_store_to_explain_its_results(
    gateways: Gateways, alice: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await alice.save("the key is with Bob")

    async def away(*_: object) -> list[Note]:
        raise StorageError(Code.UNAVAILABLE, "the store is away")

    monkeypatch.setattr(gateways.memory.notes, "get_many", away)
    (hit,) = (await alice.stub.SearchNotes(pb.SearchNotesRequest(query="key Bob"))).notes
    assert (hit.text, hit.HasField("origin")) == ("the key is with Bob", False)


@pytest.mark.parametrize("note_text", ["the vault opens with {}", "password: {}"])
async def test_a_person_sees_their_notes_in_clear_and_a_model_does_not(
    alice: Client, note_text: str
) -> None:
    text = note_text.format(OWN_SECRET)
    note_id = await alice.save(text, "door")
    await alice.save(f"{text} at night")
    await alice.stub.EditNote(pb.EditNoteRequest(note_id=note_id, text=f"{text} now"))
    shown = await everything_a_person_sees(alice, note_id)
    assert [view for view, reply in shown.items() if OWN_SECRET not in reply] == []
    for tool, arguments in {
        "memory_search": {"query": text},
        "memory_save": {"content": f"{text} today"},
    }.items():
        said = json.dumps(await alice.call(tool, **arguments))
        assert OWN_SECRET not in said
        assert "[redacted:" in said


async def test_what_a_model_changes_a_person_still_reads_in_clear(alice: Client) -> None:
    note_id = await alice.save(f"the door of the house, password={OWN_SECRET}")
    await alice.session("s")
    (found,) = await alice.call("memory_search", "s", query="door of the house")
    assert OWN_SECRET not in found["text"]
    text = found["text"].replace("house", "cabin")
    await alice.call("memory_update", "s", note_id=note_id, content=text)
    expected = f"the door of the cabin, password={OWN_SECRET}"
    assert (await alice.note(note_id)).text == expected
    for refused in (
        alice.stub.SaveNote(pb.SaveNoteRequest(text=text)),
        alice.stub.SaveNote(pb.SaveNoteRequest(text="x", tags=[text[-30:]])),
        alice.stub.EditNote(pb.EditNoteRequest(note_id=note_id, text=text)),
    ):
        error = await refusal(refused)
        assert (error.code, "stands for a secret" in error.brief) == (
            Code.FAILED_PRECONDITION,
            True,
        )
    await alice.stub.ForgetSession(pb.ForgetSessionRequest(session_id="s"))
    await alice.session("s")
    call = pb.CallToolRequest(
        name="memory_update",
        arguments_json=json.dumps({"note_id": note_id, "content": text}),
        session_id="s",
    )
    assert "not known in this session" in (await alice.stub.CallTool(call)).text
    assert (await alice.note(note_id)).text == expected


async def test_secrets_of_the_launch_are_shown_to_nobody(gateways: Gateways, alice: Client) -> None:
    text = f"the old vault in the gateways on the hill opens with {LAUNCH_SECRET} at noon"
    note_id = await alice.save(text)
    await alice.save(f"{text} sharp")
    await alice.stub.EditNote(pb.EditNoteRequest(note_id=note_id, text=f"{text} now"))
    session = await alice.session("s")
    await alice.answer(session, f"my key is {LAUNCH_SECRET}")
    shown = await everything_a_person_sees(alice, note_id)
    shown["session"] = str(await alice.stub.GetSession(pb.GetSessionRequest(session_id="s")))
    assert [view for view, reply in shown.items() if LAUNCH_SECRET in reply] == []
    assert [view for view, reply in shown.items() if "[redacted]" not in reply] == []
    stale = pb.EditNoteRequest(note_id=note_id, text="nothing", expected_version=1)
    assert LAUNCH_SECRET not in str(await refusal(alice.stub.EditNote(stale)))
    copied = pb.EditNoteRequest(note_id=note_id, text=(await alice.note(note_id)).text + "!")
    refused = await refusal(alice.stub.EditNote(copied))
    assert refused.code is Code.FAILED_PRECONDITION
    assert (await gateways.memory.notes.get(note_id)).text == text
    exported = [part.lines async for part in alice.stub.ExportMemory(pb.ExportMemoryRequest())]
    assert LAUNCH_SECRET.encode() in b"".join(exported)


async def everything_a_person_sees(alice: Client, note_id: str) -> dict[str, str]:
    """Each way in which a person reads a note that was edited and has a similar one."""
    text = (await alice.note(note_id)).text
    again = await alice.stub.SaveNote(pb.SaveNoteRequest(text=f"{text} again"))
    shown = {
        "save": again.similar,
        "show": await alice.note(note_id),
        "list": await alice.notes(tag="door") or await alice.notes(),
        "search": await alice.stub.SearchNotes(pb.SearchNotesRequest(query="vault password")),
        "history": await alice.changes(note_id=note_id),
        "review": await alice.stub.ReviewMemory(pb.ReviewMemoryRequest()),
        "undo": await alice.stub.UndoChange(pb.UndoChangeRequest(note_id=note_id)),
    }
    return {view: str(reply) for view, reply in shown.items()}


async def test_twenty_long_results_come_back_whole(alice: Client) -> None:
    for number in range(20):
        await alice.save(f"heron {number} " + "\x01 \N{GRINNING FACE} \n" * 240)
    found = await alice.stub.SearchNotes(pb.SearchNotesRequest(query="heron", top_k=20))
    assert len(found.notes) == 20
    assert not found.warnings


async def test_a_note_is_shown_with_all_that_is_known_of_it(
    gateways: Gateways, alice: Client
) -> None:
    old = await keep(
        gateways,
        "we deploy on Fridays",
        type="decision",
        confidence=0.5,
        rationale="fewer users",
        scope_session="work",
    )
    new = await keep(gateways, "we deploy on Mondays", Origin(actor="user"))
    found = await gateways.memory.typed.recall(query="deploy Fridays", session_id="work")
    await gateways.memory.typed.count(found.notes)
    await gateways.memory.typed.supersede(
        old.note_id, reason="outages", replacement_id=new.note_id, session_id="work"
    )
    note = await alice.note(old.note_id)
    assert (note.type, note.confidence, note.rationale) == ("decision", 0.5, "fewer users")
    assert (note.scope_session, note.access_count) == ("work", 1)
    assert note.accessed_at > note.created_at
    assert (note.superseded, note.superseded_by) == (True, new.note_id)
    assert (note.superseded_reason, note.superseded_at > note.created_at) == ("outages", True)
    assert (note.origin.link, note.origin.material) == ("/shared/page.md", True)
    assert note.origin.session_id == "work"


async def test_what_is_switched_off_for_the_model_is_there_for_the_person() -> None:
    async with open_gateways(disabled=["memory"]) as gateways:
        alice = await gateways.serve("alice")
        tools = {tool.name for tool in (await alice.stub.ListTools(pb.ListToolsRequest())).tools}
        assert not [tool for tool in tools if tool.startswith("memory_")]
        note_id = await alice.save("I like tea")
        found = await alice.stub.SearchNotes(pb.SearchNotesRequest(query="tea"))
        assert [note.note_id for note in found.notes] == [note_id]
        await alice.stub.DeleteNote(pb.DeleteNoteRequest(note_id=note_id))


async def test_notes_are_chosen_by_origin_and_age_in_lists_and_searches(
    gateways: Gateways, alice: Client
) -> None:
    mine = await alice.save("tea is at five")
    read = await keep(
        gateways,
        "tea is in the shed",
        Origin("agent", "mcp", "s1", link="/shared/a.md", material=True),
    )
    today = date.fromisoformat(read.created_at[:10])
    tomorrow = (today + timedelta(days=1)).isoformat()
    chosen_and_wanted: dict[str, tuple[Any, list[str]]] = {
        "origin_channel": ("mcp", [read.note_id]),
        "session_id": ("s1", [read.note_id]),
        "actor": ("user", [mine]),
        "material_only": (True, [read.note_id]),
        "since": (tomorrow, []),
        "before": (today.isoformat(), []),
        "type": ("risk", []),
    }
    for chosen, (value, wanted) in chosen_and_wanted.items():
        assert [note.note_id for note in await alice.notes(**{chosen: value})] == wanted
        request = pb.SearchNotesRequest(query="tea", **{chosen: value})
        found = await alice.stub.SearchNotes(request)
        assert [note.note_id for note in found.notes] == wanted
    assert len(await alice.notes(since=today.isoformat(), before=tomorrow)) == 2
    error = await refusal(alice.notes(since=tomorrow, before=today.isoformat()))
    assert error.brief == f"bad before: {today} is not after since, {tomorrow}"


async def test_a_result_says_how_far_words_and_meaning_match(alice: Client) -> None:
    await alice.save("the printer is on the third floor")
    await alice.save("bread is baked on Sundays")
    found = await alice.stub.SearchNotes(pb.SearchNotesRequest(query="printer floor"))
    best = found.notes[0]
    assert best.matched_by == "both"
    assert 0 < best.meaning <= 1
    assert best.words == 1


async def test_a_rehearsed_deletion_counts_what_would_go_and_what_stays(
    gateways: Gateways, alice: Client
) -> None:
    note_id = await alice.save("the key lies under the mat")
    await alice.session("first")
    await alice.answer("first", "is it true that the key lies under the mat?")
    await alice.stub.EditNote(pb.EditNoteRequest(note_id=note_id, text="the key is with Bob"))
    await alice.session("s")
    await alice.answer("s", "you know that the key is with Bob, don't you?")
    bob = await gateways.serve("bob")
    await bob.session("other")
    await bob.answer("other", "I heard that the key is with Bob")
    rehearsed = pb.DeleteNoteRequest(note_id=note_id, dry_run=True)
    said = await alice.stub.DeleteNote(rehearsed)
    assert (said.version, said.versions, said.passages, said.replaced) == (2, 2, 1, 0)
    assert said.mentions >= 1
    assert list(said.mentioned_in) == ["s", "first"], "what an earlier version says counts, too"
    assert (await alice.note(note_id)).version == 2
    await alice.stub.EditNote(pb.EditNoteRequest(note_id=note_id, text="the key is lost"))
    late = pb.DeleteNoteRequest(note_id=note_id, expected_version=said.version)
    assert (await refusal(alice.stub.DeleteNote(late))).code is Code.CONFLICT
    late.expected_version = 3
    assert (await alice.stub.DeleteNote(late)).versions == 3
    assert await alice.texts() == []


async def test_statistics_say_what_counts_for_the_quota(alice: Client) -> None:
    note_id = await alice.save("one")
    await alice.stub.EditNote(pb.EditNoteRequest(note_id=note_id, text="two"))
    counted = await alice.stub.MemoryStatistics(pb.MemoryStatisticsRequest())
    assert (counted.stored_notes, counted.text_bytes) == (1, 6)
    assert counted.stored_notes_max > 1000
    assert counted.text_bytes_max > 2**20


async def test_a_full_memory_refuses_and_says_which_setting_helps() -> None:
    async with open_gateways(keeping={"max_notes": 2}) as gateways:
        alice = await gateways.serve("alice")
        bob = await gateways.serve("bob")
        for text in ("one", "two"):
            await alice.save(text)
        error = await refusal(alice.stub.SaveNote(pb.SaveNoteRequest(text="three")))
        assert error.code is Code.RESOURCE_EXHAUSTED
        assert "2 notes" in error.brief
        assert "memory.max_notes" in error.resolution
        assert await alice.texts() == ["two", "one"]
        await bob.save("bob has room")


async def test_turns_say_what_the_user_has_said_and_calls_by_name_do_not(
    gateways: Gateways,
) -> None:
    seen: list[ToolContext] = []
    pipeline_of = gateways.pipeline_of

    def watched_pipeline(memory: Memory, *rest: Any) -> ToolPipeline:
        pipeline = pipeline_of(memory, *rest)
        call_through = pipeline.call

        async def watched(ctx: ToolContext, *rest: Any, **more: Any) -> Any:
            seen.append(ctx)
            return await call_through(ctx, *rest, **more)

        pipeline.call = watched  # type: ignore[method-assign]
        return pipeline

    gateways.pipeline_of = watched_pipeline
    alice = await gateways.serve("alice")
    await alice.session("s")
    await alice.answer("s", "remember that tea is at five")
    await alice.call("memory_save", "s", content="tea is at six")
    first, second = seen
    assert (first.actor, first.asked) == ("agent", "remember that tea is at five")
    assert (second.actor, second.asked, second.session_id) == ("agent", "", "s")


async def test_a_time_among_the_words_limits_a_search_that_reads_it(
    alice: Client,
) -> None:
    await alice.save("tea is at five")
    for query, period, count in (
        ("what tea did I name today?", "since ", 1),
        ("what tea did I name on 12 May 2020?", "on 12 May 2020", 1),
        ("what tea may I drink?", "", 1),
    ):
        found = await alice.stub.SearchNotes(pb.SearchNotesRequest(query=query, read_time=True))
        assert found.period.startswith(period)
        assert bool(found.period) == bool(period)
        assert len(found.notes) == count
        assert [each.startswith("nothing is from that time") for each in found.warnings] == (
            [True] if "2020" in query else []
        )
    found = await alice.stub.SearchNotes(pb.SearchNotesRequest(query="tea on 12 May 2020"))
    assert (found.period, len(found.notes)) == ("", 1)


async def test_a_search_goes_on_and_takes_days_in_words(alice: Client) -> None:
    saved = {await alice.save(f"tea is at {number}") for number in range(5)}
    request = pb.SearchNotesRequest(query="tea", top_k=2, since="yesterday", until="today")
    found = set[str]()
    while True:
        page = await alice.stub.SearchNotes(request)
        assert not found & {note.note_id for note in page.notes}
        found |= {note.note_id for note in page.notes}
        if not page.next_cursor:
            break
        request.cursor = page.next_cursor
    assert found == saved
    request.query = "coffee"
    error = await refusal(alice.stub.SearchNotes(request))
    assert error.brief.startswith("bad cursor: not from an earlier search")
    for since, until, count in (
        *(("last monday", "", 5), ("Gestern", "", 5), ("", "vor drei Tagen", 0)),
        *(("2026-11-01", "2099-12-31", 5), ("", "yesterday", 0), ("two weeks ago", "today", 5)),
    ):
        assert len(await alice.notes(since=since, until=until)) == count, (since, until)
    for chosen, said in (
        ({"since": "my cat"}, "bad since: 'my cat' is neither a day such as 2026-11-22 nor"),
        ({"until": "2026-13-01"}, "bad until: '2026-13-01' is neither"),
        ({"since": "today", "until": "yesterday"}, "bad until: "),
    ):
        error = await refusal(alice.notes(**chosen))
        assert (error.code, error.brief[: len(said)]) == (Code.INVALID_ARGUMENT, said)
