"""Thinking that a server sends as a part of the answer's text, however it is cut into pieces."""

import json
from typing import Any

import pytest

from guest.agent.reading import Thinking
from tests.support.agent.turn_fakes import code
from tests.unit.guest.agent.test_loop import House, steps

CASES = [
    ("<think>hm</think>Tea.", "Tea.", "hm"),
    ("\n<think>\nhm\n</think>\n\nTea.", "\nTea.", "\nhm\n"),
    ("hm, so\n</think>\n\nTea.", "Tea.", "hm, so\n"),
    ("<THINKING>hm</thinking>Tea.", "Tea.", "hm"),
    ("[THINK]hm[/THINK]Tea.", "Tea.", "hm"),
    ("<think>hm, never closed", "", "hm, never closed"),
    (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Tea."
        "<|return|>",
        "Tea.",
        "hm<|end|><|start|>assistant",
    ),
    ("<think>a</think>Tea.\n<think>b</think>\nMilk.", "Tea.\nMilk.", "ab"),
    ("<think>\n</think>\n\nTea, then </think>.", "Tea, then .", "\n"),
    ("Models write `<think>` and then `</think>`.", None, ""),
    ("It is </think>".replace("is ", 'is "'), None, ""),
    ("```\n<think>x</think>\n```\nSo.", None, ""),
    ("a < b, [th, <thin", None, ""),
]
"""What is written; what of it is the answer (None: all), and what is thinking."""


def split(text: str, size: int, *, opened: bool = False) -> tuple[str, str]:
    thinking = Thinking(opened=opened)
    parts = {"text": "", "thought": ""}
    found = [each for piece in in_pieces(text, size) for each in thinking.add(piece)]
    for kind, part in [*found, *thinking.finish()]:
        if kind == "unopened":
            parts = {"text": "", "thought": "".join(parts.values())}
        else:
            parts[kind] += part
    return parts["text"], parts["thought"]


def in_pieces(text: str, size: int = 3) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize(("written", "answer", "thought"), CASES)
def test_thinking_is_told_from_the_answer_in_pieces_of_any_size(
    written: str, answer: str | None, thought: str
) -> None:
    expected = (written if answer is None else answer, thought)
    assert {split(written, size) for size in (1, 2, 3, 5, 9, 1000)} == {expected}


def test_of_a_model_whose_template_opens_it_all_is_thinking_up_to_the_end() -> None:
    assert split("hm\n</think>\n\nTea.", 3, opened=True) == ("Tea.", "hm\n")
    assert split("<think>hm</think>Tea.", 3, opened=True) == ("Tea.", "hm")
    assert split("Tea, without thinking.", 3, opened=True) == ("Tea, without thinking.", "")


def sent(house: House) -> str:
    """What the model was sent in its last request."""
    return json.dumps([str(part) for each in house.seen[-1] for part in each.parts])


@pytest.mark.parametrize("written", [case[0] for case in CASES if case[1] and "hm" in case[0]])
async def test_thinking_is_neither_stored_as_the_answer_nor_sent_again(written: str) -> None:
    house = House(steps(in_pieces(written), "Milk."))
    outcome: Any = await house.say("what do I drink?")
    assert outcome.text.strip() == "Tea."
    assert [text.strip() for text in house.store.texts("assistant")] == ["Tea."]
    await house.say("and then?", "t2")
    assert "Tea." in sent(house)
    assert "hm" not in sent(house)


async def test_thinking_is_not_shown() -> None:
    house = House(steps(in_pieces("\n<think>hm</think>\n\nTea.")))
    await house.say()
    assert house.watcher.text.strip() == "Tea."


async def test_thinking_that_nothing_opens_is_told_once_and_then_known() -> None:
    house = House(steps(in_pieces("hm\n</think>\n\nTea."), in_pieces("hm too\n</think>\n\nMilk.")))
    first: Any = await house.say("what do I drink?")
    assert first.text == "Tea."
    assert "what stands above was the model's thinking" in house.watcher.text
    house.watcher.seen.clear()
    second: Any = await house.say("and then?", "t2")
    assert second.text == house.watcher.text == "Milk."


async def test_an_answer_that_is_all_thinking_is_empty() -> None:
    house = House(steps("<think>hm", "Tea."))
    outcome: Any = await house.say()
    assert (code(outcome), outcome.text) == ("completed", "Tea.")
    assert len(house.seen) == 2
