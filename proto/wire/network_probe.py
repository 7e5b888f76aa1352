"""The ways out of a guest that are not egress's listener, each of them tried from inside.

The runner has them tried in the agent and in the shell, at every start. A guest without a network
sends nothing where a way is open: that it can be begun is enough.

A guest behind policies has a network, and its kernel a route to everywhere: there only what comes
back tells. What each outcome means for a connection that policies must stop:

- **connected**, or an answer to a datagram: reached.
- **refused** by a reset: reached. It may be the target's kernel, where nobody listens, or a filter
  that makes up resets. Nothing tells the two apart from inside: a control connection to another
  port of the target, or to a closed port of an allowed peer, is reset in both cases. A hit.
- **rejected** by an ICMP message: not reached. No kernel answers a connection so where nobody
  listens; a filter does, and kube-router's policies are such filters. Who sent the message does not
  tell more, because address translation makes it the target's.
- **silent**: not reached. Where nobody is, it is silent, too; so this proves a policy only together
  with targets that are known to listen, such as the API server: the runner connects to the same
  targets meanwhile, and one of them must answer it (`runner.boundary.check`). Of datagrams the same
  is true of an ICMP message, which a closed port sends as a filter does.

Standard library only, as the shell's probe needs it.
"""

import errno
import json
import secrets
import selectors
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from wire.text import parsed_json

PATIENCE_S: Final = 0.3
POLICED_PATIENCE_S: Final = 2.5
"""How long a dropped packet is waited for, on the way to a node and back."""
METADATA: Final = ("169.254.169.254", "fd00:ec2::254")
_LOOPBACK: Final = ("127.0.0.1", "::1")
_PUBLIC: Final = {"ipv4": "1.1.1.1", "ipv6": "2606:4700:4700::1111"}
_NAME_SERVERS: Final = ("8.8.8.8", "2001:4860:4860::8888")
_NAME: Final = "example.com"
_HTTPS: Final = 443
_HTTP: Final = 80
_DNS: Final = 53
NODE_PORTS: Final = {10250: "its kubelet", 10255: "its kubelet's read-only port", 22: "its SSH"}
_ECHO: Final = {socket.AF_INET: 8, socket.AF_INET6: 128}
_ICMP: Final = {socket.AF_INET: socket.IPPROTO_ICMP, socket.AF_INET6: socket.IPPROTO_ICMPV6}
_DATAGRAM_MAX_BYTES: Final = 2048
_ICMP_ORIGINS: Final = (2, 3)
_RECEIVE_ERRORS: Final = {
    socket.AF_INET: (socket.IPPROTO_IP, 11),
    socket.AF_INET6: (socket.IPPROTO_IPV6, 25),
}
"""IP_RECVERR and IPV6_RECVERR, for which Python has no names."""
_HYPERVISOR: Final = 2
_GATEWAY_FLAG: Final = 0x2
_NOT_TRIED: Final = {
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EINTR),
}
_ANSWERED: Final = ("connected", "refused")
_REFUSED: Final = ("refused",)
_REJECTED: Final = "rejected"
_PROC: Final = Path("/proc")
_TCP: Final = "tcp:"
_QUIC: Final = ("udp", _HTTPS)


class Target(NamedTuple):
    """An IP address to connect to. `label` says whose it is, if that is known."""

    address: str
    port: int
    label: str = ""

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET6 if ":" in self.address else socket.AF_INET

    def __str__(self) -> str:
        place = f"{self.address} can be reached at port {self.port}"
        return f"{place} ({self.label})" if self.label else place


class Spec(NamedTuple):
    """What the runner knows of the host.

    While the ways are tried it listens on `listener_port` of the host's 127.0.0.1, and on the
    abstract Unix socket `listener_name`. `host_addresses` are those of the host's interfaces.
    `egress_listener` is a path in the guest or an endpoint (`tcp:HOST:PORT`); empty if it has none.
    `policed`: the guest has a network, in which policies must keep it from the `forbidden` targets
    as from the outside. Those at port 53 are asked by UDP, too. The runner then listens on all its
    addresses.
    """

    listener_port: int = 0
    listener_name: str = ""
    host_addresses: tuple[str, ...] = ()
    egress_listener: str = ""
    policed: bool = False
    forbidden: tuple[Target, ...] = ()

    def to_json(self) -> bytes:
        return json.dumps(self._asdict(), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, content: bytes) -> "Spec":
        """Raises `ValueError` for anything that is not such a specification."""
        try:
            fields: dict[str, Any] = parsed_json(content)
            fields["host_addresses"] = tuple(fields["host_addresses"])
            fields["forbidden"] = tuple(Target(*row) for row in fields["forbidden"])
            return cls(**fields)
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a specification of ways out: {error!r}") from None


