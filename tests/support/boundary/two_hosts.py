"""Two users' real hosts side by side, and a hostile program in the shell of the first.

Everything that must not be found bears a mark of its own. An attempt is a
command that says WON when it got what it must not get; the judge also looks for
the marks, plainly and as encoders would write them.
"""

import asyncio
import base64
import ctypes
import json
import os
import re
import secrets
import socket
import subprocess
import tempfile
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import grpc
from wire.boundary import KERNEL_OF_GVISOR
from wire.errors import WireError
from wire.identity import Party, Peer
from wire.settings import (
    AgentSettings,
    ContainerSettings,
    EmbedderSettings,
    EncryptionSettings,
    McpSettings,
    MemorySettings,
    ShellSettings,
)
from wire.status import from_rpc_error
from wire.transport import open_channel
from wire.v1 import gateway_pb2, gateway_pb2_grpc

from runner.config.models import Config
from runner.host import host as host_module
from runner.host.host import Host
from runner.host.launch import Launchers, ShellLauncher
from runner.host.runtime import Runtime
from runner.host.supervisor import Policy
from runner.tiers.base import Port
from runner.tiers.kubernetes import recovery
from runner.tiers.kubernetes.settings import TIER, KubernetesSettings
from runner.workspace.mounts import Role
from tests.support import parties
from tests.support.boundary.guarded_host import shell_image
from tests.support.guests.shell_backends import Guest, OverGrpc, Ran
from tests.support.scratch import SCRATCH

WON = "WON:"
TRIED = "TRIED:"
MEMORY_MB = 512
PROCESSES = 128
_KEY_NAME = "HOSTILE_KEY"
_MEMORY_KEY_NAME = "HOSTILE_MEMORY_KEY"
SERVER_KEY_NAME = "HOSTILE_SERVER_KEY"
_CAP_SYS_RESOURCE = 1 << 24
_POLICY = Policy(check_interval=0.5)

_BASH = 'won() { echo "W""ON: $*"; }\n'
_PYTHON = """
import ctypes, errno, os, socket, stat, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def won(*what):
    print("W" + "ON:", *what, flush=True)
def call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    return result if result >= 0 else -ctypes.get_errno()
def syscall(number, *arguments):
    libc.syscall.restype = ctypes.c_long
    result = libc.syscall(ctypes.c_long(number), *arguments)
    return result if result >= 0 else -ctypes.get_errno()
def low(content, held=[]):
    # a place for `content` that 32-bit programs can name, as code too
    import mmap
    held.append(mmap.mmap(-1, 4096, flags=0x62, prot=7))
    held[-1].write(content)
    return ctypes.addressof(ctypes.c_char.from_buffer(held[-1]))
def int80(number, *arguments):
    # in a child, because a kernel without calls of 32-bit programs ends who makes one
    code = low(bytes.fromhex("5389f889f34189c989d14489ca4489c6cd805bc3"))
    old = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int] * 5)(code)
    there, back = os.pipe()
    if os.fork() == 0:
        os.write(back, struct.pack("i", old(number, *arguments, *[0] * (4 - len(arguments)))))
        os._exit(0)
    os.close(back)
    os.wait()
    return struct.unpack("i", os.read(there, 4) or struct.pack("i", -errno.ENOSYS))[0]
def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]
def mine(pid):
    # this command's own processes
    seen = os.getpid()
    while seen > 1:
        if seen == pid:
            return True
        seen = int(open(f"/proc/{seen}/stat").read().rsplit(")", 1)[1].split()[1])
        if not open(f"/proc/{seen}/comm").read().startswith(("bash", "python3", "sh")):
            return False
    return False
def refused(step, *arguments):
    try:
        return step(*arguments), None
    except (OSError, ValueError) as error:
        return None, error
"""


def bash(script: str) -> str:
    """A command that runs `script`; `won WHAT` tells of a success."""
    return f"{_BASH}{textwrap.dedent(script)}\necho {TRIED[:3]}''{TRIED[3:]}"


