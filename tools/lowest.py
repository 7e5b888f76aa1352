"""The lowest versions that pyproject.toml allows, as constraints for pip.

    .venv/bin/python tools/lowest.py EXTRA...

Exits with 1 if a requirement has no lower bound.
"""

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[1]
_BOUND: Final = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?>=([0-9.]+)")


def lowest(requirements: Iterable[str]) -> dict[str, str]:
    """The lower bound of each package. Raises `ValueError` if a requirement has none."""
    found = {}
    for requirement in requirements:
        bound = _BOUND.match(requirement)
        if bound is None:
            raise ValueError(f"no lower bound: {requirement}")
        found[bound[1]] = bound[2]
    return found


def main(extras: list[str]) -> int:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    chosen = [project["optional-dependencies"][extra] for extra in extras]
    try:
        bounds = lowest(sum(chosen, project["dependencies"]))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(f"{name}=={version}" for name, version in sorted(bounds.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
