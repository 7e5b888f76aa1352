"""Sends one message by the library apprise, in a process that reaches egress and nothing else."""

import asyncio
import http.client
import json
import logging
import os
import re
import resource
import smtplib
import socket
import sys
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from wire.kernel.prctl import die_with_parent
from wire.text import shortened, visible_name

SEND_S: Final = 60.0
_MEMORY_BYTES: Final = 1 << 30
_WHY_CHARS: Final = 300
_SECRET_CHARS: Final = 4
"""So long is a part of an address, if it is left out of what is told."""
_REFUSED: Final = ("subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn")
_ALONE: Final = "notices go through egress alone"
_NETWORK: Final = ("socket.getaddrinfo", "socket.gethostby", "socket.sendto", "socket.sendmsg")


async def send(url: str, title: str, body: str, *, proxy: str, ca_pem: str) -> str:
    """Send a message to an address. Returns why it was not sent; empty if it was.

    `proxy` is an `http://127.0.0.1:PORT` that leads to egress, `ca_pem` what to trust besides the
    world's authorities.
    """
    ways = dict.fromkeys(("http_proxy", "https_proxy"), proxy)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __name__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**ways, "HOME": "/nonexistent", "NETRC": os.devnull},
    )
    asked = {"url": url, "title": title, "body": body, "proxy": proxy, "ca_pem": ca_pem}
    try:
        async with asyncio.timeout(SEND_S):
            answer, _ = await process.communicate(json.dumps(asked).encode())
        return str(json.loads(answer)) if answer else "what sends it has ended without an answer"
    except TimeoutError:
        return f"it was not sent within {SEND_S:g} seconds"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def main() -> None:
    """Send what standard input says; write why it was not sent to standard output."""
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    asked = json.load(sys.stdin)
    try:
        why = _sent(asked)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    json.dump(shortened(visible_name(without_secrets(why, asked["url"])), _WHY_CHARS), sys.stdout)


def _sent(asked: dict[str, str]) -> str:
    import apprise

    way = urlsplit(asked["proxy"])
    _trust(asked["ca_pem"])
    go_by((way.hostname, way.port))
    said = _LastWords()
    logging.getLogger("apprise").addHandler(said)
    asset = apprise.AppriseAsset(app_id="Oxydra", image_url_mask="")
    service: Any = apprise.Apprise.instantiate(asked["url"], asset=asset)
    if service is None:
        return said.text or "apprise does not understand the address"
    service.overflow_mode = apprise.OverflowMode.TRUNCATE
    one = apprise.Apprise(service, asset=asset)  # which alone translates: text is no markup there
    sent = one.notify(asked["body"], asked["title"], body_format=apprise.NotifyFormat.TEXT)
    return "" if sent else said.text or "the service did not take it"


class _LastWords(logging.Handler):
    """What apprise has logged last."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self.text = record.getMessage()


def _trust(ca_pem: str) -> None:
    """Trust these authorities besides the world's, by a file in memory."""
    if not ca_pem:
        return
    import certifi

    bundle = os.memfd_create("authorities")
    os.write(bundle, f"{certifi.contents()}\n{ca_pem}".encode())
    os.environ["REQUESTS_CA_BUNDLE"] = os.environ["SSL_CERT_FILE"] = f"/proc/self/fd/{bundle}"


def go_by(proxy: tuple[str | None, int | None]) -> None:
    """Let this process open connections to the proxy alone, and no other program; mail, too, goes
    through it."""

    def check(event: str, arguments: tuple[Any, ...]) -> None:
        elsewhere = event == "socket.connect" and arguments[1][:2] != proxy
        resolves = event.startswith(_NETWORK) and arguments[0] != proxy[0]
        if elsewhere or resolves or event.startswith(_REFUSED):
            raise (socket.gaierror if resolves else PermissionError)(_ALONE)

    def tunnel(_: smtplib.SMTP, host: str, port: int, timeout: float) -> socket.socket:
        way = http.client.HTTPConnection(proxy[0] or "", proxy[1], timeout=timeout)
        way.set_tunnel(host, port)
        way.connect()
        return way.sock

    smtplib.SMTP._get_socket = tunnel  # type: ignore[attr-defined]
    sys.addaudithook(check)


def without_secrets(text: str, url: str) -> str:
    """Leave out what the address holds, but for its kind."""
    _, _, rest = url.partition("://")
    for part in sorted(re.split(r"[^\w.+-]+", f"{rest} {unquote(rest)}"), key=len, reverse=True):
        if len(part) >= _SECRET_CHARS:
            text = text.replace(part, "…")
    return text


if __name__ == "__main__":
    main()
