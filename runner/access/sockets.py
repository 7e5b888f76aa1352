"""Places that a server for people outside listens at, and its certificate: checked, cleared and
opened. `section` is that of the configuration which names them."""

import contextlib
import fcntl
import grp
import ipaddress
import os
import ssl
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from wire.disk import listener, store
from wire.errors import Code
from wire.identity import Party
from wire.settings import AccessSettings, ServeSettings

from runner.access.tokens import Tokens
from runner.config.trust import writable_by_others
from runner.errors import ConfigError, HostError, file_errors
from runner.host.authority import Authority
from runner.workspace.directories import descriptor

SERVER_NAME: Final = Party.ACCESS.value
"""The name in a certificate of the runner's own, whatever the address."""


def check_files(section: str, settings: AccessSettings | ServeSettings) -> None:
    """Check what the settings name: the socket's place and group, certificate, key and authority.

    Changes nothing. Raises `ConfigError`.
    """
    if settings.socket is not None:
        check_socket(section, settings.socket)
    if settings.socket_group:
        group_id(section, settings.socket_group)
    for name in ("certificate", "key", "authority"):
        if (path := getattr(settings, name, None)) is not None:
            read_pem(section, name, path)
    expiry(section, settings)


def check_settings(settings: ServeSettings, access: AccessSettings) -> None:
    """Check what the settings name, and that others are served by TLS. Raises `ConfigError`."""
    if not any((settings.listen, settings.socket, access.listen, access.socket)):
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            "the HTTP server has no address",
            details="neither [serve] nor [access] sets listen or socket",
            resolution='runner config edit, and write [serve] listen = "127.0.0.1:7480"',
        )
    host = settings.listen.rpartition(":")[0]
    if settings.listen and settings.certificate is None and not is_local(host):
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            f"the HTTP server must not listen on {settings.listen} without TLS",
            details="everybody on the way could read and change what is said",
            resolution="set [serve] certificate and key; or listen on 127.0.0.1, or on a socket, "
            "behind a reverse proxy with TLS",
        )
    check_files("serve", settings)
    check_files("access", access)
    if settings.user_header_from == "socket" and settings.listen:
        if not settings.listen_beside_proxy:
            raise ConfigError(
                Code.FAILED_PRECONDITION,
                f"a reverse proxy says who calls, and {settings.listen} goes past it",
                details='with [serve] user_header_from = "socket", listen is for people whom the '
                "proxy has not let in",
                resolution='runner config edit, and write [serve] listen = ""; or, if people shall '
                "get in there with links and tokens: listen_beside_proxy = true",
            )
    elif settings.user_header_from:
        try:
            ipaddress.ip_address(settings.user_header_from)
        except ValueError:
            raise ConfigError(
                Code.INVALID_ARGUMENT,
                f"[serve] user_header_from is not an address: {settings.user_header_from}",
                resolution='name an IP address such as 127.0.0.1, or "socket"',
            ) from None


def is_local(host: str) -> bool:
    """Whether a name or an address is this machine for itself."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return host == "localhost"


def expiry(section: str, settings: AccessSettings | ServeSettings) -> datetime | None:
    """When the certificate expires, if there is one. Raises `ConfigError` if it is not usable."""
    certificate, key = settings.certificate, settings.key
    if certificate is None or key is None:
        return None
    try:
        found = x509.load_pem_x509_certificate(read_pem(section, "certificate", certificate))
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (ValueError, OSError) as error:  # `ssl.SSLError` is an `OSError`
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            "certificate and key cannot be used",
            details=f"{certificate}, {key}: {error}",
            resolution=f"[{section}] certificate and key must belong together, the key without a "
            "passphrase",
        ) from None
    first, last = found.not_valid_before_utc, found.not_valid_after_utc
    if not first <= datetime.now(UTC) <= last:
        expired = last < datetime.now(UTC)
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            f"the certificate {certificate} {'has expired' if expired else 'is not valid yet'}",
            details=f"it is valid from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC, and no "
            "browser and no client accepts it now",
            resolution="renew it, then: runner serve" if expired else "check this machine's clock",
        )
    return last


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
                "the authority for access files is damaged, so nobody can be let in with one",
                details=f"{path}: {error.details}",
                resolution=f"mv {path} {path}.damaged; then make new access files: those that are "
                "out do not trust another one",
            ) from None
        authority = Authority.new()
        store(path, authority.to_pem())
        return authority


def own_identity(tokens: Tokens) -> Path:
    """A file with a new certificate of `own_authority` and its key, private to this account."""
    identity = own_authority(tokens).issue(Party.ACCESS)
    path = tokens.directory / "identity.pem"
    store(path, f"{identity.certificate}{identity.key}")
    return path


def check_socket(section: str, socket: Path) -> None:
    """Check that a socket may stand there. Changes nothing. Raises `ConfigError`."""
    why, fix = (
        writable_by_others(socket.parent),
        "name a directory where only this account and root write",
    )
    if not why and socket.exists() and not socket.is_socket():
        why, fix = "another file is there", f"move {socket} away"
    if why:
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            f"cannot use [{section}] socket {socket}",
            details=why,
            resolution=f"{fix}, or name another place",
        )


def clear_socket(section: str, socket: Path) -> None:
    """Remove the socket that a server which has ended may have left."""
    with contextlib.suppress(OSError):
        pid = listener(str(socket))
        raise HostError(
            Code.ALREADY_EXISTS,
            f"another program listens on [{section}] socket {socket}",
            details=f"its pid is {pid}",
            resolution="end that one, or name another place",
        )
    socket.unlink(missing_ok=True)


def group_id(section: str, name: str) -> int:
    """The id of a group. Raises `ConfigError` if there is none."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise ConfigError(
            Code.FAILED_PRECONDITION,
            f"there is no group {name}",
            details=f"[{section}] socket_group names it",
            resolution=f"groupadd {name}, or name another",
        ) from None


def open_to_group(section: str, socket: Path, group: str) -> None:
    """Let `group` connect, if there is one, and nobody else but this account."""
    if group:
        try:
            os.chown(socket, -1, group_id(section, group))
        except PermissionError:
            raise ConfigError(
                Code.FAILED_PRECONDITION,
                f"cannot open [{section}] socket to the group {group}",
                details="an account that is not root can do so only for groups that it is in",
                resolution=f"usermod -a -G {group} USER, then log in anew; or name another group",
            ) from None
    socket.chmod(0o660 if group else 0o600)


def read_pem(section: str, name: str, path: Path) -> bytes:
    """The content of the file that `[section] name` names.

    Raises `ConfigError` if it is no readable PEM file, or a key that every account can read.
    """
    fix = f"ls -l {path}; it must be a PEM file that this account can read"
    because = f"[{section}] {name} names it: "
    with file_errors(f"cannot read {path}", fix, because=because, kind=ConfigError):
        found = path.stat()
        content = path.read_bytes()
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
            f"{path} is not a PEM file",
            details=f"[{section}] {name} names it",
            resolution="name a file that begins with -----BEGIN",
        )
    return content
