"""Checks of arguments; each failure is a `ValueError` that names the argument."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Final

from wire.limits import TAG_MAX_CHARS, TAGS_MAX

from guest.memory.models import NOTE_TYPES, Details
from guest.memory.storage.sound import sound_time

KEY_MAX_CHARS: Final = 128
REASON_MAX_CHARS: Final = 2_000


def check_text(field: str, text: str) -> None:
    if not text.strip():
        raise ValueError(f"{field}: must not be blank")
    if "\0" in text:
        raise ValueError(f"{field}: must not hold NUL characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{field}: must be valid Unicode") from None


def check_length(field: str, text: str, maximum: int) -> None:
    if len(text) > maximum:
        raise ValueError(f"{field}: {len(text)} characters are more than {maximum}")


def check_details(details: Details) -> None:
    check_type(details.type)
    for each in fields(details):
        value = getattr(details, each.name)
        if isinstance(value, float | int):
            check_fraction(each.name, value)
        elif value and each.name == "due_at" and sound_time(value) != value:
            raise ValueError(f"due_at: {value!r} is not a time as memory writes it")
        elif value and "max_chars" in each.metadata:
            check_text(each.name, value)
            check_length(each.name, value, each.metadata["max_chars"])


def check_type(type_: str) -> None:
    if type_ not in NOTE_TYPES:
        raise ValueError(f"type: {type_!r} is not one of {', '.join(NOTE_TYPES)}")


def check_fraction(field: str, value: float) -> None:
    # NaN compares as false with everything
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{field}: {value} is not from 0 to 1")


def checked_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Check `tags` and remove duplicates."""
    if len(tags) > TAGS_MAX:
        raise ValueError(f"tags: {len(tags)} are more than {TAGS_MAX}")
    for tag in tags:
        check_text("tags", tag)
        check_length("tags", tag, TAG_MAX_CHARS)
    return tuple(dict.fromkeys(tags))


def check_range(field: str, value: int, maximum: int) -> None:
    if not 1 <= value <= maximum:
        raise ValueError(f"{field}: {value} is not from 1 to {maximum}")


def check_key(key: str) -> None:
    check_text("key", key)
    check_length("key", key, KEY_MAX_CHARS)
    if not key.isprintable() or key != key.strip():
        raise ValueError("key: must be one line of visible characters, without spaces around it")
