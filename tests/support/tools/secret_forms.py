"""How a secret may be written, and how much of it is a leak."""

import base64
import json
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus

PIECE = 6
"""So many characters of a secret in a row are a leak."""

LETTERS = "QZXJVKWqzxjvkw"
"""What secrets are made of, so that no surrounding text holds a piece by chance."""


def in_base64(secret: str, before: bytes = b"") -> str:
    return base64.b64encode(before + secret.encode() + b"tail").decode()


def in_lines(text: str, length: int, end: str = "\n") -> str:
    return end.join(text[i : i + length] for i in range(0, len(text), length))


FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "url": quote,
    "url, all": lambda secret: quote(secret, safe=""),
    "url, plus": quote_plus,
    "url, lower case": lambda secret: re.sub(
        "%..", lambda escape: escape[0].lower(), quote(secret, safe="")
    ),
    "json": lambda secret: json.dumps(secret)[1:-1],
    "json, unicode": lambda secret: json.dumps(secret, ensure_ascii=False)[1:-1],
    "base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "base64, url-safe": lambda secret: base64.urlsafe_b64encode(secret.encode()).decode(),
    "url, every byte": lambda secret: "".join(f"%{byte:02x}" for byte in secret.encode()),
    "hex": lambda secret: secret.encode().hex(),
    "hex, upper case": lambda secret: secret.encode().hex().upper(),
    "hex, by byte": lambda secret: secret.encode().hex(" "),
    "hex, by colons": lambda secret: secret.encode().hex(":"),
    "hex, in lines": lambda secret: in_lines(secret.encode().hex(), 16),
    "hex, escaped": lambda secret: "".join(f"\\x{byte:02x}" for byte in secret.encode()),
    "hex, as C": lambda secret: ", ".join(f"0x{byte:02x}" for byte in secret.encode()),
    "in lines": lambda secret: in_lines(secret, 8),
    "base64, in lines": lambda secret: in_lines(base64.b64encode(secret.encode()).decode(), 12),
    "base64, in lines of JSON": lambda secret: in_lines(
        base64.b64encode(secret.encode()).decode(), 12, "\\n"
    ),
    "base64, shifted by 1": lambda secret: in_base64(secret, b"u"),
    "base64, shifted by 2": lambda secret: in_base64(secret, b"u:"),
    "base64, shifted by 3": lambda secret: in_base64(secret, b"me:"),
}


def pieces(written: str, form: str) -> set[str]:
    """What of `written` may not be seen. In base64 the edges carry the neighbours' bits."""
    if form.startswith("base64"):
        written = written[8:-10]
    return {written[i : i + PIECE] for i in range(len(written) - PIECE + 1)}
