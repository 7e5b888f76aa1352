"""What a host leaves on disk while it runs, so that the next one can clear up after a kill."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from runner.tiers.base import Handle

_VERSION: Final = 1


def save_state(path: Path, handles: Sequence[Handle]) -> None:
    """Write the handles of all running guests, whole or not at all."""
    content = {"version": _VERSION, "guests": [handle.to_json() for handle in handles]}
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(content), encoding="utf-8")
    temporary.replace(path)


def load_state(path: Path) -> tuple[Handle, ...]:
    """What the last host left; nothing after a clean stop.

    Raises `ValueError` where the file is damaged or of another version.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    try:
        if content["version"] != _VERSION:
            raise ValueError(f"state has version {content['version']}")
        return tuple(Handle.from_json(item) for item in content["guests"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"damaged state: {error!r}") from None
