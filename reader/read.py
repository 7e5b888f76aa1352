"""The program that reads one document, and ends: `NAME FIRST LAST`.

Before it opens the file it gives up sockets, changes of files, and memory and time beyond limits.
To standard output goes a line of JSON, with `unit` and `count`, or an `error`, then the text.
"""

import json
import os
import resource
import sys
from pathlib import Path
from typing import Final

from wire.kernel import seccomp

from reader.documents import Document, UnreadableError, open_document

TEXT_MAX_BYTES: Final = 512 * 1024
_LIMITS: Final = {
    resource.RLIMIT_AS: 1024 * 1024 * 1024,
    resource.RLIMIT_CPU: 40,
    resource.RLIMIT_FSIZE: 0,
    resource.RLIMIT_CORE: 0,
}
_NUMBERS: Final = {
    "x86_64": (
        *(49, 76, 77, *range(82, 89), *range(90, 95), 101, 132, 133, *range(188, 191)),
        *(*range(197, 200), 235, 240, *range(258, 262), *range(263, 267), 268, 280),
        *(304, 310, 311, 316),
    ),
    "aarch64": (
        *(*range(5, 8), *range(14, 17), *range(33, 39), 45, 46, *range(52, 56), 88, 117, 180, 200),
        *(265, 270, 271, 276),
    ),
}
"""Of calls that remove, rename, cut, make, link, bind, date, label, give away or trace."""
_NEWER: Final = (seccomp.IO_URING_SETUP, 437, 438, 452, 463, 466, 469)
"""The same with one number for all: openat2, pidfd_getfd, fchmodat2, those that label."""
_OPENING: Final = {
    "x86_64": {2: seccomp.SECOND, 257: seccomp.THIRD},
    "aarch64": {56: seccomp.THIRD},
}
"""Calls that open a file, and where their flags are."""
_WRITING: Final = seccomp.if_any_bit(0o1103, seccomp.REFUSED) + seccomp.ALLOWED
"""Refuses to open a file to write, to make or to cut it."""


def confine() -> None:
    """Give up what a document could misuse, for good. Raises `OSError`."""
    for kind, most in _LIMITS.items():
        hard = resource.getrlimit(kind)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))
    machine = os.uname().machine
    numbers = (seccomp.SOCKET[machine], *_NUMBERS[machine], *_NEWER)
    rules = dict.fromkeys(numbers, seccomp.REFUSED)
    rules |= {number: seccomp.load(at) + _WRITING for number, at in _OPENING[machine].items()}
    seccomp.confine(seccomp.program({machine: rules}))


def main() -> None:
    """Read the document that the arguments name."""
    confine()
    begun, out = False, sys.stdout.buffer
    try:
        document = open_document(Path(sys.argv[1])) or Document(str, count=0)
        first, last = int(sys.argv[2]), min(int(sys.argv[3]) or document.count, document.count)
        if first > max(document.count, 1):
            raise UnreadableError(f"it has {document.count} {document.unit}s, no {first}")
        if not last:
            out.write(b"{}\n")
        told, room = {"unit": document.unit, "count": document.count}, TEXT_MAX_BYTES
        for number in range(first, last + 1):
            mark = f"[{document.unit} {number} of {document.count}]\n" * (document.count > 1)
            text = f"{mark}{document.text(number).strip()}\n\n".replace("\r\n", "\n")
            data = text.replace("\r", "\n").replace("\0", "").encode(errors="replace")
            if not begun:
                out.write(json.dumps(told).encode() + b"\n")
                begun = True
            out.write(data[:room])
            out.flush()  # what is there counts if the rest takes too long
            if (room := room - len(data)) < 0:
                raise UnreadableError(f'it is long; read on with pages="{number}-"')
    except Exception as error:  # parsers raise anything for damaged files
        why = "it is damaged; save it again"
        if isinstance(error, UnreadableError):
            why = str(error)
        elif "password" in str(error).lower():
            why = "it has a password; save it without one"
        elif isinstance(error, MemoryError):
            why = "it takes too much memory"
        elif isinstance(error, ImportError):
            why = f"{error.name} is not installed: the reader's packages are oxydra[reader]"
        end = f"\n[the text ends here: {why}]\n" if begun else json.dumps({"error": why})
        out.write(end.encode(errors="replace"))


if __name__ == "__main__":
    main()
