"""The server for people with access tokens: a socket, or TCP, always with TLS.

The server proves itself by its certificate, the client by its token. Both lie in an access file,
which the operator makes with `runner access create` and hands over.
"""

import contextlib
import fcntl
import grp
import logging
import os
import stat
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Self

import grpc
from wire.disk.listener import listener
from wire.errors import Code
from wire.identity import Party
from wire.limits import GRPC_MESSAGE_MAX_BYTES
from wire.settings import AccessSettings
from wire.transport import unix_endpoint

from runner.access.agents import Agents
from runner.access.callers import Callers
from runner.access.relay import Relay
from runner.access.tokens import Tokens
from runner.config.models import Config
from runner.config.trust import way_of_others
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
    ("grpc.max_concurrent_streams", 100),
    ("grpc.max_connection_idle_ms", 600_000),
)


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
                resolution="end that one first: `runner access serve` or `runner start --all`",
            ) from None
        await stack.enter_async_context(self._callers)
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((Relay(self._callers),))
        credentials = grpc.ssl_server_credentials([(key, certificate)])
        if settings.socket is not None:
            _clear_place(settings.socket)
            _bind(server, unix_endpoint(settings.socket), credentials, str(settings.socket))
            stack.callback(settings.socket.unlink, missing_ok=True)
            _open_to_group(settings.socket, settings.socket_group)
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
        return read_pem("certificate", settings.certificate), read_pem("key", settings.key)


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
        _check_place(settings.socket)
    if settings.socket_group:
        _group(settings.socket_group)
    for name in ("certificate", "key", "authority"):
        if (path := getattr(settings, name)) is not None:
            read_pem(name, path)


def _check_place(socket: Path) -> None:
    why, fix = (
        way_of_others(socket.parent),
        "name a directory where only this account and root write",
    )
    if not why and socket.exists() and not socket.is_socket():
        why, fix = "something that is no socket is there", f"move {socket} away"
    if why:
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            f"cannot use [access] socket {socket}",
            details=why,
            resolution=f"{fix}, or name another place",
        )


def _clear_place(socket: Path) -> None:
    """Remove the socket that a server which has ended may have left."""
    with contextlib.suppress(OSError):
        pid = listener(str(socket))
        raise HostError(
            Code.ALREADY_EXISTS,
            f"another program listens on [access] socket {socket}",
            details=f"its pid is {pid}",
            resolution="end that one, or name another place",
        )
    socket.unlink(missing_ok=True)


def _group(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            f"there is no group {name}",
            details="[access] socket_group names it",
            resolution=f"groupadd {name}, or name another",
        ) from None


def _open_to_group(socket: Path, group: str) -> None:
    """Let `group` connect, if there is one, and nobody else but this account."""
    if group:
        try:
            os.chown(socket, -1, _group(group))
        except PermissionError:
            raise ConfigError(
                Code.FAILED_PRECONDITION,
                f"cannot open [access] socket to the group {group}",
                details="an account that is not root can do so only for groups that it is in",
                resolution=f"usermod -a -G {group} USER, then log in anew; or name another group",
            ) from None
    socket.chmod(0o660 if group else 0o600)


def read_pem(name: str, path: Path) -> bytes:
    """The content of the file that `[access] name` names. Raises `ConfigError` if it is no PEM file
    or cannot be read, and for a key that every account can read."""
    try:
        found = path.stat()
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            f"cannot read {path}",
            details=f"[access] {name} names it: {error.strerror or error}",
            resolution=f"ls -l {path}; it must be a PEM file that this account can read",
        ) from None
    if name == "key" and found.st_mode & stat.S_IRWXO:
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            f"every account can read the key {path}",
            details=f"its mode is {stat.S_IMODE(found.st_mode):04o}",
            resolution=f"chmod o= {path}; if somebody may have read the key, make another",
        )
    if b"-----BEGIN " not in content:
        raise ConfigError(
            Code.INVALID_ARGUMENT,
            f"{path} is no PEM file",
            details=f"[access] {name} names it",
            resolution="name a file that begins with -----BEGIN",
        )
    return content