class Route(NamedTuple):
    """One way, and where it leads; `found` is empty if it is shut."""

    name: str
    shut: bool
    found: str


class _Trial:
    """What all ways need: the specification, and all TCP connections and datagrams tried at once.

    Datagrams are sent only behind policies.
    """

    def __init__(self, spec: Spec, proc: Path) -> None:
        self.spec = spec
        self.proc = proc
        self.patience = POLICED_PATIENCE_S if spec.policed else PATIENCE_S
        self.name = Resolution(self.patience)
        public = [Target(address, _HTTPS) for address in _PUBLIC.values()]
        self.metadata = [Target(address, _HTTP) for address in METADATA]
        self.listeners = self._listeners()
        self.peers = [*spec.forbidden, *self._node()]
        public_names = [Target(address, _DNS) for address in _NAME_SERVERS if spec.policed]
        self.name_servers = [*public_names, *(each for each in self.peers if each.port == _DNS)]
        targets = [*public, *self.metadata, *self.listeners, *public_names, *self.peers]
        deadline = time.monotonic() + self.patience
        with Datagrams() as datagrams:
            if spec.policed:
                for address in _PUBLIC.values():
                    datagrams.send(Target(address, _HTTPS), _quic_packet())
                for address in dict.fromkeys(each.address for each in (*public, *self.peers)):
                    datagrams.echo(address)
                for target in self.name_servers:
                    datagrams.send(target, _query())
            self.outcomes = connect(targets, self.patience)
            self.datagrams = datagrams.answered(deadline)

    def answered(self, targets: Iterable[Target], outcomes: Sequence[str] = _ANSWERED) -> str:
        """Which targets were reached. A rejection is no answer where policies may give it."""
        if not self.spec.policed and "refused" in outcomes:
            outcomes = (*outcomes, _REJECTED)
        return "; ".join(str(each) for each in targets if self.outcomes[each] in outcomes)

    def text(self, name: str) -> str:
        """A file of the kernel."""
        return (self.proc / name).read_text()

    def _listeners(self) -> list[Target]:
        port = self.spec.listener_port
        addresses = (*_LOOPBACK, *_gateways(self), *self.spec.host_addresses)
        return [Target(address, port) for address in dict.fromkeys(addresses)] if port else []

    def _node(self) -> list[Target]:
        """The machine that the guest is on, if that is its gateway."""
        if not self.spec.policed:
            return []
        return [target for address in _gateways(self) for target in node(address)]


def node(address: str) -> list[Target]:
    """What a machine of a cluster may serve at an address of its own."""
    return [Target(address, port, f"the node, {what}") for port, what in NODE_PORTS.items()]


def try_all(spec: Spec, proc: Path = _PROC) -> list[Route]:
    """Try every way, within `PATIENCE_S` seconds or little more. Blocks.

    A way that could not be tried is not shut.
    """
    try:
        trial = _Trial(spec, proc)
    except OSError as error:
        return [Route(name, False, f"could not be tried: {error!r}") for name in WAYS]
    return [_tried(name, way, trial) for name, way in _WAYS.items()]


def _tried(name: str, way: Callable[[_Trial], str], trial: _Trial) -> Route:
    try:
        found = way(trial)
    except Exception as error:
        found = f"could not be tried: {error!r}"
    return Route(name, not found, found)


def _public(name: str, trial: _Trial) -> str:
    return trial.answered([Target(_PUBLIC[name], _HTTPS)])


def _loopback(trial: _Trial) -> str:
    """The guest's own loopback may refuse; who refuses at an address of the host was reached."""
    listening = "the runner" if trial.spec.policed else "what listens on the host's 127.0.0.1"
    found = [
        f"{listening} can be reached at {each.address}"
        for each in trial.listeners
        if trial.outcomes[each] == "connected"
    ]
    outside = [each for each in trial.listeners if each.address not in _LOOPBACK]
    return "; ".join([*found, *filter(None, [trial.answered(outside, _REFUSED)])])


def _dns(trial: _Trial) -> str:
    if trial.spec.policed:
        found = [each for each in trial.name_servers if ("udp", each) in trial.datagrams]
        connected = trial.answered(each for each in trial.name_servers if not each.label)
        answers = [f"name server {each.address} answers" for each in found]
        return "; ".join([*answers, *filter(None, [connected])])
    known = [each for each in _NAME_SERVERS if has_route(each, _DNS)]
    return f"name server {', '.join(known)} can be asked" if known else ""


