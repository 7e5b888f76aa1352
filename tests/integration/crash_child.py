"""The program that `test_crash_memory.py` kills: it changes notes and says what it did.

Before each change it writes what it is about to do, and after the change has
been acknowledged to it, that it is done. Every line is one JSON object.
"""

import asyncio
import json
import os
import random
from pathlib import Path
from typing import Any

from tests.unit.memory_support import ORIGIN, FakeEmbedder, opened

USER_ID = "alice"


def run(path: str, seed: int, descriptor: int, notes: list[str]) -> None:
    """Change notes until killed. `notes` are the ids of those there already."""
    asyncio.run(_run(Path(path), random.Random(seed), descriptor, notes))


async def _run(path: Path, chance: random.Random, descriptor: int, notes: list[str]) -> None:
    def say(**line: Any) -> None:
        os.write(descriptor, json.dumps(line).encode() + b"\n")

    embedder = FakeEmbedder()
    embedder.delay_s = chance.choice([0, 0.001, 0.02])
    async with opened(path, embedder, embed_wait_s=0.005) as memory:
        say(did="open")
        for number in range(10_000):
            text = _text(chance, number)
            action = chance.choice(["save", "save", "save", "update", "update", "delete"])
            if action == "save" or not notes:
                say(will="save", text=text)
                note = (await memory.save(USER_ID, text, [], ORIGIN)).note
                notes.append(note.note_id)
                say(did="save", id=note.note_id, text=text)
            elif action == "update":
                note_id = chance.choice(notes)
                say(will="update", id=note_id, text=text)
                note = await memory.update(USER_ID, note_id, text, None, ORIGIN)
                say(did="update", id=note_id, text=text, version=note.version)
            else:
                note_id = notes.pop(chance.randrange(len(notes)))
                say(will="delete", id=note_id)
                await memory.delete(USER_ID, note_id)
                say(did="delete", id=note_id)


def _text(chance: random.Random, number: int) -> str:
    words = chance.choices(["tea", "quartz", "violin", "harbor", "zebra", "meadow"], k=40)
    repeated = " ".join(f"{word.capitalize()} comes {i}." for i, word in enumerate(words))
    return f"Note {number} of {chance.getrandbits(64)}. " + repeated * chance.choice([0, 1, 3])
