"""Files that a person names, and the editor of the person at the terminal."""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

import typer
from wire.errors import Code, WireError

from runner.errors import HostError


def refuse_existing(file: Path, *, force: bool) -> None:
    """Raise `HostError` if there is a file already, unless it may be replaced."""
    if os.path.lexists(file) and not force:
        raise HostError(
            Code.ALREADY_EXISTS, f"{file} is there already", resolution="name another, or --force"
        )


def edited(before: str, *, name: str, suffix: str, otherwise: str) -> str:
    """What the editor made of `before`, in a private copy named `name`…`suffix`.

    `otherwise` is what to do without an editor, for errors. If the editor or the reading fails and
    something was written, the copy stays and is named. Raises `WireError`.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        raise HostError(
            Code.FAILED_PRECONDITION,
            "there is no editor to open",
            details="neither VISUAL nor EDITOR is set",
            resolution=f"export EDITOR=nano; or: {otherwise}",
        )
    path = written(before, name=name, suffix=suffix)
    try:
        _open_editor(editor, path)
        data = path.read_bytes() if path.exists() else b""
        text = before if data == before.encode() else decoded(data, "the editor's file")
    except BaseException:
        if path.exists() and path.read_bytes() not in (b"", before.encode()):
            typer.echo(f"what you wrote is in {path}", err=True)
        else:
            path.unlink(missing_ok=True)
        raise
    path.unlink(missing_ok=True)
    return text


def decoded(data: bytes, what: str, so: str = "nothing was changed") -> str:
    """`data` as text. Raises `WireError` that names `what` if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise WireError(
            Code.INVALID_ARGUMENT,
            f"{what} is not UTF-8 text: {so}",
            details=str(error),
            resolution="iconv -t UTF-8",
        ) from None


def written(text: str, *, name: str, suffix: str) -> Path:
    """A new private file that holds `text`."""
    fd, path = tempfile.mkstemp(prefix=name, suffix=suffix)
    with os.fdopen(fd, "wb") as file:
        file.write(text.encode())
    return Path(path)


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
