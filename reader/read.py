"""The program that reads one document, and ends: `NAME FIRST LAST`.

Before it opens the file it gives up sockets, changes of files, and memory and time beyond limits.
To standard output goes a line of JSON, with `unit` and `count`, or an `error`, then the text.
"""

import ctypes
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
_TRUNCATE: Final = {"x86_64": 76, "aarch64": 45}
_MAKE_RULES, _OBEY_RULES = 444, 446
_CHANGES: Final = 0b1_1111_1111_0010
"""What the first version of Landlock knows, but for running, reading and listing."""


def confine() -> None:
    """Give up what a document could misuse, for good. Without Landlock in the kernel, files can be
    removed, and no more. Raises `OSError`."""
    for kind, most in _LIMITS.items():
        hard = resource.getrlimit(kind)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))
    machine = os.uname().machine
    numbers = (seccomp.SOCKET[machine], _TRUNCATE[machine])
    seccomp.confine(seccomp.program({machine: dict.fromkeys(numbers, seccomp.REFUSED)}))
    libc = ctypes.CDLL(None, use_errno=True)
    rules = libc.syscall(_MAKE_RULES, ctypes.byref(ctypes.c_uint64(_CHANGES)), 8, 0)
    if rules >= 0 and libc.syscall(_OBEY_RULES, rules, 0) != 0:
        raise OSError(ctypes.get_errno(), "landlock")


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
