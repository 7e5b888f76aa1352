"""Placeholders: what commands have in place of a credential's value."""

import secrets
from typing import Final

PREFIX: Final = "oxydra-credential-"
"""What every placeholder begins with, and nothing else does."""


def new_placeholder(name: str) -> str:
    """A placeholder of credential `name` that nobody can guess: in lower case, so that it stays
    the same where case does not count."""
    return f"{PREFIX}{name}-{secrets.token_hex(16)}"
