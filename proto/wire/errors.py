"""The one error that crosses a process boundary.

    WireError
    ├── runner.errors.RunnerError     what an operator must fix on the host
    └── guest.errors.GuestError       what an operator must fix in a guest

It carries one of a fixed set of codes, and says what happened, why, and what fixes it. Class names
never cross the boundary; `wire.status` turns an error into a gRPC status and back.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Self


class Code(StrEnum):
    """What kind of failure this is, independent of where it arose."""

    INVALID_ARGUMENT = "invalid_argument"
    """The caller sent something that can never work; the field is named."""
    NOT_FOUND = "not_found"
    ALREADY_EXISTS = "already_exists"
    CONFLICT = "conflict"
    """The state has changed meanwhile: read it again and decide anew."""
    UNAUTHENTICATED = "unauthenticated"
    PERMISSION_DENIED = "permission_denied"
    FAILED_PRECONDITION = "failed_precondition"
    """The system is not in a state in which this can work; the fix is named."""
    RESOURCE_EXHAUSTED = "resource_exhausted"
    """A limit was reached: disk, quota, budget, sequence numbers."""
    UNAVAILABLE = "unavailable"
    """A part is not there right now; trying again later may work."""
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    DATA_LOSS = "data_loss"
    """Stored data is damaged or of a version this program must not touch."""
    INTERNAL = "internal"
    """A bug in this project."""


class WireError(Exception):
    """A failure that a person has to read.

    `brief` says what happened, `details` why and what was tried, `resolution` which command or step
    fixes it. None of them holds a secret.
    """

    def __init__(self, code: Code, brief: str, *, details: str = "", resolution: str = "") -> None:
        super().__init__(brief)
        self.code = code
        self.brief = brief
        self.details = details
        self.resolution = resolution

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> Self:
        """Make an error from `fields`. Raises `ValueError` or `KeyError` if they do not describe
        one."""
        code, details, resolution = Code(fields["code"]), fields["details"], fields["resolution"]
        return cls(code, fields["brief"], details=details, resolution=resolution)

    def fields(self) -> dict[str, str]:
        """The fields that cross a process boundary; `of` reads them."""
        return {"code": self.code.value} | {
            name: getattr(self, name) for name in ("brief", "details", "resolution")
        }

    def __str__(self) -> str:
        """The fields in one block each, so that no quoted line looks like a field."""
        lines = [self.brief]
        if self.details:
            lines.append(f"  why: {self.details}")
        if self.resolution:
            lines.append(f"  fix: {self.resolution}")
        return "\n".join(line.replace("\n", "\n       ") for line in lines)


def in_a_line(error: WireError) -> str:
    """All that an error says, for programs that show one line."""
    return "; ".join(filter(None, (error.brief, error.details, error.resolution)))
