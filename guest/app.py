"""The agent guest: one process, one user, started by the runner with an envelope.

See `wire.program` for how it begins and ends. When it is stopped, it ends within seconds, and
running turns are stored first. If the envelope has a maintenance job, the guest does that job and
exits; a lease does not count meanwhile. With `--try-model` it makes one request to the configured
model and exits.
"""

import asyncio
import gc
import logging
import os
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

from wire import envelope, program
from wire.envelope import Secrets
from wire.errors import Code
from wire.installation import adding
from wire.kernel import seccomp
from wire.logs import configure
from wire.program import Life
from wire.providers import PROVIDERS, TRIALS
from wire.v1.bootstrap_pb2 import BootstrapEnvelope, MaintenanceJob

from guest.errors import GuestError

if TYPE_CHECKING:
    from guest.config import GuestConfig

log = logging.getLogger(__name__)

EXIT_STOPPED: Final = 75
"""EX_TEMPFAIL: maintenance was stopped; it can be repeated."""

_STEP_TIMEOUT_S: Final = 0.9
"""The limit for closing one part: five parts close in turn, within five seconds in total."""
_UNUSED: Final = (
    "httpx._main",
    *(f"{provider.library}._vendor.httpx_aiohttp" for provider in PROVIDERS.values()),
)
"""What libraries of models import where they find it, and nothing here uses: another HTTP client
and a command line. They take 8 MB and a tenth of a second."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the guest until it is stopped; returns the exit code."""
    gc.disable()  # of what the imports make, nothing is garbage and all of it stays
    try:
        return program.run("agent", partial(_run, argv))
    finally:
        gc.enable()


def _run(argv: Sequence[str] | None) -> int:
    parser = program.Parser("oxydra-guest", "The Oxydra agent guest.")
    parser.add_argument(
        "--try-model",
        choices=TRIALS,
        help="ask the configured model to call a tool, and exit once it answers or has called it",
    )
    arguments = parser.parse_args(argv)
    confine()
    received = program.received(envelope.read)
    if arguments.try_model:
        asyncio.run(_try_model(received, until=arguments.try_model))
        return 0
    # imported here, so that --help and a bad envelope need not wait for it
    from guest.config import load

    config = load(received)
    if received.HasField("maintenance"):
        configure("agent", config.user_id, "info")
        work = _maintain(config, received.maintenance, arguments)
    else:
        configure("agent", config.user_id, config.log_level)
        work = _serve(config, arguments)
    asyncio.run(work)
    log.info("guest stopped")
    return 0


def confine() -> None:
    """Refuse this process and all its later threads, for good, sockets to the machine's hypervisor.

    No network namespace holds them, and not every container engine's filter of system calls knows
    them. Nothing here needs one. What could make a socket where no filter sees it is refused too.
    Nothing happens on a machine that is not known: the boundary self-test finds what is open there.
    Raises `GuestError` if the kernel refuses.
    """
    machine = os.uname().machine
    if machine not in seccomp.ABIS:
        return
    rules = {
        seccomp.IO_URING_SETUP: seccomp.ABSENT,
        seccomp.SOCKET[machine]: seccomp.unless(seccomp.FIRST, seccomp.VSOCK),
    }
    try:
        seccomp.confine(seccomp.program({machine: rules}))
    except OSError as error:
        raise GuestError(
            Code.FAILED_PRECONDITION,
            "the kernel takes no filter of system calls (seccomp)",
            details=str(error),
            resolution="use a kernel with CONFIG_SECCOMP_FILTER",
        ) from None


async def _try_model(received: BootstrapEnvelope, *, until: str) -> None:
    from wire.settings import from_json

    from guest.agent.models.providers import try_model

    _imported()
    key = Secrets.of(received.secrets).api_key
    await try_model(from_json(received.settings).agent, key, until=until)


async def _serve(config: "GuestConfig", arguments: Namespace) -> None:
    """Open everything, serve until told to stop, close everything in reverse order."""
    life = Life(arguments)
    async with AsyncExitStack() as stack:
        opening = asyncio.ensure_future(_open(config, stack, life.lease))
        stopping = asyncio.ensure_future(life.ended.wait())
        await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not opening.done():
            opening.cancel()
        try:
            await opening
        except asyncio.CancelledError:
            log.info("stopped while starting")
            return
        await stopping
        log.info("guest stopping")


