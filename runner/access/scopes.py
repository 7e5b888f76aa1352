"""What a token may do: each method of the gateway, with the scopes that it needs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from wire.errors import Code, WireError
from wire.tools import MEMORY_TOOLS
from wire.v1 import gateway_pb2

from runner.client.calls import SERVICE


class Scope(StrEnum):
    """What a token was given for. None includes another one."""

    CHAT = "chat"
    """Conversations: sessions, turns, approvals, files in /shared."""
    MEMORY = "memory"
    """Notes, one by one: find, read, write, correct, forget."""
    ADMIN = "admin"
    """The user's memory as a whole: export, import, backups. Nothing of the host, no guest and no
    other user."""
    METRICS = "metrics"
    """The numbers of all users, where `runner serve` answers `/metrics`. Nothing of any agent."""


OWN: Final = frozenset({Scope.CHAT, Scope.MEMORY, Scope.ADMIN})
"""What a user may do with their own agent: everything, and nothing of the host."""


def bearer_of(user_id: str, scopes: Collection[Scope]) -> str:
    """Who has a token of `user_id` with these scopes, and what they see, in one sentence."""
    if scopes == {Scope.METRICS}:
        return "Whoever has this reads the numbers of all users, and nothing that they said."
    may = [said for scope, said in _MAY.items() if scope in scopes]
    return f"Whoever has this is {user_id}: they {'; they '.join(may)}."


_MAY: Final = {
    Scope.CHAT: "see all conversations, and let the agent work",
    Scope.MEMORY: "see, change and forget all notes",
    Scope.ADMIN: "take the whole memory away, and bring another one in",
    Scope.METRICS: "read the numbers of all users",
}
_ANY: Final = "any"
_CHAT: Final = frozenset({Scope.CHAT})
_MEMORY: Final = frozenset({Scope.MEMORY})


def _needed(method: MethodDescriptor) -> frozenset[Scope] | None:
    """The scopes that the contract names for a method; None for one of the host's."""
    scope = method.GetOptions().Extensions[gateway_pb2.scope]
    if not scope:
        return None
    return frozenset() if scope == _ANY else frozenset({Scope(scope)})


def needed_by(call: gateway_pb2.CallToolRequest) -> frozenset[Scope]:
    """The scopes for a tool: those of memory, or of what an agent does in a turn. In a session, of
    which secrets can be put back, it takes the latter besides."""
    needed = _MEMORY if call.name in MEMORY_TOOLS else _CHAT
    return needed | _CHAT if call.session_id else needed


@dataclass(frozen=True)
class Method:
    """One method of the gateway, as somebody outside calls it.

    Attributes:
        name: As the contract spells it.
        path: As a call names it.
        needed: The scopes that a token must have, all of them. None: it belongs to the host.
        reply: The class of its replies.
        has_channel: Whether the request says through which channel somebody acts.
    """

    name: str
    path: str
    needed: frozenset[Scope] | None
    reply: type[Message]
    has_channel: bool

    @classmethod
    def of(cls, described: MethodDescriptor) -> "Method":
        return cls(
            described.name,
            f"/{SERVICE.full_name}/{described.name}",
            _needed(described),
            GetMessageClass(described.output_type),
            "channel" in described.input_type.fields_by_name,
        )

    def check(self, scopes: frozenset[Scope]) -> None:
        """Raises `WireError` (PERMISSION_DENIED) where a token with `scopes` may not call this."""
        if self.needed is None:
            raise WireError(
                Code.PERMISSION_DENIED,
                f"{self.name} is for the account that runs the agents",
                resolution="ask the person who runs this host",
            )
        check_scopes(self.name, self.needed, scopes)

    def through(self, channel: str, scopes: frozenset[Scope], request: Message) -> Message:
        """The request with `channel` as the channel that somebody acts through, whatever it says.
        Raises `WireError` (PERMISSION_DENIED) for a tool that `scopes` do not open."""
        if isinstance(request, gateway_pb2.CallToolRequest):
            check_scopes("this tool", needed_by(request), scopes)
        if self.has_channel:
            asked = type(request)()
            asked.CopyFrom(request)
            asked.channel = channel  # type: ignore[attr-defined]
            return asked
        return request

    def back(self, scopes: frozenset[Scope], reply: Message) -> Message:
        """The reply, without tools that `scopes` do not open."""
        if not isinstance(reply, gateway_pb2.ListToolsReply):
            return reply
        opened = [
            tool
            for tool in reply.tools
            if needed_by(gateway_pb2.CallToolRequest(name=tool.name)) <= scopes
        ]
        return gateway_pb2.ListToolsReply(tools=opened)


def check_scopes(what: str, needed: frozenset[Scope], scopes: frozenset[Scope]) -> None:
    if missing := needed - scopes:
        raise WireError(
            Code.PERMISSION_DENIED,
            f"{what} needs a token with the scope {' and '.join(sorted(missing))}",
            details=f"this one has {', '.join(sorted(scopes))}",
            resolution="ask the person who runs this host for a token with that scope",
        )


METHODS: Final[Mapping[str, Method]] = {
    method.name: method for method in map(Method.of, SERVICE.methods)
}
