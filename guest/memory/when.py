"""Reads the days that a person names: "yesterday", "last March", "on 12 May", "since Monday".

One grammar reads the table of languages in `when.toml`. A word that only may be a time, such as
"may" or "March", is none by itself.
"""

import re
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from wire.text import shortened

from guest.memory.period import Period

_CHARS_MAX: Final = 1000
_QUOTED: Final = re.compile(r'"[^"]*"|[“„][^“”]*[“”]|«[^»]*»|「[^」]*」')
_NUMERIC: Final = (
    r"(?<![\w./-]){year}(?P<between>[-/]){number}(?P=between){day}(?![\w/-])",
    r"(?<![\w./-]){day}\. ?{number}\. ?{year}(?![\w/-])",
)
_KINDS: Final = ("dates", "window", "ago", "weekday", "last", "this", "month", "years")
_DAYS_OF: Final = {"day": 1, "weekend": 7, "week": 7, "month": 30, "year": 365}


class _Found(NamedTuple):
    """A time in a text. `said` is what a month or a day says that may be of a year or a week;
    `unit` is "week" or "year" for one of these. What is not `certain` is no time by itself."""

    start: int
    end: int
    since: date
    until: date
    said: Mapping[str, str] = {}
    unit: str = ""
    certain: bool = True


def read(text: str, today: date) -> Period | None:
    """The days that `text` names outside of quotation marks, none of them after `today`; None if
    it names none."""
    plain = " ".join(_QUOTED.sub(" … ", _plain(text[:_CHARS_MAX])).split())
    votes = [len(language.common.findall(plain)) for language in _languages()]
    most = (each for each, count in zip(_languages(), votes, strict=True) if count == max(votes))
    return next(filter(None, (language.read(plain, today) for language in most)), None)


def days(value: str, today: date) -> Period:
    """The days of a value: one such as 2026-11-22, or those that words such as "yesterday" name;
    empty: any. Raises `ValueError`."""
    with suppress(ValueError):
        return Period.of(value, value)
    for words in (value, f"on {value}"):
        if period := read(words, today):
            return period
    raise ValueError(
        f"{shortened(value, 80)!r} is neither a day such as 2026-11-22 nor a time such as yesterday"
    )


def _plain(text: str) -> str:
    """`text` without accents."""
    letters = unicodedata.normalize("NFKD", text)
    return "".join(each for each in letters if not unicodedata.combining(each))


@cache
def _languages() -> "tuple[_Language, ...]":
    table = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return tuple(map(_Language, tomllib.loads(_plain(table)).values()))


