"""On which line of a configuration file each setting stands."""

import tomllib
from typing import Final

from wire.settings import Key

from runner.config.loading import leaves

_ENDS: Final = ("]", "}", '"""', "'''")
"""One of these stands on the last line of a value of several lines."""


def lines_of(text: str) -> dict[Key, int]:
    """The line, counted from 1, on which each setting of a valid TOML file begins."""
    found: dict[Key, int] = {}
    section: Key = ()
    statement: list[str] = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        statement.append(line)
        if len(statement) > 1 and not any(end in line for end in _ENDS):
            continue
        try:
            table = tomllib.loads("\n".join(statement))
        except tomllib.TOMLDecodeError:
            continue
        is_header = len(statement) == 1 and line.lstrip().startswith("[")
        for key, _ in leaves(table):
            if is_header:
                section = key
            else:
                found[*section, *key] = number - len(statement) + 1
        statement = []
    return found
