"""Documents: a process of the shell guest reads them, and here is only their text."""

import asyncio
import io
import json
from dataclasses import replace
from typing import Any, Final

from wire.text import visible
from wire.tools import READER

from guest.errors import GuestError, ToolError
from guest.tools.base import ToolOutput
from guest.tools.files.content import MAIL
from guest.tools.files.read import ReadArguments, lines_of
from guest.tools.files.roots import Location, Roots
from guest.tools.shell.client import Command, ShellClient

READ_S: Final = 60.0
"""When the shell guest ends a reader."""
_TEXT_BYTES: Final = 1024 * 1024
_AT_ONCE: Final = 2
_OUT_OF_TIME: Final = 128 + 24
"""The exit code of a reader that has computed for too long."""
_ENDINGS: Final = (MAIL, " document", " image")
"""How the kinds of files end that a reader is given."""


class Documents:
    """Reads the documents of one user in `shell`; without one `unavailable` is why not."""

    def __init__(self, roots: Roots, shell: ShellClient | None, unavailable: str) -> None:
        self._roots = roots
        self._shell = shell
        self._unavailable = unavailable
        self._free = asyncio.Semaphore(_AT_ONCE)

    async def read(self, arguments: ReadArguments, seen: ToolOutput) -> ToolOutput:
        """The lines of a document's text. `seen` is what `file_read` tells of the file: it is given
        back for what is no document, and with the reason for one that cannot be read."""
        if not seen.data.get("kind", "").endswith(_ENDINGS):
            if arguments.pages:
                raise ToolError(f"{arguments.path} has no pages; leave pages out")
            return seen
        location = self._roots.paths.parse(arguments.path)
        try:
            told, text = await self._text(location, arguments.pages)
        except (ToolError, GuestError) as error:
            why = f"documents cannot be read here: {visible(str(error))}"
            return replace(seen, notes=(*seen.notes, why))
        many = told.get("count")
        if not isinstance(many, int) or not many:
            failed = visible(str(told.get("error", "")))[:300]
            notes = (f"its text cannot be read: {failed}",) if failed else ()
            return replace(seen, notes=(*seen.notes, *notes))
        file, size = io.BytesIO(text.decode(errors="replace").encode()), seen.data["size_bytes"]
        unit = visible(str(told.get("unit")))[:20]
        read = lines_of(location, file, size, arguments, unit=unit, count=many)
        return replace(read, pictures=seen.pictures)

    async def _text(self, location: Location, pages: str) -> tuple[dict[str, Any], bytes]:
        """What a reader tells of a document, and its text. Raises `ToolError`, `GuestError`."""
        if self._shell is None:
            raise ToolError(self._unavailable)
        if not location.root.in_shell:
            raise ToolError(f"commands do not see {location.root.path}; copy it to /shared")
        first, dash, last = pages.partition("-")
        last = last or ("0" if dash or not first else first)
        directory, _, name = location.path.rpartition("/")
        argv = (READER, name, first or "1", last)
        command = Command("", directory, READ_S, argv, keep_bytes=_TEXT_BYTES)
        async with self._free:
            ended = await self._shell.run(command)
        head, _, text = (ended.stdout.head + ended.stdout.tail).partition(b"\n")
        why = f"its reader failed ({ended.exit.exit_code})" if ended.exit.exit_code else ""
        if ended.exit.timed_out or ended.exit.exit_code == _OUT_OF_TIME:
            why = f'it takes more than {READ_S:g} s; read some pages, as with pages="1-20"'
        try:
            told = {**json.loads(head)}
        except (ValueError, TypeError, RecursionError):
            return {"error": why or "the reader answered with something else"}, b""
        return told, text + f"\n[the text ends here: {why}]\n".encode() * bool(why)
