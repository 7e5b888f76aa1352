"""One place that knows all tools: for discovery, definitions and dispatch."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from wire.tools import FAMILIES

from guest.tools.base import Tool


class Registry:
    """The tools of a guest, in the order they were given. Immutable.

    Raises `ValueError` where two tools have the same name, and where one belongs to no
    family of `families`: nobody could switch it on or off then.
    """

    def __init__(
        self, tools: Iterable[Tool], families: Mapping[str, Collection[str]] = FAMILIES
    ) -> None:
        self._tools: Final[dict[str, Tool]] = {}
        self._families = families
        self.known: Final = frozenset(name for names in families.values() for name in names)
        for tool in tools:
            if tool.name in self._tools:
                raise ValueError(f"two tools have the same name: {tool.name}")
            if tool.name not in self.known:
                raise ValueError(f"{tool.name} belongs to no family of tools; see wire.tools")
            self._tools[tool.name] = tool

    def all(self) -> tuple[Tool, ...]:
        """Every tool."""
        return tuple(self._tools.values())

    def get(self, name: str) -> Tool | None:
        """The tool of this name; None where there is none."""
        return self._tools.get(name)

    def families(self) -> dict[str, tuple[Tool, ...]]:
        """The tools by family, in the catalogue's order; without families that have none."""
        return {
            family: found
            for family, names in self._families.items()
            if (found := tuple(tool for tool in self.all() if tool.name in names))
        }
