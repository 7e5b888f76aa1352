"""Overwriting what deleted rows leave behind in a SQLite file.

`secure_delete` zeroes a row where it lies when it is deleted. But balancing the
tree copies rows to neighbouring pages, and the old copies stay in the gap
between a page's cell pointers and its cells: deleting the row later does not
reach them. So the gaps of all pages are zeroed, through the engine itself (its
`sqlite_dbpage` table), so that log, locks and encryption are respected.
"""

from typing import Any, Final

_INTERIOR: Final = (2, 5)
_LEAF: Final = (10, 13)
_FIRST_PAGE_HEADER: Final = 100


def zero_gaps(connection: Any, first: int, last: int) -> int:
    """Zero the unused space of pages `first` to `last`; how many pages held something.

    Runs inside the caller's transaction.
    """
    pages = connection.execute(
        "SELECT pgno, data FROM sqlite_dbpage WHERE pgno BETWEEN ? AND ?", (first, last)
    ).fetchall()
    changed = 0
    for number, page in pages:
        start, end = _gap(number, page)
        if page[start:end].strip(b"\0"):
            cleaned = page[:start] + bytes(end - start) + page[end:]
            connection.execute(
                "UPDATE sqlite_dbpage SET data = ? WHERE pgno = ?", (cleaned, number)
            )
            changed += 1
    return changed


def _gap(number: int, page: bytes) -> tuple[int, int]:
    """Where the unallocated space of a b-tree page lies; empty for other pages.

    An overflow page starts with the number of the next one and a free page is
    zero already; neither has a b-tree page's type in its first byte.
    """
    header = _FIRST_PAGE_HEADER if number == 1 else 0
    kind = page[header]
    if kind not in _INTERIOR and kind not in _LEAF:
        return 0, 0
    cells = int.from_bytes(page[header + 3 : header + 5], "big")
    content = int.from_bytes(page[header + 5 : header + 7], "big") or 65536
    return header + (12 if kind in _INTERIOR else 8) + 2 * cells, content
