"""What a target is, and how it reads decisions from the bytes of an input."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

_T = TypeVar("_T")

OneInput = Callable[[bytes], None]
"""Tries one input. Whatever it raises is a finding."""

_LONG: Final = 255
_REPEATS: Final = (10, 65, 201, 1_001, 2_001, 16_001)
"""Around the limits of tags, titles, links, queries and notes."""


@dataclass(frozen=True)
class Target:
    """What is fuzzed.

    Attributes:
        name: Its name in commands, tables and the corpus.
        share: How many of a thousand inputs are tried on it.
        open: Makes it ready, with an empty directory for its files.
        seeds: Inputs to start from, by name.
        longest: The bytes that an input has at most.
    """

    name: str
    share: int
    open: Callable[[Path], AbstractContextManager[OneInput]]
    seeds: Callable[[], Mapping[str, bytes]]
    longest: int = 2048


def stateless(one_input: OneInput) -> Callable[[Path], AbstractContextManager[OneInput]]:
    """`Target.open` of a target that needs nothing but the input."""

    @contextmanager
    def opened(_: Path) -> Iterator[OneInput]:
        yield one_input

    return opened


class Choices:
    """Reads decisions from the bytes of an input; where they end, every decision is the first.

    Each decision takes few bytes, so that a small change of an input is a small change of what is
    tried.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        """Whether bytes are left."""
        return self._at < len(self._data)

    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1."""
        size = (max(count - 1, 1).bit_length() + 7) // 8
        return int.from_bytes(self.take(size)) % count

    def one_of(self, options: Sequence[_T]) -> _T:
        return options[self.below(len(options))]

    def take(self, count: int) -> bytes:
        """The next bytes, fewer where the input ends."""
        taken = self._data[self._at : self._at + count]
        self._at += len(taken)
        return taken

    def rest(self) -> bytes:
        return self.take(len(self._data))

    def text(self) -> str:
        """A piece of text, sometimes a long one."""
        size = self.below(256)
        if size == _LONG:
            return (self._decoded(self.below(16)) or "x") * self.one_of(_REPEATS)
        return self._decoded(size)

    def _decoded(self, size: int) -> str:
        return self.take(size).decode(errors="replace")


def chosen(*decisions: int | str | bytes) -> bytes:
    """The input that makes these decisions: numbers below 256, texts, and bytes as they are."""
    return b"".join(map(_spelled, decisions))


def _spelled(decision: int | str | bytes) -> bytes:
    match decision:
        case int():
            return bytes([decision])
        case str():
            return bytes([len(decision.encode())]) + decision.encode()
        case bytes():
            return decision
