"""Merging, fairness, isolation, bounds and idling of the batcher."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import numpy as np
import pytest
from wire.errors import Code, WireError

from guest.embedding import service
from guest.embedding.backends import Vectors
from guest.embedding.service import Batcher


class Model:
    """Encodes a text as its number; holds every batch until `release` is set."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.release = threading.Event()
        self.entered = threading.Event()
        self.threads: set[str] = set()
        self.during: Callable[[], None] = lambda: None

    def encode(self, texts: Sequence[str]) -> Vectors:
        self.batches.append(list(texts))
        self.threads.add(threading.current_thread().name)
        self.entered.set()
        assert self.release.wait(60)
        self.during()
        if any("bad" in text for text in texts):
            raise ZeroDivisionError("".join(texts))
        return np.array([[float(text.split()[0])] for text in texts], dtype=np.float32)


@asynccontextmanager
async def batcher(
    model: Model, on_idle: Callable[[], None] = lambda: None, **bounds: int
) -> AsyncIterator[Batcher]:
    with ThreadPoolExecutor(1, "compute") as compute:
        try:
            yield Batcher(model.encode, compute, on_idle=on_idle, idle_s=0.01, **bounds)
        finally:
            model.release.set()


async def entered(model: Model) -> None:
    await asyncio.to_thread(model.entered.wait, 60)


def numbers(vectors: Vectors) -> list[int]:
    return [int(value) for value in vectors[:, 0]]


async def test_requests_that_arrive_during_a_batch_share_the_next() -> None:
    model = Model()
    async with batcher(model) as it:
        first = asyncio.create_task(it.embed(["0"]))
        await entered(model)
        later = [asyncio.create_task(it.embed([str(n), str(n + 100)])) for n in range(1, 6)]
        await asyncio.sleep(0)
        model.release.set()
        assert numbers(await first) == [0]
        assert [numbers(await task) for task in later] == [[n, n + 100] for n in range(1, 6)]
    assert len(model.batches) == 2
    assert model.threads == {"compute_0"}


async def test_a_query_overtakes_somebodys_many_and_is_not_padded_to_them() -> None:
    model = Model()
    async with batcher(model) as it:
        many = asyncio.create_task(it.embed([str(n) for n in range(200)]))
        await entered(model)
        query = asyncio.create_task(it.embed(["777"]))
        await asyncio.sleep(0)
        model.release.set()
        assert numbers(await query) == [777]
        assert not many.done()
        assert numbers(await many) == list(range(200))
    assert model.batches.index(["777"]) <= 2


async def test_queries_that_never_cease_do_not_starve_the_many() -> None:
    model = Model()
    model.release.set()
    queries: list[asyncio.Task[Vectors]] = []
    async with batcher(model) as it:
        loop = asyncio.get_running_loop()

        async def query() -> None:
            if len(queries) < 100:
                queries.append(asyncio.create_task(it.embed(["777"])))
                await asyncio.sleep(0)

        model.during = lambda: asyncio.run_coroutine_threadsafe(query(), loop).result(60)
        assert numbers(await it.embed([str(n) for n in range(200)])) == list(range(200))
        assert len(queries) < 50
        model.during = lambda: None
        await asyncio.gather(*queries)


async def test_large_requests_take_turns() -> None:
    model = Model()
    async with batcher(model) as it:
        gate = asyncio.create_task(it.embed(["0"]))
        await entered(model)
        large = [
            asyncio.create_task(it.embed([str(base + n) for n in range(100)]))
            for base in (1000, 2000, 3000)
        ]
        await asyncio.sleep(0)
        model.release.set()
        await asyncio.gather(gate, *large)
    for batch in model.batches[1:8]:
        assert {text[0] for text in batch} == {"1", "2", "3"}


async def test_batches_are_bounded_in_texts_and_characters() -> None:
    model = Model()
    model.release.set()
    async with batcher(model) as it:
        await it.embed([str(n) for n in range(256)])
        assert max(map(len, model.batches)) == service.MAX_BATCH_TEXTS
        model.batches.clear()
        passages = [f"{n} {'x' * 1500}" for n in range(20)]
        huge = f"7 {'x' * 8000}"
        assert numbers(await it.embed([*passages, huge, "8"])) == [*range(20), 7, 8]
        for batch in model.batches:
            characters = sum(map(len, batch))
            assert characters <= service.MAX_BATCH_CHARS or len(batch) == 1


async def test_a_text_the_model_cannot_take_fails_alone_and_tells_no_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = Model()
    async with batcher(model) as it:
        gate = asyncio.create_task(it.embed(["0"]))
        await entered(model)
        good = asyncio.create_task(it.embed(["1"]))
        bad = asyncio.create_task(it.embed(["2 bad se" + "cret"]))
        other = asyncio.create_task(it.embed(["3"]))
        await asyncio.sleep(0)
        model.release.set()
        await gate
        with pytest.raises(WireError) as raised:
            await bad
        assert (numbers(await good), numbers(await other)) == ([1], [3])
        assert numbers(await it.embed(["4"])) == [4]
    assert raised.value.code is Code.INTERNAL
    assert "ZeroDivisionError" in raised.value.details
    told = str(raised.value) + caplog.text + str([r.__dict__ for r in caplog.records])
    assert "secret" not in told


async def test_a_model_that_forgets_a_text_is_an_error() -> None:
    with ThreadPoolExecutor(1) as compute:
        it = Batcher(lambda texts: np.zeros((1, 1), np.float32), compute)
        with pytest.raises(WireError, match="failed on these texts"):
            await it.embed(["1", "2"])


async def test_cancelled_requests_leave_the_queue() -> None:
    model = Model()
    async with batcher(model, max_waiting=50) as it:
        gate = asyncio.create_task(it.embed(["0"]))
        await entered(model)
        gone = asyncio.create_task(it.embed([str(n) for n in range(50)]))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        model.release.set()
        await gate
        assert numbers(await it.embed(["1"] * 50)) == [1] * 50
    assert {text for batch in model.batches[1:] for text in batch} == {"1"}


async def test_waiting_texts_are_bounded() -> None:
    model = Model()
    async with batcher(model, max_waiting=10) as it:
        gate = asyncio.create_task(it.embed(["0"]))
        await entered(model)
        waiting = asyncio.create_task(it.embed([str(n) for n in range(10)]))
        await asyncio.sleep(0)
        with pytest.raises(WireError) as raised:
            await it.embed(["1"])
        assert raised.value.code is Code.RESOURCE_EXHAUSTED
        model.release.set()
        await gate
        await waiting
        assert numbers(await it.embed(["1"])) == [1]


async def test_idling_runs_once_in_the_compute_thread_and_work_goes_on() -> None:
    model = Model()
    model.release.set()
    idle: list[str] = []
    async with batcher(model, lambda: idle.append(threading.current_thread().name)) as it:
        for round_ in range(1, 3):
            assert numbers(await it.embed(["1"])) == [1]
            while len(idle) < round_:
                await asyncio.sleep(0.005)
        assert idle == ["compute_0", "compute_0"]


async def test_busy_time_is_that_of_the_current_batch() -> None:
    model = Model()
    async with batcher(model) as it:
        assert it.busy_s == 0
        task = asyncio.create_task(it.embed(["1"]))
        await entered(model)
        await asyncio.sleep(0.01)
        assert it.busy_s > 0.005
        model.release.set()
        await task
        assert it.busy_s == 0
