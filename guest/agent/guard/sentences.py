"""Text into sentences, in the same places whether it comes at once or letter by letter."""

import re
from typing import Final

_END: Final = re.compile(
    r"(?:[.!?…]+[\"'”’»)\]*_`]*(?=\s)"  # the blank after it belongs to the next sentence
    r"|[。！？]+[」』”’）*_`]*(?=[^。！？」』”’）*_`])"
    r"|\n)"
)
_QUOTED: Final = re.compile(
    r"“[^”]*”|„[^“”]*[“”]|«[^»]*»|»[^«]*«|「[^」]*」|『[^』]*』|\"[^\"]*\"|`[^`]*`"
    r"|(?<!\w)'[^']*'(?!\w)|(?<!\w)‘[^’]*’(?!\w)"
)
_MARKUP: Final = re.compile(r"[*_~#]+|\N{VARIATION SELECTOR-16}")


ENDING: Final = ".!?…\"'”’»)]*_`。！？」』）"
"""What may stand at the end of a sentence that is not certain yet."""


def complete(text: str, searched: int = 0) -> list[str]:
    """The sentences of `text` that nothing which may follow can change; together they are
    its beginning, letter for letter. None of them ends before `searched`."""
    found, start = [], 0
    for end in _END.finditer(text, searched):
        found.append(text[start : end.end()])
        start = end.end()
    return found


def split(text: str) -> list[str]:
    """All sentences of `text`, the last one whether or not it has an end."""
    found = complete(text)
    rest = text[sum(map(len, found)) :]
    return [*found, rest] if rest else found


def unquoted(sentence: str) -> str:
    """`sentence` with a mark for whatever is quoted in it, one way to write an apostrophe,
    and without emphasis."""
    plain = _QUOTED.sub("…", sentence).replace("’", "'")
    return " ".join(_MARKUP.sub("", plain).split())
