"""A chat against the gateway given on the command line: `ENDPOINT TOKEN PEM [SESSION]`."""

import asyncio
import os
import sys

from wire.identity import Identity, Party, Peer
from wire.v1 import control_pb2

from runner.cli.chat.chat import talk
from runner.cli.chat.hosting import standard_streams
from runner.client.gateway import GatewayClient


async def host_status() -> control_pb2.StatusReply:
    return control_pb2.StatusReply(workspace="/w/alice")


async def main() -> int:
    endpoint, token, pem, *session = sys.argv[1:]
    agent = Peer(endpoint, Party.AGENT, token, Identity.from_pem(pem))

    async def connect() -> GatewayClient:
        return await GatewayClient.open(agent, channel_name="cli")

    return await talk(
        connect,
        host_status,
        standard_streams(),
        session=session[0] if session else None,
    )


if __name__ == "__main__":
    os.environ["GRPC_VERBOSITY"] = "NONE"
    sys.exit(asyncio.run(main()))
