"""Fail if tests run less of a package than promised: `make coverage`.

Reads `coverage.json`. Prints the share of lines and branches that were run of each package, and
the ten files with the lowest share.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

FLOORS: Final = {"guest/agent": 90.0, "guest/tools": 90.0, "guest/memory": 90.0}
_SHOWN: Final = 10


def share(summaries: list[dict[str, Any]]) -> float:
    """The lines and branches that were run, in percent of all."""
    there = sum(each["num_statements"] + each.get("num_branches", 0) for each in summaries)
    run = sum(each["covered_lines"] + each.get("covered_branches", 0) for each in summaries)
    return 100 * run / there if there else 100.0


def main() -> int:
    files = json.loads(Path("coverage.json").read_text())["files"]
    packages: defaultdict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for name, found in files.items():
        for package in FLOORS:
            if name.startswith(f"{package}/"):
                packages[package][name] = found["summary"]
    missed = 0
    for package, floor in FLOORS.items():
        reached = share(list(packages[package].values()))
        missed += reached < floor or not packages[package]
        print(f"{package:14} {reached:5.1f} %, at least {floor:g} %")
    every = {name: share([one]) for package in packages.values() for name, one in package.items()}
    print("\nleast of all:")
    for name in sorted(every, key=every.__getitem__)[:_SHOWN]:
        print(f"  {every[name]:5.1f} %  {name}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
