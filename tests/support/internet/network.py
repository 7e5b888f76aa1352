"""A network of its own behind this host: a namespace, joined to it by a pair of interfaces.

Its addresses look public, exist nowhere else, and are reached from this host and from containers on
any network that has a way out. It is made by root.
"""

import ctypes
import os
import secrets
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self, TypeVar

_CLONE_NEWNET: Final = 0x40000000
_NAMESPACES: Final = Path("/run/netns")
_PREFIX: Final = "oxnet-"
METADATA: Final = "169.254.169.254"
"""Where a cloud keeps the keys of its machines."""

_Made = TypeVar("_Made")


class Network:
    """The network `5.5.NUMBER.0/24`, with a private address and that of a metadata service."""

    def __init__(self) -> None:
        _clear()
        for number in range(1, 255):
            if self._claim(number):
                self.number = number
                break
        else:
            raise RuntimeError("all networks are taken")
        self.host = self.address(1)
        """This host as the network sees it."""
        self.private = f"10.213.{self.number}.80"

    def _claim(self, number: int) -> bool:
        """The name of the interface is the lock: who makes it has the number."""
        self.name = f"{_PREFIX}{number}-{os.getpid()}-{secrets.token_hex(2)}"
        _ip("netns", "add", self.name)
        outside = f"oxnet{number}"
        pair = ("link", "add", outside, "type", "veth", "peer", "name", "oxnet", "netns", self.name)
        if _tried("ip", *pair):
            _ip("netns", "delete", self.name)
            return False
        for address in (*(f"5.5.{number}.{last}/24" for last in range(2, 20)), f"{METADATA}/32"):
            _ip("-n", self.name, "address", "add", address, "dev", "oxnet")
        _ip("-n", self.name, "address", "add", f"10.213.{number}.80/32", "dev", "oxnet")
        _ip("-n", self.name, "link", "set", "oxnet", "up")
        _ip("-n", self.name, "link", "set", "lo", "up")
        _ip("address", "add", f"5.5.{number}.1/24", "dev", outside)
        _ip("link", "set", outside, "up")
        _ip("-n", self.name, "route", "add", "default", "via", f"5.5.{number}.1")
        _ip("route", "add", f"10.213.{number}.80/32", "via", f"5.5.{number}.2")
        _ip("route", "add", METADATA, "via", f"5.5.{number}.2", "metric", str(number))
        return True

    def address(self, last: int) -> str:
        """One of this network; the first is this host's."""
        return f"5.5.{self.number}.{last}"

    def within(self, make: Callable[[], _Made]) -> _Made:
        """What `make` makes inside the network, such as a socket, which stays there."""
        made: list[_Made] = []
        failed: list[BaseException] = []

        def enter() -> None:
            try:
                with (_NAMESPACES / self.name).open() as namespace:
                    libc = ctypes.CDLL(None, use_errno=True)
                    if libc.setns(namespace.fileno(), _CLONE_NEWNET):
                        raise OSError(ctypes.get_errno(), "setns")
                made.append(make())
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return made[0]

    def listen(self, address: str, port: int) -> socket.socket:
        """A TCP socket that listens inside."""
        return self.within(lambda: socket.create_server((address, port), backlog=1024))

    def datagrams(self, address: str, port: int) -> socket.socket:
        """A UDP socket that is bound inside."""

        def make() -> socket.socket:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made.bind((address, port))
            return made

        return self.within(make)

    def close(self) -> None:
        """Take it away, with its interfaces and routes."""
        _ip("netns", "delete", self.name)
        _tried("ip", "link", "delete", f"oxnet{self.number}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _clear() -> None:
    """Networks of processes that have ended without taking them away."""
    for left in _NAMESPACES.glob(f"{_PREFIX}*"):
        _, number, pid, _ = left.name.split("-")
        if not Path(f"/proc/{pid}").exists():
            _tried("ip", "netns", "delete", left.name)
            _tried("ip", "link", "delete", f"oxnet{number}")


def _ip(*words: str) -> None:
    if said := _tried("ip", *words):
        raise RuntimeError(f"ip {' '.join(words)}: {said}")


def _tried(*words: str) -> str:
    """What a command complains of; nothing if it worked."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return (done.stderr or f"exit {done.returncode}") if done.returncode else ""
