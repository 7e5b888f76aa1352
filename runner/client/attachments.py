"""Files that go with a message: they are put where the user's tools read them."""

import asyncio
import hashlib
import re
from pathlib import Path
from typing import Final

from wire.errors import Code, WireError

from runner.client.gateway import GatewayClient

_PLACE: Final = "/shared/attachments"
_NAME_CHARS: Final = 80


def place_of(name: str, data: bytes) -> str:
    """Where a file of this name goes; one that is sent again is one file."""
    plain = re.sub(r"[^\w.-]+", "_", name)[-_NAME_CHARS:]
    return f"{_PLACE}/{hashlib.sha256(data).hexdigest()[:12]}-{plain}"


async def attach(client: GatewayClient, file: Path) -> str:
    """Send a file of this machine; returns its path for tools. Raises `WireError`."""
    try:
        data = await asyncio.to_thread(lambda: file.expanduser().read_bytes())
    except OSError as error:
        raise WireError(
            Code.NOT_FOUND, f"the file cannot be attached: {file}: {error.strerror}"
        ) from None
    path = place_of(file.name, data)
    await client.write_file(path, data)
    return path
