"""The lowest versions that pyproject.toml allows, as constraints for pip.

    .venv/bin/python tools/lowest.py EXTRA...

Exits with 1 if a requirement has no lower bound.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[1]
_BOUND: Final = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?>=([0-9.]+(?:b[0-9]+)?)")
_OWN: Final = re.compile(r"oxydra\[([a-z,-]+)\]")


def lowest(requirements: Iterable[str]) -> dict[str, str]:
    """The lower bound of each package. Raises `ValueError` if a requirement has none."""
    found = {}
    for requirement in requirements:
        bound = _BOUND.match(requirement)
        if bound is None:
            raise ValueError(f"no lower bound: {requirement}")
        found[bound[1]] = bound[2]
    return found


def required(extras: Iterable[str], optional: Mapping[str, list[str]]) -> Iterator[str]:
    """What the extras require, also by way of other extras."""
    for extra in extras:
        for requirement in optional[extra]:
            if own := _OWN.fullmatch(requirement):
                yield from required(own[1].split(","), optional)
            else:
                yield requirement


def main(extras: list[str]) -> int:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    chosen = required(extras, project["optional-dependencies"])
    try:
        bounds = lowest([*project["dependencies"], *chosen])
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(f"{name}=={version}" for name, version in sorted(bounds.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
