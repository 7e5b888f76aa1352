"""Words for days that are true only when they are said, such as "tomorrow", in six languages."""

import re
from datetime import date, timedelta
from typing import Final

_WORDS: Final = {
    2: "day after tomorrow|übermorgen|après-demain|pasado mañana|后天|後天|明後日|あさって",
    -2: "day before yesterday|vorgestern|avant-hier|anteayer|前天|一昨日|おととい",
    1: "tomorrow|morgen|demain|mañana|明天|明日|あした",
    -1: "yesterday|gestern|hier (?:soir|matin)|ayer|昨天|昨日|きのう",
    0: "today|tonight|heute|aujourd['’]hui|hoy|今天|今晚|今日|今夜|きょう",
}
_DAY: Final = re.compile(
    r"(?<![a-zà-ÿß@/.#`_=&\\-])(?:"
    + "|".join(f"(?P<_{index}>{words})" for index, words in enumerate(_WORDS.values()))
    + r")(?:['’]s)?(?![a-zà-ÿß@/`_=&(])(?![.-][a-z\d])(?!(?<=[a-zñ])\d)(?!\s*\(\d{4}-)",
    re.IGNORECASE,
)
"""Not within a name, such as an address, a path or code."""
_MORNING: Final = re.compile(
    r"\b(?:guten|jeden|de[rnms]|am|diese[nrs]|heute|gestern|la|esta|cada|una)\s+$", re.IGNORECASE
)
"""What makes "morgen" and "mañana" a morning."""


def dated(text: str, today: date | None) -> str:
    """`text` with its date behind each word for a day that is said `today`; unchanged where that is
    not known."""
    if today is None:
        return text

    def with_date(match: re.Match[str]) -> str:
        offset = list(_WORDS)[int(str(match.lastgroup)[1:])]
        if offset == 1 and _MORNING.search(text[: match.start()]):
            return match[0]
        return f"{match[0]} ({today + timedelta(days=offset)})"

    return _DAY.sub(with_date, text)