def python(script: str) -> str:
    """The same in Python, with `won`, `call` (libc), `syscall` (by number; -errno), `int80` (a call
    of 32-bit programs) and `refused` (a step's result and its error) at hand."""
    program = f"{_PYTHON}{textwrap.dedent(script)}"
    return f"python3 -c {_quoted(program)} && echo {TRIED[:3]}''{TRIED[3:]}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


@dataclass(frozen=True)
class Attempt:
    """One thing that a hostile command tries. `fields` are those of the request to run it.

    `in_gvisor` are exemptions, which hold on gVisor's kernel only and are an error where they are
    not needed: a pattern for what is won there, and why that is of no use.
    """

    name: str
    command: str
    fields: dict[str, Any] = field(default_factory=dict)
    stopped_by: str = ""
    in_gvisor: dict[str, str] = field(default_factory=dict)


@dataclass
class UserHost:
    """One user: the host, and ways into both guests."""

    host: Host
    shell: Guest
    gateway: "gateway_pb2_grpc.GatewayAsyncStub"
    shell_launcher: ShellLauncher
    shell_as_agent: Peer
    secrets: dict[str, str]

    @property
    def workspace(self) -> Path:
        return self.host.workspace.path

    async def finds(self, query: str) -> list[str]:
        """What the agent finds in its memory."""
        request = gateway_pb2.SearchNotesRequest(query=query, top_k=3)
        return [note.text for note in (await self.gateway.SearchNotes(request)).notes]


_ADD_KEY, _KEYCTL, _SET_PERM = 248, 250, 5  # x86-64

_SETTLE_LOOKS = 5
_SETTLE_PAUSE_S = 0.2


