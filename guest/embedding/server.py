"""The embedder's process: one per host and model, shared by every user's guest. Where runners are
on other machines there may be several."""

import argparse
import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Final, NoReturn

from wire import envelope, locks, logs, program
from wire.errors import Code, WireError
from wire.identity import Identity, Party
from wire.transport import Server
from wire.v1 import embedder_pb2_grpc
from wire.v1.bootstrap_pb2 import ServiceEnvelope

from guest.embedding.loading import BACKENDS, load, load_reranker, release_memory
from guest.embedding.service import EmbedderService

log = logging.getLogger("guest.embedding.server")

LOCK_WAIT_S: Final = 3.0
"""Time for a previous embedder to end."""
LEASE_INTERVAL_S: Final = 2.0


@contextmanager
def sole_instance(lock: Path, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
    """Hold `lock`, with this process's id as its content, during the block.

    The system releases it however the process ends.

    Raises:
        WireError: ALREADY_EXISTS if another embedder holds it for `wait_s` seconds;
            FAILED_PRECONDITION if its directory cannot be used.
    """
    with ExitStack() as held:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            held.callback(os.close, descriptor)
            if not locks.take(descriptor, wait_s=wait_s):
                raise WireError(
                    Code.ALREADY_EXISTS,
                    "another embedder is running here",
                    details=f"it holds {lock}",
                    resolution=f"use that one, or end it first: fuser --kill {lock}",
                )
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            raise WireError(
                Code.FAILED_PRECONDITION,
                f"the embedder's directory cannot be used: {lock.parent}",
                details=str(error),
                resolution="check that it exists, belongs to you and has free space",
            ) from None
        yield
        os.ftruncate(descriptor, 0)


async def until_orphaned(leases: Path, interval: float = LEASE_INTERVAL_S) -> None:
    """Return when no runner has held a lease in two checks, `interval` seconds apart.

    Every runner holds a shared lock on `leases` while it lives, and the system releases it however
    the runner ends. On return this process holds the file's exclusive lock until it ends: a runner
    that starts now waits for that. A missing file means that there is no lease.
    """
    free_before = False
    while True:
        await asyncio.sleep(interval)
        try:
            descriptor = os.open(leases, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            free = True
        else:
            free = locks.take(descriptor)
            if not (free and free_before):
                os.close(descriptor)
        if free and free_before:
            log.info("no runner holds a lease")
            return
        free_before = free


def main() -> NoReturn:
    """Run until no runner needs it."""
    code = program.run("embedder", _run, concealed=False)
    # A thread may still be importing torch or computing: nobody waits for it.
    logging.shutdown()
    os._exit(code)


def _run() -> int:
    os.umask(0o077)
    arguments = _parser().parse_args()
    logs.configure("embedder", "", arguments.log_level)
    leases = arguments.leases  # where there are none, there may be other embedders
    with nullcontext() if leases is None else sole_instance(leases.with_name("embedder.lock")):
        asyncio.run(_serve(arguments, program.received(envelope.read_service)))
    return 0


def _parser() -> program.Parser:
    parser = program.Parser("oxydra-embedder", "Makes vectors of texts for every user's agent.")
    parser.add_listener("--socket", "where to serve")
    parser.add_argument("--backend", choices=BACKENDS, required=True)
    parser.add_argument("--model", default="", help="a model id or a directory")
    parser.add_argument("--reranker", default="", help="a cross-encoder's id or directory")
    parser.until.add_argument(
        "--leases", type=Path, help="file that runners lock; ours lies beside it"
    )
    parser.add_argument(
        "--for-all-uids",
        action="store_true",
        help="callers may run as other uids than this process",
    )
    parser.add_log_level()
    return parser


async def _serve(arguments: argparse.Namespace, received: ServiceEnvelope) -> None:
    reranker = arguments.reranker
    service = EmbedderService(
        lambda: load(arguments.backend, arguments.model),
        (lambda: load_reranker(reranker)) if reranker else None,
        on_idle=release_memory,
    )
    life = program.Life(arguments)
    server = Server(
        arguments.socket,
        received.token,
        Identity.of(received.identity),
        {Party.RUNNER, Party.AGENT},
        for_all_uids=arguments.for_all_uids,
        on_call=life.lease.renew,
    )
    embedder_pb2_grpc.add_EmbedderServicer_to_server(service, server.grpc)
    await server.start()
    await server.set_serving(True)
    life.lease.begin()
    log.info("serving %s, model %s", arguments.backend, arguments.model)
    working = [asyncio.create_task(service.prepare())]
    if arguments.leases is not None:
        orphaned = asyncio.create_task(until_orphaned(arguments.leases))
        orphaned.add_done_callback(lambda _: life.ended.set())
        working.append(orphaned)
    await life.ended.wait()
    life.lease.end()
    log.info("embedder stops")
    for task in working:
        task.cancel()
    await server.stop(grace=0.3)


if __name__ == "__main__":
    main()
