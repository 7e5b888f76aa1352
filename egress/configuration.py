"""What may leave, and with which keys: the runner's word, as a whole."""

import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from wire.egress import hosts
from wire.egress.hosts import networks
from wire.egress.policy import Policy
from wire.identity import Party
from wire.v1 import egress_pb2

from egress.credentials.credentials import Credentials, host_and_port
from egress.interception.interception import Interception
from egress.outbound.dialing import Dialer, OutboundClients, Proxy
from egress.outbound.upstreams import Upstreams
from egress.refusals import not_ready


@dataclass(frozen=True, repr=False)
class Configuration:
    """One configuration. What is decided by it counts until that request or tunnel ends.

    `tokens` and `policies` are by the callers' roles. `contexts` say, by the name of an upstream,
    whom to believe that it is that one.
    """

    tokens: Mapping[str, str]
    policies: Mapping[str, Policy]
    upstreams: Upstreams
    contexts: Mapping[str, ssl.SSLContext]
    credentials: Credentials
    interception: Interception
    outside: OutboundClients

    @classmethod
    def of(
        cls,
        message: egress_pb2.EgressConfiguration,
        before: Interception,
        served: Collection[Party],
        runner: ssl.SSLContext | None = None,
    ) -> Self:
        """Read a configuration for those who are `served`, whose interception goes on from the one
        `before`. Sockets of the `runner` are connected to with its context.

        Raises `ValueError` that says what cannot be read.
        """
        given = {Party.AGENT: message.agent_token, Party.SHELL: message.shell_token}
        tokens: dict[str, str] = {role: given[role] for role in served}
        if Party.AGENT in served:
            tokens[Party.RUNNER] = message.runner_token
        if not all(tokens.values()):
            raise ValueError("it has no tokens for callers")
        context = _trusting(message.ca_pem)
        credentials = Credentials.of(message.credentials)
        dialer = Dialer(
            networks(message.private_networks),
            tuple(message.name_servers),
            context,
            _proxy(message),
            tuple(message.own_addresses),
            runner,
        )
        return cls(
            tokens=tokens,
            policies={
                Party.AGENT: Policy.of(message.agent),
                Party.SHELL: Policy.of(message.shell),
                Party.RUNNER: Policy.of(message.runner),
            },
            upstreams=Upstreams.of(message.upstreams),
            contexts={
                each.name: _trusting(message.ca_pem + each.ca_pem) if each.ca_pem else context
                for each in message.upstreams
            },
            credentials=credentials,
            interception=Interception(
                credentials.hosts | set(map(host_and_port, message.inspected)), before
            ),
            outside=OutboundClients(dialer),
        )


class State:
    """The configuration that counts now. None does before the runner has given one, or after one
    that could not be read. `served` are those who have a listener."""

    def __init__(self, served: Collection[Party]) -> None:
        self.served = served
        self._configuration: Configuration | None = None
        self.interception = Interception()
        """Of the last configuration."""
        self._why = "egress has just started and waits to hear what may leave"

    @property
    def current(self) -> Configuration:
        """Raises `Refused`."""
        if self._configuration is None:
            raise not_ready(self._why)
        return self._configuration

    def open(self, configuration: Configuration) -> None:
        """Let another configuration count."""
        self._retire()
        self._configuration = configuration
        self.interception = configuration.interception

    def shut(self, why: str) -> None:
        """Let none count."""
        self._retire()
        self._configuration, self._why = None, why

    async def close(self) -> None:
        """Let none count, and close what is open to the outside."""
        configuration, self._configuration = self._configuration, None
        if configuration is not None:
            await configuration.outside.close()

    def _retire(self) -> None:
        if self._configuration is not None:
            self._configuration.outside.retire()


def _trusting(pem: str) -> ssl.SSLContext:
    """Trusts what the system trusts, and besides it the authorities in `pem`."""
    context = ssl.create_default_context()
    if pem:
        try:
            context.load_verify_locations(cadata=pem)
        except ssl.SSLError as error:
            raise ValueError(f"the certificates to trust are invalid: {error.reason}") from None
    return context


def _proxy(message: egress_pb2.EgressConfiguration) -> Proxy | None:
    if not message.proxy:
        return None
    parts = urlsplit(message.proxy)
    if parts.scheme != "http" or not parts.hostname or not parts.port:
        raise ValueError("the proxy is not given as http://HOST:PORT")
    return Proxy(hosts.canonical(parts.hostname), parts.port, message.proxy_authorization)
