"""What reaches an internet at all, as its cable sees it."""

import socket
import struct
from typing import Final

from tests.support.internet.arrivals import Arrival, Arrivals

_ALL: Final = 3  # ETH_P_ALL
_IPV4, _IPV6 = 0x0800, 0x86DD
_OUTGOING: Final = 4
_ICMP, _TCP, _UDP, _ICMPV6 = 1, 6, 17, 58
_UNREACHABLE: Final = 3
"""ICMP by which a machine answers a packet that nobody waits for. It quotes that packet's header of
20 bytes, behind 8 of its own."""
_NEIGHBOURS: Final = range(130, 144)
"""ICMPv6 by which machines on a cable find each other."""


def open_cable() -> socket.socket:
    """A socket that gets every packet; made inside the network."""
    return socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ALL))


def read(cable: socket.socket, arrivals: Arrivals) -> None:
    """Add what lies there: the first packet of each connection, each datagram, each other one."""
    while True:
        try:
            packet, (_, kind, direction, *_) = cable.recvfrom(2048)
        except BlockingIOError:
            return
        if direction != _OUTGOING and (found := _arrival(kind, packet)):
            arrivals.add(found)


def _arrival(kind: int, packet: bytes) -> Arrival | None:
    if kind == _IPV4:
        protocol, to = packet[9], socket.inet_ntop(socket.AF_INET, packet[16:20])
        inner = packet[(packet[0] & 15) * 4 :]
    elif kind == _IPV6:
        protocol, to = packet[6], socket.inet_ntop(socket.AF_INET6, packet[24:40])
        inner = packet[40:]
        if protocol == 0 or (protocol == _ICMPV6 and inner[0] in _NEIGHBOURS):
            return None
    else:
        return None
    if protocol == _TCP:
        is_first = inner[13] & 0x12 == 0x02
        return Arrival("packet", f"{to}:{_port(inner)}", "tcp") if is_first else None
    if protocol == _UDP:
        return Arrival("packet", f"{to}:{_port(inner)}", "udp", body=inner[8:])
    if protocol == _ICMP and inner[0] == _UNREACHABLE and inner[17:18] == bytes([_UDP]):
        return Arrival("packet", to, f"nobody waits for udp from {_port_from(inner[28:])}")
    name = "icmp" if protocol in (_ICMP, _ICMPV6) else f"protocol {protocol}"
    return Arrival("packet", to, name, body=inner)


def _port(inner: bytes) -> int:
    (port,) = struct.unpack_from(">H", inner, 2)
    return int(port)


def _port_from(inner: bytes) -> int:
    return int.from_bytes(inner[:2], "big")
