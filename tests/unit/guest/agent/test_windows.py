"""The windows of models: what servers say of them, and what is believed."""

import asyncio
from typing import Any

import pytest

from guest.agent.models.openai_model import window_in
from guest.agent.models.windows import MOST, Windows


class Asked:
    """A model whose server answers in turn; an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def window(self) -> int:
        await asyncio.sleep(0)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return int(answer)


async def test_a_server_is_asked_once_and_an_eighth_is_left_to_the_answer() -> None:
    windows, model = Windows(64_000), Asked(8192)
    await asyncio.gather(*(windows.ask("m", model) for _ in range(3)))
    assert (windows.known("m"), windows.of("m"), windows.of("other")) == (8192, 7168, 64_000)


async def test_a_server_that_does_not_answer_is_asked_again_and_one_that_says_nothing_is_not() -> (
    None
):
    windows, model = Windows(64_000), Asked(OSError("away"), 0)
    for _ in range(3):
        await windows.ask("m", model)
    assert (model.answers, windows.of("m")) == ([], 64_000)
    await windows.ask("another", object())


@pytest.mark.parametrize("tokens", [1, 1023, MOST + 1, -5])
def test_a_figure_that_no_model_has_is_ignored(tokens: int) -> None:
    windows = Windows(64_000)
    assert not windows.learn("m", tokens)
    assert (windows.known("m"), windows.of("m")) == (0, 64_000)


def test_what_is_configured_is_never_exceeded_and_counts_below_what_the_server_says() -> None:
    windows = Windows(4096)
    windows.learn("large", 32_000)
    windows.learn("small", 4096)
    assert (windows.of("large"), windows.of("small")) == (4096, 3584)


def test_what_was_found_to_fit_counts_until_the_server_says_another_window() -> None:
    windows = Windows(64_000)
    windows.learn("m", 0, fits=5000)
    assert windows.of("m") == 5000
    windows.learn("m", 8192, fits=6000)
    assert windows.of("m") == 6000
    windows.learn("m", 16_384)
    assert windows.of("m") == 14_336


def test_as_many_models_as_somebody_asks_for_take_no_more_memory() -> None:
    windows = Windows(64_000)
    for number in range(1000):
        windows.learn(f"m{number}", 8192)
    assert sum(windows.known(f"m{number}") > 0 for number in range(1000)) <= 65


@pytest.mark.parametrize(
    ("item", "window"),
    [
        ({"owned_by": "llamacpp", "meta": {"n_ctx": 4096, "n_ctx_train": 32_768}}, 4096),
        ({"owned_by": "llamacpp", "meta": {"n_ctx_train": 32_768}}, 0),
        ({"owned_by": "vllm", "max_model_len": 40_960}, 40_960),
        ({"context_length": 131_072, "top_provider": {}}, 131_072),
        ({"context_window": 8192}, 8192),
        ({"state": "loaded", "max_context_length": 9, "loaded_context_length": 4096}, 4096),
        ({"max_model_len": "40960", "meta": [1]}, 0),
        ({"max_model_len": True}, 0),
        ({}, 0),
    ],
)
def test_what_the_list_of_a_server_says(item: dict[str, Any], window: int) -> None:
    other = {"id": "other", "max_model_len": 1}
    assert window_in({"data": [other, {"id": "m", **item}]}, "m") == window
    assert window_in({"data": [{"id": "by another name", **item}]}, "m") == window
    assert window_in({"data": [other, other, {"id": "M", **item}]}, "m") == 0


@pytest.mark.parametrize("listing", [{}, [], None, {"data": 5}, {"data": [None, "m"]}])
def test_a_list_that_is_none_says_nothing(listing: Any) -> None:
    assert window_in(listing, "m") == 0
