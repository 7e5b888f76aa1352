"""Text into sentences, in the same places whether it comes at once or letter by letter."""

import re
from typing import Final

_END: Final = re.compile(
    r"(?:(?<![.!?…])[.!?…]++[\"'”’»)\]*_`]*+(?=\s)"  # the blank belongs to the next sentence
    r"|(?<![。！？])[。！？]++[」』”’）*_`]*+(?=[^。！？」』”’）*_`])"
    r"|\n)"
)
_NUMBER: Final = re.compile(r"\s*\d{1,3}\.")
"""What begins an item of a list, and ends no sentence."""

_LONGEST: Final = 1000
"""Characters: what goes on without an end (data on one line, a model that repeats itself) is
cut, between words where possible, so that it is neither held for long nor costly to judge."""

_QUOTED: Final = re.compile(
    r"“[^”]*”|„[^“”]*[“”]|«[^»]*»|»[^«]*«|「[^」]*」|『[^』]*』|\"[^\"]*\"|`[^`]*`"
    r"|(?<!\w)'[^']*'(?!\w)|(?<!\w)‘[^’]*’(?!\w)"
)
_MARKUP: Final = re.compile(
    r"[*_~#]+|\N{VARIATION SELECTOR-16}|[\u00ad\u200b-\u200d\u2060\ufeff]"  # what is not seen
)
_ITEM: Final = re.compile(r"^\s*(?:[-+•]\s+)?(?:\d{1,3}[.)]\s+)?(?:\[[xX]\]\s*)?")

ENDING: Final = ".!?…\"'”’»)]*_`。！？」』）"
"""What may stand at the end of a sentence that is not certain yet."""


def complete(text: str, searched: int = 0) -> list[str]:
    """The sentences of `text` that nothing which may follow can change; together they are
    its beginning, letter for letter. None of them ends before `searched`."""
    found: list[str] = []
    while True:
        start = 0
        for end in _END.finditer(text, searched):
            if end.end() - start > _LONGEST:
                break
            if not _NUMBER.fullmatch(text, start, end.end()):
                found.append(text[start : end.end()])
                start = end.end()
        if len(text) - start <= _LONGEST:
            return found
        blank = text.rfind(" ", start + _LONGEST // 2, start + _LONGEST)
        cut = blank if blank > 0 else start + _LONGEST
        found.append(text[start:cut])
        text, searched = text[cut:], 0


def split(text: str) -> list[str]:
    """All sentences of `text`, the last one whether or not it has an end."""
    found = complete(text)
    rest = text[sum(map(len, found)) :]
    return [*found, rest] if rest else found


def unquoted(sentence: str) -> str:
    """`sentence` with a mark for whatever is quoted in it, one way to write an apostrophe,
    and without emphasis and the mark of a list."""
    plain = _QUOTED.sub("…", sentence).replace("’", "'")
    return _ITEM.sub("", " ".join(_MARKUP.sub("", plain).split()))
