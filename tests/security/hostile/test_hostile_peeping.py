"""An MCP server, started as the agent starts one, looks for what the agent knows."""

import json
import shutil
from contextlib import aclosing
from typing import Any

import pytest
from wire.v1 import shell_pb2

from tests.support.boundary.two_hosts import TwoHosts, denied
from tests.support.servers.mcp_servers import SCRIPT

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.stopped_in("process")]

_ID = "program-peeping"


async def said(place: TwoHosts, *, exec_id: str) -> dict[str, Any]:
    """The first line that it writes."""
    text = b""
    request = shell_pb2.ExecOutputRequest(exec_id=exec_id)
    async with aclosing(place.alice.shell.api.stream("Output", request)) as output:
        async for event in output:
            assert not event.HasField("exit"), event
            text += event.stdout.data
            if b"\n" in text:
                break
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.attempt(
    "an MCP server that looks for memory, vault, keys, sockets and other processes",
    stopped_by="it runs in the shell guest, with the rights of a command",
)
async def test_an_mcp_server_sees_what_a_command_sees(place: TwoHosts) -> None:
    shell = place.alice.shell
    shutil.copy(SCRIPT, place.alice.workspace / "shared" / "peeping.py")
    argv = ["python3", "/shared/peeping.py", "peeping"]
    await shell.start(_ID, "", argv=argv, open_stdin=True)
    try:
        asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo"}}
        await shell.input(_ID, 0, json.dumps(asked).encode() + b"\n")
        answer = await said(place, exec_id=_ID)
    finally:
        await shell.cancel(_ID)
        await shell.release(_ID)
    text = denied(place, answer["result"]["content"][0]["text"])
    looked = text.splitlines()
    assert "/.oxydra: FileNotFoundError" in looked[0]
    assert "/vault: FileNotFoundError" in looked[0]
    assert "peeping.py" in looked[1]
    assert "oxydra-guest" not in looked[1]
    opened = {each.partition(": ")[0] for each in looked[2].split("; ") if each.endswith(": open")}
    assert opened <= {"/ipc/shell.sock"}, "only the daemon's own, which asks for a certificate"
