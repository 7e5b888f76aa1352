"""A real authorization server with an MCP server behind it, and a person who logs in there."""

import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

import httpx2

PROGRAM = Path(__file__).with_suffix(".mjs")


@dataclass
class OidcServer:
    """The running program; `url` is that of the MCP server. `given` are the tokens that were given
    out, with their kinds before them."""

    url: str
    given: list[str]


@contextmanager
def oidc_server(lasts_s: int) -> Iterator[OidcServer]:
    """The server, whose access tokens last so long."""
    command = ["node", str(PROGRAM), str(lasts_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        server = OidcServer(running.stdout.readline().strip(), [])
        reading = threading.Thread(target=server.given.extend, args=(running.stdout,))
        reading.start()
        try:
            yield server
        finally:
            running.kill()
            reading.join()


def log_in_at(url: str) -> str:
    """What a person's browser says in the end, who logs in at `url` and agrees to everything."""
    with httpx2.Client(follow_redirects=True, trust_env=False) as browser:
        answer = browser.get(url)
        while form := re.search(r'<form[^>]* action="([^"]+)"', answer.text):
            prompt = re.search(r'name="prompt" value="(\w+)"', answer.text)
            assert prompt is not None, answer.text
            filled = {"prompt": prompt[1], "login": "ann", "password": "of ann"}
            answer = browser.post(urljoin(str(answer.url), form[1]), data=filled)
        return answer.text
