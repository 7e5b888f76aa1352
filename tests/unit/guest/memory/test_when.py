"""The days that words name, in six languages; sentences without a day name none."""

from datetime import date
from pathlib import Path

import pytest

from guest.memory.period import Period
from guest.memory.when import read

SETS = Path(__file__).parents[4] / "bench" / "quality" / "dates"
FRIDAY = date(2026, 11, 27)
FIRST = "0001-01-01"


@pytest.mark.parametrize("half", ["development", "test"])
def test_named_days_are_read(half: str) -> None:
    lines = (SETS / f"{half}.tsv").read_text(encoding="utf-8").splitlines()
    wrong = []
    for language, said, since, until in (line.split("\t") for line in lines):
        wanted = Period.of("" if since == FIRST else since, "" if until >= str(FRIDAY) else until)
        if read(said, FRIDAY) != wanted:
            wrong.append((language, said, str(read(said, FRIDAY))))
    assert len(lines) == 100
    assert len(wrong) <= 2, wrong


def test_other_sentences_name_none() -> None:
    sentences = [
        line
        for half in ("development", "test")
        for line in (SETS / f"undated-{half}.txt").read_text(encoding="utf-8").splitlines()
    ]
    false = [(said, str(found)) for said in sentences if (found := read(said, FRIDAY))]
    assert len(sentences) == 200
    assert len(false) <= 2, false


@pytest.mark.parametrize(
    "said",
    [
        'what does "yesterday" mean?',
        "the song „gestern“",
        "on 31 February",
        "on 12 May 2099",
        "9999 years ago",
        "in 5000 years",
        "",
        "\N{WHITE SQUARE}" * 5000,
    ],
)
def test_what_is_quoted_or_does_not_exist_or_lies_ahead_is_no_time(said: str) -> None:
    assert read(said, FRIDAY) is None


def test_a_leap_day_is_the_last_one() -> None:
    assert read("on 29 February", FRIDAY) == Period(date(2024, 2, 29), date(2024, 2, 29))


def test_a_weekday_is_before_today_on_that_very_day() -> None:
    assert read("what did I say on Friday", FRIDAY) == Period(
        date(2026, 11, 20), date(2026, 11, 20)
    )


def test_several_times_are_one_from_the_first_to_the_last() -> None:
    assert read("yesterday or on 12 May", FRIDAY) == Period(date(2026, 5, 12), date(2026, 11, 26))