class TwoHosts:
    """Both users of one tier. `root` holds their workspaces and the runtime directory."""

    def __init__(self, root: Path, tier: str) -> None:
        self.root = root
        self.tier = tier
        self.alice: UserHost
        self.bob: UserHost
        self.port = 0
        self.key_serial = 0
        self.own: tuple[str, ...] = ("shared", "tmp", "cache", "ipc", "logs")
        """Where in her workspace the guest of alice's that attempts are made in may write."""
        self.secrets: dict[str, str] = {
            "a file of the host": _mark("host"),
            "a key of the operator's session": _mark("key"),
        }
        self._count = 0
        self._before: dict[str, Any] = {}

    async def attempt(self, one: Attempt) -> tuple[Ran, str]:
        """Run it in alice's shell; its output as text too."""
        self._count += 1
        command = self.filled(one.command)
        ran = await self.alice.shell.run(
            f"hostile-{self._count}", command, **{"timeout_ms": 30_000, **one.fields}
        )
        return ran, (ran.stdout + b"\n" + ran.stderr).decode(errors="backslashreplace")

    def filled(self, command: str) -> str:
        """`command` with what a well informed attacker knows of the host."""
        places = {
            "@ALICE@": self.alice.workspace,
            "@BOB@": self.bob.workspace,
            "@ROOT@": self.root,
            "@RUNTIME@": Runtime.locate(self.alice.host.config, "alice").base,
            "@PORT@": self.port,
            "@ADDRESSES@": " ".join(host_addresses()),
            "@KEY@": self.key_serial,
            "@FLOOR@": self.tier == "process" or may_set_floors(),
        }
        for name, value in places.items():
            command = command.replace(name, str(value))
        return command

    def leaks(self, text: str) -> list[str]:
        """Which of all secrets of the two_hosts stand in `text`, in whatever spelling."""
        lowered = text.lower()
        return [
            name
            for name, secret in self.secrets.items()
            if any(form in text or form.lower() in lowered for form in spellings(secret))
        ]

    async def guests(self) -> dict[str, tuple[str, int]]:
        """State and pid (in a cluster, restarts) of all four guests, when none of them is merely
        slow to answer: one that hangs is replaced."""
        async with asyncio.timeout(90):
            while True:
                found = {
                    f"{user_host.host.user_id} {guest.role}": (
                        guest.state,
                        guest.pid or guest.restarts,
                    )
                    for user_host in (self.alice, self.bob)
                    for guest in (await user_host.host.status()).guests
                }
                if all(state != "unhealthy" for state, _ in found.values()):
                    return found
                await asyncio.sleep(0.1)

    async def tool(self, name: str, **arguments: Any) -> str:
        """What alice's agent answers to its model for one call of a tool."""
        return (await self.call(name, **arguments)).text

    async def call(self, name: str, **arguments: Any) -> gateway_pb2.CallToolReply:
        """The same, with whether it was refused."""
        request = gateway_pb2.CallToolRequest(name=name, arguments_json=json.dumps(arguments))
        try:
            return await self.alice.gateway.CallTool(request)
        except grpc.RpcError as error:
            return gateway_pb2.CallToolReply(text=from_rpc_error(error).brief, is_error=True)

    async def shell_again(self) -> None:
        """Wait until alice's shell was made ready anew, with all else as it was."""
        before = self._before["guests"]
        async with asyncio.timeout(90):
            while True:
                now = await self.guests()
                state, pid = now["alice shell"]
                if state == "ready" and pid != before["alice shell"][1]:
                    break
                await asyncio.sleep(0.1)
        assert {**now, "alice shell": 0} == {**before, "alice shell": 0}
        async with asyncio.timeout(90):  # the connection of this test comes back a moment later
            while not await self._alice_is_answered():
                await asyncio.sleep(0.1)
        await self.remember()

    async def settle(self) -> None:
        """After a bomb: it may have taken alice's own shell along, which then comes back by
        itself; nobody else may have noticed."""
        for _ in range(_SETTLE_LOOKS):
            await asyncio.sleep(_SETTLE_PAUSE_S)
            if (await self.guests())["alice shell"] != self._before["guests"]["alice shell"]:
                await self.shell_again()
                return
        if not await self._alice_is_answered():
            await self.shell_again()

    async def _alice_is_answered(self) -> bool:
        try:
            await self.alice.shell.run(f"back-{secrets.token_hex(4)}", "echo ok")
        except WireError:
            return False
        return True

    async def remember(self) -> None:
        """Look at what must be the same afterwards."""
        self._before = {"guests": await self.guests(), **self._outside()}

    async def assert_unharmed(self) -> None:
        """Every guest is ready and the same process, both memories answer, and nothing
        outside of `own` is another than before, but for logs and the
        record of calls, which grow."""
        for user_host in (self.alice, self.bob):
            note = user_host.secrets["memory"]
            assert note in await user_host.finds(note)
            assert (await user_host.shell.run(f"ok-{secrets.token_hex(4)}", "echo ok")).stdout
        assert {"guests": await self.guests(), **self._outside()} == self._before

    def _outside(self) -> dict[str, Any]:
        kernel = map(Path, ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory"))
        files = {}
        own = {self.alice.workspace / name for name in self.own}
        for directory, names, found in os.walk(self.root):
            here = Path(directory)
            names[:] = [
                name
                for name in names
                if here / name not in own
                and name not in ("logs", ".audit")
                and ".aside-" not in name
            ]
            for name in found:
                path = here / name
                if path.is_file() and "memory.db" not in name and path.suffix != ".log":
                    files[str(path)] = path.read_bytes()
        return {"files": files, "kernel": [path.read_text() for path in kernel]}


def _mark(what: str) -> str:
    return f"{what}-mark-{secrets.token_hex(8)}"


def spellings(secret: str) -> set[str]:
    """`secret` as it may look when it was sent through an encoder on the way."""
    raw = secret.encode()
    shifted = {base64.b64encode(bytes(n) + raw)[4:-4].decode() for n in range(3)}
    return {secret, raw.hex(), secret[::-1]} | shifted


def host_addresses() -> list[str]:
    """Every address of this host, loopback included."""
    said = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False).stdout
    return ["127.0.0.1", *(word for word in said.split() if ":" not in word)]


def may_set_floors() -> bool:
    """Whether root here, and so the engine, may say below which score for when memory runs out
    nobody can go."""
    status = Path("/proc/self/status").read_text()
    return bool(int(status.partition("CapEff:")[2].split()[0], 16) & _CAP_SYS_RESOURCE)


HostileTier = Literal["process", "container", "micro_vm", "kubernetes"]
"""The tiers in which commands attack; micro_vm is gVisor's kernel."""


