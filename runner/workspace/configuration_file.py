"""Changes of single settings in the configuration file. Its comments, its order and all other
settings stay as they are."""

import copy
import os
import stat
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from wire.disk import whole_file
from wire.errors import Code
from wire.settings import Key, dotted

from runner.errors import ConfigError, HostError, file_errors

_T = TypeVar("_T")
Changes = Mapping[Key, object]
"""New values of settings; None removes a setting, or a whole table."""
HEAD: Final = """\
# Settings of Oxydra. Each has a default: `runner config show` lists them all and says where they
# come from, and docs/guide/configuration.md what they mean. After a change: runner restart
"""
"""How a new file begins."""


def edited(text: str, changes: Changes) -> str:
    """`text`, which is TOML, with other values of some settings.

    Raises `ConfigError` where this cannot be done without changing anything else.
    """
    import tomlkit  # here, because commands that change nothing begin without it
    from tomlkit.exceptions import TOMLKitError

    try:
        wanted = tomllib.loads(text)
        document = tomlkit.parse(text)
        for key, value in changes.items():
            _put(wanted, key, value, lambda _: {})
            _put(document, key, value, lambda last: tomlkit.table(is_super_table=not last))
        after = tomlkit.dumps(document)
        if tomllib.loads(after) == wanted:
            return after
        why = "the result would have other settings changed, too"
    except (ValueError, TypeError, TOMLKitError) as error:
        why = str(error)
    raise ConfigError(
        Code.FAILED_PRECONDITION,
        f"cannot change {', '.join(map(dotted, changes))} in the configuration file",
        details=why,
        resolution="runner config edit",
    )


def change_file(
    path: Path, changes: Changes, check: Callable[[str], _T], *, write: bool = True
) -> _T:
    """Change settings in the file at `path`, or begin one, once `check` has accepted its new text.
    Without `write` only find out whether that can be done.

    Returns what `check` returns. Raises what it raises, and `WireError` if the file cannot be
    changed; then the file stays as it is.
    """
    with file_errors(f"cannot read {path}", f"make {path} a readable TOML file", kind=ConfigError):
        before = path.read_bytes() if path.exists() else b""
        after = edited(before.decode() or HEAD, changes)
    found = check(after)
    if write:
        replace_file(path, before, after)
    return found


def replace_file(path: Path, before: bytes, after: str) -> None:
    """Replace the file at once, with the mode and the owner that it has.

    Raises `HostError`: CONFLICT if it does not hold `before` any more.
    """
    with file_errors(f"cannot write {path}", f"make {path.parent} writable", kind=ConfigError):
        found = path.stat() if path.exists() else None
        if (path.read_bytes() if found else b"") != before:
            raise HostError(
                Code.CONFLICT,
                f"{path} was changed meanwhile by somebody else, and is left as it is",
                resolution="look at it, and change it again",
            )
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with whole_file(path) as file:
            if found is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(found.st_mode))
                if os.geteuid() == 0:
                    os.fchown(file.fileno(), found.st_uid, found.st_gid)
            file.write(after.encode())


def _put(table: Any, key: Key, value: object, made: Callable[[bool], Any]) -> None:
    """Set a value in nested tables; `made` makes one that is missing, and is given whether values
    stand in it."""
    *sections, name = key
    for at, section in enumerate(sections):
        if section not in table:
            if value is None:
                return
            table[section] = made(at == len(sections) - 1)
        table = table[section]
    if value is None:
        table.pop(name, None)
    else:
        table[name] = copy.deepcopy(value)
