"""JSON lines and descriptors, exchanged between the daemon and its helper processes."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable, Sequence
from typing import Any

_CHUNK = 65536


class Channel:
    """One end of a socket pair, which it owns.

    `on_end` is called once, when the other side is gone, and must call `close`. It is not called
    after a `close`.
    """

    def __init__(
        self,
        peer: socket.socket,
        on_message: Callable[[dict[str, Any]], None],
        on_end: Callable[[], None],
    ) -> None:
        peer.setblocking(False)
        self._socket = peer
        self._buffer = b""
        self._on_message = on_message
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(peer, self._readable)

    def send(self, message: Any, descriptors: Sequence[int] = ()) -> bytes:
        """Send one line, with descriptors beside it, and return the bytes that did not fit, for
        `flush`. If the other side is gone, this does nothing; `on_end` reports it."""
        data = json.dumps(message, ensure_ascii=False).encode() + b"\n"
        with contextlib.suppress(OSError):
            return data[socket.send_fds(self._socket, [data], descriptors) :]
        return b""

    async def flush(self, unsent: bytes) -> None:
        """Send the bytes that `send` returned."""
        if unsent:
            with contextlib.suppress(OSError):
                await self._loop.sock_sendall(self._socket, unsent)

    def finish(self) -> None:
        """Stop sending; the other side reads end-of-file and may still answer."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> bool:
        """Stop reading and close; returns whether the channel was open."""
        if self._socket.fileno() < 0:
            return False
        self._loop.remove_reader(self._socket)
        self._socket.close()
        return True

    def _readable(self) -> None:
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            self._on_message(json.loads(line))
        if not data:
            self._loop.remove_reader(self._socket)
            self._on_end()
