"""The ways out of a guest that are not egress's door, each of them tried from inside.

The runner has them tried in the agent and in the shell, at every start. Nothing is sent where a
way is open: that it can be begun is enough. Standard library only, as the shell's probe needs it.
"""

import errno
import json
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from wire.text import parsed_json

PATIENCE_S: Final = 0.3
METADATA: Final = ("169.254.169.254", "fd00:ec2::254")
_LOOPBACK: Final = ("127.0.0.1", "::1")
_PUBLIC: Final = {"ipv4": "1.1.1.1", "ipv6": "2606:4700:4700::1111"}
_NAME_SERVERS: Final = ("8.8.8.8", "2001:4860:4860::8888")
_NAME: Final = "example.com"
_HTTPS: Final = 443
_HTTP: Final = 80
_DNS: Final = 53
_HYPERVISOR: Final = 2
_GATEWAY_FLAG: Final = 0x2
_NOT_TRIED: Final = {
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EINTR),
}
_ANSWERED: Final = ("connected", "refused")
_PROC: Final = Path("/proc")


class Spec(NamedTuple):
    """What the runner knows of the host.

    While the ways are tried it listens on `listener_port` of the host's 127.0.0.1, and on the
    abstract Unix socket `listener_name`. `host_addresses` are those of the host's interfaces.
    `door` is the path of egress's socket in the guest; empty if it has none.
    """

    listener_port: int = 0
    listener_name: str = ""
    host_addresses: tuple[str, ...] = ()
    door: str = ""

    def to_json(self) -> bytes:
        return json.dumps(self._asdict(), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, content: bytes) -> "Spec":
        """Raises `ValueError` for anything that is not such a specification."""
        try:
            fields: dict[str, Any] = parsed_json(content)
            return cls(**{**fields, "host_addresses": tuple(fields["host_addresses"])})
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a specification of ways out: {error!r}") from None


class WayOut(NamedTuple):
    """One way, and where it leads; `found` is empty if it is shut."""

    name: str
    shut: bool
    found: str


class Target(NamedTuple):
    """An address to connect to."""

    address: str
    port: int

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET6 if ":" in self.address else socket.AF_INET


class _Trial:
    """What all ways need: the specification, and all TCP connections tried at once."""

    def __init__(self, spec: Spec, proc: Path) -> None:
        self.spec = spec
        self.proc = proc
        self.name = _Resolution()
        public = [Target(address, _HTTPS) for address in _PUBLIC.values()]
        self.metadata = [Target(address, _HTTP) for address in METADATA]
        self.listeners = self._listeners()
        self.outcomes = connect([*public, *self.metadata, *self.listeners])

    def answered(self, targets: Iterable[Target], outcomes: Sequence[str] = _ANSWERED) -> str:
        found = [each for each in targets if self.outcomes[each] in outcomes]
        return "; ".join(f"{each.address} can be reached at port {each.port}" for each in found)

    def text(self, name: str) -> str:
        """A file of the kernel."""
        return (self.proc / name).read_text()

    def _listeners(self) -> list[Target]:
        port = self.spec.listener_port
        addresses = (*_LOOPBACK, *_gateways(self), *self.spec.host_addresses)
        return [Target(address, port) for address in dict.fromkeys(addresses)] if port else []


def try_all(spec: Spec, proc: Path = _PROC) -> list[WayOut]:
    """Try every way, within `PATIENCE_S` seconds or little more. Blocks.

    A way that could not be tried is not shut.
    """
    try:
        trial = _Trial(spec, proc)
    except OSError as error:
        return [WayOut(name, False, f"could not be tried: {error!r}") for name in WAYS]
    return [_tried(name, way, trial) for name, way in _WAYS.items()]


def _tried(name: str, way: Callable[[_Trial], str], trial: _Trial) -> WayOut:
    try:
        found = way(trial)
    except Exception as error:
        found = f"could not be tried: {error!r}"
    return WayOut(name, not found, found)


def _ipv4(trial: _Trial) -> str:
    return trial.answered([Target(_PUBLIC["ipv4"], _HTTPS)])


