"""The running host as other commands reach it: a gRPC socket that guests cannot see."""

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from inspect import isawaitable
from typing import Any, Final, Protocol

import psutil
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from wire.disk import store
from wire.errors import Code, WireError
from wire.identity import Identity, Party, Peer
from wire.status import answered
from wire.transport import Server, new_token, open_channel, unix_endpoint
from wire.v1 import control_pb2, control_pb2_grpc, egress_pb2

from runner.config.models import Config
from runner.errors import HostError
from runner.host.runtime import Holder, Runtime, lock_holder

# ruff: noqa: N802, ARG001, ARG002 - names and arguments are the contract's

_METHODS: Final = control_pb2.DESCRIPTOR.services_by_name["RunnerControl"].methods_by_name
_ANSWER_S: Final = 10.0
_GUEST_S: Final = 90.0
_APPEAR_S: Final = 5.0
_STOP_S: Final = 30.0
_PAUSE_S: Final = 0.02
_EXIT_S: Final = 3.0


class Controlled(Protocol):
    """What the control service needs of a host, besides the methods of the contract's names."""

    async def gateway(self) -> Peer: ...
    def follow_egress(self) -> AsyncGenerator[egress_pb2.EgressEvent]: ...
    def request_stop(self) -> None: ...


class _Service(control_pb2_grpc.RunnerControlServicer):
    """The contract's methods. Those that are not written here are the host's of the same name, such
    as `check_boundary` for CheckBoundary."""

    def __init__(self, host: Controlled) -> None:
        self._host = host

    async def Connect(
        self, request: control_pb2.ConnectRequest, context: Any
    ) -> control_pb2.ConnectReply:
        agent = await self._host.gateway()
        return control_pb2.ConnectReply(
            gateway=agent.endpoint, token=agent.token, launch_id=agent.launch_id
        )

    async def Stop(self, request: control_pb2.StopRequest, context: Any) -> control_pb2.StopReply:
        self._host.request_stop()
        return control_pb2.StopReply()

    async def FollowEgress(
        self, request: control_pb2.FollowEgressRequest, context: Any
    ) -> AsyncIterator[egress_pb2.EgressEvent]:
        async with aclosing(self._host.follow_egress()) as events:
            async for event in events:
                yield event


def _answered_by_host(method: MethodDescriptor) -> Callable[..., Awaitable[Message]]:
    """The method of `_Service` that gives the request's fields to the host's method of the same
    name. What that returns is the reply, or the only field of the reply."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", method.name).lower()
    reply = GetMessageClass(method.output_type)

    async def answer(service: _Service, request: Message, context: Any) -> Message:
        fields = {each.name: getattr(request, each.name) for each in method.input_type.fields}
        found = getattr(service._host, name)(**fields)
        found = await found if isawaitable(found) else found
        if isinstance(found, reply):
            return found
        return reply(**{each.name: found for each in method.output_type.fields})

    return answer


for _method in _METHODS.values():
    if _method.name not in vars(_Service):
        setattr(_Service, _method.name, _answered_by_host(_method))


class ControlServer:
    """Serves control on `runtime.socket`. What a caller needs lies in private files beside it: the
    token, and the identity `callers`, with which the agent's gateway hears it too."""

    def __init__(
        self, runtime: Runtime, host: Controlled, identity: Identity, callers: Identity
    ) -> None:
        self._runtime = runtime
        self._callers = callers
        self.token = new_token()
        self._server = Server(unix_endpoint(runtime.socket), self.token, identity, {Party.CLI})
        service = _Service(host)  # type: ignore[abstract]
        control_pb2_grpc.add_RunnerControlServicer_to_server(service, self._server.grpc)

    async def start(self) -> None:
        """Listen, then write the token, so that its readers find a server that listens."""
        self._runtime.token.unlink(missing_ok=True)
        await self._server.start()
        await self._server.set_serving(True)
        store(self._runtime.identity, self._callers.to_pem())
        store(self._runtime.token, self.token)

    async def stop(self) -> None:
        """Remove the token, the identity and the socket. Idempotent."""
        self._runtime.token.unlink(missing_ok=True)
        self._runtime.identity.unlink(missing_ok=True)
        await self._server.stop()


