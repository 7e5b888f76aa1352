"""The embedder as a process of the host, for the process tier."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import psutil

from runner.embedder.home import Child, EmbedderHome, EmbedderSettings
from runner.host import logs
from runner.workspace.ownership import Owner

_PASSED_ON: Final = frozenset(
    [
        "PATH",
        "HOME",
        "LANG",
        "TZ",
        "TMPDIR",
        "VIRTUAL_ENV",
        "LD_LIBRARY_PATH",
        "XDG_CACHE_HOME",
        "CUDA_VISIBLE_DEVICES",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
    ]
)
_PASSED_ON_PREFIXES: Final = ("HF_", "SENTENCE_TRANSFORMERS_", "PYTHON", "OMP_", "MKL_", "LC_")
"""Everything else stays here: the runner's environment may hold providers' keys."""


class ProcessEmbedder(EmbedderHome):
    """Runs this very installation's embedder, detached, with our rights."""

    def __init__(self, runtime_dir: Path, settings: EmbedderSettings) -> None:
        super().__init__(runtime_dir, settings, Owner.ours())

    def _kind(self, runtime_dir: Path) -> tuple[str, ...]:  # noqa: ARG002
        return ()

    async def pid(self) -> int:
        if not self.is_running():
            return 0
        with contextlib.suppress(OSError, ValueError, psutil.Error):
            pid = int(self.lock.read_text())
            # A pid left by a killed predecessor could be anybody's by now.
            if str(self.socket) in psutil.Process(pid).cmdline():
                return pid
        return 0

    async def signal(self, number: signal.Signals) -> None:
        if pid := await self.pid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    async def spawn(self, token: str) -> Child:
        return self._start(token)

    def _start(self, token: str) -> Child:
        command = [sys.executable, "-P", "-m", "guest.embedding.server", "--token-stdin"]
        command += ["--socket", str(self.socket), "--leases", str(self.leases)]
        command += ["--backend", self.backend, "--model", self.model]
        log = self.open_log()
        log_start = logs.size(self.log)
        try:
            process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self.state_directory,
                env=_environment(),
                start_new_session=True,
            )
        finally:
            os.close(log)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
            stdin.write(f"{token}\n".encode())
        return _Process(process, log_start)


class _Process:
    """A `Child`: reaped whenever it ends, never killed with us."""

    def __init__(self, process: "subprocess.Popen[bytes]", log_start: int) -> None:
        self.log_start = log_start
        self.exited = asyncio.Event()
        self.code: int | None = None
        self._process = process
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._reap, name="embedder-reaper", daemon=True).start()

    async def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def _reap(self) -> None:
        code = self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody asks any more
            self._loop.call_soon_threadsafe(self._note, code)

    def _note(self, code: int) -> None:
        self.code = code
        self.exited.set()


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
