"""A guest that does as little as a guest can: reads its envelope, serves health, tries its ways
out, ends.

`python standin_guest.py BEHAVIOUR`, one of: serve, obstinate (ignores SIGTERM),
never_ready, family (leaves a child behind), fail (an operator's error), exit_7,
report (writes its environment and arguments to its log).
"""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from wire import envelope, logs
from wire.errors import Code, WireError
from wire.identity import Identity, Party
from wire.network_probe import Spec, try_all
from wire.transport import Server
from wire.v1 import gateway_pb2, gateway_pb2_grpc


class Gateway(gateway_pb2_grpc.GatewayServicer):
    """All that a runner asks of an agent at its start."""

    async def ProbeNetwork(self, request: Any, context: Any) -> gateway_pb2.ProbeNetworkReply:
        ways = await asyncio.to_thread(try_all, Spec.from_json(request.spec))
        return gateway_pb2.ProbeNetworkReply(
            ways=[gateway_pb2.ProbedRoute(name=w.name, shut=w.shut, found=w.found) for w in ways]
        )


def command(behaviour: str) -> tuple[str, ...]:
    return (sys.executable, "-P", __file__, behaviour)


async def serve(behaviour: str) -> None:
    settings = envelope.read(sys.stdin.buffer)
    logs.configure("agent", settings.user_id, "info")
    log = logging.getLogger("standin")
    if behaviour == "fail":
        error = WireError(Code.DATA_LOSS, "the database is corrupt", details="w", resolution="f")
        logs.log_startup_failure(log, error)
        raise SystemExit(logs.EXIT_OPERATOR)
    if behaviour == "exit_7":
        log.error("about to exit")
        raise SystemExit(7)
    if behaviour == "family":
        child = subprocess.Popen(["sleep", "1000"])
        log.info("child %d", child.pid)
    if behaviour == "report":
        log.info(json.dumps({"environ": dict(os.environ), "argv": sys.argv, "cwd": os.getcwd()}))
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(
        signal.SIGTERM, (lambda: None) if behaviour == "obstinate" else ended.set
    )

    def until_the_runner_is_gone() -> None:
        os.read(0, 1)  # the buffer's lock would stop the interpreter from ending
        loop.call_soon_threadsafe(ended.set)

    if behaviour != "obstinate" and settings.gateway.startswith("unix:"):
        threading.Thread(target=until_the_runner_is_gone, daemon=True).start()
    identity = Identity.of(settings.identity)
    server = Server(settings.gateway, settings.token, identity, {Party.RUNNER, Party.CLI})
    gateway_pb2_grpc.add_GatewayServicer_to_server(Gateway(), server.grpc)  # type: ignore[abstract]
    await server.start()
    await server.set_serving(behaviour != "never_ready")
    log.info("serving")
    await ended.wait()
    await server.stop(0)
    loop.remove_signal_handler(signal.SIGTERM)  # as the loop's end would, but to the default:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # whoever is slow to end is asked again


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
