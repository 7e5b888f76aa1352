"""What goes wrong in the agent guest, by audience.

WireError
└── GuestError            an operator must mend it: brief, details, resolution
    ├── StorageError      the database: corrupt, locked, full, of a newer version
    │   ├── ChangeUnknownError   a server may or may not have made the change
    │   └── AfterChangeError      the change was made, and what follows it failed
    ├── EmbedderError     the embedder: absent, loading, broken (callers go on by keyword)
    └── BudgetError       a request to a model was not sent, because of a limit
ToolError                 the model can mend it: short, actionable lines
"""

from typing import Final

from wire.errors import Code, WireError


class GuestError(WireError):
    """A failure of the guest or of something it stands on."""


class StorageError(GuestError):
    """The database did not do what was asked; nothing was acknowledged."""


class ChangeUnknownError(StorageError):
    """A server went away in the middle of a change, which it may or may not have made."""


class AfterChangeError(StorageError):
    """The change was made and is durable; reading it again, or erasing the old text, failed."""


class EmbedderError(GuestError):
    """No vectors right now. Memory keeps working by keyword."""

    LOADING: Final = "the embedding model is still loading"
    UNREACHABLE: Final = "the embedder cannot be reached"

    @property
    def is_loading(self) -> bool:
        """Whether it will answer soon, by itself."""
        return self.brief == self.LOADING


class BudgetError(GuestError):
    """A request to a model could exceed a budget, is larger than the window or would lead nowhere,
    and was not sent."""


class ToolError(Exception):
    """A mistake that the model can correct.

    The message goes to the model on one line, whatever it quotes, and each of `notes` as a `Note: `
    line after it. `code` is its kind, for programs that make calls for a person. `material` names
    the material that the message quotes.
    """

    def __init__(
        self,
        message: str,
        code: Code = Code.INVALID_ARGUMENT,
        material: tuple[str, ...] = (),
        notes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.material = material
        self.notes = notes
