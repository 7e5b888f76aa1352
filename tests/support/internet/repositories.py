"""A repository that git clones over HTTPS, if it shows the right token."""

import asyncio
import base64
import os
import subprocess
from pathlib import Path

from aiohttp import web


class Repositories:
    """One private repository, `notes.git`, which `token` opens, as the password of any user."""

    def __init__(self, directory: Path, token: str) -> None:
        self._directory = directory
        self.token = token
        bare, work = directory / "notes.git", directory / "work"
        _git("init", "--quiet", "--bare", str(bare))
        _git("init", "--quiet", str(work))
        (work / "README").write_text("the notes of a private repository\n")
        _git("-C", str(work), "add", "README")
        _git("-C", str(work), "commit", "--quiet", "-m", "Notes")
        _git("-C", str(work), "push", "--quiet", str(bare), "HEAD:refs/heads/main")
        _git("-C", str(bare), "symbolic-ref", "HEAD", "refs/heads/main")

    async def answer(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        """By git's own program, once the token is shown."""
        shown = request.headers.get("authorization", "")
        kind, _, encoded = shown.partition(" ")
        if kind.lower() != "basic" or not base64.b64decode(encoded).endswith(
            f":{self.token}".encode()
        ):
            asks = {"www-authenticate": 'Basic realm="notes"'}
            return web.Response(status=401, headers=asks, text="who are you?")
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self._directory),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": "somebody",
            "REQUEST_METHOD": request.method,
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query_string,
            "CONTENT_TYPE": request.headers.get("content-type", ""),
            "HTTP_CONTENT_ENCODING": request.headers.get("content-encoding", ""),
            "CONTENT_LENGTH": str(len(body)),
        }
        process = await asyncio.create_subprocess_exec(
            *("git", "http-backend"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
        said, _ = await process.communicate(body)
        head, _, content = said.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(headers.pop("Status", "200").split()[0])
        return web.Response(status=status, headers=headers, body=content)


def _git(*words: str) -> None:
    names = {
        f"GIT_{who}_{what}": "test@example.org"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **names}
    subprocess.run(["git", *words], env=environment, check=True, capture_output=True)
