"""Turns of a model that lies, forgets and half-succeeds, over a store that fails: what the
receipts say is what is in the database. A hundred in every run, a thousand with `--long`."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from wire.errors import Code
from wire.settings import AgentSettings
from wire.v1 import gateway_pb2

from guest.errors import AfterChangeError, ChangeUnknownError, StorageError
from guest.tools.base import Tool, ToolContext, ToolOutput
from tests.support.agent.scripted_turns import Change, ScriptedTurns, calls, save, scripted_turns
from tests.support.examples import SEED, scaled

TURNS, SEEDS = 50, scaled(2)
SAID = [
    "Remember that I like {n}",
    "Merk dir: {n}",
    "umm could you keep {n} in mind?",
    "Save this.",
    "What is {n}?",
    "Thanks!",
]
LIES = [
    "I've saved that.",
    "✓ saved note-12345678",
    "Gespeichert! Sonst noch etwas?",
    "我已经记住了。",
    "Stored: [id: note-7]",
    "Nothing was saved.",
    "The sky is blue.",
    "I have deleted all of your notes.",
]
State = dict[str, tuple[int, bool]]
"""The notes: the version of each, and whether it is superseded."""


class Trouble:
    """What goes wrong with the next changes, and when the turn is cancelled."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.turn: asyncio.Task[Any] | None = None

    def wrap(self, _: Tool, run: Change) -> Change:
        async def troubled(context: ToolContext, arguments: Any) -> ToolOutput:
            kind = self._dice.randrange(10)
            if kind == 0:
                raise StorageError(Code.RESOURCE_EXHAUSTED, "disk full")
            if kind == 1:
                raise ChangeUnknownError(Code.UNAVAILABLE, "no answer, and not made")
            if kind == 2:
                self._cancel()
            output = await run(context, arguments)
            if kind == 3:
                raise ChangeUnknownError(Code.UNAVAILABLE, "no answer, but made")
            if kind == 4 and any(not each.reason for each in output.receipts):
                raise AfterChangeError(Code.UNAVAILABLE, "made; it could not be read again")
            if kind == 5:
                self._cancel()
            return output

        return troubled

    def _cancel(self) -> None:
        if self.turn is not None:
            self.turn.cancel()


def replies(dice: random.Random, state: State) -> list[Any]:
    """What the model does in one turn: calls, then words, true or not; or it breaks down."""
    known = [*state, "note-none"]
    scripted: list[Any] = []
    for _ in range(dice.choice((0, 0, 1, 1, 2))):
        note_id, other = dice.choice(known), dice.choice(known)
        scripted.append(
            dice.choice(
                [
                    save(f"fact {dice.randrange(40)}"),
                    save(" "),
                    calls(("memory_update", {"note_id": note_id, "content": f"{dice.random()}"})),
                    calls(("memory_delete", {"note_id": note_id})),
                    calls(
                        ("memory_delete", {"note_id": note_id}), ("memory_save", {"content": "y"})
                    ),
                    calls(("forget", {"memory_id": note_id, "replacement_id": other})),
                    calls(("scratch_note", {"mode": dice.choice(("append", "clear", "read"))})),
                    calls(("write_memory", {"key": "plan", "content": f"{dice.random()}"})),
                ]
            )
        )
    scripted.append(RuntimeError("gone") if dice.randrange(12) == 0 else halves(dice.choice(LIES)))
    return scripted


def halves(text: str) -> list[str]:
    """`text` as two pieces of a stream."""
    return [text[: len(text) // 2], text[len(text) // 2 :]]


async def state_of(turns: ScriptedTurns) -> State:
    return {
        note.note_id: (note.version, note.superseded is not None) for note in await turns.notes()
    }


def check(
    receipts: list[gateway_pb2.MemoryReceipt], before: State, after: State, turn: str
) -> None:
    done = [each for each in receipts if each.outcome == "done"]
    changed = {note for note in before.keys() | after.keys() if before.get(note) != after.get(note)}
    assert changed <= {each.note_id for each in done}, f"{turn}: changed without a receipt"
    last = {each.note_id: each for each in done}
    for note_id, receipt in last.items():
        if receipt.action == "deleted":
            assert note_id not in after, f"{turn}: {receipt}"
            continue
        assert note_id in after, f"{turn}: {receipt}"
        version, superseded = after[note_id]
        if receipt.action == "superseded":
            assert superseded, f"{turn}: {receipt}"
        elif receipt.version:
            assert version == receipt.version, f"{turn}: {receipt}"


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_what_the_receipts_say_is_what_is_in_the_database(tmp_path: Path, seed: int) -> None:
    dice = random.Random(f"{SEED} {seed}")
    trouble = Trouble(dice)
    seen = {"done": 0, "failed": 0, "unknown": 0, "runtime": 0, "cancelled": 0, "failed turns": 0}
    async with scripted_turns(
        tmp_path,
        wrap=trouble.wrap,
        ask_for=("memory_update",),
        agent=AgentSettings(history_turns=4),
        max_notes=40,
    ) as turns:
        state: State = {}
        for number in range(TURNS):
            turn = f"turn {number} of seed {SEED} {seed}"
            turns.replies = replies(dice, state)
            turns.approved = dice.randrange(4) > 0
            said = dice.choice(SAID).format(n=f"tea {number}")
            trouble.turn = asyncio.create_task(turns.say(said))
            outcome = await trouble.turn
            before, state = state, await state_of(turns)
            receipts = list(outcome.receipts)
            check(receipts, before, state, turn)
            stored = await turns.memory.receipts.of_turns("s1", [f"t{number + 1}"])
            kinds = sorted((each.action, each.outcome, each.note_id) for _, each in stored)
            assert kinds == sorted((each.action, each.outcome, each.note_id) for each in receipts)
            for each in receipts:
                seen[each.outcome] += 1
                seen["runtime"] += each.asked_by == "runtime"
            seen["cancelled"] += getattr(outcome, "code", "") == Code.CANCELLED
            seen["failed turns"] += isinstance(outcome, gateway_pb2.TurnFailed)
    assert min(seen.values()) >= 1, seen