class ControlClient:
    """A connection to a running host, whose methods of these names say more of each call. All raise
    `WireError` if they fail."""

    def __init__(self, runtime: Runtime, host: Peer) -> None:
        self._runtime = runtime
        self._identity = host.identity
        self._channel = open_channel(host)
        self._stub = control_pb2_grpc.RunnerControlStub(self._channel)

    async def __aenter__(self) -> "ControlClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _ask(self, method: str, timeout: float = _GUEST_S, /, **fields: Any) -> Any:
        """The reply of a method of the contract to a request with these fields."""
        request = GetMessageClass(_METHODS[method].input_type)(**fields)
        return await answered(getattr(self._stub, method)(request, timeout=timeout))

    async def status(self, timeout: float = _ANSWER_S) -> control_pb2.StatusReply:
        found: control_pb2.StatusReply = await self._ask("Status", timeout)
        return found

    async def gateway(self) -> Peer:
        reply = await self._ask("Connect")
        return Peer(reply.gateway, Party.AGENT, reply.token, self._identity, reply.launch_id)

    async def restart(self, role: str = "") -> None:
        await self._ask("Restart", role=role)

    async def check_boundary(self) -> control_pb2.BoundaryReport:
        found: control_pb2.BoundaryReport = (await self._ask("CheckBoundary")).boundary
        return found

    async def set_memory_token(self, token: str) -> None:
        await self._ask("SetMemoryToken", auth_token=token)

    async def set_credential(self, provider: str, key: str, source: str, origin: str = "") -> bool:
        fields = {"provider": provider, "key": key, "source": source, "origin": origin}
        return bool((await self._ask("SetCredential", **fields)).in_use)

    async def clear_credential(self, provider: str) -> bool:
        return bool((await self._ask("ClearCredential", provider=provider)).cleared)

    async def credentials(self) -> list[control_pb2.Credential]:
        """Where each provider's key is from."""
        return list((await self._ask("ListCredentials")).credentials)

    async def metrics(self) -> str:
        return str((await self._ask("Metrics", _ANSWER_S)).text)

    async def get_egress(self) -> control_pb2.GetEgressReply:
        found: control_pb2.GetEgressReply = await self._ask("GetEgress", _ANSWER_S)
        return found

    async def reload_egress(self) -> list[str]:
        return list((await self._ask("ReloadEgress")).notices)

    async def grant_egress(
        self, role: str, grant: egress_pb2.EgressGrant, *, withdraw: bool
    ) -> bool:
        reply = await self._ask("GrantEgress", role=role, grant=grant, withdraw=withdraw)
        return bool(reply.changed)

    async def test_notices(self) -> list[control_pb2.NoticeSent]:
        return list((await self._ask("TestNotices")).sent)

    async def open_project(
        self,
        path: str,
        *,
        name: str = "",
        write: bool = False,
        hide: Sequence[str] = (),
        lift: Sequence[str] = (),
    ) -> control_pb2.OpenProjectReply:
        fields = {"path": path, "name": name, "write": write, "hide": hide, "lift": lift}
        found: control_pb2.OpenProjectReply = await self._ask("OpenProject", **fields)
        return found

    async def close_project(self, name: str) -> None:
        await self._ask("CloseProject", name=name)

    async def stop(self) -> None:
        """Stop the host and wait until nothing of it is left.

        A host process of its own ends a moment later; that is waited for too.
        """
        holder = lock_holder(self._runtime.lock)
        await self._ask("Stop", _ANSWER_S)
        deadline = asyncio.get_running_loop().time() + _STOP_S
        while (now := lock_holder(self._runtime.lock)) is not None and now == holder:
            if asyncio.get_running_loop().time() > deadline:
                raise _silent(now, f"it was asked to stop {_STOP_S:g} s ago and still runs")
            await asyncio.sleep(_PAUSE_S)
        if holder is not None:
            await _until_ended(holder.pid)

    async def close(self) -> None:
        await self._channel.close()


async def _until_ended(pid: int) -> None:
    """Wait with a limit, because the host of a chat is in the chat's process, which may go on."""
    if pid in (0, os.getpid()):
        return
    deadline = asyncio.get_running_loop().time() + _EXIT_S
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if asyncio.get_running_loop().time() > deadline:
                return
            await asyncio.sleep(_PAUSE_S)


async def connect_control(
    config: Config, user_id: str, *, appear_s: float = _APPEAR_S
) -> ControlClient | None:
    """Connect to the host that now serves `user_id`; None if there is none.

    Raises `HostError` (UNAVAILABLE) if one runs but does not answer within `appear_s`.
    """
    runtime = Runtime.locate(config, user_id)
    if not runtime.directory.exists():
        return None
    runtime.check()
    deadline = asyncio.get_running_loop().time() + appear_s
    why = "it does not answer its control socket"
    while (holder := lock_holder(runtime.lock)) is not None:
        try:
            return await _dial(runtime, appear_s)
        except FileNotFoundError:
            why = "it holds its lock but has no control socket"
        except WireError as error:
            why = f"its control socket answers: {error.brief}"
        if asyncio.get_running_loop().time() > deadline:
            raise _silent(holder, why)
        await asyncio.sleep(_PAUSE_S)
    return None


async def _dial(runtime: Runtime, timeout: float) -> ControlClient:
    token = runtime.token.read_text(encoding="ascii")
    identity = Identity.from_pem(runtime.identity.read_text(encoding="ascii"))
    endpoint = unix_endpoint(runtime.socket)
    client = ControlClient(runtime, Peer(endpoint, Party.RUNNER, token, identity))
    try:
        await client.status(timeout=timeout)
    except BaseException:
        await client.close()
        raise
    return client


def _silent(holder: Holder, why: str) -> HostError:
    return HostError(
        Code.UNAVAILABLE,
        f"the runner with pid {holder.pid} is stuck",
        details=why,
        resolution=f"kill -9 {holder.pid}; the next start removes what it leaves",
    )
