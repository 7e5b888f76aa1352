"""What a libSQL server says, or fails to say, as errors a person can act on."""

from http import HTTPStatus

from libsql_client import LibsqlError
from wire.errors import Code

from guest.errors import StorageError
from guest.memory.database.base import ConstraintViolated
from guest.memory.database.hrana import Refused, Untrusted
from guest.memory.database.watched import NOTHING_CHANGED


def from_any(error: Exception, where: str) -> ConstraintViolated | StorageError:
    """The error of a call of which nothing has happened."""
    match error:
        case LibsqlError():
            return from_server(error, where)
        case Refused():
            return _refused(error, where)
        case Untrusted():
            return _untrusted(error, where)
        case _:
            return _unreachable(error, where)


def of_change(
    error: Exception, where: str, *, maybe_done: bool
) -> ConstraintViolated | StorageError:
    """The error of a change, which with `maybe_done` the server may have made."""
    return _unknown(error, where) if maybe_done else from_any(error, where)


def from_server(error: LibsqlError, where: str) -> ConstraintViolated | StorageError:
    """`ConstraintViolated` or the `StorageError` for what the engine there says."""
    text = f"{error.explanation} ({error.code})"
    lower = text.lower()
    if "constraint failed" in lower:
        return ConstraintViolated(text)
    if "disk is full" in lower or "sqlite_full" in lower or "blocked" in lower:
        return StorageError(
            Code.RESOURCE_EXHAUSTED,
            f"no space left for the memory on {where}",
            details=f"{text}; nothing of this change was stored, everything before it is intact",
            resolution="free space on that server, or raise its quota, and try again",
        )
    if is_busy(error):
        return StorageError(
            Code.UNAVAILABLE,
            f"the memory on {where} is busy",
            details=f"{text}; nothing of this change was stored",
            resolution="try again; if it stays, look for another program that keeps a "
            "transaction open there",
        )
    if "malformed" in lower or "not a database" in lower:
        return StorageError(
            Code.DATA_LOSS,
            f"the memory on {where} is corrupt",
            details=text,
            resolution="restore that database on its server from a backup",
        )
    if "readonly" in lower or "read-only" in lower:
        return StorageError(
            Code.FAILED_PRECONDITION,
            f"the memory on {where} cannot be written to",
            details=text,
            resolution="look at that server's disk, and whether it is a replica",
        )
    return StorageError(
        Code.INTERNAL,
        f"the memory on {where} failed",
        details=text,
        resolution="report this, with the log, as a bug",
    )


def is_busy(error: LibsqlError) -> bool:
    """Whether the engine did nothing because of somebody else's transaction."""
    text = str(error).lower()
    return "is locked" in text or "busy" in text or "transaction timed-out" in text


def _refused(error: Refused, where: str) -> StorageError:
    """The server answered, and will not do it for us."""
    if error.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        code = Code.UNAUTHENTICATED
        if error.status == HTTPStatus.FORBIDDEN:
            code = Code.PERMISSION_DENIED
        return StorageError(
            code,
            f"the memory server {where} refuses the token",
            details=str(error),
            resolution="put a token that may read and write this database into the variable "
            "that memory.auth_token_env names, then run `runner memory token`",
        )
    if error.status == HTTPStatus.NOT_FOUND:
        return StorageError(
            Code.FAILED_PRECONDITION,
            f"there is no memory at {where}",
            details=f"{error}; a server also says this where the token is for another database",
            resolution="create the database (in sqld: the namespace) on that server, or mend "
            "memory.remote_url; for another token: runner memory token",
        )
    return StorageError(
        Code.FAILED_PRECONDITION,
        f"{where} does not serve a memory",
        details=str(error),
        resolution="let memory.remote_url name a libSQL server (sqld 0.24 or Turso)",
    )


def _untrusted(error: Untrusted, where: str) -> StorageError:
    return StorageError(
        Code.FAILED_PRECONDITION,
        f"the certificate of the memory server {where} is not trusted",
        details=str(error),
        resolution="if its authority is your own, name the authority's certificate in "
        "memory.ca_file",
    )


def _unreachable(error: Exception, where: str) -> StorageError:
    return StorageError(
        Code.UNAVAILABLE,
        f"the memory server {where} cannot be reached",
        details=f"{error}{NOTHING_CHANGED}",
        resolution="look whether it runs and whether this machine reaches it; memory "
        "continues by itself as soon as it does",
    )


def _unknown(error: Exception, where: str) -> StorageError:
    return StorageError(
        Code.UNAVAILABLE,
        f"the memory server {where} did not answer; it is not known whether the change was stored",
        details=str(error),
        resolution="search for it when memory is back, and do it again if it is not there",
    )


def closed(where: str) -> StorageError:
    return StorageError(
        Code.FAILED_PRECONDITION,
        f"the memory on {where} is closed",
        resolution="start the guest again",
    )
