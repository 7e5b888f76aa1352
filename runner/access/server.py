"""The server for people with access tokens: a socket, or TCP, always with TLS.

The server proves itself by its certificate, the client by its token. Both lie in an access file,
which the operator makes with `runner access create` and hands over.
"""

import fcntl
import logging
import os
from contextlib import AsyncExitStack
from typing import Final, Self

import grpc
from wire.errors import Code
from wire.identity import Party
from wire.limits import GRPC_MESSAGE_MAX_BYTES
from wire.settings import AccessSettings
from wire.transport import unix_endpoint

from runner.access.agents import Agents
from runner.access.callers import Callers
from runner.access.places import check_place, clear_place, group_id, open_to_group, read_pem
from runner.access.relay import Relay
from runner.access.tokens import Tokens
from runner.config.models import Config
from runner.errors import ConfigError, HostError
from runner.host.authority import Authority
from runner.workspace.directories import descriptor, whole_file

log = logging.getLogger(__name__)

SERVER_NAME: Final = Party.ACCESS.value
"""The name in a certificate of the runner's own, whatever the address."""
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", GRPC_MESSAGE_MAX_BYTES),
    ("grpc.max_send_message_length", GRPC_MESSAGE_MAX_BYTES),
    ("grpc.so_reuseport", 0),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_concurrent_streams", 40),
    ("grpc.max_connection_idle_ms", 600_000),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.absolute_max_metadata_size", 16 * 1024),
    ("grpc.http2.hpack_table_size.decoder", 0),
    ("grpc.max_allowed_incoming_connections", 200),
)
_CALLS_MAX: Final = 1_000


def own_authority(tokens: Tokens) -> Authority:
    """The authority whose certificate clients trust where `[access] certificate` names no other.

    It is made once and kept beside the tokens, so that access files stay valid. Raises `HostError`
    (DATA_LOSS) if its file is damaged.
    """
    tokens.prepare()
    path = tokens.directory / "authority.pem"
    with descriptor(tokens.directory / "lock", os.O_RDWR | os.O_CREAT) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return Authority.from_pem(path.read_text(encoding="ascii", errors="replace"))
        except FileNotFoundError:
            pass
        except HostError as error:
            raise HostError(
                Code.DATA_LOSS,
                "the authority of the access server is damaged, so nobody can be let in",
                details=f"{path}: {error.details}",
                resolution=f"mv {path} {path}.damaged; then make new access files: those that are "
                "out do not trust another one",
            ) from None
        authority = Authority.new()
        with whole_file(path) as file:
            file.write(authority.to_pem().encode())
        return authority


class AccessServer:
    """Listens where `[access]` says, and relays. An async context manager.

    Entering it raises `WireError` if it cannot listen there; then nothing is left behind.
    """

    def __init__(self, config: Config) -> None:
        self._settings = config.access
        self._tokens = Tokens.locate(config)
        self._callers = Callers(self._tokens, Agents(config))
        self._stack = AsyncExitStack()

    @property
    def addresses(self) -> list[str]:
        """Where it listens, in words of the configuration."""
        return [str(each) for each in (self._settings.socket, self._settings.listen) if each]

    async def __aenter__(self) -> Self:
        check_listens(self._settings)
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self, stack: AsyncExitStack) -> None:
        settings = self._settings
        check_files(settings)
        certificate, key = self._identity()
        self._tokens.prepare()
        self._tokens.all()
        lock = stack.enter_context(
            descriptor(self._tokens.directory / "serving", os.O_RDWR | os.O_CREAT)
        )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HostError(
                Code.ALREADY_EXISTS,
                "access is served already for these users",
                details=f"{self._tokens.directory / 'serving'} is held by another process",
                resolution="end that one first: runner access serve",
            ) from None
        await stack.enter_async_context(self._callers)
        server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=_CALLS_MAX)
        server.add_generic_rpc_handlers((Relay(self._callers),))
        credentials = grpc.ssl_server_credentials([(key, certificate)])
        if settings.socket is not None:
            clear_place("access", settings.socket)
            _bind(server, unix_endpoint(settings.socket), credentials, str(settings.socket))
            stack.callback(settings.socket.unlink, missing_ok=True)
            open_to_group("access", settings.socket, settings.socket_group)
        if settings.listen:
            _bind(server, settings.listen, credentials, settings.listen)
        await server.start()
        stack.push_async_callback(server.stop, 1.0)
        log.info("people with access tokens are let in at %s", " and ".join(self.addresses))

    def _identity(self) -> tuple[bytes, bytes]:
        settings = self._settings
        if settings.certificate is None or settings.key is None:
            identity = own_authority(self._tokens).issue(Party.ACCESS)
            return identity.certificate.encode(), identity.key.encode()
        return read_pem("access", "certificate", settings.certificate), read_pem(
            "access", "key", settings.key
        )


def check_listens(settings: AccessSettings) -> None:
    """Raises `ConfigError` where the configuration says of no place to listen at."""
    if settings.socket is None and not settings.listen:
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            "nobody is let in: access has no address",
            details="neither [access] socket nor [access] listen is set",
            resolution="set in runner.toml, for accounts of this machine: [access] socket = "
            '"/run/oxydra/access.sock" and socket_group = "GROUP"; for others: listen = '
            '"0.0.0.0:7443"',
        )


def _bind(
    server: grpc.aio.Server, target: str, credentials: grpc.ServerCredentials, shown: str
) -> None:
    try:
        port = server.add_secure_port(target, credentials)
    except RuntimeError:
        port = 0
    if port == 0:
        raise HostError(
            Code.UNAVAILABLE,
            f"cannot listen on {shown}",
            details="the address is taken, does not belong to this machine, or its directory is "
            "missing or not writable; or certificate and key do not belong together",
            resolution="correct [access] in runner.toml",
        )


def check_files(settings: AccessSettings) -> None:
    """Check what the settings name: the socket's place and group, certificate, key and authority.

    Changes nothing. Raises `ConfigError`.
    """
    if settings.socket is not None:
        check_place("access", settings.socket)
    if settings.socket_group:
        group_id("access", settings.socket_group)
    for name in ("certificate", "key", "authority"):
        if (path := getattr(settings, name)) is not None:
            read_pem("access", name, path)
