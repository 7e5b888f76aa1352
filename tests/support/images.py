"""Images of any size, made of few bytes."""

import struct
import zlib


def png(width: int = 1, height: int = 1, *, padding: int = 0) -> bytes:
    """A black one. `padding` bytes of it mean nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes((1 + (width + 7) // 8) * height))
    more = chunk(b"tEXt", bytes(padding)) if padding else b""
    parts = (chunk(b"IHDR", head), more, chunk(b"IDAT", rows), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def jpeg(width: int = 1, height: int = 1, *, thumbnail: bytes = b"") -> bytes:
    """Without a picture that can be decoded; with `thumbnail` in its EXIF."""
    exif = b"Exif\0\0" + thumbnail
    frame = struct.pack(">BHHB", 8, height, width, 1) + b"\1\x11\0"
    return b"".join(
        (
            b"\xff\xd8",
            b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif,
            b"\xff\xff\xc2" + struct.pack(">H", len(frame) + 2) + frame,
            b"\xff\xda\0\x08\1\1\0\0\x3f\0" + b"\x12\xff\0\x34" * 20 + b"\xff\xd9",
        )
    )


def gif(width: int = 1, height: int = 1) -> bytes:
    head = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6)
    return head + b",\0\0\0\0" + struct.pack("<HHB", 1, 1, 0) + b"\2\2D\1\0;"


def webp(width: int = 1, height: int = 1, *, form: bytes = b"VP8X") -> bytes:
    match form:
        case b"VP8X":
            body = (
                b"\0\0\0\0" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
            )
        case b"VP8L":
            body = b"\x2f" + ((width - 1) | (height - 1) << 14).to_bytes(4, "little") + b"\0"
        case _:
            body = b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height)
    chunk = form + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", len(chunk) + 4) + b"WEBP" + chunk
