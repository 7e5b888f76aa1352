"""What a file is by its content: a text in some encoding, or a binary file of some kind."""

import codecs
import re
from contextlib import suppress
from typing import Final

from guest.errors import ToolError

UTF_8: Final = "utf-8"
PDF: Final = "PDF document"
MAIL: Final = "e-mail message"
LOOK_BYTES: Final = 64 * 1024
_BOMS: Final = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_KNOWN: Final = ("gb18030", "cp932", "big5", "euc_kr", "cp1252", "cp1251")
"""Those that are recognised, in the order in which equally good ones are taken. GBK is a part of
the first; the second is Shift-JIS, the fifth Latin-1, both as Windows writes them."""
_KINDS: Final = (
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"II*\0", "TIFF image"),
    (b"MM\0*", "TIFF image"),
    (b"%PDF-", PDF),
    (b"\xd0\xcf\x11\xe0", "old office document"),
    (b"PK\x03\x04", "ZIP archive or office document"),
    (b"\x1f\x8b", "gzip archive"),
    (b"BZh", "bzip2 archive"),
    (b"\xfd7zXZ\x00", "xz archive"),
    (b"\x7fELF", "ELF program"),
    (b"SQLite format 3\x00", "SQLite database"),
)
_NO_TEXT: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def kind_of(head: bytes) -> str:
    """The kind of a binary file, by its first bytes; empty if they tell none."""
    return next((kind for magic, kind in _KINDS if head.startswith(magic)), "")


def encoding_of(content: bytes) -> str:
    """The encoding of a text, by its content or the beginning of that; empty for no text."""
    beyond = re.search(rb"[\x80-\xff]", content)
    begin = content.rfind(b"\n", 0, beyond.start()) + 1 if beyond else 0
    sample = content[begin : begin + LOOK_BYTES]
    if b"\0" not in content[:LOOK_BYTES] and _is_utf_8(sample):
        return UTF_8
    if name := next((name for mark, name in _BOMS if content.startswith(mark)), ""):
        return name
    if len(content) >= begin + LOOK_BYTES:
        sample = sample[: sample.rfind(b"\n") + 1] or sample  # no character is cut
    return "" if kind_of(content) or _NO_TEXT.search(sample) else _recognised(sample)


def decoded(content: bytes, encoding: str, named: str) -> bytes:
    """A whole text as UTF-8. Raises `ToolError` if it could not be written back as it was."""
    with suppress(UnicodeError):
        text = content.decode(encoding)
        if text.encode(encoding) == content:
            return text.encode()
    raise ToolError(f"{named} is damaged text ({encoding}), and editing would damage it further")


def encoded(text: bytes, encoding: str, named: str) -> bytes:
    """A text of UTF-8 in another encoding. Raises `ToolError` if that lacks a character."""
    try:
        return text.decode().encode(encoding)
    except UnicodeEncodeError as error:
        lacking = error.object[error.start]
        raise ToolError(
            f"{named} is written in {encoding}, which has no {lacking!r} (U+{ord(lacking):04X}); "
            "use others, or write the whole file anew, as UTF-8"
        ) from None


def _is_utf_8(content: bytes) -> bool:
    """Whether it is; its last character may be incomplete."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data" and error.start > len(content) - 4
    return True


def _recognised(sample: bytes) -> str:
    from charset_normalizer import from_bytes

    found = from_bytes(sample, cp_isolation=[*_KNOWN], threshold=0.25, enable_fallback=False)
    ranks = {
        (round(each.chaos, 2), -round(each.coherence, 1), _KNOWN.index(each.encoding))
        for each in found
    }
    return _KNOWN[min(ranks)[-1]] if ranks else ""
