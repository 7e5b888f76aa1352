"""Killed while it changes notes: the receipts tell of exactly the changes that were made."""

import asyncio
import multiprocessing
import random
import time
from dataclasses import replace
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path

from tests.support.crashing.killing import kill
from tests.support.memory.store import ORIGIN, opened

ROUNDS = 24
LONGEST_CHANGE_S = 0.003


def change_for_ever(path: str, told: Connection, seed: int) -> None:
    """Save, update and delete notes, each in a turn of its own, until killed."""

    async def changing() -> None:
        chance = random.Random(seed)
        async with opened(Path(path)) as memory:
            listed, _ = await memory.list(1000)
            notes = [note.note_id for note in listed]
            for number in count():
                origin = replace(ORIGIN, turn_id=f"turn-{seed}-{number}")
                text = f"Fact {chance.getrandbits(64):x}."
                told.send(number)
                match chance.choice(["save", "save", "update", "delete"]) if notes else "save":
                    case "save":
                        notes.append((await memory.save(text, (), origin)).note.note_id)
                    case "update":
                        await memory.update(chance.choice(notes), text, None, origin)
                    case "delete":
                        note_id = notes.pop(chance.randrange(len(notes)))
                        await memory.delete(note_id, origin)

    asyncio.run(changing())


def test_sigkill_parts_no_change_from_its_receipt(tmp_path: Path, chance: random.Random) -> None:
    path = tmp_path / "memory.db"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    turns: list[str] = []
    for seed in range(ROUNDS):
        reader, writer = context.Pipe(duplex=False)
        child = context.Process(target=change_for_ever, args=(str(path), writer, seed))
        child.start()
        writer.close()
        begun = 0
        for _ in range(chance.randrange(1, 12)):
            assert reader.poll(60)
            begun = reader.recv()
        time.sleep(chance.random() * LONGEST_CHANGE_S)
        begun = kill(child, reader, begun)
        turns += [f"turn-{seed}-{number}" for number in range(begun + 1)]
        there, told = asyncio.run(found(path, turns))
        assert there == told
    assert len(turns) > ROUNDS * 3


async def found(path: Path, turns: list[str]) -> tuple[dict[str, int], dict[str, int]]:
    """The version of each note that a guest finds next, and those that the receipts tell of."""
    async with opened(path) as memory:
        listed, _ = await memory.list(1000)
        told: dict[str, int] = {}
        for _, receipt in await memory.receipts.of_turns(ORIGIN.session_id, turns):
            if receipt.action == "deleted":
                del told[receipt.note_id]
            else:
                assert receipt.version == told.get(receipt.note_id, 0) + 1
                told[receipt.note_id] = receipt.version
        return {note.note_id: note.version for note in listed}, told
