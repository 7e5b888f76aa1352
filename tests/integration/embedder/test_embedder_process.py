"""The real process with the hashing backend: life, death and every way to start it wrongly."""

import asyncio
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from wire.errors import WireError
from wire.logs import EXIT_OPERATOR, find_startup_failure

from guest.embedding.hashing import HashingBackend
from tests.support.guests.embedders import (
    TOKEN,
    EmbedderProcess,
    until_state,
)


async def test_many_guests_share_one_process(embedder: EmbedderProcess) -> None:
    embedder.start()
    clients = [embedder.client() for _ in range(6)]
    await until_state(clients[0], "ready")
    expected = HashingBackend()

    async def guest(number: int) -> None:
        for round_ in range(20):
            texts = [f"guest {number} round {round_} text {i}" for i in range(1 + round_ % 5)]
            embedded = await clients[number].embed(texts, timeout=60)
            np.testing.assert_array_equal(embedded.vectors, expected.encode(texts))

    await asyncio.gather(*(guest(number) for number in range(6)))
    for client in clients:
        await client.close()


async def test_sigterm_ends_it_and_leaves_nothing_behind(embedder: EmbedderProcess) -> None:
    embedder.start()
    client = embedder.client()
    await until_state(client, "ready")
    assert embedder.lock.read_text() == f"{embedder.process.pid}\n"
    assert embedder.socket.stat().st_mode & 0o777 == 0o600
    embedder.process.terminate()
    assert embedder.process.wait(60) == 0
    assert not embedder.socket.exists()
    assert embedder.lock.read_text() == ""
    await client.close()


async def test_sigterm_is_quick_while_a_model_loads(embedder: EmbedderProcess) -> None:
    """The loading thread holds the interpreter in a sleep that nobody interrupts."""
    hook = embedder.directory / "sitecustomize.py"
    hook.write_text(
        "import time, guest.embedding.hashing as h\n"
        "h.HashingBackend.__init__ = lambda self: time.sleep(600)\n"
    )
    embedder.start(PYTHONPATH=str(embedder.directory))
    client = embedder.client()
    await until_state(client, "loading")
    began = time.monotonic()
    embedder.process.terminate()
    assert await asyncio.to_thread(embedder.process.wait, 60) == 0
    assert time.monotonic() - began < 30
    assert not embedder.socket.exists()
    await client.close()


def failure_of(embedder: EmbedderProcess) -> WireError:
    assert embedder.process.wait(60) == EXIT_OPERATOR
    failure = find_startup_failure(embedder.log.read_text())
    assert failure is not None
    assert failure.brief
    assert failure.resolution
    return failure


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--backend", "word2vec"], "sentence-transformers"),
        (["--backend", "hashing", "--log-level", "loud"], "--log-level"),
        (["--backend", "hashing", "--unknown"], "--unknown"),
    ],
)
def test_bad_arguments_name_what_is_accepted(
    embedder: EmbedderProcess, arguments: list[str], named: str
) -> None:
    embedder.start(*arguments)
    assert named in failure_of(embedder).brief


def test_the_process_holds_no_secret_in_arguments_or_environment(
    embedder: EmbedderProcess,
) -> None:
    embedder.start()
    pid = embedder.process.pid
    deadline = time.monotonic() + 60
    while not embedder.socket.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    for file in ("cmdline", "environ"):
        assert TOKEN.encode() not in Path(f"/proc/{pid}/{file}").read_bytes()
    os.kill(pid, signal.SIGINT)
    assert embedder.process.wait(60) == 0