def _quic(trial: _Trial) -> str:
    if trial.spec.policed:
        answers = [each.address for kind, each in trial.datagrams if (kind, each.port) == _QUIC]
        return f"QUIC servers answer: {', '.join(answers)}" if answers else ""
    found = [each for each in _PUBLIC.values() if has_route(each, _HTTPS)]
    return f"UDP goes to {', '.join(found)}" if found else ""


def _icmp(trial: _Trial) -> str:
    if trial.spec.policed:
        answers = [each.address for kind, each in trial.datagrams if kind == "icmp"]
        return f"{', '.join(answers)} answers to ICMP" if answers else ""
    for address in _PUBLIC.values():
        protocol = _ICMP[Target(address, 0).family]
        kinds = (socket.SOCK_RAW, socket.SOCK_DGRAM)
        if any(has_route(address, 0, kind, protocol) for kind in kinds):
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
    """Interfaces and routes, unless no socket can be made that would use them, or policies do."""
    if trial.spec.policed or not (_has_family(socket.AF_INET) or _has_family(socket.AF_INET6)):
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


def _egress_listener(trial: _Trial) -> str:
    """Egress's listener hears nobody without a certificate of the runner's authority."""
    if not trial.spec.egress_listener:
        return ""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with _to_listener(trial.spec.egress_listener) as plain:
            plain.settimeout(trial.patience)
            plain.connect(_address_of(trial.spec.egress_listener))
            with context.wrap_socket(plain) as client:
                client.sendall(b"OXYDRA/1 - - -\r\nGET http://example.com/ HTTP/1.1\r\n\r\n")
                said = client.recv(100)
    except OSError as error:
        require_tried(error, but=errno.EAGAIN)
        return ""
    return "egress's listener answers callers without a certificate" if said else ""


def _to_listener(listener: str) -> socket.socket:
    if not listener.startswith(_TCP):
        return socket.socket(socket.AF_UNIX)
    return socket.socket(Target(_address_of(listener)[0], 0).family)


def _address_of(listener: str) -> Any:
    """What sockets call a path, or an endpoint `tcp:HOST:PORT`."""
    if not listener.startswith(_TCP):
        return listener
    host, _, port = listener.removeprefix(_TCP).rpartition(":")
    return host.strip("[]"), int(port)


_WAYS: Final[Mapping[str, Callable[[_Trial], str]]] = {
    "ipv4": partial(_public, "ipv4"),
    "ipv6": partial(_public, "ipv6"),
    "dns": _dns,
    "resolver": lambda trial: trial.name.found(),
    "quic": _quic,
    "icmp": _icmp,
    "packet": _packet,
    "metadata": lambda trial: trial.answered(trial.metadata),
    "loopback": _loopback,
    "peers": lambda trial: trial.answered(trial.peers),  # what policies must keep from it
    "abstract": _abstract,
    "interfaces": _interfaces,
    "vsock": _vsock,
    "egress_listener": _egress_listener,
}
WAYS: Final = tuple(_WAYS)
"""Their names, in the order of the report. All of them must be tried."""

POLICED: Final = (
    *("ipv4", "ipv6", "dns", "resolver", "quic", "icmp", "metadata", "loopback", "peers"),
)
"""Those that policies shut, where a guest has a network. Its kernel or engine shuts the others."""


class Resolution:
    """The system's resolver, asked for a public name. It may think longer than we wait."""

    def __init__(self, patience: float) -> None:
        self._outcome = ""
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._deadline = time.monotonic() + patience
        self._thread.start()

    def found(self) -> str:
        self._thread.join(max(0.0, self._deadline - time.monotonic()))
        return self._outcome

    def _ask(self) -> None:
        with suppress(OSError):
            socket.getaddrinfo(_NAME, _HTTPS)
            self._outcome = f"the system's resolver knows {_NAME}"


