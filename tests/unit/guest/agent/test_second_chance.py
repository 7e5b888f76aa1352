"""When a model is asked once more: how often it should be, and how often it need not be.

Of each section of `second_chance_words/` every second line was kept apart while the expressions
were made. `-s` prints the figures of docs/guide/save-promise.md.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from guest.agent.receipts.saving import request_in
from guest.agent.receipts.second_chance import asks, claims

_WORDS: Final = Path(__file__).with_name("second_chance_words")
_LANGUAGES: Final = ("English", "German", "French", "Spanish", "Chinese", "Japanese")


def lines(name: str, section: str) -> list[str]:
    """The sentences of one section of a file."""
    text = (_WORDS / f"{name}.txt").read_text("utf-8")
    found = text.partition(f"# {section}\n")[2].partition("\n# ")[0].splitlines()
    assert len(found) > 20, "the section is not there"
    return [line.replace("\\n", "\n") for line in found]


def counted(name: str, section: str, sees: Callable[[str], bool]) -> tuple[int, int]:
    """How many of all lines, and of those that were kept apart, are seen; printed."""
    every = lines(name, section)
    seen = [line for line in every if sees(line)]
    apart = [line for line in every[1::2] if sees(line)]
    print(f"\n{name}, {section}: {len(seen)} of {len(every)}; kept apart {len(apart)}")
    return len(seen), len(apart)


@pytest.mark.parametrize("language", _LANGUAGES)
def test_plain_requests_are_seen(language: str) -> None:
    seen, apart = counted("requests", language, asks)
    every = lines("requests", language)
    assert seen >= 0.95 * len(every)
    assert apart >= 0.9 * len(every[1::2])


def test_what_only_looks_like_it_is_left_alone() -> None:
    for section, sees in (("messages", asks), ("answers", claims)):
        every = lines("lookalikes", section)
        seen, apart = counted("lookalikes", section, sees)
        assert seen <= 0.1 * len(every)
        assert apart <= 0.1 * len(every[1::2])


def test_a_developers_day_has_few_false_alarms() -> None:
    for section, sees in (("messages", asks), ("answers", claims)):
        few = len(lines("developers_day", section)) / 20
        assert counted("developers_day", section, sees)[0] <= few


def test_what_nobody_asks_for_is_never_saved_by_the_runtime() -> None:
    """What only looks like a request may make the model be asked, and nothing more."""
    for name in ("lookalikes", "developers_day"):
        assert [line for line in lines(name, "messages") if request_in(line)] == []


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("Save this too please: the attic key is under the mat", None),
        ("Store that as well: my blood type is A", "my blood type is A"),
        ("Also, please remember that we fly on 4 May", "we fly on 4 May"),
        ("Und merk dir auch noch: der Keller ist feucht", "der Keller ist feucht"),
        ("Bitte speichere auch das: PIN 4711", "PIN 4711"),
        ("Merk dir ebenfalls, dass Ute vegan lebt", "Ute vegan lebt"),
        ("Souviens-toi également que Luc est pompier", "Luc est pompier"),
        ("Retiens ça aussi : le bus passe à huit heures", "le bus passe à huit heures"),
        ("Además recuerda que Pilar es zurda", "Pilar es zurda"),
        ("Y guarda también eso: talla 40", "talla 40"),
        ("Ricordati anche che il gas si paga a marzo", "il gas si paga a marzo"),
        ("Salve isso também: o wifi é casa42", "o wifi é casa42"),
        ("Bewaar dat ook: de code is 8", "de code is 8"),
        ("Zapamiętaj także, że Ola ma kota", "Ola ma kota"),
        ("Запиши это тоже: обед в час", "обед в час"),
        ("还有，记住：她姓王", "她姓王"),
        ("それも保存してください：部屋は三階", "部屋は三階"),
        ("Store that too.", ""),
        ("Guarda esto también.", ""),
        ("Bewaar dit ook.", ""),
    ],
)
def test_a_request_with_too_in_it_is_one_like_any_other(message: str, words: str | None) -> None:
    request = request_in(message)
    assert (request and request.words) == words


@pytest.mark.parametrize(
    "message",
    [
        "Note this as well: the pump needs oil",
        "Keep this, too: row 7, seat 12",
        "Make a note of this also: he snores",
        "Notiere auch: Filter wechseln",
        "Note aussi que je pars lundi",
        "Apunta también que salgo el lunes",
    ],
)
def test_a_request_with_too_in_it_is_asked_about(message: str) -> None:
    assert asks(message)


@pytest.mark.parametrize(
    "message",
    [
        "I saved that, too.",
        "Also, save the file as b.txt.",
        "Do you remember that song, too?",
        "What else is in there?",
    ],
)
def test_too_alone_is_no_request(message: str) -> None:
    assert request_in(message) is None
    assert not asks(message)


@pytest.mark.parametrize(
    "answer",
    [
        "I've saved that.",
        "I'll remember that you're left-handed.",
        "I will keep that in mind.",
        "I have committed that to memory.",
        "Ich habe mir das gemerkt!",
        "Das merke ich mir.",
        "Je m'en souviendrai.",
        "Lo recordaré.",
        "我已经记住了。",
        "覚えました。",
    ],
)
def test_a_claim_in_the_first_person_is_seen(answer: str) -> None:
    assert claims(f"Tea is hot. {answer} Anything else?")
    assert not claims(f"If you like: {answer}")


def test_the_middle_of_a_long_text_asks_for_nothing() -> None:
    text = "The weather was fine. " * 50
    assert not asks(f"{text}Please remember that.{text}")
    assert asks(f"{text}{text} Please remember that.")
    assert asks(f"Hello! Please remember that I like tea. Thanks! {text[:0]}")


@pytest.mark.parametrize(
    "piece", ["remember ", "，", "请", "hey, ", "覚えて", "I saved that ", "-"]
)
def test_a_long_message_holds_nothing_up(piece: str) -> None:
    text = piece * (100_000 // len(piece))
    began = time.process_time()
    asks(text), claims(text)
    assert time.process_time() - began < 5
