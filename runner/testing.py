"""A user's guests, for tests in other projects. Needs the extra `testing`.

The host runs in this process, behind plain blocking calls:

with UserPair("alice") as pair:
    pair.call_tool("memory_save", {"content": "tea is at five"})
    print(pair.turn("what do you know about tea?").text)
"""

import asyncio
import json
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import docker
import docker.errors
from docker.models.containers import Container
from testcontainers.core.container import BytesExecResult
from testcontainers.core.exceptions import ContainerStartException
from testcontainers.core.waiting_utils import WaitStrategy
from wire.identity import Peer
from wire.v1 import control_pb2

from runner.client.gateway import GatewayClient, new_turn_id
from runner.client.turn import TurnSoFar
from runner.config.models import Config
from runner.host.host import Host
from runner.host.supervisor import Policy
from runner.tiers.container.engine import find_socket
from runner.tiers.container.names import ObjectNames
from runner.workspace.mounts import Role
from runner.workspace.workspace import Workspace


class GuestContainer:
    """Implements `testcontainers.core.waiting_utils.WaitStrategyTarget`, so that every wait
    strategy accepts it; adds `exec`.

    The runner starts, replaces and removes the container. It is looked up by name on each use, so
    this always means the current one.
    """

    def __init__(self, client: docker.DockerClient, name: str, log: Path) -> None:
        self._client = client
        self._log = log
        self.name = name

    def get_wrapped_container(self) -> Container:
        """The Docker SDK's object. Raises `ContainerStartException` if there is none now."""
        try:
            return self._client.containers.get(self.name)
        except docker.errors.NotFound:
            raise ContainerStartException(f"there is no container {self.name}") from None

    @property
    def status(self) -> str:
        """The status in the engine's words; "not_started" if there is no container."""
        try:
            return str(self.get_wrapped_container().status)
        except ContainerStartException:
            return "not_started"

    def reload(self) -> None:
        """Does nothing: nothing is cached."""

    def get_logs(self) -> tuple[bytes, bytes]:
        """The log of this role. Both streams of a guest go to one file."""
        try:
            return self._log.read_bytes(), b""
        except FileNotFoundError:
            return b"", b""

    def exec(self, command: str | Sequence[str], *, user: str = "") -> BytesExecResult:
        """Run a command in the container, by default as the guest's own user."""
        container = self.get_wrapped_container()
        words = command if isinstance(command, str) else list(command)
        code, output = container.exec_run(words, user=user)
        return BytesExecResult(code, output)

    def get_container_host_ip(self) -> str:
        """Raises: guests listen on no address."""
        raise ContainerStartException(f"{self.name} publishes no port: use its Unix socket")

    def get_exposed_port(self, port: int) -> int:
        """Raises: guests listen on no port."""
        raise ContainerStartException(f"{self.name} publishes no port, not {port} either")


_CHANNEL: Final = "testing"
_DEFAULTS: Final[Mapping[str, Any]] = {"tier": "container", "embedder": {"backend": "hashing"}}

_T = TypeVar("_T")


@dataclass(frozen=True)
class CalledTool:
    """The answer of a tool. The text of an error says what to correct."""

    text: str
    is_error: bool


@dataclass(frozen=True)
class Turn:
    """The result of a turn: the agent's answer, the tools it called with whether each succeeded,
    and why the turn failed ("" if it did not)."""

    text: str
    session_id: str
    tools: list[tuple[str, bool]] = field(default_factory=list)
    failure: str = ""


