"""Images as models take them: their kind, and why one cannot be shown, from its content alone.

Nothing is decoded. What a provider refuses would fail the whole request, and so does a file that
ends before its end.
"""

import re
from typing import Final

IMAGE_MAX_BYTES: Final = 3_932_160
"""The least that a provider takes is 5 MiB as base64; so many bytes are as much."""
SIDE_MAX_PIXELS: Final = 8_000
"""The least that the providers take, besides those that scale an image down themselves."""
HEAD_BYTES: Final = 32
_KINDS: Final = (
    ("image/png", rb"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", rb"\xff\xd8\xff"),
    ("image/gif", rb"GIF8[79]a"),
    ("image/webp", rb"RIFF....WEBP"),
    ("image/heic", rb"....ftyp(hei[cmsx]|hev[cmsx]|mif1|msf1)"),
    ("image/avif", rb"....ftypavi[fs]"),
    ("image/tiff", rb"II\*\0|MM\0\*"),
    ("image/bmp", rb"BM.{12}[\x0c\x28\x34\x38\x40\x6c\x7c]\0\0\0"),
)
SHOWN: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_CONVERT: Final = "convert it, as with: magick FILE FILE.jpg"
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG's markers of segments that have its size."""


def kind_of(head: bytes) -> str:
    """The kind of an image by the beginning of its content; empty if it is none that is known."""
    return next((kind for kind, magic in _KINDS if re.match(magic, head, re.DOTALL)), "")


def fault_of(kind: str, size: int, content: bytes) -> str:
    """Why an image of `size` bytes is shown to no model; empty if it can be. Of one that is too
    large or of another kind, `content` need not be there."""
    if kind not in SHOWN:
        name = kind.removeprefix("image/").upper()
        return f"models take PNG, JPEG, GIF and WebP, and this is {name}; {_CONVERT}"
    if size > IMAGE_MAX_BYTES:
        return f"it has {size:,} bytes, and an image may have {IMAGE_MAX_BYTES:,}; make it smaller"
    try:
        sides = _SIDES[kind](content)
    except (IndexError, ValueError):
        sides = None
    if not sides or not all(sides):
        return "it is damaged: its end is missing, or its size; save it again"
    if max(sides) > SIDE_MAX_PIXELS:
        return (
            f"it has {sides[0]:,} × {sides[1]:,} pixels, and a side may have "
            f"{SIDE_MAX_PIXELS:,}; make it smaller"
        )
    return ""


def _number(content: bytes, first: int, last: int, *, little: bool = False) -> int:
    if last > len(content):
        raise IndexError
    return int.from_bytes(content[first:last], "little" if little else "big")


def _png(content: bytes) -> tuple[int, int]:
    place = content.index(b"IHDR", 12, 16) - 4
    while content[place + 4 : place + 8] != b"IEND":
        place += _number(content, place, place + 4) + 12
    _number(content, place, place + 12)
    return _number(content, 16, 20), _number(content, 20, 24)


def _jpeg(content: bytes) -> tuple[int, int]:
    place, sides = 2, (0, 0)
    while True:
        while content[place] == content[place + 1] == 0xFF:
            place += 1
        marker, length = content[place + 1], _number(content, place + 2, place + 4)
        if content[place] != 0xFF or length < 2:
            raise ValueError
        if marker in _FRAMES:
            sides = _number(content, place + 7, place + 9), _number(content, place + 5, place + 7)
        place += 2 + length
        if marker == 0xDA:  # the picture itself, up to the mark of the end
            content.index(b"\xff\xd9", place)
            return sides


def _gif(content: bytes) -> tuple[int, int]:
    if not content.rstrip(b"\0").endswith(b";"):
        raise ValueError
    return _number(content, 6, 8, little=True), _number(content, 8, 10, little=True)


def _webp(content: bytes) -> tuple[int, int]:
    if _number(content, 4, 8, little=True) + 8 > len(content):
        raise ValueError
    match content[12:16]:
        case b"VP8X":
            width, height = (_number(content, at, at + 3, little=True) + 1 for at in (24, 27))
        case b"VP8L":
            bits = _number(content, 21, 25, little=True)
            width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case _:
            width, height = (_number(content, at, at + 2, little=True) & 0x3FFF for at in (26, 28))
    return width, height


_SIDES: Final = {"image/png": _png, "image/jpeg": _jpeg, "image/gif": _gif, "image/webp": _webp}
