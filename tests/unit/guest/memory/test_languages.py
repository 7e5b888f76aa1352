"""How many notes are in a language that the default model does not know."""

from pathlib import Path

import pytest

from bench.quality import corpus
from guest.embedding.weights import DEFAULT_MODEL
from guest.memory.languages import foreign_percent, is_foreign
from tests.support.memory.store import ORIGIN, FakeEmbedder, opened

ENGLISH = [
    "Martha Lindqvist is the product owner of Heron; decisions about scope are hers.",
    "def load(path: Path) -> dict: return json.loads(path.read_text())",
    "SELECT name, price FROM orders WHERE state = 'open' ORDER BY created_at DESC LIMIT 10;",
    "Saskia, Jonas, Mila",
    "https://example.org/a?b=c 12480 X7K2QD",
    "",
]


@pytest.mark.parametrize("half", corpus.HALVES)
def test_notes_in_other_languages_are_counted(half: corpus.Half) -> None:
    assert foreign_percent([row[1] for row in corpus.languages(half)]) >= 95


@pytest.mark.parametrize("half", corpus.HALVES)
def test_hardly_an_english_text_is_one(half: corpus.Half) -> None:
    said = [entry.text for entry in corpus.chats(half).entries]
    assert sum(map(is_foreign, said)) / len(said) < 0.005
    assert not any(map(is_foreign, [row[3] for row in corpus.languages(half)]))


@pytest.mark.parametrize("text", ENGLISH)
def test_names_and_code_are_no_other_language(text: str) -> None:
    assert not is_foreign(text)


async def test_they_are_counted_while_the_default_model_is_used(tmp_path: Path) -> None:
    for model, percent in ((DEFAULT_MODEL, 66), ("multilingual-1", 0)):
        async with opened(tmp_path / model.replace("/", "-"), FakeEmbedder(model)) as memory:
            for text in (
                "妹妹在上海的一家医院当护士。",
                "наш кот боится грозы",
                "The cat is grey.",
            ):
                await memory.save(text, [], ORIGIN)
            assert (await memory.statistics()).foreign_percent == percent


@pytest.mark.parametrize(("foreign", "of", "percent"), [(0, 0, 0), (9, 100, 0), (1, 10, 10)])
def test_less_than_a_tenth_is_none(foreign: int, of: int, percent: int) -> None:
    texts = ["наш кот боится грозы"] * foreign + ["The cat is grey."] * (of - foreign)
    assert foreign_percent(texts) == percent
