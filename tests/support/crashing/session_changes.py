"""The program that `test_crash_sessions.py` kills: it talks, forgets sessions and has all
vectors made anew, and says what it does before and after.

Every line that it writes is one JSON object.
"""

import asyncio
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np

from guest.memory.memory import Memory
from tests.support.memory.store import FakeEmbedder, opened

USER_ID = "alice"


class Versioned(FakeEmbedder):
    """Each of its vectors tells which version of the model has made it."""

    def __init__(self, version: int) -> None:
        super().__init__()
        self.version = version

    def vector(self, text: str) -> np.ndarray[Any, np.dtype[np.float32]]:
        vector = np.zeros(self.dimensions, np.float32)
        vector[self.version % self.dimensions] = 1
        return vector


def run(path: str, seed: int, descriptor: int, sessions: list[str], version: int) -> None:
    """Go on until killed with the sessions that there are."""
    asyncio.run(_run(Path(path), random.Random(seed), descriptor, sessions, version))


async def _run(
    path: Path, chance: random.Random, descriptor: int, sessions: list[str], version: int
) -> None:
    def say(**line: Any) -> None:
        os.write(descriptor, json.dumps(line).encode() + b"\n")

    embedder = Versioned(version)
    async with opened(path, embedder) as memory:
        say(did="open")
        while True:
            action = chance.choice(["talk"] * 6 + ["forget", "reembed"])
            if action == "talk" or not sessions:
                if not sessions or chance.random() < 0.3:
                    sessions.append(f"s{chance.getrandbits(40):x}")
                    await memory.conversations.create(sessions[-1])
                session_id = chance.choice(sessions)
                text = _text(chance)
                say(will="talk", id=session_id, text=text)
                await memory.conversations.append(
                    session_id, turn_id="t", role="user", text=text, payload="[]"
                )
                say(did="talk", id=session_id, text=text)
            elif action == "forget":
                session_id = sessions.pop(chance.randrange(len(sessions)))
                say(will="forget", id=session_id)
                await memory.sessions.forget(session_id)
                say(did="forget", id=session_id)
            else:
                await _all_embedded(memory)
                embedder.version += 1
                say(will="reembed", version=embedder.version)
                await memory.reembed()
                say(did="reembed", version=embedder.version)


async def _all_embedded(memory: Memory) -> None:
    while True:
        found = await memory.statistics()
        if found.passages_embedded == found.passages:
            return
        await asyncio.sleep(0.002)


def _text(chance: random.Random) -> str:
    """Words that occur nowhere else, of one or of many passages."""
    secret = f"q{chance.getrandbits(64):016x}"
    words = chance.choices(["tea", "quartz", "violin", "harbor", "zebra", "meadow"], k=20)
    filler = " ".join(f"{word.capitalize()} comes {i}." for i, word in enumerate(words))
    return " ".join([f"The word is {secret}.", filler] * chance.choice([1, 1, 3, 40]))
