"""The egress guest: its command line, and its servers from the start to the end."""

import argparse
import asyncio
import ctypes
import gc
import logging
import os
import resource
import ssl
import sys
from asyncio import constants, selector_events, sslproto
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from wire import envelope, logs, program
from wire.errors import Code, WireError
from wire.identity import Identity, Party
from wire.tls import client_context
from wire.transport import Server, listening
from wire.v1 import egress_pb2, egress_pb2_grpc
from wire.v1.bootstrap_pb2 import ServiceEnvelope

from egress.admission.admission import Admission
from egress.admission.allowance import Allowance
from egress.configuration import Configuration, State
from egress.proxy.listener import CONNECTION_BYTES, CONNECTIONS_MAX, EgressListener
from egress.watch import Watch

_Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(repr=False, eq=False)
class Control(egress_pb2_grpc.EgressServicer):
    """The service. Its only caller is the runner."""

    state: State
    admission: Admission
    allowance: Allowance
    watch: Watch
    runner: ssl.SSLContext | None = None

    async def Configure(  # noqa: N802
        self, request: egress_pb2.EgressConfiguration, _: _Context
    ) -> egress_pb2.EgressConfigured:
        try:
            state = self.state
            configuration = Configuration.of(request, state.interception, state.served, self.runner)
        except ValueError as error:
            self.state.shut(f"what may leave could not be read, so nothing does: {error}")
            self.admission.review()
            raise WireError(
                Code.INVALID_ARGUMENT,
                "egress cannot read what may leave, so nothing does",
                details=str(error),
                resolution="correct [egress] in runner.toml, then: runner egress reload",
            ) from None
        self.allowance.configure(request.limits, request.spent)
        self.state.open(configuration)
        self.admission.review()
        log.info("configured", extra={"event": "configured"})
        return egress_pb2.EgressConfigured(authority_pem=configuration.interception.authority_pem)

    async def Watch(  # noqa: N802
        self, request_iterator: AsyncIterator[egress_pb2.EgressReply], _: _Context
    ) -> AsyncIterator[egress_pb2.EgressEvent]:
        async for event in self.watch.stream(request_iterator):
            yield event

    async def Counters(  # noqa: N802
        self, _: egress_pb2.EgressCountersRequest, __: _Context
    ) -> egress_pb2.EgressCountersReply:
        return self.admission.counters()


log = logging.getLogger(__name__)

_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_OWN_MAPPING: Final = 128 * 1024
_AT_REST: Final = 64 * 1024 * 1024
MEMORY_LIMITS: Final = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
_TLS_BUFFER: Final = 32 * 1024
"""asyncio's TLS holds such a buffer for each connection while it lives, and so much in each
direction that waits; otherwise four and eight times as much."""


def _parser() -> program.Parser:
    parser = program.Parser("oxydra-egress", "Lets out what may leave, and nothing else.")
    parser.add_listener("--socket", "where the runner is served")
    parser.add_listener("--agent-listener", "where the agent is", required=False)
    parser.add_listener("--shell-listener", "where the shell is", required=False)
    parser.add_log_level()
    return parser


async def _serve(arguments: argparse.Namespace, received: ServiceEnvelope) -> None:
    """Serve until told to stop."""
    life = program.Life(arguments)
    identity = Identity.of(received.identity)
    endpoints = _listeners(arguments)
    check_memory(len(endpoints))
    watch, state, allowance = Watch(), State(tuple(endpoints)), Allowance()
    admission = Admission(state, watch, allowance)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(state.close)
        server = Server(
            arguments.socket,
            received.token,
            identity,
            {Party.RUNNER},
            on_call=life.lease.renew,
        )
        egress_pb2_grpc.add_EgressServicer_to_server(
            Control(state, admission, allowance, watch, client_context(identity)), server.grpc
        )
        for role, endpoint in endpoints.items():
            listener = EgressListener(listening(endpoint, identity), identity, role, admission)
            _open(listener, endpoint)
            stack.push_async_callback(listener.close)
        await server.start()
        stack.push_async_callback(server.stop)
        await server.set_serving(True)
        life.lease.begin()
        stack.callback(life.lease.end)
        gc.freeze()
        ctypes.CDLL(None).malloc_trim(0)
        log.info("egress ready", extra={"event": "ready"})
        await life.ended.wait()
        log.info("egress stops")


def _listeners(arguments: argparse.Namespace) -> dict[Party, str]:
    """Whom this guest serves, and where."""
    endpoints = {Party.AGENT: arguments.agent_listener, Party.SHELL: arguments.shell_listener}
    return {party: endpoint for party, endpoint in endpoints.items() if endpoint}


def check_memory(listeners: int) -> None:
    """Raises `WireError` where their connections could take more than this guest may have."""
    needed = _AT_REST + listeners * CONNECTIONS_MAX * CONNECTION_BYTES
    for place in MEMORY_LIMITS:
        with suppress(OSError, ValueError):
            if (limit := int(Path(place).read_text())) < needed:
                raise WireError(
                    Code.FAILED_PRECONDITION,
                    "egress has too little memory for its connections",
                    details=f"{limit >> 20} MiB by {place}; {needed >> 20} MiB for "
                    f"{CONNECTIONS_MAX} connections at each of {listeners} listeners",
                    resolution="raise the memory limit of the group that the runner is in",
                )


def _open(listener: EgressListener, endpoint: str) -> None:
    try:
        listener.open()
    except OSError as error:
        raise WireError(
            Code.FAILED_PRECONDITION,
            f"cannot listen on {endpoint.removeprefix('unix:')}",
            details=error.strerror or str(error),
            resolution="check that nobody else has it, and that a directory belongs to you and has "
            "free space",
        ) from None


def _become() -> None:
    """Take few pages and as many descriptors as there may be."""
    libc = ctypes.CDLL(None)
    sslproto.SSLProtocol.max_size = _TLS_BUFFER
    selector_events._SelectorTransport.max_size = _TLS_BUFFER  # type: ignore[attr-defined]
    for limit in ("FLOW_CONTROL_HIGH_WATER_SSL_READ", "FLOW_CONTROL_HIGH_WATER_SSL_WRITE"):
        setattr(constants, limit, _TLS_BUFFER // 1024)
    libc.mallopt(_M_ARENA_MAX, 1)
    libc.mallopt(_M_MMAP_THRESHOLD, _OWN_MAPPING)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> int:
    """Serve until told to stop; returns the exit code."""
    return program.run("egress", _run)


def _run() -> int:
    arguments = (parser := _parser()).parse_args()
    if not (endpoints := _listeners(arguments)):
        parser.error("one of --agent-listener and --shell-listener is required")
    name = "egress" if Party.AGENT in endpoints else "shell-egress"
    logs.configure(name, "", arguments.log_level)
    os.umask(0o077)
    _become()
    asyncio.run(_serve(arguments, program.received(envelope.read_service)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
