"""Host paths on their way out: the model sees virtual paths and nothing else."""

import re
from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path

PRIVATE = "[private]"
WORKSPACE = "[workspace]"


class HostPaths:
    """Finds the paths of the workspace in text. Immutable.

    `roots` maps the names of virtual roots to host directories; `private` are
    directories that have no virtual name, and become `[private]`; the one
    directory that holds all roots becomes `[workspace]`. A root whose host path
    is its virtual path (in a container) needs nothing.
    """

    def __init__(
        self,
        roots: Mapping[str, str | PathLike[str]],
        private: Iterable[str | PathLike[str]] = (),
    ) -> None:
        names: dict[str, str] = {}
        if len(workspace := {Path(directory).parent for directory in roots.values()}) == 1:
            names |= dict.fromkeys(_spellings(workspace.pop()), WORKSPACE)
        for directory in private:
            names |= dict.fromkeys(_spellings(directory), PRIVATE)
        for name, directory in roots.items():
            names |= dict.fromkeys(_spellings(directory), f"/{name}")
        self._names = {path: name for path, name in names.items() if path != name and len(path) > 1}
        longest_first = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile(
            rf"(?<![\w.-])(?:{'|'.join(map(re.escape, longest_first))})(?![\w-]|\.\w)"
            if longest_first
            else r"(?!)"
        )

    def spans(self, text: str) -> list[tuple[int, int, str]]:
        """Where host paths stand, and what stands for them; sorted, not overlapping."""
        return [(*m.span(), self._names[m.group()]) for m in self._pattern.finditer(text)]


def _spellings(directory: str | PathLike[str]) -> set[str]:
    given = fspath(directory).rstrip("/")
    return {given, str(Path(given).resolve())}
