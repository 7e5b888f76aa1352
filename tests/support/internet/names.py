"""The DNS server of an internet, over UDP and TCP."""

import asyncio
import contextlib
import ipaddress
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

from tests.support.internet.arrivals import Arrival, Arrivals

_A, _AAAA = 1, 28
_NO_SUCH_NAME = 3


class Names(asyncio.DatagramProtocol):
    """Answers from `zone`: addresses by name. A name that begins with "rebind-" has the first of
    its addresses the first time that it is asked for, and then the second; for one that begins with
    "silent-" there is no answer."""

    def __init__(self, zone: Mapping[str, Sequence[str]], arrivals: Arrivals) -> None:
        self._zone = zone
        self._arrivals = arrivals
        self._asked: Counter[str] = Counter()
        self._transport: asyncio.DatagramTransport | None = None

    def addresses(self, name: str, kind: int = _A) -> list[str] | None:
        """Of a name, as it is answered now; None if there is no such name."""
        known = self._zone.get(name)
        if name.startswith("rebind-"):
            known = self._zone["rebind-*"]
            self._asked[name] += kind == _A
            known = known[:1] if self._asked[name] <= 1 else known[1:2]
        if known is None:
            return None
        version = 4 if kind == _A else 6
        return [each for each in known if ipaddress.ip_address(each).version == version]

    def forget(self) -> None:
        """Who was asked for; names that rebind begin anew."""
        self._asked.clear()

    def answer(self, question: bytes) -> bytes:
        """The message that answers one."""
        labels, at = [], 12
        while length := question[at]:
            labels.append(question[at + 1 : at + 1 + length].decode("ascii", "replace"))
            at += 1 + length
        name = ".".join(labels).lower()
        (kind,) = struct.unpack_from(">H", question, at + 1)
        self._arrivals.add(Arrival("question", name, f"type {kind}"))
        found = self.addresses(name, kind) if kind in (_A, _AAAA) else self._zone.get(name) and []
        code = _NO_SUCH_NAME if found is None else 0
        head = question[:2] + struct.pack(">5H", 0x8580 | code, 1, len(found or ()), 0, 0)
        records = b"".join(
            b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(packed)) + packed
            for packed in (ipaddress.ip_address(each).packed for each in found or ())
        )
        return head + question[12 : at + 5] + records

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        assert self._transport is not None
        with contextlib.suppress(IndexError, struct.error):  # that was no question
            if b"silent-" not in data:
                self._transport.sendto(self.answer(data), addr)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection over TCP."""
        try:
            while True:
                (length,) = struct.unpack(">H", await reader.readexactly(2))
                said = self.answer(await reader.readexactly(length))
                writer.write(struct.pack(">H", len(said)) + said)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, IndexError, struct.error):
            pass
        finally:
            writer.close()
