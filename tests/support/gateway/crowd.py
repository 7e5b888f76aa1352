"""A program: 2,000 anonymous connections of five bad kinds, each made again as soon as it ends.

`python -m tests.support.gateway.crowd PORT SECONDS` ends by itself.
"""

import asyncio
import contextlib
import resource
import ssl
import sys
from typing import Final

OF_EACH: Final = 400
_REPORTS: Final = "/api/csp-report"
_HOST: Final = "127.0.0.1"


async def main(port: int, seconds: float) -> None:
    asked = (
        f"GET /assets/vendor/markdown-it.js HTTP/1.1\r\nHost: {_HOST}:{port}\r\n\r\n".encode() * 20
    )
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        trusting.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    hello = out.read()
    named = f"Host: {_HOST}:{port}\r\n"
    report = f"POST {_REPORTS} HTTP/1.1\r\n{named}"
    kinds = [
        (None, b""),
        (None, hello[: len(hello) // 2]),
        (trusting, f"GET /healthz HTTP/1.1\r\n{named}X-Slow: ".encode()),
        (trusting, f"{report}Content-Length: 16000\r\n\r\n{'x' * 15_000}".encode()),
        (trusting, asked),
    ]

    async def hold(tls: ssl.SSLContext | None, said: bytes) -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(_HOST, port, ssl=tls, limit=1024)
                with contextlib.suppress(OSError):
                    writer.write(said)
                    async with asyncio.timeout(8):
                        while not reader.at_eof() and said is not asked:
                            await reader.read(1024)
                        await asyncio.sleep(8)
                writer.transport.abort()
            await asyncio.sleep(0.1)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
            for number in range(len(kinds) * OF_EACH):
                group.create_task(hold(*kinds[number % len(kinds)]))


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
