"""A command on a loopback of its own, where the servers that are named run and nobody else.

`unshare --net python -m tests.support.servers.own_loopback [ollama|lmstudio ...] -- COMMAND`.
"""

import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

from tests.support.servers import model_servers as fake
from tests.support.servers.model_servers import Route, serving, studio_model, tag

SERVERS: Final[Mapping[str, tuple[int, Mapping[str, Route]]]] = {
    "ollama": (
        11434,
        fake.ollama(
            tag("gemma3:4b", "completion", "vision", size=3.3),
            tag("qwen3:4b", "completion", "tools", size=2.6),
            tag("gpt-oss:120b-cloud", "completion", "tools", at="https://ollama.com:443"),
            tag("nomic-embed-text", "embedding", size=0.3),
        ),
    ),
    "lmstudio": (1234, fake.lm_studio(studio_model("qwen/qwen3-8b", size=0.5, loaded=True))),
}


def main() -> int:
    at = sys.argv.index("--")
    with socket.socket() as lo:  # up and running
        fcntl.ioctl(lo, 0x8914, struct.pack("16sH", b"lo", 1 | 0x40))
    with ExitStack() as stack:
        for name in sys.argv[1:at]:
            port, routes = SERVERS[name]
            stack.enter_context(serving(routes, port))
        return subprocess.run(sys.argv[at + 1 :], check=False, env=os.environ).returncode


if __name__ == "__main__":
    sys.exit(main())