def _ipv6(trial: _Trial) -> str:
    return trial.answered([Target(_PUBLIC["ipv6"], _HTTPS)])


def _metadata(trial: _Trial) -> str:
    return trial.answered(trial.metadata)


def _loopback(trial: _Trial) -> str:
    """The guest's own loopback may refuse; who refuses at an address of the host was reached."""
    found = [
        f"what listens on the host's 127.0.0.1 can be reached at {each.address}"
        for each in trial.listeners
        if trial.outcomes[each] == "connected"
    ]
    outside = [each for each in trial.listeners if each.address not in _LOOPBACK]
    return "; ".join([*found, *filter(None, [trial.answered(outside, ["refused"])])])


def _dns(_trial: _Trial) -> str:
    found = [each for each in _NAME_SERVERS if has_route(each, _DNS)]
    return f"name server {', '.join(found)} can be asked" if found else ""


def _quic(_trial: _Trial) -> str:
    found = [each for each in _PUBLIC.values() if has_route(each, _HTTPS)]
    return f"UDP goes to {', '.join(found)}" if found else ""


def _resolver(trial: _Trial) -> str:
    return trial.name.found()


def _icmp(_trial: _Trial) -> str:
    for kind, family, protocol in (
        (socket.SOCK_RAW, socket.AF_INET, socket.IPPROTO_ICMP),
        (socket.SOCK_DGRAM, socket.AF_INET, socket.IPPROTO_ICMP),
        (socket.SOCK_RAW, socket.AF_INET6, socket.IPPROTO_ICMPV6),
        (socket.SOCK_DGRAM, socket.AF_INET6, socket.IPPROTO_ICMPV6),
    ):
        address = _PUBLIC["ipv4" if family is socket.AF_INET else "ipv6"]
        if has_route(address, 0, kind, protocol):
            return f"ICMP goes to {address}"
    return ""


def _packet(_trial: _Trial) -> str:
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as client:
            for _, name in socket.if_nameindex():
                if name == "lo":
                    continue
                with suppress(OSError):
                    client.bind((name, 0))
                    return f"packets can be sent at the interface {name}"
    except OSError as error:
        require_tried(error)
    return ""


def _abstract(trial: _Trial) -> str:
    if not (name := trial.spec.listener_name):
        return ""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as client:
        number = client.connect_ex(f"\0{name}")
    if number == 0:
        return "an abstract Unix socket of the host answers"
    require_tried(OSError(number, ""))
    return ""


def _interfaces(trial: _Trial) -> str:
    """Interfaces and routes, unless no socket can be made that would use them."""
    if not (_has_family(socket.AF_INET) or _has_family(socket.AF_INET6)):
        return ""
    lines = trial.text("net/dev").splitlines()[2:]
    others = sorted({line.partition(":")[0].strip() for line in lines} - {"lo"})
    found = [f"there are network interfaces: {', '.join(others)}"] if others else []
    return "; ".join([*found, *(["there are routes"] if _has_routes(trial) else [])])


def _vsock(_trial: _Trial) -> str:
    try:
        client = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
    except OSError as error:
        require_tried(error)
        return ""
    with client:
        client.settimeout(PATIENCE_S)
        number = client.connect_ex((_HYPERVISOR, _HTTP))
    if number in (0, errno.ECONNRESET, errno.ECONNREFUSED):
        return "the machine's hypervisor answers"
    require_tried(OSError(number, ""), but=errno.EAGAIN)
    return ""


def _door(trial: _Trial) -> str:
    """Egress's door hears nobody without a certificate of the runner's authority."""
    if not trial.spec.door:
        return ""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.socket(socket.AF_UNIX) as plain:
            plain.settimeout(PATIENCE_S)
            plain.connect(trial.spec.door)
            with context.wrap_socket(plain) as client:
                client.sendall(b"OXYDRA/1 - - -\r\nGET http://example.com/ HTTP/1.1\r\n\r\n")
                said = client.recv(100)
    except OSError as error:
        require_tried(error, but=errno.EAGAIN)
        return ""
    return "egress's door answers callers without a certificate" if said else ""


