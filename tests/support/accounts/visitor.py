"""The program that another account runs: it makes attempts and tells what came of each.

It runs with nothing but Python's own library, under whatever Python that account can start. An
attempt is an object whose `do` is the name of a function below and whose other members are its
arguments. What came of it begins with `refused` or with `got`.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

GOT = "got"
REFUSED = "refused"
_READ_MAX = 1 << 20
_QUIET_S = 2.0
_PTRACE_SEIZE = 0x4206
_VM_READV, _PIDFD_GETFD, _IOPRIO_SET = 310, 438, 251  # x86-64
_TLS_ALERT = 0x15
_REFUSALS = (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ECONNREFUSED, errno.ESRCH, errno.ENXIO)


def read(at: str) -> str:
    """Read a file, as far as it goes."""
    fd = os.open(at, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(fd, _READ_MAX).decode(errors="replace")
    finally:
        os.close(fd)


def write(at: str) -> str:
    """Open a file for writing, and leave it as it is."""
    os.close(os.open(at, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK))
    return "it opened"


def lock(at: str) -> str:
    """Lock a file or directory, for which reading is enough."""
    fd = os.open(at, os.O_RDONLY | os.O_NONBLOCK)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    finally:
        os.close(fd)
    return "locked"


def names(at: str) -> str:
    """List a directory."""
    return " ".join(os.listdir(at))


def plant(at: str) -> str:
    """Make something in a directory."""
    place = os.path.join(at, "planted-by-another-account")
    os.mkdir(place)
    os.rmdir(place)
    return "made"


def replace(at: str) -> str:
    """Put something else in the place of a file or directory."""
    os.rename(at, at + ".taken")
    os.rename(at + ".taken", at)
    return "renamed"


def link(at: str) -> str:
    """Make another name for a file, to keep it or to have its owner write to it."""
    with tempfile.TemporaryDirectory() as own:
        os.link(at, os.path.join(own, "kept"), follow_symlinks=False)
    return "linked"


def watch(at: str) -> str:
    """Be told of everything that happens to a file or in a directory."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = libc.inotify_init1(0)
    try:
        _checked(libc.inotify_add_watch(number, os.fsencode(at), ctypes.c_uint32(0xFFF)))
    finally:
        os.close(number)
    return "watched"


def connect(at: str) -> str:
    """Connect to a Unix socket; a name that begins with @ is an abstract one."""
    address = "\0" + at[1:] if at.startswith("@") else at
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as client:
            client.settimeout(_QUIET_S)
            try:
                client.connect(address)
            except OSError as error:
                if error.errno != errno.EPROTOTYPE:
                    raise
            else:
                return "connected"
    return "connected by no kind"


def dial(address: str, port: int) -> str:
    """Connect to a TCP port."""
    with socket.create_connection((address, port), timeout=_QUIET_S):
        return "connected"


def speak(fd: int, pem: str = "", tls: bool = True) -> str:
    """Talk to a server over a connection that is there already, as if nothing had guarded its
    socket: a call of the health service, with a guessed token. Tells of each byte that it says."""
    with socket.socket(fileno=os.dup(fd)) as connection:
        connection.settimeout(_QUIET_S)
        channel = _secured(connection, pem) if tls else connection
        try:
            channel.sendall(_HEALTH_CALL)
            said = b""
            while part := channel.recv(65536):
                said += part
        except TimeoutError:
            pass
    if said and (tls or said[0] != _TLS_ALERT):
        return repr(said[:200])
    raise OSError(errno.EACCES, "it says nothing")


def _secured(connection: socket.socket, pem: str) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if pem:
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(pem)
            file.flush()
            context.load_cert_chain(file.name)
    return context.wrap_socket(connection, server_hostname="agent")


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return (
        len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content
    )


def _header(name: str, value: str) -> bytes:
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


_HEADERS = {
    ":method": "POST",
    ":scheme": "https",
    ":path": "/grpc.health.v1.Health/Check",
    ":authority": "localhost",
    "content-type": "application/grpc",
    "te": "trailers",
    "x-oxydra-token": "guessed",
}
_HEALTH_CALL = b"".join(
    (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        _frame(4, 0, 0, b""),
        _frame(1, 4, 1, b"".join(_header(*each) for each in _HEADERS.items())),
        _frame(0, 1, 1, bytes(5)),
    )
)


