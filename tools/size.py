"""Count the lines of the product and its tests, and fail above the figures of `tools/size.toml`.

    .venv/bin/python tools/size.py

Generated code, vendored libraries, snapshots and corpora are left out. An issue may raise the
figures by its own budget, in the commit that uses it.
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
LIMITS: Final = Path(__file__).with_suffix(".toml")

KUBERNETES: Final = "runner/tiers/kubernetes/"
COUNTED: Final = {
    "product": ("runner", "guest", "shell_daemon", "reader", "egress", "proto/wire"),
    "kubernetes": (KUBERNETES,),
    "web": ("web/src", "web/styles", "web/index.html"),
    "tests": ("tests",),
}
SUFFIXES: Final = (".py", ".js", ".css", ".html")


def files(part: str, root: Path = ROOT) -> Iterator[Path]:
    """The files that count for `part`, a key of `COUNTED`."""
    for place in COUNTED[part]:
        start = root / place
        for path in [start] if start.is_file() else sorted(start.rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix not in SUFFIXES or "_pb2" in name or "node_modules" in path.parts:
                continue
            if part == "product" and name.startswith(KUBERNETES):
                continue
            yield path


def lines(part: str, root: Path = ROOT) -> int:
    """How many lines the files of `part` have."""
    return sum(path.read_bytes().count(b"\n") for path in files(part, root))


def main() -> None:
    """Print a row for each part. Exit with an error if one has more lines than its limit."""
    limits: dict[str, int] = tomllib.loads(LIMITS.read_text())["lines"]
    above = []
    print(f"{'':<12}{'files':>7}{'lines':>9}{'limit':>9}")
    for part in COUNTED:
        count = lines(part)
        print(f"{part:<12}{sum(1 for _ in files(part)):>7}{count:>9,}{limits[part]:>9,}")
        if count > limits[part]:
            above.append(f"{part} has {count - limits[part]} lines more than {LIMITS.name} allows")
    if above:
        raise SystemExit(
            "\n".join([*above, "remove as many, or raise the limit by an issue's budget"])
        )


if __name__ == "__main__":
    main()