class _Language:
    """A row of the table, compiled."""

    def __init__(self, row: dict[str, Any]) -> None:
        self._row = row
        self._units, units = list(row["units"]), list(row["units"].values())
        self._words = row | {"units": units}
        self.common = self._pattern(row["common"])
        slots = {
            "n": rf"(?P<n>\d{{1,3}}|{'|'.join(row['numbers'])})",
            "unit": f"(?P<unit>{'|'.join(units)})",
            "span": f"(?P<unit>{'|'.join(units[1:])})",
            "month": f"(?P<month>{'|'.join(row['months'])})",
            "weekday": f"(?P<weekday>{'|'.join(row['weekdays'])})",
            "day": r"(?P<day>\d{1,2})",
            "number": r"(?P<number>\d{1,2})",
            "year": r"(?P<year>(?:19|20)\d\d)",
        }
        templates = {"weekday": ["{weekday}"], **row, "dates": [*row["dates"], *_NUMERIC]}
        kinds = [*row["days"].items()]
        kinds += [(kind, each) for kind in _KINDS for each in templates[kind]]
        self._templates = [
            (kind, self._pattern(re.sub(r"\{([a-z]+)\}", lambda slot: slots[slot[1]], template)))
            for kind, template in kinds
        ]

    def _pattern(self, words: str) -> re.Pattern[str]:
        edge = self._row["edge"]
        return re.compile(rf"(?<!{edge})(?:{words})(?!{edge}|-\w)", re.IGNORECASE)

    def read(self, text: str, today: date) -> Period | None:
        found = list(self._joined(text, self._all(text, today)))
        periods = [self._related(text, each) for each in found if each.since <= today]
        since = min((each.since for each in periods if each.since), default=None)
        until = max((each.until for each in periods if each.until), default=None)
        if until and until >= today:
            until = None
        return Period(since, until) if since or until else None

    def _all(self, text: str, today: date) -> list[_Found]:
        """All times in `text`, in order; where two overlap, the one that says more."""
        found: list[_Found] = []
        for kind, pattern in self._templates:
            for match in pattern.finditer(text):
                if any(each.start < match.end() and match.start() < each.end for each in found):
                    continue
                with suppress(ValueError, OverflowError):  # a day or a year that there is not
                    found.append(self._meant(kind, match, today))
        return sorted(found)

    def _meant(self, kind: str, match: re.Match[str], today: date) -> _Found:
        """What a match means. Raises `ValueError` if it is no time."""
        if kind.isdecimal():
            return _Found(*match.span(), *_span("day", int(kind), today))
        said = {name: value for name, value in match.groupdict().items() if value}
        if "unit" in said:
            unit = self._units[self._index("units", said["unit"])]
            back = self._number(said["n"]) if "n" in said else int(kind == "last")
            since, until = _span(unit, back, today)
            if kind == "window":
                since, until = today - timedelta(back * _DAYS_OF[unit]), today
            return _Found(*match.span(), since, until, unit="" if "n" in said else unit)
        before, behind = match.string[: match.start()], match.string[match.end() :]
        if self._ends(before, "never") or self._begins(behind, "never_after"):
            raise ValueError
        dated = kind == "dates" and self._spelled(said.get("month"))
        dated = dated or "last" in said or ("year" in said and kind != "years")
        certain = dated or self._ends(before, "anchor") or self._begins(behind, "anchored")
        return _Found(*match.span(), *self._days(said, today), said, certain=certain)

    def _days(self, said: Mapping[str, str], today: date) -> tuple[date, date]:
        """The days of a date, a weekday, a month or a year: the last ones that have begun, where it
        does not say of which year or week. Raises `ValueError` if there are none."""
        if "weekday" in said:
            index = self._index("weekdays", said["weekday"])
            if "last" in said:
                return _span("day", 0, _span("week", 1, today)[0] + timedelta(index))
            return _span("day", (today.weekday() - index - 1) % 7 + 1, today)
        year, month = int(said.get("year", 0)), int(said.get("number", 0))
        if "month" in said:
            month = self._index("months", said["month"]) + 1
        if not month:
            return _span("year", 0, date(year, 1, 1))
        for each in [year] if year else range(today.year, today.year - 8, -1):
            with suppress(ValueError):  # 29 February
                since = date(each, month, int(said.get("day", 1)))
                if year or since <= today:
                    return _span("day" if "day" in said else "month", 0, since)
        raise ValueError

    def _joined(self, text: str, found: Sequence[_Found]) -> Iterator[_Found]:
        """The times that count: a month or a weekday beside its year or week is in that one."""
        rest = iter(zip(found, [*found[1:], None], strict=False))
        for each, following in rest:
            if following is not None:
                gap = text[each.end : following.start]
                part, whole = (each, following) if following.unit else (following, each)
                unit = "week" if "weekday" in part.said else "year"
                fits = part.said and "year" not in part.said and whole.unit == unit
                if fits and re.fullmatch(rf"\W*(?:{self._row['of']})?\W*", gap, re.IGNORECASE):
                    days = self._days(part.said, whole.until + timedelta(unit == "week"))
                    yield _Found(each.start, following.end, *days)
                    next(rest)
                    continue
            if each.certain:
                yield each

    def _related(self, text: str, found: _Found) -> Period:
        """The days that a time with "since", "until", "before" or "after" stands for."""
        periods = {
            "since": Period(found.since),
            "until": Period(until=found.until),
            "before": Period(until=found.since - timedelta(1)),
            "after": Period(found.until + timedelta(1)),
        }
        before, behind = text[: found.start], text[found.end :]
        for relation, period in periods.items():
            if self._ends(before, relation) or self._begins(behind, f"{relation}_it"):
                return period
        return Period(found.since, found.until)

    def _ends(self, before: str, name: str) -> bool:
        """Whether the words `name` stand right before a time, or before an anchor of it."""
        row, words = self._row, self._row.get(name, "(?!)")
        end = rf"(?<!{row['edge']})(?:{words})(?:\W+(?:{row['anchor']}))?\W*$"
        return bool(re.search(end, before[-40:], re.IGNORECASE))

    def _begins(self, behind: str, name: str) -> bool:
        words = self._row.get(name, "(?!)")
        return bool(re.match(rf"\W*(?:{words})(?!{self._row['edge']})", behind, re.IGNORECASE))

    def _index(self, name: str, said: str) -> int:
        words = enumerate(self._words[name])
        return next(i for i, each in words if re.fullmatch(each, said, re.IGNORECASE))

    def _number(self, said: str) -> int:
        return int(said) if said.isdecimal() else self._index("numbers", said) + 1

    def _spelled(self, month: str | None) -> bool:
        """Whether a month is written as the language writes it: "12 May", not "12 may"."""
        return month is None or any(re.fullmatch(each, month) for each in self._row["months"])


def _span(unit: str, back: int, today: date) -> tuple[date, date]:
    """The first and the last day of a unit that was so many units ago."""
    if unit == "day":
        return (day := today - timedelta(back)), day
    if unit in ("week", "weekend"):
        monday = today - timedelta(today.weekday() + 7 * back)
        return monday + timedelta(5 if unit == "weekend" else 0), monday + timedelta(6)
    if unit == "year":
        return date(today.year - back, 1, 1), date(today.year - back, 12, 31)
    year, month = divmod(today.year * 12 + today.month - 1 - back, 12)
    following, first = divmod(year * 12 + month + 1, 12)
    return date(year, month + 1, 1), date(following, first + 1, 1) - timedelta(1)