def files_of(pid: int) -> str:
    """The names below /proc/PID that can be read, each with its content, as JSON."""
    found = {}
    for name in sorted(os.listdir(f"/proc/{pid}")):
        try:
            found[name] = read(f"/proc/{pid}/{name}")
        except (OSError, ValueError):
            try:
                found[name] = names(f"/proc/{pid}/{name}") if name not in ("task", "net") else ""
            except OSError:
                continue
    return json.dumps(found)


def trace(pid: int) -> str:
    """Trace a process."""
    _checked(_syscall("ptrace", _PTRACE_SEIZE, pid, 0, 0))
    return "traced"


def stop(pid: int) -> str:
    """Send a process a signal that would do nothing to it."""
    os.kill(pid, signal.SIGCONT)
    return "signalled"


def hang_up(pid: int) -> str:
    """Whether a process may be signalled by its descriptor."""
    fd = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(fd, signal.SIGCONT)
    finally:
        os.close(fd)
    return "signalled"


def peek(pid: int) -> str:
    """Read the memory of a process."""
    buffer = ctypes.create_string_buffer(8)
    local = (ctypes.c_void_p * 2)(ctypes.cast(buffer, ctypes.c_void_p), ctypes.c_void_p(8))
    remote = (ctypes.c_void_p * 2)(ctypes.c_void_p(0x400000), ctypes.c_void_p(8))
    _checked(_syscall(_VM_READV, pid, local, 1, remote, 1, 0))
    return "read"


def borrow(pid: int) -> str:
    """Take a process's open file."""
    fd = os.pidfd_open(pid)
    try:
        os.close(_checked(_syscall(_PIDFD_GETFD, fd, 0, 0)))
    finally:
        os.close(fd)
    return "taken"


def slow_down(pid: int) -> str:
    """Make a process wait for all others."""
    tried: list[Callable[[], object]] = [
        lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
        lambda: os.sched_setaffinity(pid, {0}),
        lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
        lambda: _checked(_syscall(_IOPRIO_SET, 1, pid, 3 << 13)),
        lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (16, 16)),
    ]
    for number, step in enumerate(tried):
        with contextlib.suppress(PermissionError):
            step()
            return f"step {number} was done"
    raise PermissionError(errno.EPERM, "none of it")


def _syscall(number: int | str, *arguments: Any) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    ctypes.set_errno(0)
    if number == "ptrace":
        libc.ptrace.restype = ctypes.c_long
        return int(libc.ptrace(*map(ctypes.c_long, arguments)))
    libc.syscall.restype = ctypes.c_long
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return int(libc.syscall(ctypes.c_long(int(number)), *words))


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _came_of(attempt: dict[str, Any]) -> str:
    step: Callable[..., str] = globals()[attempt.pop("do")]
    try:
        return f"{GOT}: {step(**attempt)}"
    except (ssl.SSLError, TimeoutError) as error:
        return f"{REFUSED}: {error!r}"
    except OSError as error:
        kind = REFUSED if error.errno in (*_REFUSALS, errno.ECONNRESET, errno.EPIPE) else "FAILED"
        return f"{kind}: {error!r}"


def main() -> None:
    print(json.dumps([_came_of(attempt) for attempt in json.load(sys.stdin)]))


_START = "import json, sys; exec(compile(json.loads(sys.stdin.readline()), 'visitor', 'exec'))"
COMMAND = ("/usr/bin/env", "python3", "-I", "-S", "-c", _START)


def told(attempts: Sequence[Mapping[str, Any]]) -> str:
    """What the program reads: itself, then the attempts."""
    return f"{json.dumps(Path(__file__).read_text())}\n{json.dumps(list(attempts))}"


def heard(done: "subprocess.CompletedProcess[str]") -> list[str]:
    """What it told of each attempt."""
    assert done.returncode == 0, done.stderr
    return [str(each) for each in json.loads(done.stdout)]


if __name__ == "__main__":
    main()