class UserPair:
    """A user's guests, confined as in production. Can be started again after `stop`.

    The runner itself starts them, with the same mounts, hardening, envelope and boundary self-test
    as `runner start`; `start` raises the same `WireError`s. All methods block. The guests end with
    this process, even if it is killed, so no Ryuk is needed.

    `root` holds workspaces and the runtime directory, and is kept. Several pairs may share it, and
    a later pair finds the notes of an earlier one. Without it, `stop` removes everything. `policy`
    has the time limits of supervision. `settings` are sections of the configuration, such as
    `shell={"timeout_s": 30}`; the embedder is `hashing` by default.
    """

    def __init__(
        self,
        user_id: str = "alice",
        *,
        root: str | Path | None = None,
        policy: Policy | None = None,
        **settings: Any,
    ) -> None:
        self.user_id = user_id
        self._root = None if root is None else Path(root).absolute()
        self._policy = policy
        self._settings = settings
        self._strategy: WaitStrategy | None = None
        self._temporary: Path | None = None
        self._host: Host | None = None
        self._engine: docker.DockerClient | None = None
        self._loop = asyncio.new_event_loop()

    def waiting_for(self, strategy: WaitStrategy) -> Self:
        """Let `start` also wait until `strategy` succeeds on the agent guest."""
        self._strategy = strategy
        return self

    def start(self) -> Self:
        """Start the guests. If it raises, which it does like `Host.start`, nothing is left
        behind."""
        if self._host is not None:
            raise RuntimeError(f"the pair of {self.user_id} is started")
        if self._root is None:
            # Sockets have short paths.
            self._temporary = Path(tempfile.mkdtemp(prefix="oxp", dir="/tmp"))
        root = self._root or self._temporary
        assert root is not None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="user-pair", daemon=True
        )
        self._thread.start()
        try:
            self.config = Config(
                workspace_root=root / "w", runtime_dir=root / "r", **{**_DEFAULTS, **self._settings}
            )
            self._host = Host(
                self.config, self.user_id, policy=self._policy, working_directory=root
            )
            self._run(self._host.start())
            self._look_at_containers()
            if self._strategy is not None:
                self._strategy.wait_until_ready(self.agent)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the guests. Notes are kept if there is a `root`. Idempotent."""
        if not self._loop.is_running():
            return
        try:
            if self._host is not None:
                self._run(self._host.stop())
        finally:
            self._host = None
            if self._engine is not None:
                self._engine.close()
                self._engine = None
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            if self._temporary is not None:
                shutil.rmtree(self._temporary)
                self._temporary = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def workspace(self) -> Workspace:
        """The user's directories on the host."""
        return self._running().workspace

    def status(self) -> control_pb2.StatusReply:
        """The current state of the guests, and the result of the last boundary self-test."""
        return self._run(self._running().status())

    def gateway(self) -> Peer:
        """The agent's gateway, with what lets a client of your own in:
        `wire.transport.open_channel`."""
        return self._run(self._running().gateway())

    def restart(self, role: str = "") -> None:
        """Restart one guest or ("") all."""
        self._run(self._running().restart(role))

    def call_tool(
        self, name: str, arguments: Mapping[str, object], session_id: str = ""
    ) -> CalledTool:
        """Call a tool in the agent guest, without a model."""
        return self._run(self._call_tool(name, json.dumps(dict(arguments)), session_id))

    def turn(self, text: str, session_id: str = "") -> Turn:
        """Run a turn. Without `session_id` it begins a session, whose id is in the result."""
        return self._run(self._turn(text, session_id))

    def _look_at_containers(self) -> None:
        place = ObjectNames.of(self.user_id, self.workspace.path)
        socket = find_socket(self.config.container.engine)
        self._engine = client = docker.DockerClient(base_url=f"unix://{socket}")
        self.agent, self.shell, self.egress, self.shell_egress = (
            GuestContainer(client, place.container(role), self.workspace.log(role))
            for role in (Role.AGENT, Role.SHELL, Role.EGRESS, Role.SHELL_EGRESS)
        )

    def _running(self) -> Host:
        if self._host is None:
            raise RuntimeError(f"the pair of {self.user_id} is not started")
        return self._host

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _client(self) -> GatewayClient:
        return await GatewayClient.open(await self._running().gateway(), channel_name=_CHANNEL)

    async def _call_tool(self, name: str, arguments: str, session_id: str) -> CalledTool:
        async with await self._client() as client:
            reply = await client.call_tool(name, arguments, session_id)
            return CalledTool(reply.text, reply.is_error)

    async def _turn(self, text: str, session_id: str) -> Turn:
        async with await self._client() as client:
            if not session_id:
                session_id = (await client.create_session()).session_id
            turn = TurnSoFar()
            async with aclosing(client.run_turn(session_id, text, new_turn_id())) as events:
                async for event in events:
                    turn.add(event)
            tools = [(call.finished.tool, call.finished.ok) for call in turn.calls]
            said = "" if turn.done is None else turn.done.text
            return Turn(said, session_id, tools, turn.problem)
