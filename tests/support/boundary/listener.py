"""A listener of egress, as the self-test finds it from inside a guest."""

import socket
import ssl
import threading
from contextlib import suppress


def answer_once(listener: socket.socket, context: ssl.SSLContext) -> None:
    """Answer whatever the next client sends over TLS, in a thread."""

    def answer() -> None:
        with suppress(OSError), context.wrap_socket(listener.accept()[0], server_side=True) as peer:
            peer.recv(100)
            peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

    threading.Thread(target=answer, daemon=True).start()
