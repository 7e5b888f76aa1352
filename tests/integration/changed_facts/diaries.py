"""Diaries: entries that are alike and contradict nothing."""

from collections.abc import Iterator
from datetime import date, timedelta
from random import Random

PEOPLE = ["Jonas", "Lea", "Priya", "Tom", "Karin", "Ahmed", "Sofia", "Ben"]
TOPICS = ("the budget", "hiring", "the roadmap", "the audit", "the new office", "the release")


def _meetings_and_runs(chance: Random, day: date) -> str:
    """What was looked at while the rule was tuned."""
    who, what = chance.choice(PEOPLE), chance.choice(TOPICS)
    then, weekday = f"{day.day} {day:%B}", f"{day:%A}"
    weight = f"{chance.randint(780, 840) / 10} kg"
    return chance.choice(
        [
            f"{day} Meeting with {who} about {what}",
            f"Meeting with {who} about {what} on {then}",
            f"{weekday}: meeting with {who}, we talked about {what}",
            f"Ran {chance.randint(30, 149) / 10} km in {chance.randint(20, 80)} minutes",
            f"{then}: ran {chance.randint(3, 14)} km along the river",
            f"Run on {weekday}: {chance.randint(3, 14)} km",
            f"Weight on {then}: {weight}",
            f"{day}: {weight}",
            f"Weight this morning {weight}",
            f"Slept {chance.randint(5, 9)} hours, woke up at {chance.randint(5, 8)}:30",
            f"Lunch with {who} at the Italian place on {then}",
            f"{then}: lunch with {who}, {chance.choice(('pasta', 'soup', 'curry', 'salad'))}",
            f"Today was {chance.choice(('calm', 'busy', 'tiring', 'long'))}, mostly {what}",
            f"Blood pressure {chance.randint(110, 140)}/{chance.randint(70, 90)} on {then}",
        ]
    )


def _house_and_garden(chance: Random, day: date) -> str:
    """What was looked at once."""
    who = chance.choice(PEOPLE)
    food = chance.choice(("lentil soup", "noodles", "rice and beans", "pizza", "fish", "pancakes"))
    where = chance.choice(("bakery", "market", "chemist", "bookshop", "garage"))
    piece = chance.choice(("cello", "piano", "flute"))
    book = chance.choice(("Middlemarch", "Dune", "Emma", "Walden"))
    several, price = chance.randint(5, 60), f"{chance.randint(200, 9000) / 100:.2f} euros"
    return chance.choice(
        [
            f"Spent {price} at the {where}",
            f"{where.title()}: {price}",
            f"The train was {several} minutes late on {day:%A}",
            f"Mood: {chance.choice(('tired', 'fine', 'sad', 'cheerful', 'restless', 'calm'))}",
            f"The greenhouse is at {several / 2:g} degrees",
            f"{day:%d.%m.%Y} the greenhouse is at {several / 2:g} degrees",
            f"Dinner was {food}, {who} came",
            f"Dinner with {who}: {food}",
            f"Practised the {piece} for {several} minutes",
            f"Read {several} pages of {book}",
            f"Called {who} on {day.day} {day:%B}, all is well",
            f"{day:%A} evening: {who} and I played chess, {who} won",
            f"My pulse is {several + 40} this morning",
            f"Watered the tomatoes, {several} litres",
            f"{day.isoformat()} {who} is on holiday",
            f"Swam {several} lengths in {several + 9} minutes",
        ]
    )


def _work_and_child(chance: Random, day: date) -> str:
    """What was written for the fourth set, and judged once."""
    who, hour = (
        chance.choice(PEOPLE),
        f"{chance.randint(6, 20)}:{chance.choice(('00', '20', '45'))}",
    )
    task = chance.choice(
        ("the invoices", "the login page", "the tests", "the slides", "the tender")
    )
    several, weight = chance.randint(2, 90), f"{chance.randint(40, 99) / 10} kilos"
    return chance.choice(
        [
            f"Worked on {task} until {hour}",
            f"{who} fixed {task}",
            f"{who} asked about {task} again",
            f"Finished {several} percent of {task}",
            f"Fed the baby at {hour}, {several + 60} ml",
            f"The baby slept for {several} minutes",
            f"The baby weighs {weight}",
            f"The baby woke up at {hour}",
            f"Walked to the park with {who}",
            f"{who} came to see the baby and brought {chance.choice(('cake', 'flowers', 'books'))}",
            f"Took the {hour} train home",
            f"The weather is {chance.choice(('wet', 'windy', 'hot', 'dull', 'lovely', 'icy'))}",
            f"Wrote to {who} about {task}",
            f"I am on page {several * 4} of the manual",
        ]
    )


KINDS = {
    "tuning": _meetings_and_runs,
    "judged": _house_and_garden,
    "third": _house_and_garden,
    "fourth": _work_and_child,
}


def diary(kind: str, entries: int) -> list[str]:
    """So many different entries, the oldest first."""
    chance = Random(f"diary {kind}")

    def written() -> Iterator[str]:
        day = date(2024, 1, 1)
        while True:
            day += timedelta(days=chance.choice((0, 1, 1, 2)))
            yield KINDS[kind](chance, day)

    found: dict[str, None] = {}
    for entry in written():
        found[entry] = None
        if len(found) == entries:
            return [*found]
    raise AssertionError("unreachable")
