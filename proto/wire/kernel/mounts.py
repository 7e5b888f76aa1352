"""The table of mounts that a process sees: /proc/self/mountinfo."""

import re
from pathlib import Path
from typing import NamedTuple


class Mount(NamedTuple):
    """A line of the table. `peers` says with which other namespaces it is shared."""

    mount_id: str
    device: str
    root: str
    point: str
    options: frozenset[str]
    peers: tuple[str, ...]
    kind: str

    @property
    def read_only(self) -> bool:
        return "ro" in self.options


def mounts(table: str | None = None) -> list[Mount]:
    """The mounts of a table, by default of this process. Raises `ValueError` for a bad one."""
    if table is None:
        table = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    return [_mount(line.split(" ")) for line in table.split("\n") if line]


def _mount(words: list[str]) -> Mount:
    mount_id, _, device, root, point, options, *others = words
    ends = others.index("-")
    return Mount(
        *(mount_id, device, _path(root), _path(point)),
        *(frozenset(options.split(",")), tuple(others[:ends]), others[ends + 1]),
    )


def _path(escaped: str) -> str:
    return re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), escaped)
