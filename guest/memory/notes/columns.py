"""The columns of a note and of its earlier versions. They follow from the fields of `Details` and
`Origin`: whatever is added there is stored, exported, copied and shown."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from guest.memory.models import Change, Details, Origin, tags_of

DETAILS: Final = tuple(each.name for each in fields(Details) if each.name != "scope_session")
"""The details that each version of a note has of its own."""
ORIGIN: Final = tuple(f"origin_{each.name.removesuffix('_id')}" for each in fields(Origin))
_VERSIONED: Final = (
    *("version", "content", "tags", *DETAILS, "source", *ORIGIN, "change", "restores"),
)
VERSIONED: Final = ", ".join(_VERSIONED)
"""The columns that a note and its earlier versions have alike."""
VERSIONED_OF: Final = ", ".join(f"{{0}}.{each}" for each in _VERSIONED)
"""The same, of the table that the text is formatted with."""
VERSIONED_PLACES: Final = ", ".join("?" * len(_VERSIONED))
VERSIONED_COUNT: Final = len(_VERSIONED)

ENDED: Final = "superseded_by, superseded_reason, superseded_at"
"""The columns that say how a note was superseded, and how a version was when it was replaced."""

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)


@dataclass(frozen=True)
class Versioned:
    """What a note says in one version, and how that version was made."""

    version: int
    content: str
    tags: Sequence[str]
    details: Mapping[str, Any]
    source: str
    origin: Origin
    change: Change
    restores: int

    @classmethod
    def of(cls, row: Sequence[Any]) -> "Versioned":
        """From the values of `VERSIONED`."""
        found = dict(zip(_VERSIONED, row, strict=True))
        details = {name: found.pop(name) for name in DETAILS}
        origin = origin_of([found.pop(name) for name in ORIGIN])
        tags = tags_of(found.pop("tags"))
        return cls(**found, tags=tags, details=details, origin=origin)

    @property
    def row(self) -> tuple[Any, ...]:
        """The values of `VERSIONED`."""
        return (
            *(self.version, self.content, to_json(self.tags)),
            *(self.details[name] for name in DETAILS),
            *(self.source, *origin_row(self.origin), self.change, self.restores),
        )


def origin_of(row: Sequence[Any]) -> Origin:
    found: dict[str, Any] = dict(zip(Origin.__dataclass_fields__, row, strict=True))
    return Origin(**found | {"material": bool(found["material"])})


def origin_row(origin: Origin) -> tuple[Any, ...]:
    *words, material = vars(origin).values()
    return (*words, int(material))


def to_json(values: Sequence[object]) -> str:
    """Encode `values` as a JSON array, the form in which statements and columns take lists."""
    return _ENCODER.encode(list(values))