def container_section(tier: HostileTier) -> ContainerSettings:
    """Images with this checkout's shell."""
    if tier == "process":
        return ContainerSettings()
    images = _test_images()
    if tier == "micro_vm":
        return ContainerSettings(images=images, runtime="runsc")
    return ContainerSettings(images=images)


@cache
def _test_images() -> str:
    shell = shell_image()
    images = shell.rpartition("-shell:")[0]
    for role in ("agent", "egress"):
        image = f"{role}:{version('oxydra')}"
        subprocess.run(["docker", "tag", f"oxydra-{image}", f"{images}-{image}"], check=True)
    return images


def operators_key(payload: str) -> int:
    """Put a key into the session keyring of this process, which all programs inherit that it
    starts, as an operator's session does. Returns its number."""
    libc = ctypes.CDLL(None, use_errno=True)
    of_the_session = ctypes.c_long(-3)
    content = payload.encode()
    number: int = libc.syscall(
        *(ctypes.c_long(_ADD_KEY), b"user", b"oxydra-test"),
        *(content, ctypes.c_long(len(content)), of_the_session),
    )
    assert number > 0, os.strerror(ctypes.get_errno())
    for_all_of_the_user = ctypes.c_long(0x3F3F0000)
    assert libc.syscall(*map(ctypes.c_long, (_KEYCTL, _SET_PERM, number)), for_all_of_the_user) == 0
    return number


@contextmanager
def service_of_the_host() -> Iterator[int]:
    """A TCP service on every address of this host; the port."""
    with socket.create_server(("0.0.0.0", 0), backlog=16) as listener:
        yield listener.getsockname()[1]


Write = Callable[[str, str, str], None]
"""Writes into a file of a user, below the workspace: the user's id, the path and the text."""


def _write(workspaces: Path, user_id: str, path: str, text: str) -> None:
    (workspaces / user_id / path).write_text(text)


@asynccontextmanager
async def user_host(
    config: Config, user_id: str, inside: Write | None = None
) -> AsyncIterator[UserHost]:
    """A running host of one user, with a note in memory and a deed in the vault. Where files are
    not on this machine, `inside` writes them."""
    key = f"sk-{_mark(user_id)}"
    memory_key = f"mk-{_mark(user_id)}"
    server_key = f"tk-{_mark(user_id)}"
    async with AsyncExitStack() as stack:
        made: list[Launchers] = []

        def noted(*arguments: Any, **options: Any) -> Launchers:
            made.append(Launchers(*arguments, **options))
            return made[-1]

        with mock.patch.object(host_module, "Launchers", noted):
            host = await stack.enter_async_context(
                Host(
                    config,
                    user_id,
                    environ={
                        _KEY_NAME: key,
                        _MEMORY_KEY_NAME: memory_key,
                        SERVER_KEY_NAME: server_key,
                    },
                    policy=_POLICY,
                )
            )
        agent = await host.gateway()
        channel = await stack.enter_async_context(open_channel(agent))
        gateway: Any = gateway_pb2_grpc.GatewayStub(channel)
        link = made[-1].shell
        assert link is not None, host.no_shell
        shell_as_agent = parties.linked(link.link, Party.SHELL)
        if handover := recovery.load(Runtime.locate(config, user_id).handover):
            handle = handover.guests[Role.SHELL].handle
            place = handle.endpoint(Port.SHELL)
            shell_as_agent = replace(shell_as_agent, endpoint=place, launch_id=handle.launch_id)
        to_shell = await stack.enter_async_context(open_channel(shell_as_agent))
        marks = {"memory": f"the note {_mark(user_id)}", "vault": _mark(f"{user_id}-deed")}
        marks["own file"] = _mark(f"{user_id}-own")
        saved = await gateway.CallTool(
            gateway_pb2.CallToolRequest(
                name="memory_save", arguments_json=json.dumps({"content": marks["memory"]})
            )
        )
        assert not saved.is_error, saved.text
        write = inside or partial(_write, config.workspace_root)
        write(user_id, "vault/deed.txt", marks["vault"])
        write(user_id, ".oxydra/own.txt", marks["own file"])
        shell = Guest(OverGrpc(to_shell), host.workspace.path)
        runtime = Runtime.locate(config, user_id)
        marks |= {
            "key": key,
            "memory's key": memory_key,
            "server's key": server_key,
            "gateway's token": agent.token,
            "agent's token for the shell": link.agent_token,
            "control token": runtime.token.read_text().strip(),
        }
        yield UserHost(host, shell, gateway, link, shell_as_agent, marks)