_WAYS: Final[Mapping[str, Callable[[_Trial], str]]] = {
    "ipv4": _ipv4,
    "ipv6": _ipv6,
    "dns": _dns,
    "resolver": _resolver,
    "quic": _quic,
    "icmp": _icmp,
    "packet": _packet,
    "metadata": _metadata,
    "loopback": _loopback,
    "abstract": _abstract,
    "interfaces": _interfaces,
    "vsock": _vsock,
    "door": _door,
}
WAYS: Final = tuple(_WAYS)
"""Their names, in the order of the report. All of them must be tried."""


class _Resolution:
    """The system's resolver, asked for a public name. It may think longer than we wait."""

    def __init__(self) -> None:
        self._outcome = ""
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._deadline = time.monotonic() + PATIENCE_S
        self._thread.start()

    def found(self) -> str:
        self._thread.join(max(0.0, self._deadline - time.monotonic()))
        return self._outcome

    def _ask(self) -> None:
        with suppress(OSError):
            socket.getaddrinfo(_NAME, _HTTPS)
            self._outcome = f"the system's resolver knows {_NAME}"


def connect(targets: Iterable[Target], patience: float = PATIENCE_S) -> dict[Target, str]:
    """Try all targets at once. The outcome of each is `connected`, `refused` (a host answered),
    `unreachable` (the kernel has no route) or `silent` (no answer within `patience` seconds)."""
    outcomes = dict.fromkeys(targets, "unreachable")
    waiting: dict[socket.socket, Target] = {}
    for target in outcomes:
        try:
            client = socket.socket(target.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            require_tried(error)
            continue
        number = client.connect_ex((target.address, target.port))
        if number == errno.EINPROGRESS:
            outcomes[target] = "silent"
            waiting[client] = target
        else:
            outcomes[target] = _outcome(number)
            client.close()
    deadline = time.monotonic() + patience
    while waiting and (left := deadline - time.monotonic()) > 0:
        for client in select.select([], list(waiting), [], left)[1]:
            number = client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            outcomes[waiting.pop(client)] = _outcome(number)
            client.close()
    for client in waiting:
        client.close()
    return outcomes


def _outcome(number: int) -> str:
    if number == 0:
        return "connected"
    return "refused" if number in (errno.ECONNREFUSED, errno.ECONNRESET) else "unreachable"


def has_route(
    address: str, port: int, kind: socket.SocketKind = socket.SOCK_DGRAM, protocol: int = 0
) -> bool:
    """Whether the kernel has a route for a datagram; none is sent."""
    family = Target(address, port).family
    try:
        with socket.socket(family, kind, protocol) as client:
            return client.connect_ex((address, port)) == 0
    except OSError as error:
        require_tried(error)
        return False


def _has_routes(trial: _Trial) -> bool:
    if len(trial.text("net/route").splitlines()) > 1:
        return True
    try:
        lines = trial.text("net/ipv6_route").splitlines()
    except FileNotFoundError:
        return False
    return any(line.split()[-1] != "lo" for line in lines if line.strip())


def _gateways(trial: _Trial) -> list[str]:
    found = []
    for line in trial.text("net/route").splitlines()[1:]:
        fields = line.split()
        if int(fields[3], 16) & _GATEWAY_FLAG:
            found.append(socket.inet_ntoa(int(fields[2], 16).to_bytes(4, "little")))
    return found


def _has_family(family: socket.AddressFamily) -> bool:
    try:
        socket.socket(family, socket.SOCK_DGRAM).close()
    except OSError as error:
        require_tried(error)
        return False
    return True


def require_tried(error: OSError, *, but: int = 0) -> None:
    """Raise `error` again if it is no answer: the process ran out of something, or nobody answered.
    `but` is an answer here. Processes with the same user id could see to that."""
    unanswered = isinstance(error, TimeoutError | ChildProcessError) and not but
    if unanswered or error.errno in _NOT_TRIED - {but}:
        raise error
