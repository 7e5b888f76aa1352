"""The client of a memory server is loaded only where there is one."""

import subprocess
import sys

import pytest
from wire.installation import adding

from guest.errors import StorageError
from guest.memory.factory import open_remote
from guest.memory.models import RemoteConfig


def test_a_local_memory_does_not_load_it() -> None:
    code = "import sys, guest.memory.memory; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_without_it_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "guest.memory.storage.remote", None)
    with pytest.raises(StorageError, match="is not installed") as raised:
        await open_remote(RemoteConfig("http://memory.example"))
    assert raised.value.resolution == adding("remote")
