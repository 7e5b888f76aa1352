"""What of several things that a user gave to be kept, no note is about."""

import re
from collections.abc import Collection, Sequence
from typing import Final

from guest.memory.search.keyword import STOP_WORDS

_STEM_CHARS: Final = 5


def forgotten(things: Sequence[str], notes: Collection[str]) -> tuple[str, ...]:
    """Those of `things` that none of `notes` tells of, where there are fewer notes than things.

    A model saves in its own words, maybe in another language. So a thing counts as forgotten
    only if the notes have words of another one, and none of those that this one alone has.
    """
    if len(notes) >= len(things):
        return ()
    told = _words("\n".join(notes))
    words = [_words(thing) for thing in things]
    own = [
        mine.difference(*(words[:place] + words[place + 1 :])) for place, mine in enumerate(words)
    ]
    if not any(mine & told for mine in own):
        return ()
    return tuple(thing for thing, mine in zip(things, own, strict=True) if mine and not mine & told)


def _words(text: str) -> set[str]:
    words = re.findall(r"\w{2,}", text.casefold())
    return {word[:_STEM_CHARS] for word in words if word not in STOP_WORDS}