class Datagrams:
    """Datagrams that ask for an answer, each sent twice because any may be lost."""

    def __init__(self) -> None:
        self._sent: list[tuple[str, Target, socket.socket]] = []

    def __enter__(self) -> "Datagrams":
        return self

    def __exit__(self, *_: object) -> None:
        for sent in self._sent:
            sent[2].close()

    def send(self, target: Target, content: bytes) -> None:
        """One by UDP."""
        self.send_of("udp", target, content, socket.IPPROTO_UDP)

    def echo(self, address: str) -> None:
        """The kernel fills in checksum and id."""
        target = Target(address, 0)
        packet = struct.pack("!BBHHH", _ECHO[target.family], 0, 0, 0, 1)
        self.send_of("icmp", target, packet, _ICMP[target.family])

    def answered(self, deadline: float) -> list[tuple[str, Target]]:
        """Of which an answer has come, or comes until `deadline`, by `udp` or `icmp` and the
        target."""
        waiting = {client: None for _, _, client in self._sent}
        for client in _ready(waiting, selectors.EVENT_READ, deadline):
            try:
                client.recv(_DATAGRAM_MAX_BYTES)
            except OSError as error:  # the second one may be answered yet
                require_tried(error, but=errno.EAGAIN)
            else:
                del waiting[client]
        return [(kind, target) for kind, target, client in self._sent if client not in waiting]

    def send_of(self, kind: str, target: Target, content: bytes, protocol: int) -> None:
        try:
            client = socket.socket(target.family, socket.SOCK_DGRAM, protocol)
        except OSError as error:
            require_tried(error)
            return
        self._sent.append((kind, target, client))
        client.setblocking(False)
        try:
            client.connect((target.address, target.port))
            client.send(content)
            client.send(content)
        except OSError as error:
            require_tried(error)


def _query() -> bytes:
    """A question for the address of a public name, which any name server answers."""
    name = b"".join(struct.pack("!B", len(each)) + each.encode() for each in _NAME.split("."))
    return secrets.token_bytes(2) + struct.pack("!5H", 0x100, 1, 0, 0, 0) + name + b"\0\0\1\0\1"


def _quic_packet() -> bytes:
    """An Initial packet of a version that nobody knows: servers name those that they know."""
    ids = b"\x08" + secrets.token_bytes(8) + b"\x08" + secrets.token_bytes(8)
    return (b"\xc0\x1a\x2a\x3a\x4a" + ids).ljust(1200, b"\0")


def connect(targets: Iterable[Target], patience: float = PATIENCE_S) -> dict[Target, str]:
    """Try all targets at once. The outcome of each is `connected`, `refused` (a host answered),
    `rejected` (something on the way did, by ICMP), `unreachable` (the kernel has no route) or
    `silent` (no answer within `patience` seconds)."""
    outcomes = dict.fromkeys(targets, "unreachable")
    waiting: dict[socket.socket, Target] = {}
    for target in outcomes:
        try:
            client = socket.socket(target.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError as error:
            require_tried(error)
            continue
        with suppress(OSError):  # then nothing tells a rejection from a refusal
            client.setsockopt(*_RECEIVE_ERRORS[target.family], 1)
        number = client.connect_ex((target.address, target.port))
        if number == errno.EINPROGRESS:
            outcomes[target] = "silent"
            waiting[client] = target
        else:
            outcomes[target] = _outcome(number, client)
            client.close()
    for client in _ready(waiting, selectors.EVENT_WRITE, time.monotonic() + patience):
        number = client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        outcomes[waiting.pop(client)] = _outcome(number, client)
        client.close()
    for client in waiting:
        client.close()
    return outcomes


def _ready(
    waiting: Mapping[socket.socket, object], event: int, deadline: float
) -> Iterator[socket.socket]:
    """Each socket whenever something has become of it, as long as it is in `waiting`, and what has
    come already even after the deadline. `select` knows no descriptors above 1023, of which an
    agent may have some."""
    with selectors.PollSelector() as selector:
        for client in waiting:
            selector.register(client, event)
        while waiting:
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                return
            for key, _ in ready:
                assert isinstance(key.fileobj, socket.socket)
                yield key.fileobj
                if key.fileobj not in waiting:
                    selector.unregister(key.fd)


def _outcome(number: int, client: socket.socket) -> str:
    if number == 0:
        return "connected"
    if number not in (errno.ECONNREFUSED, errno.ECONNRESET):
        return "unreachable"
    return _REJECTED if _by_icmp(client) else "refused"


def _by_icmp(client: socket.socket) -> bool:
    """Whether an ICMP message has ended a connection that had not begun. Kernels before 5.10 do not
    tell."""
    try:
        messages = client.recvmsg(1, _DATAGRAM_MAX_BYTES, socket.MSG_ERRQUEUE)[1]
    except OSError as error:
        if error.errno != errno.EAGAIN:
            require_tried(error)
        return False
    kinds = [_RECEIVE_ERRORS[family] for family in _RECEIVE_ERRORS]
    return any(
        (level, kind) in kinds and told[4] in _ICMP_ORIGINS for level, kind, told in messages
    )


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
    with suppress(FileNotFoundError):  # a kernel without IPv6
        for line in trial.text("net/ipv6_route").splitlines():
            fields = line.split()
            if int(fields[8], 16) & _GATEWAY_FLAG:
                address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(fields[4]))
                found.append(f"{address}%{fields[9]}" if address.startswith("fe80:") else address)
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
