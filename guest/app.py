"""The agent guest: one process, one user, started by the runner with an envelope.

With `--bootstrap-stdin` the envelope comes from standard input. With `--exit-with-parent` the
runner keeps that open, and the guest stops when it ends, because the runner has then ended; with
`--lease` it stops when the runner has not called for so long, unless it does a maintenance job. A
guest that cannot start writes the reason as its last log line and exits with `EXIT_OPERATOR`.
SIGTERM and SIGINT stop it within seconds; running turns are stored first. If the envelope has a
maintenance job, the guest does that job and exits. With `--try-model` it makes one request to the
configured model and exits.
"""

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

from wire import envelope
from wire.envelope import Secrets
from wire.errors import Code, WireError
from wire.installation import adding
from wire.lease import Lease, add_arguments
from wire.logs import EXIT_OPERATOR, configure, log_startup_failure
from wire.providers import PROVIDERS
from wire.v1.bootstrap_pb2 import BootstrapEnvelope, MaintenanceJob

from guest.confinement import confine
from guest.errors import GuestError

if TYPE_CHECKING:
    from guest.config import GuestConfig

log = logging.getLogger(__name__)

EXIT_BUG: Final = 70
"""EX_SOFTWARE: a bug; starting again may help."""
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
    arguments = _parse(argv)
    configure("agent", "", "info")
    logging.captureWarnings(True)
    gc.disable()  # of what the imports make, nothing is garbage and all of it stays
    try:
        confine()
        received = _read_envelope(arguments.bootstrap_file)
        if arguments.try_model:
            asyncio.run(_try_model(received))
            return 0
        # imported here, so that --help and a bad envelope need not wait for it
        from guest.config import load

        config = load(received)
        if received.HasField("maintenance"):
            configure("agent", config.user_id, "info")
            work = _maintain(config, received.maintenance, with_parent=arguments.exit_with_parent)
        else:
            configure("agent", config.user_id, config.log_level)
            work = _serve(config, with_parent=arguments.exit_with_parent, lease_s=arguments.lease)
        asyncio.run(work)
    except WireError as error:
        log_startup_failure(log, error)
        return EXIT_OPERATOR
    except Exception:
        log.exception("guest failed unexpectedly")
        return EXIT_BUG
    finally:
        gc.enable()
    log.info("guest stopped")
    return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="oxydra-guest", description="The Oxydra agent guest.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--bootstrap-stdin", action="store_true", help="read the envelope from standard input"
    )
    source.add_argument("--bootstrap-file", type=Path, help="read the envelope from a file")
    add_arguments(parser)
    parser.add_argument(
        "--try-model", action="store_true", help="ask the configured model for one word, and exit"
    )
    return parser.parse_args(argv)


def _read_envelope(path: Path | None) -> BootstrapEnvelope:
    if path is None:
        # Unbuffered: not a byte beyond the envelope may be taken from the pipe.
        with open(0, "rb", buffering=0, closefd=False) as stdin:
            return envelope.read(stdin)
    try:
        with path.open("rb") as file:
            return envelope.read(file)
    except OSError as error:
        raise GuestError(
            Code.INVALID_ARGUMENT,
            f"cannot read the bootstrap envelope: {path}",
            details=str(error),
            resolution="mount the file the runner wrote, and pass its path to --bootstrap-file",
        ) from None


async def _try_model(received: BootstrapEnvelope) -> None:
    from wire.settings import from_json

    from guest.agent.models.trial import try_model

    _imported()
    await try_model(from_json(received.settings).agent, Secrets.of(received.secrets).api_key)


async def _serve(config: "GuestConfig", *, with_parent: bool, lease_s: float | None) -> None:
    """Open everything, serve until told to stop, close everything in reverse order."""
    stop = _told_to_stop(with_parent=with_parent)
    lease = Lease(lease_s, stop.set)
    async with AsyncExitStack() as stack:
        opening = asyncio.ensure_future(_open(config, stack, lease))
        stopping = asyncio.ensure_future(stop.wait())
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