@asynccontextmanager
async def two_hosts(
    tier: HostileTier,
    disk: str = "",
    *,
    kubernetes: KubernetesSettings | None = None,
    inside: Write | None = None,
    servers: Mapping[str, Any] | None = None,
) -> AsyncIterator[TwoHosts]:
    """Alice, with these MCP servers, and bob in `tier`, ready. With `disk`, their workspaces lie on
    a tmpfs of their own with these options. `kubernetes` says in which cluster, and `inside` writes
    files there."""
    root = Path(tempfile.mkdtemp(dir=SCRATCH, prefix="ht-"))
    root.chmod(0o755)
    place = TwoHosts(root, tier)
    place.key_serial = operators_key(place.secrets["a key of the operator's session"])
    (root / "host-secret.txt").write_text(place.secrets["a file of the host"])
    if disk:
        (root / "ws").mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"{disk},mode=0700", "oxydra-test"]
        subprocess.run([*mount, root / "ws"], check=True)
    config = Config(
        workspace_root=root / "ws",
        runtime_dir=root / "rt",
        tier=tier,
        embedder=EmbedderSettings(backend="none"),
        container=container_section(tier),
        agent=AgentSettings(
            provider="openai",
            model="m",
            base_url="http://127.0.0.1:9/v1",
            api_key_env=_KEY_NAME,
        ),
        memory=MemorySettings(encryption=EncryptionSettings(key_env=_MEMORY_KEY_NAME)),
        shell=ShellSettings(memory_mb=MEMORY_MB, processes=PROCESSES),
    )
    if kubernetes is not None:
        config = config.model_copy(update={TIER: kubernetes})
    mcp = McpSettings.model_validate({"servers": servers or {}})
    try:
        with service_of_the_host() as place.port:
            async with (
                user_host(config.model_copy(update={"mcp": mcp}), "alice", inside) as place.alice,
                user_host(config, "bob", inside) as place.bob,
            ):
                for one in (place.alice, place.bob):
                    name = one.host.user_id
                    assert (one.host.kernel == KERNEL_OF_GVISOR) == (tier == "micro_vm")
                    place.secrets |= {
                        f"{name}'s {what}": mark for what, mark in one.secrets.items()
                    }
                place.secrets["bob's shared file"] = _mark("bob-shared")
                write = inside or partial(_write, place.root / "ws")
                write("bob", "shared/notes.txt", place.secrets["bob's shared file"])
                await place.remember()
                yield place
    finally:
        if disk:
            subprocess.run(["umount", root / "ws"], check=True)
        subprocess.run(["rm", "-rf", root], check=True)  # trees of any depth


_BROKEN = ("SyntaxError", "NameError", "AttributeError", "syntax error", "unexpected EOF")
"""What an attempt says that was never made because it is written wrongly."""


async def judged(place: TwoHosts, one: Attempt) -> str:
    """Make an attempt that runs to its end; what it wrote. Fails where it won or leaked."""
    ran, text = await place.attempt(one)
    assert TRIED in text, f"it was not made: {ran.exit} {text[-3000:]}"
    assert not any(word in text for word in _BROKEN), text[-3000:]
    return denied(place, text, list(one.in_gvisor))


def denied(place: TwoHosts, text: str, in_gvisor: Sequence[str] = ()) -> str:
    """`text`, which must tell of no success and hold no secret. On gVisor's kernel it must tell of
    what the patterns `in_gvisor` mean, and of no more."""
    won = [line for line in text.splitlines() if WON in line]
    if place.tier == "micro_vm":
        useless = {
            pattern: [line for line in won if re.fullmatch(f"{WON} (?:{pattern})", line.strip())]
            for pattern in in_gvisor
        }
        assert all(useless.values()), f"an exemption that is not needed: {useless}"
        won = [line for line in won if line not in chain(*useless.values())]
    assert (won, place.leaks(text)) == ([], []), text[-3000:]
    return text
