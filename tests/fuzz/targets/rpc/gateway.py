"""An agent's gateway over a real memory, with the built-in model and all tools but commands."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from google.protobuf.message import Message
from wire.identity import Party
from wire.v1 import gateway_pb2, gateway_pb2_grpc

from guest.memory.storage.files.inspection import inspect
from tests.fuzz.material import OneInput, Target
from tests.fuzz.targets.rpc import calls
from tests.fuzz.targets.rpc.calls import Caller, Served
from tests.support.gateway.gateways import LAUNCH_SECRET, open_gateways
from tests.support.memory.exports import event, file, note, session

_SERVICE: Final = gateway_pb2.DESCRIPTOR.services_by_name["Gateway"]
_FRESH_AFTER: Final = 300
"""So many inputs go to one memory: the more there is, the slower is an export."""
_EXACT: Final = ("ExportMemory",)
"""What shows what is stored as it is."""


class _Gateway:
    """A gateway that takes all inputs for a while, and then another."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._stack = AsyncExitStack()
        self._inputs = _FRESH_AFTER
        self._caller: Caller | None = None

    async def one_input(self, data: bytes) -> None:
        if self._inputs >= _FRESH_AFTER or self._caller is None:
            await self.close()
            self._caller = await self._open()
            self._inputs = 0
        self._inputs += 1
        await self._caller.one_input(data)

    async def close(self) -> None:
        """End the gateway; its memory is whole."""
        if self._caller is not None:
            await self._stack.aclose()
            inspect(self._scratch / "memory.db", "")
            shutil.rmtree(self._scratch)
            self._scratch.mkdir()

    async def _open(self) -> Caller:
        gateways = await self._stack.enter_async_context(
            open_gateways(
                path=self._scratch,
                enabled=("memory", "typed", "working", "files"),
                keeping={"max_notes": 200, "embed_wait_s": 0.01},
            )
        )
        notes = (note("note-1", "tea is green"), note("note-2", f"the key is {LAUNCH_SECRET}", 2))
        talk = (session("s1"), event("s1", 1, f"I said {LAUNCH_SECRET}"), event("s1", 2, "hello"))
        report = await gateways.memory.importer().feed(file(*notes, *talk))
        assert report.problems == []
        await gateways.serve("alice")
        served = Served(
            path=f"{self._scratch}/fuzzed.sock",
            party=Party.AGENT,
            service=_SERVICE,
            callers=(Party.CLI, Party.RUNNER),
            words=("note-1", "note-2", "s1", "memory_search", '{"query": "tea"}'),
            tame=_harmless,
            judge=partial(_judge, self._scratch),
            costly=("BackupMemory",),
            waiting=("Ask", "FollowNotices"),
        )
        return await calls.serve(
            served,
            gateways.services["alice"],
            gateway_pb2_grpc.add_GatewayServicer_to_server,
            self._stack,
        )


def _harmless(request: Message) -> None:
    """Without learning words that every note has as a secret, and without hundreds of backups."""
    if isinstance(request, gateway_pb2.SetMemoryTokenRequest):
        request.auth_token = f"{request.auth_token}{LAUNCH_SECRET}" if request.auth_token else ""


def _judge(home: Path, method: str, shown: bytes) -> None:
    assert method in _EXACT or LAUNCH_SECRET.encode() not in shown, f"{method} shows a secret"
    assert method in _EXACT or str(home).encode() not in shown, f"{method} shows a host's path"


@contextmanager
def _opened(scratch: Path) -> Iterator[OneInput]:
    with asyncio.Runner() as runner:
        gateway = _Gateway(scratch)
        try:
            yield lambda data: runner.run(gateway.one_input(data))
        finally:
            runner.run(gateway.close())  # see `calls.opened`


TARGET = Target("gateway", 80, _opened, partial(calls.seeds, _SERVICE), longest=1024)
