"""A network of the browser's own, in which nothing changes.

Chromium stops all its requests whenever a network interface comes or goes on its machine
(ERR_NETWORK_CHANGED), and an engine of containers makes interfaces all the time. So it runs in a
network namespace with nothing but a loopback. A SOCKS server that listens there connects from
outside.
"""

import asyncio
import ctypes
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

CHROMIUM: Final = "/usr/bin/chromium-headless-shell"

_CLONE_NEWNET: Final = 0x40000000
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 1


@contextmanager
def options() -> Iterator[dict[str, Any]]:
    """What Playwright's `launch` is given for Debian's Chromium. Only root can make a namespace
    that the browser can enter; for others it runs in the machine's."""
    usual: dict[str, Any] = {"executable_path": CHROMIUM, "args": ["--no-sandbox"]}
    if os.geteuid() != 0:
        yield usual
        return
    with TemporaryDirectory() as directory, _namespace() as (namespace, port):
        program = Path(directory, "chromium")
        program.write_text(f'#!/bin/sh\nexec nsenter --net={namespace} {CHROMIUM} "$@"\n')
        program.chmod(0o700)
        # Not by Playwright's `proxy`, which its own requests, made outside, would take too.
        way = [f"--proxy-server=socks5://127.0.0.1:{port}", "--proxy-bypass-list=<-loopback>"]
        yield {"executable_path": program, "args": [*usual["args"], *way]}


@contextmanager
def _namespace() -> Iterator[tuple[str, int]]:
    """Yields: the file of a namespace, and the port of its loopback where SOCKS is served."""
    with ThreadPoolExecutor(1) as thread:  # a thread can have a namespace of its own, and ends
        namespace, listener = thread.submit(_make).result()
    loop = asyncio.new_event_loop()
    serving = threading.Thread(target=loop.run_forever, daemon=True)
    serving.start()
    starting = asyncio.start_server(_serve, sock=listener)
    asyncio.run_coroutine_threadsafe(starting, loop).result()
    try:
        yield f"/proc/{os.getpid()}/fd/{namespace}", listener.getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        serving.join()
        listener.close()
        os.close(namespace)


def _make() -> tuple[int, socket.socket]:
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "no network namespace can be made")
    listener = socket.socket()
    fcntl.ioctl(listener, _SIOCSIFFLAGS, struct.pack("16sh", b"lo", _IFF_UP))
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC), listener


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """SOCKS 5 without a password: one connection to where the browser wants to go."""
    try:
        _, methods = await reader.readexactly(2)
        await reader.readexactly(methods)
        writer.write(b"\x05\x00")
        _, _, _, kind = await reader.readexactly(4)
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            family, size = {1: (socket.AF_INET, 4), 4: (socket.AF_INET6, 16)}[kind]
            host = socket.inet_ntop(family, await reader.readexactly(size))
        (port,) = struct.unpack("!H", await reader.readexactly(2))
        try:
            there = await asyncio.open_connection(host, port)
        except OSError:
            writer.write(b"\x05\x05\x00\x01" + bytes(6))
            return
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        await asyncio.gather(_pass(reader, there[1]), _pass(there[0], writer))
    except (asyncio.IncompleteReadError, OSError):
        pass
    finally:
        writer.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()  # which ends the other direction, too
