"""What all tools over memory say alike: marks of what was read, and refusals."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from wire.errors import Code

from guest.errors import ToolError
from guest.memory.prompt_block import source_of
from guest.memory.types import Hit, MemoryFull, Note

SCORE_DIGITS = 4


def marks(hits: Iterable[Hit]) -> tuple[str, ...]:
    """One line for each result that nobody vouched for, with where it comes from."""
    return tuple(
        _mark(hit.note_id or "a conversation result", source_of(hit))
        for hit in hits
        if hit.material
    )


def material_of(hits: Iterable[Hit]) -> tuple[str, ...]:
    """The sources of what is marked among the results."""
    return tuple(dict.fromkeys(source_of(hit) for hit in hits if hit.material))


def mark_of(note: Note) -> tuple[str, ...]:
    """The same as `marks` for one stored note."""
    if not note.origin.material:
        return ()
    return (_mark(note.note_id, source(note)),)


def source(note: Note) -> str:
    """Where the text of a marked note comes from: its link, else the note itself."""
    return note.origin.link or note.note_id


def _mark(what: str, where: str) -> str:
    return f"{what} came from what was read ({where}), not from the user"


@contextmanager
def refusing_what_is_full() -> Iterator[None]:
    """Turn `MemoryFull` into a refusal that says that nothing was saved, and what helps."""
    try:
        yield
    except MemoryFull as full:
        raise ToolError(f"not saved: {full}", Code.RESOURCE_EXHAUSTED) from None
