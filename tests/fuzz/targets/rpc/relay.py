"""The server for access tokens, before agents that answer everything and note what they are asked.

Who has no token, or not its scopes, is refused, and nothing of the call reaches an agent. What
reaches one is the agent of the token's user, under the token's name.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc
from wire.errors import Code
from wire.identity import Party, Peer
from wire.settings import AccessSettings
from wire.status import from_rpc_error
from wire.transport import Server
from wire.v1 import gateway_pb2

from runner.access.scopes import METHODS, Method, Scope
from runner.access.server import SERVER_NAME, AccessServer, own_authority
from runner.access.tokens import Token, Tokens
from runner.config.models import Config
from tests.fuzz.material import Choices, Target, chosen
from tests.fuzz.targets.rpc import calls
from tests.support import parties
from tests.support.gateway.front import FakeHost

_SERVICE: Final = gateway_pb2.DESCRIPTOR.services_by_name["Gateway"]
_HOLDERS: Final = (
    ("alice", "all", frozenset(Scope)),
    *(("alice", scope.value, frozenset({scope})) for scope in Scope),
    ("bob", "all", frozenset(Scope)),
)
_DEADLINE_S: Final = 60.0
_REFUSED: Final = {Code.UNAUTHENTICATED, Code.PERMISSION_DENIED, Code.RESOURCE_EXHAUSTED}


class _Agent(grpc.GenericRpcHandler):
    """A gateway that answers every call with an empty reply."""

    def __init__(
        self, user_id: str, directory: Path, reached: list[tuple[str, str, bytes]]
    ) -> None:
        self._user_id = user_id
        self._reached = reached
        self.peer: Peer = parties.gateway(f"unix:{directory}/{user_id}.sock", f"of-{user_id}")
        self._server = parties.server(self.peer.endpoint, self.peer.token, Party.AGENT)
        self._server.grpc.add_generic_rpc_handlers((self,))

    async def start(self) -> Server:
        await self._server.start()
        return self._server

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        path = handler_call_details.method

        async def answer(request: bytes, context: Any) -> AsyncIterator[bytes]:
            self._reached.append((self._user_id, path, request))
            yield b""

        return grpc.unary_stream_rpc_method_handler(answer, request_deserializer=bytes)


@dataclass
class _Relayed:
    """Makes the calls of an input."""

    channel: grpc.aio.Channel
    holders: list[tuple[Token, str]]
    reached: list[tuple[str, str, bytes]]

    async def one_input(self, data: bytes) -> None:
        choices = Choices(data)
        for _ in range(1 + choices.below(3)):
            await self._call(choices)

    async def _call(self, choices: Choices) -> None:
        method = METHODS[choices.one_of(list(METHODS))]
        token, metadata = self._caller(choices)
        request = calls.request_of(
            _SERVICE.methods_by_name[method.name], choices, ("access-all", "cli")
        )
        self.reached.clear()
        call: Any = self.channel.unary_stream(method.path)
        try:
            replies = [each async for each in call(request, metadata=metadata, timeout=_DEADLINE_S)]
        except grpc.RpcError as raised:
            error = from_rpc_error(raised)
            for _, secret in self.holders:
                assert secret not in f"{error} {error.details}"
            assert error.code in _REFUSED or error.code is Code.INVALID_ARGUMENT, repr(error)
            assert self.reached == [], "a call that is refused reaches an agent"
            if token is not None and _may(token, method):
                assert error.code is Code.INVALID_ARGUMENT or method.name == "CallTool"
                assert method.with_channel is not None
        else:
            assert replies == [b""]
            assert token is not None
            assert _may(token, method)
            self._check_reached(token, method, request)

    def _check_reached(self, token: Token, method: Method, request: bytes) -> None:
        ((user_id, path, received),) = self.reached
        assert (user_id, path) == (token.user_id, method.path)
        if method.with_channel is None:
            assert received == request
            return
        expected: Any = method.with_channel.FromString(request)
        expected.channel = f"access-{token.name}"
        assert method.with_channel.FromString(received) == expected

    def _caller(self, choices: Choices) -> tuple[Token | None, list[tuple[str, str]]]:
        """Somebody with a token, or with something like one."""
        token, secret = choices.one_of(self.holders)
        if choices.below(4) < 3:
            return token, [("authorization", f"Bearer {secret}")]
        text = "".join(filter(str.isprintable, choices.text().encode("ascii", "ignore").decode()))
        wrong = (
            *(f"Bearer {each}" for each in (text, secret[:-1], f"{secret}x", token.digest)),
            *(secret, f"bearer {secret}", f"Bearer  {secret}", f"Bearer {secret},{secret}", text),
        )
        return None, [(choices.one_of(("authorization", "oxydra-token")), choices.one_of(wrong))]


def _may(token: Token, method: Method) -> bool:
    return method.needed is not None and method.needed <= token.scopes


async def _serve(scratch: Path, stack: AsyncExitStack) -> Any:
    (scratch / "w").mkdir(mode=0o700)
    settings = AccessSettings(socket=scratch / "a.sock")
    config = Config(workspace_root=scratch / "w", runtime_dir=scratch / "r", access=settings)
    reached: list[tuple[str, str, bytes]] = []
    for user_id in ("alice", "bob"):
        agent = _Agent(user_id, scratch, reached)
        stack.push_async_callback((await agent.start()).stop, 0)
        host = FakeHost(config, user_id, agent)
        await host.start()
        stack.push_async_callback(host.stop)
    tokens = Tokens.locate(config)
    day = timedelta(days=1)
    holders = [tokens.create(user_id, name, scopes, day) for user_id, name, scopes in _HOLDERS]
    await stack.enter_async_context(AccessServer(config))
    channel = grpc.aio.secure_channel(
        f"unix:{settings.socket}",
        grpc.ssl_channel_credentials(own_authority(tokens).public.encode()),
        options=[("grpc.ssl_target_name_override", SERVER_NAME)],
    )
    stack.push_async_callback(channel.close)
    return _Relayed(channel, holders, reached)


def _seeds() -> Mapping[str, bytes]:
    """Each holder with a right token and a wrong one, and a spoilt request."""
    right = {f"right-{number}": chosen(0, 9, number, 0, 0) for number in range(len(_HOLDERS))}
    wrong = {f"wrong-{number}": chosen(0, 0, 0, 3, "x", 0, number) for number in range(9)}
    return right | wrong | {"spoilt": chosen(0, 7, 0, 0, 3, 2, b"\xff\xff")}


TARGET = Target("relay", 20, partial(calls.opened, _serve), _seeds, longest=512)
