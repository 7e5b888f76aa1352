"""The words of a text, in the form in which the full-text index has them and queries ask for them.

Both sides use this module, so a text is found by its own words however either is encoded. Case,
width, accents and points do not matter; vowel signs do, where a script writes vowels as marks.

Where writing has no spaces between words, or glues endings to them, every two neighbouring
characters are a word: `我的猫` is indexed as `我的 的猫 猫`. The last one stands alone, so that
every character begins a word of the index.
"""

import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

_PLAIN: Final = re.compile(
    "[\x00-\x7f\xa0-\xa7\xab\xae\xb0\xb7\xbb\xbf-\xde\xe0-\xff\u2010-\u2027]*"
)
"""Text that FTS5's tokenizer folds in the same way, so that it can be indexed as it is."""

_CHARACTERS: Final = (
    "\u3005-\u3007\u3041-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
"""Chinese, Japanese and Korean: two characters tell as much as a word."""

_LETTERS: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u19e0-\u19ff\ua9e0-\ua9ff\uaa60-\uaa7f"
"""Thai, Lao, Burmese and Khmer: letters of which two tell little."""

_RUN: Final = re.compile(f"[{_CHARACTERS}]+|[{_LETTERS}]+")
_LETTER: Final = re.compile(f"[{_LETTERS}]")

_WORD_SEPARATORS: Final = "\u200b\u200c"
"""A space without width, and the mark that Persian puts between a word and its ending."""

_OPTIONAL: Final = "\u0640\u034f\u17b4\u17b5\u180b\u180c\u180d\u180f"
"""What alters a word's look alone: the stroke that lengthens Arabic words, and selectors."""

_FIRST_SYMBOL: Final = "\u2600"
"""From here on, symbols are emoji and the like, which are words."""

_HUMP: Final = re.compile("[a-z][A-Z]")
_HUMPS: Final = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_GROUPS: Final = re.compile(r"\+?[0-9]+(?:[-.,/'’\s][0-9]+)+")
_AFTER_ZEROS: Final = re.compile(r"(?<![0-9])0+([1-9][0-9]+)")

_IOTA_BELOW: Final = "\u0345"
"""A mark that becomes a letter in lower case."""

_MEMO_CHARACTERS: Final = 10_000


class _Folding(dict[int, str]):
    """What becomes of each character, by its code; computed when first needed."""

    def __missing__(self, code: int) -> str:
        if len(self) >= _MEMO_CHARACTERS:
            self.clear()
        folded = self[code] = _folded(chr(code))
        return folded


def _folded(character: str) -> str:
    category = unicodedata.category(character)
    if character == "ı":
        return "i"
    if character in _WORD_SEPARATORS:
        return " "
    if category == "So" and character >= _FIRST_SYMBOL:
        return f" u{ord(character):x} "
    if character in _OPTIONAL or category in ("Cf", "Me"):
        return ""
    if category.startswith("M"):
        return "" if _is_accent(character) else character
    return character if category[0] in "LN" or category in ("Cn", "Co") else " "


def _is_accent(mark: str) -> bool:
    """Accents, overlays, dots, the points of Hebrew and Arabic, and what selects a variant."""
    kind = unicodedata.combining(mark)
    selects = "\ufe00" <= mark <= "\ufe0f" or "\U000e0100" <= mark <= "\U000e01ef"
    return selects or kind in (1, 7) or 10 <= kind <= 36 or (kind >= 200 and mark != _IOTA_BELOW)


_FOLDING: Final = _Folding()


def fold(text: str) -> str:
    """`text` as words with single forms of everything, separated by spaces."""
    if text.isascii():
        return text.translate(_FOLDING).lower()
    text = text.translate(_FOLDING)
    for _ in range(2):  # what is folded may have to be decomposed, and then folded, again
        text = unicodedata.normalize("NFKD", text).casefold()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKD", text).translate(_FOLDING))


def parts_of(text: str) -> list[str]:
    """What people also type for names and numbers of `text`: `user` and `id` for `userId`, `12480`
    for `12,480`, `170` for `0170`, a telephone number without its country."""
    humps = [
        hump.lower()
        for word in unicodedata.normalize("NFC", text).split()
        if _HUMP.search(word)
        for hump in _HUMPS.findall(word)
        if len(hump) > 1
    ]
    text = text if text.isascii() else unicodedata.normalize("NFKC", text)
    numbers = _AFTER_ZEROS.findall(text)
    for run in _GROUPS.findall(text):
        groups = re.findall("[0-9]+", run)
        joined = ["".join(groups), *(["".join(groups[1:])] if run[0] == "+" else ())]
        numbers += [*joined, *(number.lstrip("0") for number in joined if number[0] == "0")]
    return list(dict.fromkeys((*humps, *numbers)))


def index_text(text: str) -> str:
    """What the full-text index needs instead of `text`; empty if that is `text` itself."""
    parts = parts_of(text)
    if not _PLAIN.fullmatch(text):
        return " ".join((*_RUN.sub(_segmented, fold(text)).split(), *parts))
    return " ".join((text, *parts)) if parts else ""


def search_terms(word: str) -> Iterator[str]:
    """A word of a folded query as quoted terms for FTS5: itself, or the segments of its runs.

    Chinese, Japanese and Korean are looked for two characters at a time, the others that have no
    spaces three letters at a time.
    """
    start = 0
    for run in _RUN.finditer(word):
        if before := word[start : run.start()]:
            yield f'"{before}"'
        yield from _run_terms(run[0])
        start = run.end()
    if after := word[start:]:
        yield f'"{after}"'


def _run_terms(run: str) -> Iterator[str]:
    pieces = _visible(run)
    pairs = [first + second for first, second in pairwise(pieces)]
    if not pairs:
        yield f'"{run}"*'
    elif len(pairs) > 1 and _LETTER.match(run):
        yield from (f'"{first} {second}"' for first, second in pairwise(pairs))
    else:
        yield from (f'"{pair}"' for pair in pairs)


def _segmented(run: re.Match[str]) -> str:
    pieces = _visible(run[0])
    pairs = (first + second for first, second in pairwise(pieces))
    return f" {' '.join((*pairs, pieces[-1]))} "


def _visible(run: str) -> list[str]:
    """The visible characters of a run: letters with their marks."""
    pieces: list[str] = []
    for character in run:
        if pieces and unicodedata.category(character).startswith("M"):
            pieces[-1] += character
        else:
            pieces.append(character)
    return pieces
