"""Days that a message names by words get their dates where the runtime saves by itself."""

from datetime import date

import pytest

from guest.tools.memory.provenance import dated

FRIDAY = date(2026, 11, 27)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("tomorrow I fly", "tomorrow (2026-11-28) I fly"),
        ("I fly the day after tomorrow.", "I fly the day after tomorrow (2026-11-29)."),
        ("Today and yesterday", "Today (2026-11-27) and yesterday (2026-11-26)"),
        ("tomorrow's talk is mine", "tomorrow's (2026-11-28) talk is mine"),
        ("Morgen habe ich frei", "Morgen (2026-11-28) habe ich frei"),
        ("übermorgen Zahnarzt", "übermorgen (2026-11-29) Zahnarzt"),
        ("heute Morgen war es kalt", "heute (2026-11-27) Morgen war es kalt"),
        ("demain à 9h", "demain (2026-11-28) à 9h"),
        ("hier soir j'ai couru", "hier soir (2026-11-26) j'ai couru"),
        ("mañana por la mañana", "mañana (2026-11-28) por la mañana"),
        ("我明天去北京", "我明天 (2026-11-28)去北京"),
        ("明後日は休み", "明後日 (2026-11-29)は休み"),
        ("tomorrow (2026-11-28) I fly", "tomorrow (2026-11-28) I fly"),
        ("guten Morgen sagt sie immer", "guten Morgen sagt sie immer"),
        ("der Schlüssel ist hier", "der Schlüssel ist hier"),
        ("see you tomorrow... 明天9点", "see you tomorrow (2026-11-28)... 明天 (2026-11-28)9点"),
        *(
            (name, name)
            for name in (
                *("my mail is tomorrow@example.org", "a@tomorrow.org", "https://x.org/today-2/"),
                *("in today.txt", "x?day=today&z", r"C:\today\x", "`today()`", "#today", "today2"),
            )
        ),
        (
            "morgens Tee, the tomorrowland, heutige Post",
            "morgens Tee, the tomorrowland, heutige Post",
        ),
    ],
)
def test_a_day_has_its_date(said: str, kept: str) -> None:
    assert dated(said, FRIDAY) == kept
    assert dated(said, None) == said
