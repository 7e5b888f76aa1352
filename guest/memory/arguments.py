"""What memory accepts as an argument; `ValueError` names the one that it does not."""

from collections.abc import Sequence

from wire.limits import TAG_MAX_CHARS, TAGS_MAX


def check_text(field: str, text: str) -> None:
    if not text.strip():
        raise ValueError(f"{field}: must not be blank")
    if "\0" in text:
        raise ValueError(f"{field}: must not hold NUL characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{field}: must be valid Unicode") from None


def checked_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """`tags` without repetitions."""
    if len(tags) > TAGS_MAX:
        raise ValueError(f"tags: {len(tags)} are more than {TAGS_MAX}")
    for tag in tags:
        check_text("tags", tag)
        if len(tag) > TAG_MAX_CHARS:
            raise ValueError(f"tags: {len(tag)} characters are more than {TAG_MAX_CHARS}")
    return tuple(dict.fromkeys(tags))


def check_range(field: str, value: int, maximum: int) -> None:
    if not 1 <= value <= maximum:
        raise ValueError(f"{field}: {value} is not from 1 to {maximum}")