async def _maintain(config: "GuestConfig", job: MaintenanceJob, *, with_parent: bool) -> None:
    """Do one job on the memory. If stopped, exit at once: a job may be killed at any moment."""
    from guest import maintenance

    _imported()
    stop = _told_to_stop(with_parent=with_parent)
    doing = asyncio.ensure_future(maintenance.do(config, job))
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not doing.done():
        log.warning("stopped before the work on the memory was done")
        os._exit(EXIT_STOPPED)
    stopping.cancel()
    await doing


def _told_to_stop(*, with_parent: bool) -> asyncio.Event:
    """Set by SIGTERM and SIGINT, and `with_parent` by the end of standard input."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if with_parent:
        _stop_at_end_of_stdin(loop, stop)
    return stop


def _stop_at_end_of_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    def readable() -> None:
        try:
            more = os.read(0, 65536)
        except OSError:
            more = b""
        if not more:
            log.info("the runner is gone")
            loop.remove_reader(0)
            stop.set()

    try:
        loop.add_reader(0, readable)
    except OSError as error:
        raise GuestError(
            Code.INVALID_ARGUMENT,
            "--exit-with-parent needs a pipe or socket as standard input",
            details=str(error),
        ) from None


async def _open(config: "GuestConfig", stack: AsyncExitStack, lease: Lease) -> None:
    """Open the guest's parts. `stack` closes all that were opened if a later step fails."""
    for name in _UNUSED:
        sys.modules.setdefault(name, cast(ModuleType, None))  # importing it raises ImportError
    from wire.identity import Party
    from wire.transport import Server
    from wire.v1 import gateway_pb2_grpc

    from guest import composition
    from guest.agent.models.models import Models
    from guest.agent.models.providers import build_model
    from guest.door import NO_KEY
    from guest.embedding.client import RemoteEmbedder
    from guest.memory.memory import Memory
    from guest.rooms import Room
    from guest.tools.files.roots import Roots
    from guest.tools.shell.client import ShellClient

    _imported()
    agent = config.settings.agent
    rooms: dict[Party, Room] = {}
    if config.door is not None:
        rooms[Party.EGRESS] = config.door
        _close_later(stack, "door", config.door.close)
    no_shell = config.shell.unavailable_reason
    build = partial(build_model, no_shell_reason=no_shell, door=config.door)
    keys = {name: "" if why else NO_KEY for name, why in config.upstreams.items()}
    models = Models(agent, keys, build=build)
    if not models.certain:
        models.choose()  # a model that cannot be built is refused before anything is opened
    embedder = None
    if config.embedder.peer is not None:
        rooms[Party.EMBEDDER] = embedder = RemoteEmbedder(config.embedder.peer)
        _close_later(stack, "embedder", embedder.close)
    memory = await Memory.open(config.memory, embedder, config.user_id)
    _close_later(stack, "memory", memory.close)
    if config.settings.memory.retention_days:
        retention = memory.retention()
        _close_later(stack, "retention", retention.stop)
        retention.start()
    roots = Roots(config.paths.virtual, config.paths.private)
    stack.callback(roots.close)
    shell = None
    if config.shell.peer is not None:
        rooms[Party.SHELL] = shell = ShellClient(config.shell.peer)
        _close_later(stack, "shell", shell.close)
    servers = None
    mcp = config.settings.mcp
    if any(each.url or shell is not None for each in mcp.servers.values()):
        try:
            from guest.tools.mcp.servers import McpServers  # takes 0.2 s and 25 MB
        except ImportError as error:
            raise GuestError(
                Code.FAILED_PRECONDITION,
                "the packages for [mcp.servers] are not installed",
                details=str(error),
                resolution=adding("mcp"),
            ) from error
        servers = McpServers(mcp, shell, config.paths.internal, config.secrets.servers, config.door)
        _close_later(stack, "MCP servers", servers.close)
    service = composition.gateway(
        config, models=models, memory=memory, roots=roots, shell=shell, servers=servers, rooms=rooms
    )
    served = {Party.RUNNER, Party.CLI}
    server = Server(config.endpoint, config.token, config.identity, served, on_call=lease.renew)
    gateway_pb2_grpc.add_GatewayServicer_to_server(service, server.grpc)
    _close_later(stack, "server", server.stop)
    await server.start()
    _close_later(stack, "turns", service.close)
    await server.set_serving(True)
    lease.begin()
    stack.callback(lease.end)
    if servers is not None:
        servers.start()
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
