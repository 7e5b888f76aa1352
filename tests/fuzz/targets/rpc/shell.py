"""A shell daemon's server, in this process and confined by nothing: so it runs only a few programs
that do nothing."""

import json
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Final

from google.protobuf.message import Message
from wire.identity import Party
from wire.v1 import shell_pb2, shell_pb2_grpc

from shell_daemon.limits import Settings
from shell_daemon.shell import Shell
from tests.fuzz.material import Target
from tests.fuzz.targets.rpc import calls
from tests.fuzz.targets.rpc.calls import Caller, Served
from tests.support import parties

_SERVICE: Final = shell_pb2.DESCRIPTOR.services_by_name["Shell"]
_COMMANDS: Final = ("true", "echo hello", "exit 3", "cat", "sleep 0.01", "echo err >&2", "kill $$")
_PROGRAMS: Final = ("true", "echo", "no-such-program", "", "/bin/true", "/no/such\x1bprogram")
_WORDS: Final = (
    "e1",
    "e2",
    "/shared",
    "/shared/link",
    "/tmp",
    "/shared/..",
    "/sharedx",
    *_COMMANDS,
)


def _harmless(request: Message) -> None:
    """What is executed is one of ours; all else stays as it is, also what is too long or no text
    for a command."""
    if not isinstance(request, shell_pb2.StartExecRequest):
        return
    if request.command.strip():
        harmless = "\0" in request.command or len(request.command) > 32_000
        if not harmless and request.command not in _COMMANDS:
            request.command = _COMMANDS[len(request.command) % len(_COMMANDS)]
    if request.argv:
        request.argv[0] = _PROGRAMS[len(request.argv[0]) % len(_PROGRAMS)]
    if request.probe:
        request.probe = not _is_json(request.stdin)


def _is_json(text: bytes) -> bool:
    """Whether it might be a specification, after which the probe looks around on this machine."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


async def _serve(scratch: Path, stack: AsyncExitStack) -> Caller:
    shared, tmp = scratch / "shared", scratch / "tmp"
    for directory in (shared, tmp):
        directory.mkdir()
    (shared / "link").symlink_to("/etc")
    served = Served(
        path=f"{scratch}/shell.sock",
        party=Party.SHELL,
        service=_SERVICE,
        callers=(Party.AGENT, Party.RUNNER),
        words=_WORDS,
        tame=_harmless,
        judge=partial(_judge, scratch),
    )
    settings = Settings(
        shared=shared, tmp=tmp, run=scratch, grace=0.1, ended_max=16, timeout_default=20
    )
    shell = Shell(settings, parties.identity(Party.SHELL), admit=lambda _: None, on_lost=_lost)
    shell.open()
    stack.push_async_callback(shell.close)
    return await calls.serve(served, shell, shell_pb2_grpc.add_ShellServicer_to_server, stack)


def _lost() -> None:
    raise AssertionError("the shell is lost")


def _judge(home: Path, method: str, shown: bytes) -> None:
    assert method == "Output" or str(home).encode() not in shown, f"{method} shows a host's path"


TARGET = Target(
    "shell", 50, partial(calls.opened, _serve), partial(calls.seeds, _SERVICE), longest=1024
)
