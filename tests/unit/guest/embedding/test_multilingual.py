"""The multilingual choice: English as the default model has it, other languages beside it."""

import importlib.util
import os
import sys

import numpy as np
import pytest
from wire.installation import adding

from guest.embedding import loading, minilm, multilingual, weights
from guest.errors import EmbedderError

BACKEND = "sentence-transformers"
NOTE = "Der Ersatzschlüssel für den Keller hängt hinter der Waschmaschine."


@pytest.fixture(scope="module")
def model() -> multilingual.Multilingual:
    missing = [
        name
        for name in (weights.MODEL_PACKAGE, multilingual.PACKAGE, "onnxruntime", "tokenizers")
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        assert "model" not in os.environ.get("TESTS_REQUIRE", ""), f"missing: {missing}"
        pytest.skip(f"not installed: {missing}")
    loaded = loading.load(BACKEND, weights.MULTILINGUAL)
    assert isinstance(loaded, multilingual.Multilingual)
    return loaded


def test_english_has_the_vectors_of_the_default_model(model: multilingual.Multilingual) -> None:
    texts = [
        "Where is the spare key to the cellar?",
        "In config.py the function load() returns what read_text() has given it.",
        "Saskia flies to Porto on 9 May, flight XY 1234, seat 12A.",
        "",
        "12480 😀",
    ]
    default = loading.load(BACKEND, "all-MiniLM-L6-v2")
    np.testing.assert_allclose(model.encode(texts), default.encode(texts), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "note",
    [
        NOTE,
        "La clé de rechange de la cave est accrochée derrière la machine à laver.",
        "地下室的备用钥匙挂在洗衣机后面。",
        "地下室の予備の鍵は洗濯機の後ろに掛けてある。",
        "तहखाने की अतिरिक्त चाबी वॉशिंग मशीन के पीछे टंगी है।",
        "المفتاح الاحتياطي للقبو معلق خلف الغسالة.",
    ],
)
def test_a_note_in_another_language_is_near_to_what_it_says_in_english(
    model: multilingual.Multilingual, note: str
) -> None:
    key, found, other = model.encode(
        ["Where is the spare key to the cellar?", note, "The dentist is open on Mondays."]
    )
    assert key @ found > 0.25
    assert key @ found > key @ other + 0.1


def test_any_text_has_a_unit_vector_and_company_does_not_change_it(
    model: multilingual.Multilingual,
) -> None:
    """U+FDFA is written out as 18 letters, more than the library has room for."""
    texts = ["\0", "\ufdfa" * 8000, "苹果 \U0001f355", "\u200b", NOTE, "日" * 8000, "नमस्ते"]
    together = model.encode(texts)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    alone = np.vstack([model.encode([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_nothing_after_the_first_thousand_signs_counts(model: multilingual.Multilingual) -> None:
    first, second = model.foreign([NOTE * 20, NOTE * 20 + "Hund"])
    np.testing.assert_array_equal(first, second)


def test_what_is_missing_is_said_with_the_command(
    model: multilingual.Multilingual,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, multilingual.PACKAGE, None)
    with pytest.raises(EmbedderError) as raised:
        loading.load(BACKEND, weights.MULTILINGUAL)
    assert raised.value.brief == "the multilingual embedding model cannot be loaded"
    assert adding("multilingual") in raised.value.resolution
    assert 'embedder.model = "all-MiniLM-L6-v2"' in raised.value.resolution


def test_another_matrix_is_another_model(
    model: multilingual.Multilingual,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    other = tmp_path_factory.mktemp("map") / "other.npy"
    np.save(other, np.zeros((minilm.DIMENSIONS + 2, minilm.DIMENSIONS), np.float16))
    monkeypatch.setattr(multilingual, "MAP", other)
    assert loading.load(BACKEND, weights.MULTILINGUAL).model_id != model.model_id
