"""Which tools an operator has approved: those that a server had at first, until another list is
approved in the configuration."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from wire.text import parsed_json

_DIGEST_CHARS: Final = 16


def digest(value: object) -> str:
    """A short digest of a value's JSON."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARS]


class ApprovedTools:
    """The digests of approved tools by server, in a `file` that no tool and no command reaches."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def changed(self, server: str, tools: Mapping[str, str], approved: str) -> frozenset[str]:
        """The names of those `tools` (digests by name) that nobody has approved.

        What a server has at first is approved, and so is a list whose own digest is `approved`.
        """
        known = self._read()
        if approved == digest(tools) or (server not in known and not approved):
            if known.get(server) != tools:
                self._write({**known, server: dict(tools)})
            return frozenset()
        before = known.get(server, {})
        return frozenset(name for name, found in tools.items() if before.get(name) != found)

    def _read(self) -> dict[str, dict[str, str]]:
        try:
            found: Any = parsed_json(self._file.read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, known: Mapping[str, Mapping[str, str]]) -> None:
        beside = self._file.with_suffix(".new")
        with beside.open("w", encoding="utf-8") as file:
            beside.chmod(0o600)
            json.dump(known, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._file)
