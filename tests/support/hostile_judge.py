"""Whether an attempt was made, and whether it came to nothing."""

from tests.support.hostile_town import TRIED, WON, Attempt, Town

_BROKEN = ("SyntaxError", "NameError", "AttributeError", "syntax error", "unexpected EOF")
"""What an attempt says that was never made because it is written wrongly."""


async def judged(place: Town, one: Attempt) -> str:
    """Make an attempt that runs to its end; what it wrote. Fails where it won or leaked."""
    ran, text = await place.attempt(one)
    assert TRIED in text, f"it was not made: {ran.exit} {text[-3000:]}"
    assert not any(word in text for word in _BROKEN), text[-3000:]
    return denied(place, text)


def denied(place: Town, text: str) -> str:
    """`text`, which must tell of no success and hold no secret."""
    won = [line for line in text.splitlines() if WON in line]
    assert (won, place.leaks(text)) == ([], []), text[-3000:]
    return text
