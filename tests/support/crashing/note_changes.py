"""The program that `test_crash_erasure.py` kills: it saves, updates and deletes notes, and says
what it is about to store. Every line that it writes is one JSON object."""

import asyncio
import json
import os
import random
from pathlib import Path
from typing import Any

from tests.support.memory.store import ORIGIN, FakeEmbedder, opened


def run(path: str, seed: int, descriptor: int, notes: list[str], *, endless: bool) -> None:
    """Go on until killed with the notes that there are; or make 60 changes and close."""
    asyncio.run(_run(Path(path), random.Random(seed), descriptor, notes, endless))


async def _run(
    path: Path, chance: random.Random, descriptor: int, notes: list[str], endless: bool
) -> None:
    def say(**line: Any) -> None:
        os.write(descriptor, json.dumps(line).encode() + b"\n")

    async with opened(path, FakeEmbedder()) as memory:
        say(did="open")
        done = 0
        while endless or done < 60:
            done += 1
            action = chance.choice(["save"] * 5 + ["update"] * 2 + ["delete"] * 3)
            if action == "delete" and notes:
                await memory.delete(notes.pop(chance.randrange(len(notes))))
                continue
            text, secrets = _text(chance)
            say(will=secrets)
            if action == "update" and notes:
                await memory.update(chance.choice(notes), text, None, ORIGIN)
            else:
                notes.append((await memory.save(text, [], ORIGIN)).note.note_id)


def _text(chance: random.Random) -> tuple[str, list[str]]:
    """A text with words that occur nowhere else, and those words."""
    secrets = [rare_word(chance) for _ in range(3)]
    words = [f"{chance.choice('bcdfg')}{chance.randrange(3000)}" for _ in range(40)]
    words *= chance.choice([1, 1, 3, 20])
    for secret in secrets:
        words.insert(chance.randrange(len(words)), secret)
    return " ".join(words), secrets


def rare_word(chance: random.Random) -> str:
    """A word that begins with four letters that nothing else in a file has in such a row."""
    return f"{''.join(chance.choices('jqxzvwky', k=4))}{chance.getrandbits(48):012x}"
