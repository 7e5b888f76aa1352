"""The agent guest cannot reach the machine's hypervisor, which no network namespace keeps away."""

import subprocess
import sys

import pytest

_TRY = """
import ctypes, socket, threading
from guest.app import confine

confine()
socket.socket(socket.AF_INET).close()
for pair in socket.socketpair():
    pair.close()

def attempt():
    try:
        socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
    except OSError as error:
        print(error.strerror)

attempt()
later = threading.Thread(target=attempt)
later.start()
later.join()
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(425, 8, 0), ctypes.get_errno())
"""


@pytest.mark.attempt(
    "the agent guest: a socket to the machine's hypervisor",
    stopped_by="the agent puts itself under a filter of system calls before it reads anything",
)
def test_the_agent_makes_no_socket_to_the_hypervisor() -> None:
    """Nor does a later thread, nor anybody through io_uring (38: no such call)."""
    ran = subprocess.run([sys.executable, "-c", _TRY], capture_output=True, text=True, check=True)
    refused = "Operation not permitted"
    assert ran.stdout.splitlines() == [refused, refused, "-1 38"]
