"""What may leave now: as the running host says, or as the settings do where none runs."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Self

from wire.egress import hosts
from wire.egress.policy import Attempt, Policy, Scheme, Verdict
from wire.egress.rules import Rule
from wire.envelope import Secrets
from wire.errors import Code
from wire.v1 import control_pb2, egress_pb2

from runner.audit.log import LogLocation
from runner.cli.agent import connect_if_running
from runner.cli.options import Options
from runner.config.models import Config
from runner.egress.configuration import StableSecrets, build, without_secrets
from runner.egress.log import Spent
from runner.errors import HostError

Role = Literal["agent", "shell"]

_HTTPS_PORT: Final = 443


@dataclass(frozen=True)
class Current:
    """What may leave, and what hosts have taken `today`. Without a running host the egress of the
    agent, `guest`, and of commands, `shell_guest`, and the counters are None."""

    configuration: egress_pb2.EgressConfiguration
    today: Sequence[egress_pb2.EgressSpent] = ()
    guest: control_pb2.GuestStatus | None = None
    shell_guest: control_pb2.GuestStatus | None = None
    counters: egress_pb2.EgressCountersReply | None = None

    @classmethod
    def read(cls, options: Options) -> Self:
        """Ask the host, or read the settings. Raises `WireError`."""
        config = options.load()
        today = Spent(LogLocation.locate(config, options.user_id)).today()
        return replace(asyncio.run(cls._read(options, config)), today=today)

    @classmethod
    async def _read(cls, options: Options, config: Config) -> Self:
        if (control := await connect_if_running(config, options.user_id)) is None:
            own = config.for_user(options.user_id)
            built = build(options.user_id, own, Secrets(), StableSecrets(), None)
            del built.upstreams[:]  # only a host knows which keys there are
            return cls(without_secrets(built))
        async with control as host:
            found = await host.get_egress()
        counters = found.counters if found.HasField("counters") else None
        return cls(found.configuration, (), found.guest, found.shell_guest, counters)

    def policy(self, role: Role) -> egress_pb2.EgressPolicy:
        return self.configuration.agent if role == "agent" else self.configuration.shell

    def decide(self, role: Role, attempt: Attempt, session_id: str) -> Verdict:
        """What egress would say before it resolves a name. Raises `HostError` for a bad policy."""
        try:
            verdict = Policy.of(self.policy(role)).decide(attempt, session_id)
        except ValueError as error:
            raise HostError(
                Code.FAILED_PRECONDITION,
                f"the policy cannot be read: {error}",
                resolution="correct [egress] in runner.toml, then: runner egress reload",
            ) from None
        if verdict.decision != "allow" or not hosts.is_address(
            host := hosts.canonical(attempt.host)
        ):
            return verdict
        private = hosts.networks(self.configuration.private_networks)
        why = hosts.refusal(host, private, self.configuration.own_addresses)
        return Verdict("deny", verdict.rule, f"{host} is refused: {why}") if why else verdict

    def scheme(self, role: Role, host: str, port: int, *, encrypted: bool) -> Scheme:
        """As what egress sees a request: in a tunnel it can be read only if it is a command's to a
        host that is named for that."""
        if not encrypted:
            return "http"
        return "https" if self._reads(role, host, port) else "tunnel"

    def is_idle(self, role: Role, rule: Rule) -> bool:
        """True for an allow rule with a path that tunnels, which stay encrypted, never match."""
        tunnels = rule.scheme == "https" or (not rule.scheme and rule.port == _HTTPS_PORT)
        port = rule.port or _HTTPS_PORT
        return rule.reads and tunnels and not self._reads(role, rule.host, port)

    def _reads(self, role: Role, host: str, port: int) -> bool:
        configuration = self.configuration
        named = (
            *configuration.inspected,
            *(each for credential in configuration.credentials for each in credential.hosts),
        )
        return role == "shell" and (host, port) in map(_host_and_port, named)


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.partition(":")
    return host, int(port or _HTTPS_PORT)
