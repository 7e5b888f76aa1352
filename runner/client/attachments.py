"""Files that go with a message: they are put where the user's tools read them."""

import asyncio
import hashlib
import os
import re
import shlex
import stat
from pathlib import Path
from typing import Final

from wire.errors import Code, WireError
from wire.limits import FILE_MAX_BYTES

from runner.client.gateway import GatewayClient
from runner.config.loading import open_without_waiting

_PLACE: Final = "/shared/attachments"
_NAME_CHARS: Final = 80


def place_of(name: str, data: bytes) -> str:
    """Where a file of this name goes; one that is sent again is one file."""
    plain = re.sub(r"[^\w.-]+", "_", name)[-_NAME_CHARS:]
    return f"{_PLACE}/{hashlib.sha256(data).hexdigest()[:12]}-{plain}"


async def attach(client: GatewayClient, file: Path) -> str:
    """Send a file of this machine; returns its path for tools. Raises `WireError`."""
    data = await asyncio.to_thread(_content, file)
    path = place_of(file.name, data)
    await client.write_file(path, data)
    return path


def _content(file: Path) -> bytes:
    named = os.path.expanduser(file)  # noqa: PTH111 - of an unknown "~name" it makes no error
    try:
        with open(named, "rb", opener=open_without_waiting) as source:
            found = os.fstat(source.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise OSError("it is not a plain file")
            data = source.read(FILE_MAX_BYTES + 1) if found.st_size <= FILE_MAX_BYTES else b""
            if max(found.st_size, len(data)) > FILE_MAX_BYTES:
                raise OSError(f"it has more than {FILE_MAX_BYTES:,} bytes")
            return data
    except OSError as error:
        why = f"the file cannot be attached: {file}: {error.strerror or error}"
        fix = f"ls -lL {shlex.quote(named)}; name a plain file that this user can read"
        raise WireError(Code.FAILED_PRECONDITION, why, resolution=fix) from None
