"""`/why`, `/context` and `/temporary`: what an answer was made of, and conversations that go."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from wire.v1 import gateway_pb2

from tests.support.gateway.fake_gateway import Event, FakeGateway, says, text
from tests.support.gateway.fake_gateway import completed as done
from tests.unit.runner.cli.test_piped_chat import chat
from tests.unit.runner.cli.test_terminal_chat import on_a_terminal

NOTE = "note-103637e5-0000-4000-8000-000000000000"
OTHER = "note-2ce87c40-0000-4000-8000-000000000000"
Used = gateway_pb2.UsedNote


def made_of(*notes: Used, **counts: Any) -> gateway_pb2.TurnContext:
    return gateway_pb2.TurnContext(turn_id="t1", model="openai:m", notes=notes, **counts)


def after(command: str, out: str) -> list[str]:
    """The lines that `command` has shown."""
    return out.partition(f"> {command}\n")[2].rstrip("\n").split("\n")


async def test_the_notes_of_the_last_answer_with_how_each_was_found(gateway: FakeGateway) -> None:
    gateway.holds(NOTE, "the boat is\ncalled Fram")
    gateway.context = made_of(
        Used(note_id=NOTE, matched_by="both"),
        Used(note_id=OTHER, matched_by="semantic", tool="memory_search"),
        Used(note_id="note-scratchpad"),
    )
    code, out, _ = await chat(gateway, "hi\n/why\n")
    assert code == 0
    assert after("/why", out) == [
        " 1  the boat is called Fram",
        "    note-103637e5 · found by words and meaning",
        " 2  (forgotten since)",
        "    note-2ce87c40 · memory_search found it by meaning",
        " 3  (forgotten since)",
        "    note-scratchpad · working memory, in every request",
        "/why wrong 1 WHAT IS RIGHT corrects note 1; /why wrong 1 alone forgets it",
    ]


async def test_a_wrong_note_is_corrected_with_a_receipt(gateway: FakeGateway) -> None:
    gateway.holds(NOTE, "the boat is called Fram", version=3)
    gateway.context = made_of(Used(note_id=NOTE))
    _, out, _ = await chat(gateway, "hi\n/why wrong 1 the boat is called Gjøa\n")
    assert gateway.notes[NOTE].text == "the boat is called Gjøa"
    assert gateway.seen[-1].expected_version == 3
    assert out.rstrip().endswith("✓ updated note-103637e5 (version 4)")


@pytest.mark.parametrize(("answer", "left"), [("y", {}), ("n", {NOTE})])
async def test_a_wrong_note_is_forgotten_by_whoever_says_yes(
    gateway: FakeGateway, answer: str, left: set[str]
) -> None:
    gateway.holds(NOTE, "the boat is called Fram", version=2)
    gateway.context = made_of(Used(note_id=NOTE))
    async with on_a_terminal(gateway) as terminal:
        terminal.type("hi\r")
        await terminal.expect("you said: hi\n")
        terminal.type("/why wrong 1\r")
        await terminal.expect("[y/N]")
        terminal.type(f"{answer}\r")
        await terminal.expect("✓ deleted note-103637e5" if answer == "y" else "memory unchanged")
    assert set(gateway.notes) == set(left)
    if answer == "y":
        assert gateway.seen[-1].expected_version == 2


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("/why wrong 2", "there is no note 2"),
        ("/why not", "/why knows no 'not'"),
        ("/why wrong 1", "note 1 is forgotten already"),
    ],
)
async def test_what_cannot_be_wrong_is_said(gateway: FakeGateway, command: str, told: str) -> None:
    gateway.context = made_of(Used(note_id=NOTE))
    code, out, _ = await chat(gateway, f"hi\n{command}\n")
    assert code == 1
    assert told in out


async def test_before_an_answer_there_is_nothing_to_explain(gateway: FakeGateway) -> None:
    for command in ("/why", "/context"):
        code, out, _ = await chat(gateway, f"{command}\n")
        assert (code, "there is no answer yet" in out) == (1, True)


async def test_what_the_request_took_of_the_window(gateway: FakeGateway) -> None:
    gateway.context = made_of(
        rules=600, tools=3_000, memory=300, history=2_000, turn=100,
        window=8_000, window_set=8_000, window_known=128_000, counted=2_500,
    )  # fmt: skip
    _, out, _ = await chat(gateway, "hi\n/context\n")
    lines = after("/context", out)
    assert [line.split()[:2] for line in lines[:4]] == [
        ["rules", "600"],
        ["tools", "3,000"],
        ["memory", "300"],
        ["history", "2,000"],
    ]
    assert lines[5] == "free          2,000  " + "·" * 8
    assert lines[6] == "6,000 of 8,000 tokens (75 %), by estimate"
    assert lines[7] == "openai:m has counted 2,500"
    assert 'an Ollama gets it from provider = "ollama"' in lines[8]
    assert "the model's own window is 128,000" in lines[9]


async def test_a_window_that_the_model_refused_is_told(gateway: FakeGateway) -> None:
    gateway.context = made_of(rules=600, window=4_000, window_set=64_000)
    _, out, _ = await chat(gateway, "hi\n/context\n")
    assert "the model takes less than context_window (64,000), which can only lower" in out
    assert "set that to" not in out  # 4,000 is what is left of its window, and not the window


async def test_a_temporary_conversation_ends_with_its_receipt(gateway: FakeGateway) -> None:
    code, out, _ = await chat(gateway, "kept\n/temporary\nsecret\n/temporary\nkept too\n")
    assert code == 0
    assert [(turn.session_id, turn.text) for turn in gateway.turns] == [
        ("s1", "kept"),
        ("temporary-2", "secret"),
        ("s1", "kept too"),
    ]
    assert set(gateway.sessions) == {"s1"}
    assert "✓ erased: 1 turn of the temporary conversation; nothing of it was ever stored" in out
    secret = out.partition("> secret")[2].partition("> /temporary")[0]
    assert "memory unchanged" not in secret, "it cannot have changed"


@pytest.mark.parametrize("leave", ["/new\n", "/switch s1\n", "/quit\n", ""])
async def test_whoever_leaves_a_temporary_conversation_ends_it(
    gateway: FakeGateway, leave: str
) -> None:
    _, out, _ = await chat(gateway, f"kept\n/temporary\nsecret\n{leave}")
    assert not [name for name in gateway.sessions if name.startswith("temporary")]
    assert "✓ erased: 1 turn of the temporary conversation" in out


async def test_what_is_said_after_its_end_is_said_nowhere_else(gateway: FakeGateway) -> None:
    gateway.temporary_is_over = True
    code, out, _ = await chat(gateway, "/temporary\nsecret\nsecret\n/temporary\n")
    assert code == 1
    assert not gateway.turns
    assert out.count("This message was not sent") == 2
    assert "✓ erased before: the temporary conversation was over" in out


async def test_an_unknown_session_is_looked_for_in_the_chat(gateway: FakeGateway) -> None:
    _, out, _ = await chat(gateway, "/switch nope\n")
    assert "fix: /sessions" in out


async def test_turns_are_a_line_each_at_80_columns(gateway: FakeGateway) -> None:
    session = "session-90ad946d-8f4c-4b03-af37-9c944edb8ec0"
    gateway.ended = [
        gateway_pb2.Turn(
            turn_id=f"t{n}", session_id=session, state="completed", text="word " * 40,
            started_at="2026-11-20T10:00:00.000000Z",
        )
        for n in range(3)
    ]  # fmt: skip
    async with on_a_terminal(gateway) as terminal:
        terminal.type("/turns\r")
        await terminal.expect("word")
        await terminal.expect("> ")
        rows = [row.rstrip() for row in terminal.screen().display]
    assert sum("90ad946d  completed  " in row for row in rows) == 3
    assert not [row for row in rows if session in row]


async def test_a_turn_that_changes_nothing_says_so_until_the_next_message(
    gateway: FakeGateway,
) -> None:
    async with on_a_terminal(gateway) as terminal:
        terminal.type("one\r")
        await terminal.expect("○ memory unchanged")
        assert "○ memory unchanged" in "\n".join(terminal.screen().display)
        terminal.type("two\r")
        position = await terminal.expect("you said: two")
        await terminal.expect("○ memory unchanged", after=position)
        shown = "\n".join(terminal.screen().display)
    assert shown.count("○ memory unchanged") == 1


async def test_a_long_paste_is_folded_and_sent_whole(gateway: FakeGateway) -> None:
    async def numbered(fake: FakeGateway, _: object) -> AsyncIterator[Event]:
        yield done(f"reply {len(fake.turns)}")

    gateway.script = numbered
    pasted = "\n".join(f"line {number}" for number in range(1, 301))
    async with on_a_terminal(gateway) as terminal:
        await terminal.expect("/help")
        terminal.type(f"look: \x1b[200~{pasted}\x1b[201~ ok?")
        await terminal.expect("[300 lines pasted]")
        terminal.type("\r")
        position = await terminal.expect("reply 1")
        terminal.type(f"\x1b[200~{pasted}\x1b[201~")
        await terminal.expect("[300 lines pasted]", after=position)
        terminal.type("\x7fgone\r")
        await terminal.expect("reply 2")
        terminal.type("\x1b[200~short\nenough\x1b[201~\r")
        await terminal.expect("reply 3")
    assert [turn.text for turn in gateway.turns] == [f"look: {pasted} ok?", "gone", "short\nenough"]


async def test_an_id_is_told_once(gateway: FakeGateway) -> None:
    receipt = gateway_pb2.MemoryReceipt(action="saved", outcome="done", note_id=NOTE)
    gateway.script = says(
        gateway_pb2.TurnEvent(receipt=receipt),
        text(f"Saved: tea [id: {NOTE}]\n\n- another [id: {OTHER}]\n"),
        done("", receipt),
    )
    async with on_a_terminal(gateway) as terminal:
        terminal.type("remember\r")
        await terminal.expect("✓ saved note-103637e5")
        shown = "\n".join(terminal.screen().display)
    assert shown.count("103637e5") == 1
    assert "[note-2ce87c40]" in shown
