"""Text is given out by whole sentences, and a false one not before it is true."""

import time

import pytest

from guest.agent.guard.claims import claims_of
from guest.agent.guard.held_text import HeldText
from guest.agent.guard.sentences import complete, split


class Turn:
    """Sentences with "saved" are false until `did`."""

    def __init__(self, *, waiting: bool = False) -> None:
        self.did = False
        self.waiting = waiting
        self.text = HeldText(lambda said: "saved" in said and not self.did, lambda: self.waiting)


def test_a_sentence_is_given_when_it_is_whole() -> None:
    text = Turn().text
    assert [text.add(part) for part in ("Hel", "lo", ". ", "How are", " you?\n")] == [
        "",
        "",
        "Hello.",
        "",
        " How are you?\n",
    ]
    assert text.end() == ""


def test_a_false_claim_holds_back_all_that_follows_until_it_is_true() -> None:
    turn = Turn()
    assert turn.text.add("Hi. I saved it. Bye. ") == "Hi."
    assert turn.text.release() == ""
    turn.did = True
    assert turn.text.release() == " I saved it. Bye."
    assert turn.text.end() == " "
    assert turn.text.struck == []


def test_at_the_end_a_false_claim_is_struck_and_the_rest_is_given() -> None:
    turn = Turn()
    given = turn.text.add("Hi. I saved it. Bye") + turn.text.end()
    assert given == "Hi. Bye"
    assert turn.text.struck == [" I saved it."]


def test_while_a_save_is_due_everything_is_held() -> None:
    turn = Turn(waiting=True)
    assert turn.text.add("Hi. Bye.\n") == ""
    assert turn.text.pause() == ""
    assert turn.text.end() == "Hi. Bye.\n"


def test_before_calls_the_last_words_are_given_without_an_end() -> None:
    text = Turn().text
    assert text.add("Let me look") == ""
    assert text.pause() == "Let me look"


def test_code_is_quoted_and_claims_nothing() -> None:
    text = Turn().text
    code = "```\nprint('saved')\n```\n"
    assert text.add(code) == code
    assert text.add("I saved it.\n") == ""


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ("```\nfoo\nI saved it.\n", "```\nfoo\n\n"),
        ("Use ``` for code. I saved it.", "Use ``` for code."),
        ("I saved it: ```\nfoo\n```\nI saved it.", "foo\n```\n"),
    ],
)
def test_a_fence_that_is_not_closed_quotes_nothing(answer: str, shown: str) -> None:
    text = Turn().text
    assert "".join(map(text.add, answer)) + text.end() == shown


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ("I have made\na note of that. Bye.", "I have made\n Bye."),
        ("I've now\nstored your name.", "I've now\n"),
        ("Here it is:\n\nsome tea that I\nlike.", "Here it is:\n\nsome tea that I\nlike."),
        ("I've saved the following:\nyour name\nyour bank\n", "your name\nyour bank\n"),
        ("I have made\n- a note of that.\n", "I have made\n- a note of that.\n"),
    ],
)
def test_a_claim_that_goes_on_in_the_next_line_is_seen(answer: str, shown: str) -> None:
    text = HeldText(lambda said: bool(claims_of(said)), lambda: False)
    assert "".join(map(text.add, answer)) + text.end() == shown


def test_the_item_of_a_list_is_struck_with_its_number() -> None:
    text = Turn().text
    assert text.add("1. Tea.\n2. I saved it.\n3. Milk.\n") + text.end() == "1. Tea.\n\n3. Milk.\n"


@pytest.mark.parametrize("endless", ["word ", "字", ".", '"', "`", "I saved the "])
def test_what_never_ends_is_given_in_pieces_and_soon(endless: str) -> None:
    text = HeldText(lambda said: bool(claims_of(said)), lambda: False)
    began = time.process_time()
    given = "".join(text.add(endless) for _ in range(3_000 // len(endless)))
    assert time.process_time() - began < 10, "once 1,600 full stops took 14 seconds"
    assert given or "saved" in endless


def test_a_very_long_sentence_is_cut_between_words_at_the_same_places() -> None:
    text = "The sea. " + "word " * 500 + "。" * 1500 + " end"
    whole = complete(text)
    assert [len(piece) for piece in whole] == [8, 995, 995, 510, 1000, 501]
    assert "".join(split(text)) == text
    assert list(filter(None, map(HeldText(lambda _: False, lambda: False).add, text))) == whole


def test_sentences_end_in_the_same_places_letter_by_letter() -> None:
    text = "One. “Two!” 3.5 is三。「四。」五！\nsix... seven"
    whole = complete(text)
    assert whole == ["One.", " “Two!”", " 3.5 is三。", "「四。」", "五！", "\n", "six..."]
    assert split(text) == [*whole, " seven"]
    for end in range(len(text)):
        assert complete(text[:end]) == whole[: len(complete(text[:end]))]
