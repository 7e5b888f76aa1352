"""Virtual paths: the only paths a model, a tool result or a command ever sees."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class VirtualRoot:
    """One directory that file tools may enter, under the name the model uses."""

    name: str
    writable: bool

    @property
    def path(self) -> str:
        return f"/{self.name}"


SHARED: Final = VirtualRoot("shared", writable=True)
"""What a person, the agent and commands exchange files through."""

VIRTUAL_ROOTS: Final = (
    SHARED,
    VirtualRoot("tmp", writable=True),
    VirtualRoot("vault", writable=False),
)
