"""Who listens on a Unix socket."""

import socket
import struct
from typing import Final

_CONNECT_S: Final = 0.1
_CREDENTIALS: Final = struct.Struct("iII")


def listener(address: str) -> int:
    """The number of the process that listens on the stream socket at `address`, by connecting to
    it; 0 if that process lies outside this one's namespace of processes.

    Raises:
        OSError: It could not be connected to within 0.1 s.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_CONNECT_S)
        client.connect(address)
        sent = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(sent)[0])
