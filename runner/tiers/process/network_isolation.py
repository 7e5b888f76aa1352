"""What is done for an agent guest before its program starts: it gets no network.

It is put into a network namespace of its own, where nothing is, not even loopback. Where the
account may not make one, it stays in the host's. In both cases, and also if the runner is root,
which could leave any namespace, a filter of system calls lets it make Unix sockets only, and keeps
it from taking sockets of other processes.

This file is also run as a program, before anything of the guest is. Its first word is the filter.
"""

import ctypes
import errno
import os
import socket
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import Final

_NAMESPACE: Final = "--namespace"
_EXIT_FAILED: Final = 126
_TRY_S: Final = 10.0
_NEW_USER: Final = 0x10000000
_NEW_NET: Final = 0x40000000
_NO_NEW_PRIVILEGES: Final = 38
_SECCOMP: Final = 22
_FILTER: Final = 2
_STEP_BYTES: Final = 8

_TAKING: Final = {"x86_64": (308, 438, 101, 311), "aarch64": (268, 438, 117, 271)}
"""By machine, the numbers of the calls that take, or use, sockets of another process or namespace:
`setns`, `pidfd_getfd`, `ptrace`, `process_vm_writev`."""


class NetworkIsolation:
    """Whether, and how, an agent can be kept from the network on this machine."""

    @cached_property
    def has_namespace(self) -> bool:
        """Whether agents have a network namespace of their own, besides the filter. Tries it
        once."""
        return not _failure(namespace=True)

    @cached_property
    def reason(self) -> str:
        """Why no agent can run here; empty if one can. Tries it once."""
        return "" if self.has_namespace else _failure(namespace=False)

    def begun(self, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` without a network."""
        return _begun(command, namespace=self.has_namespace)


def _begun(command: Sequence[str], *, namespace: bool) -> list[str]:
    words = [sys.executable, "-I", "-S", __file__, program(os.uname().machine).hex()]
    return [*words, *([_NAMESPACE] if namespace else []), "--", *command]


def _failure(*, namespace: bool) -> str:
    """What the program says if it cannot do its work; empty if it can."""
    import subprocess  # which the program would load at each start

    if os.uname().machine not in _TAKING or sys.maxsize < 2**32:
        known = " and ".join(_TAKING)
        return f"calls are filtered on {known} machines with a 64-bit Python only"
    try:
        tried = subprocess.run(  # noqa: S603
            _begun(["/bin/true"], namespace=namespace),
            capture_output=True,
            text=True,
            timeout=_TRY_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if tried.returncode == 0 else (tried.stderr.strip() or "it says nothing")


def program(machine: str) -> bytes:
    """The filter for a machine."""
    from wire.kernel import seccomp  # which the program cannot import

    unix_only = seccomp.if_equal(socket.AF_UNIX, seccomp.ALLOWED)
    rules = {
        seccomp.IO_URING_SETUP: seccomp.ABSENT,
        **dict.fromkeys(_TAKING[machine], seccomp.REFUSED),
        seccomp.SOCKET[machine]: seccomp.load(seccomp.FIRST)
        + unix_only
        + seccomp.refused(errno.EAFNOSUPPORT),
    }
    return seccomp.program({machine: rules})


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("steps", ctypes.c_char_p))


def _enter_namespace(libc: ctypes.CDLL) -> None:
    """Raises `OSError`. Only root can make a network namespace without one of users."""
    uid, gid = os.geteuid(), os.getegid()
    _done(libc.unshare(_NEW_NET if uid == 0 else _NEW_USER | _NEW_NET), "unshare")
    if uid != 0:
        for name, content in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123
                file.write(content)


def _filter_calls(libc: ctypes.CDLL, steps: bytes) -> None:
    """Raises `OSError`."""
    filter_ = _Program(len(steps) // _STEP_BYTES, steps)
    _done(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
    _done(libc.prctl(_SECCOMP, _FILTER, ctypes.byref(filter_), 0, 0), "PR_SET_SECCOMP")


def _done(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


def _given_environment() -> dict[bytes, bytes]:
    """Without the variable with which Python makes the C locale one of UTF-8."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
        pairs = (entry.partition(b"=") for entry in file.read().split(b"\0"))
        return {name: value for name, separator, value in pairs if separator}


def _main(words: list[str]) -> None:
    end = words.index("--")
    options, command = words[:end], words[end + 1 :]
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        if _NAMESPACE in options:
            _enter_namespace(libc)
        _filter_calls(libc, bytes.fromhex(options[0]))
        os.execvpe(command[0], command, _given_environment())  # noqa: S606
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]} without a network: {error}\n")
        sys.exit(_EXIT_FAILED)


if __name__ == "__main__":
    _main(sys.argv[1:])
