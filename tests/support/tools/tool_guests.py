"""MCP servers in guests of their own, and commands that run in them."""

import asyncio
import json
from typing import Any, Final

from wire.v1 import gateway_pb2 as pb

from runner.host.host import Host

GUARD_S: Final = 60
SERVER: Final = """
import json, subprocess, sys

def answer(request):
    method = request["method"]
    if method == "initialize":
        version = request["params"]["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}},
                "serverInfo": {"name": "runs", "version": "1"}}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"command": {"type": "string"}}}
        return {"tools": [{"name": "run", "description": "runs", "inputSchema": schema}]}
    command = request["params"]["arguments"]["command"]
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    return {"content": [{"type": "text", "text": done.stdout + done.stderr}]}

for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        reply = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            reply["result"] = answer(request)
        except Exception as error:
            reply["error"] = {"code": -32603, "message": repr(error)}
        print(json.dumps(reply), flush=True)
"""
"""A server whose only tool runs any command."""


def server(**fields: Any) -> dict[str, Any]:
    return {"command": "python3", "args": ["-c", SERVER], "timeout_s": GUARD_S, **fields}


class Tools:
    """A host, and its agent's tools."""

    def __init__(self, host: Host, gateway: Any) -> None:
        self.host = host
        self.gateway = gateway

    async def call(self, name: str, **arguments: Any) -> pb.CallToolReply:
        request = pb.CallToolRequest(name=name, arguments_json=json.dumps(arguments))
        reply: pb.CallToolReply = await self.gateway.CallTool(request)
        return reply

    async def run(self, server: str, command: str) -> str:
        """What a command prints in the guest of a server, once that offers its tool."""
        async with asyncio.timeout(GUARD_S):
            while True:
                reply = await self.call(f"{server}_run", command=command)
                if not reply.is_error:
                    return str(json.loads(reply.text.split("\nNote: ")[0])["content"])
                passing = ("there is no tool", "is away", "went away during the call")
                assert any(words in reply.text for words in passing), reply.text
                await asyncio.sleep(0.05)

    async def guests(self) -> set[str]:
        return {each.role for each in (await self.host.status()).guests if each.state == "ready"}
