"""A search that is limited to days: of notes and of conversations, in the user's time zone."""

from collections.abc import Callable
from datetime import UTC, date, datetime, tzinfo

import pytest

from guest.memory import models
from guest.memory.memory import NOTHING_THEN, Memory
from guest.memory.models import Filter, Only
from guest.memory.period import Period, checked_day
from tests.support.memory.store import ALONE

At = Callable[[str], None]


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> At:
    """Sets the moment at which what follows is written."""

    def move(moment: str) -> None:
        class Stopped(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> "Stopped":
                return cls.fromisoformat(moment).replace(tzinfo=UTC).astimezone(tz)

        monkeypatch.setattr(models, "datetime", Stopped)

    return move


@pytest.fixture
async def filled(memory: Memory, at: At) -> Memory:
    """A note and a turn of each of five days."""
    await memory.conversations.create("s")
    for day in range(21, 26):
        at(f"2026-11-{day}T12:00:00")
        await memory.save(f"tea number {day} of the garden", (), ALONE)
        await memory.conversations.append(
            "s", turn_id=f"t{day}", role="user", text=f"coffee in the kitchen {day}", payload="[]"
        )
    return memory


async def days(memory: Memory, query: str, chosen: Filter, *, spoken: bool = True) -> list[str]:
    outcome = await memory.search(
        query, top_k=20, include_conversation=spoken, only=Only(chosen=chosen)
    )
    assert outcome.warnings == ()
    return sorted(f"{hit.source[0]}{hit.created_at[8:10]}" for hit in outcome.results)


async def test_what_was_written_and_said_on_the_days_is_found(filled: Memory) -> None:
    two = Period.of("2026-11-22", "2026-11-23").limits("UTC")
    expected = ["c22", "c23", "u22", "u23"]
    assert await days(filled, "tea coffee", two) == expected
    assert await days(filled, "quite another thing", two) == expected  # it is all there was then
    assert await days(filled, "tea", two, spoken=False) == ["u22", "u23"]
    since, until = Period.of("2026-11-25", ""), Period.of("", "2026-11-21")
    assert await days(filled, "tea", since.limits("UTC")) == ["c25", "u25"]
    assert await days(filled, "tea", until.limits("UTC")) == ["c21", "u21"]


async def test_what_fits_better_comes_first(filled: Memory) -> None:
    only = Only(chosen=Period.of("2026-11-21", "2026-11-24").limits("UTC"))
    found = await filled.search("tea number 22", top_k=3, only=only)
    assert found.results[0].text == "tea number 22 of the garden"


async def test_a_day_with_nothing_hides_nothing(filled: Memory) -> None:
    only = Only(chosen=Period.of("2026-11-27", "2026-11-27").limits("UTC"))
    assert (await filled.search("tea number 22", only=only)).results == ()
    nowhere = await filled.search(" ", only=only, or_anytime=True)
    assert (nowhere.results, nowhere.warnings) == ((), ())
    outcome = await filled.search("tea number 22", only=only, or_anytime=True)
    assert outcome.results == (await filled.search("tea number 22")).results
    assert outcome.warnings == (f"{NOTHING_THEN}; conversations were not searched",)


async def test_a_changed_note_is_of_the_day_of_its_text(filled: Memory, at: At) -> None:
    (note,) = (await filled.search("tea number 22", top_k=1)).results
    at("2026-11-25T18:00:00")
    await filled.update(note.note_id, "tea number 22 of the cellar", None, ALONE)
    changed = Period.of("2026-11-25", "").limits("UTC")
    assert await days(filled, "tea", changed, spoken=False) == ["u22", "u25"]


@pytest.mark.parametrize(
    ("zone", "since", "before"),
    [
        ("UTC", "2026-11-26T00:00:00", "2026-11-27T00:00:00"),
        ("Europe/Berlin", "2026-11-25T23:00:00", "2026-11-26T23:00:00"),
        ("America/Los_Angeles", "2026-11-26T08:00:00", "2026-11-27T08:00:00"),
    ],
)
def test_days_are_those_of_the_users_zone(zone: str, since: str, before: str) -> None:
    assert Period.of("2026-11-26", "2026-11-26").limits(zone) == Filter(since=since, before=before)


def test_the_first_and_the_last_day_that_there_are_limit_nothing() -> None:
    assert Period(date.min, date.max).limits("Europe/Berlin") == Filter()


@pytest.mark.parametrize(
    ("since", "until", "words"),
    [
        ("2026-11-26", "2026-11-26", "on 26 November 2026"),
        ("2026-11-09", "2026-11-15", "from 9 November 2026 to 15 November 2026"),
        ("2026-11-26", "", "since 26 November 2026"),
        ("", "2026-11-26", "until 26 November 2026"),
    ],
)
def test_a_period_in_words(since: str, until: str, words: str) -> None:
    assert str(Period.of(since, until)) == words


@pytest.mark.parametrize("value", ["yesterday", "20261126", "2026-13-01", "2026-11-26T10:00", " "])
def test_what_is_no_day_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="is not a day such as 2026-11-22"):
        checked_day(value)


def test_days_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValueError, match="until: 2026-11-01 is before since, 2026-11-02"):
        Period.of("2026-11-02", "2026-11-01")