async def _maintain(config: "GuestConfig", job: MaintenanceJob, arguments: Namespace) -> None:
    """Do one job on the memory. If stopped, exit at once: a job may be killed at any moment."""
    from guest import maintenance

    _imported()
    life = Life(arguments)
    doing = asyncio.ensure_future(maintenance.do(config, job))
    stopping = asyncio.ensure_future(life.ended.wait())
    await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not doing.done():
        log.warning("stopped before the work on the memory was done")
        os._exit(EXIT_STOPPED)
    stopping.cancel()
    await doing


async def _open(config: "GuestConfig", stack: AsyncExitStack, lease: program.Lease) -> None:
    """Open the guest's parts. `stack` closes all that were opened if a later step fails."""
    for name in _UNUSED:
        sys.modules.setdefault(name, cast(ModuleType, None))  # importing it raises ImportError
    from wire.identity import Party
    from wire.transport import Server
    from wire.v1 import gateway_pb2_grpc

    from guest import composition
    from guest.agent.models.models import Models
    from guest.agent.models.providers import build_model
    from guest.egress_client import NO_KEY
    from guest.embedding.client import RemoteEmbedder
    from guest.memory.memory import Memory
    from guest.peers import PeerClient
    from guest.tools.files.roots import Roots
    from guest.tools.shell.client import ShellClient

    _imported()
    agent = config.settings.agent
    peers: dict[Party, PeerClient] = {}
    if config.egress is not None:
        peers[Party.EGRESS] = config.egress
        _close_later(stack, "egress", config.egress.close)
    no_shell = config.shell.unavailable_reason
    build = partial(build_model, no_shell_reason=no_shell, egress=config.egress, in_vm=config.in_vm)
    keys = {name: "" if why else NO_KEY for name, why in config.upstreams.items()}
    models = Models(agent, keys, build=build)
    if not models.certain:
        models.choose()  # a model that cannot be built is refused before anything is opened
    embedder = None
    if config.embedder.peer is not None:
        peers[Party.EMBEDDER] = embedder = RemoteEmbedder(config.embedder.peer)
        _close_later(stack, "embedder", embedder.close)
    memory = await Memory.open(config.memory, embedder, config.user_id)
    _close_later(stack, "memory", memory.close)
    if config.settings.memory.retention_days:
        retention = memory.retention()
        _close_later(stack, "retention", retention.stop)
        retention.start()
    paths = config.paths
    roots = Roots(paths.virtual, paths.private, projects=paths.projects, skills=config.skills)
    stack.callback(roots.close)
    shell = None
    if config.shell.peer is not None:
        peers[Party.SHELL] = shell = ShellClient(config.shell.peer)
        _close_later(stack, "shell", shell.close)
    servers = None
    mcp = config.settings.mcp
    if mcp.guests or any(each.url or shell is not None for each in mcp.servers.values()):
        try:
            from guest.tools.mcp.server import McpServers  # takes 0.2 s and 25 MB
        except ImportError as error:
            raise GuestError(
                Code.FAILED_PRECONDITION,
                "the packages for [mcp.servers] are not installed",
                details=str(error),
                resolution=adding("mcp"),
            ) from error
        servers = McpServers(
            *(mcp, shell, config.paths.internal, config.secrets.servers),
            *(config.egress, config.witnessed),
        )
        _close_later(stack, "MCP servers", servers.close)
    service = composition.gateway(
        config, models=models, memory=memory, roots=roots, shell=shell, servers=servers, peers=peers
    )
    served = {Party.RUNNER, Party.CLI}

    def called(party: Party) -> None:
        lease.renew(party)
        service.called_by(party)

    server = Server(config.endpoint, config.token, config.identity, served, on_call=called)
    gateway_pb2_grpc.add_GatewayServicer_to_server(service, server.grpc)
    _close_later(stack, "server", server.stop)
    await server.start()
    _close_later(stack, "turns", service.close)
    await server.set_serving(True)
    service.reminders.start()
    lease.begin()
    stack.callback(lease.end)
    if servers is not None:
        servers.start()
    service.scheduler.start()
    log.info("guest ready")


def _imported() -> None:
    """Let the garbage collector run again, but never look at what is there by now."""
    gc.freeze()
    gc.enable()


def _close_later(stack: AsyncExitStack, name: str, close: Callable[[], Awaitable[None]]) -> None:
    """Close a part when `stack` unwinds, within `_STEP_TIMEOUT_S`, even if others fail to close."""

    async def closing() -> None:
        try:
            await asyncio.wait_for(close(), _STEP_TIMEOUT_S)
        except Exception:
            log.exception("closing failed: %s", name)

    stack.push_async_callback(closing)


if __name__ == "__main__":
    sys.exit(main())
