"""Where the text of a note comes from: the command line, a pipe or an editor.

What somebody wrote is never lost: where the agent refuses it, it lies in a file.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import typer
from wire.errors import Code, WireError
from wire.limits import NOTE_MAX_CHARS

from runner.errors import HostError

PIPE: Final = "-"
_READ_MAX_BYTES: Final = 4 * NOTE_MAX_CHARS


def text_of(given: str | None, *, before: str, command: str) -> str:
    """What `given` stands for: itself, standard input for "-", an editor on `before` for None.

    Line breaks at the end are left out. `command` is how to give the text otherwise.
    Raises `WireError` for a blank text, and where there is no editor to ask.
    """
    if given is None:
        text = _edited(before, command)
    elif given == PIPE:
        text = _piped()
    else:
        text = given
    if before and text == before:
        return before
    text = text.rstrip("\r\n")
    if not text.strip():
        raise WireError(
            Code.INVALID_ARGUMENT, "there is no text: nothing was changed", resolution=command
        )
    return text


@contextmanager
def kept_if_refused(text: str) -> Iterator[None]:
    """Put `text` into a file where what is tried here fails, and say where it is.

    An empty text is nobody's work and not kept.
    """
    try:
        yield
    except WireError as error:
        if not text:
            raise
        kept = f"your text is in {_keep(text)}"
        resolution = f"{error.resolution}; {kept}" if error.resolution else kept
        raise WireError(
            error.code, error.brief, details=error.details, resolution=resolution
        ) from None
    except BaseException:
        if text:
            typer.echo(f"your text is in {_keep(text)}", err=True)
        raise


def _piped() -> str:
    data = sys.stdin.buffer.read(_READ_MAX_BYTES + 1)
    if len(data) > _READ_MAX_BYTES:
        raise WireError(
            Code.INVALID_ARGUMENT,
            "standard input holds more than a note can: nothing was changed",
            details=f"a note has at most {NOTE_MAX_CHARS:,} characters",
            resolution="save it as several notes, or as a file in the workspace",
        )
    return _decoded(data, "standard input")


def _edited(before: str, command: str) -> str:
    if not sys.stdin.isatty():
        raise WireError(
            Code.INVALID_ARGUMENT,
            "no text was given",
            details="standard input is no terminal, so there is no editor to open",
            resolution=f"{command}; - takes it from standard input",
        )
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise HostError(
            Code.FAILED_PRECONDITION,
            "there is no editor to open",
            details="neither VISUAL nor EDITOR is set",
            resolution=f"export EDITOR=nano; or: {command}",
        )
    fd, name = tempfile.mkstemp(prefix="note-", suffix=".txt")
    path = Path(name)
    with os.fdopen(fd, "wb") as file:
        file.write(before.encode())
    try:
        _open_editor(editor, path)
        data = path.read_bytes() if path.exists() else b""
        text = before if data == before.encode() else _decoded(data, "the editor's file")
    except BaseException:
        if path.exists() and path.read_bytes() not in (b"", before.encode()):
            typer.echo(f"what you wrote is in {path}", err=True)
        else:
            path.unlink(missing_ok=True)
        raise
    path.unlink(missing_ok=True)
    return text


def _open_editor(editor: str, path: Path) -> None:
    try:
        ended = subprocess.run([*shlex.split(editor), os.fspath(path)], check=False)  # noqa: S603
        why = f"{editor} ended with exit code {ended.returncode}" if ended.returncode else ""
    except (OSError, ValueError) as error:
        why = f"{editor}: {getattr(error, 'strerror', None) or error}"
    if why:
        raise HostError(
            Code.FAILED_PRECONDITION,
            "the editor failed: nothing was changed",
            details=why,
            resolution="try again, or name another editor in EDITOR",
        )


def _decoded(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise WireError(
            Code.INVALID_ARGUMENT,
            f"{what} is not UTF-8 text: nothing was changed",
            details=str(error),
            resolution="iconv -t UTF-8",
        ) from None


def _keep(text: str) -> Path:
    fd, name = tempfile.mkstemp(prefix="note-not-saved-", suffix=".txt")
    with os.fdopen(fd, "wb") as file:
        file.write(text.encode())
    return Path(name)
