"""JSON lines with descriptors beside them, between the daemon and its processes."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable, Sequence
from typing import Any

_CHUNK = 65536


class Channel:
    """One end of a socket pair, read as messages come.

    `on_end` is called once, when the other side is gone, and is to `close`; it
    is not called after that.
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
        """Send one line; returns what did not fit, which `flush` must send.

        A side that is gone takes nothing, without an error: `on_end` tells.
        """
        data = json.dumps(message, ensure_ascii=False).encode() + b"\n"
        with contextlib.suppress(OSError):
            return data[socket.send_fds(self._socket, [data], descriptors) :]
        return b""

    async def flush(self, rest: bytes) -> None:
        """Send what `send` left over."""
        if rest:
            with contextlib.suppress(OSError):
                await self._loop.sock_sendall(self._socket, rest)

    def finish(self) -> None:
        """Send no more; the other side reads end-of-file and may still answer."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> bool:
        """Stop reading and close; whether it was open."""
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
