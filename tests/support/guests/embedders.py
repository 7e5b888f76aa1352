"""Starts real embedders for tests, as processes and as containers, and waits for what they say."""

import asyncio
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
from wire import envelope
from wire.identity import Party
from wire.v1 import control_pb2

from guest.embedding.client import RemoteEmbedder
from runner.config.models import Config
from runner.host.embedder import POLICY, Embedder, EmbedderHome
from runner.host.supervisor import Policy
from runner.images.naming import ImageRole, image_name
from runner.tiers.base import TierDriver
from runner.tiers.container.names import ObjectNames as ContainerPlace
from runner.tiers.drivers import driver_for
from runner.workspace.mounts import Role
from tests.support import parties

TOKEN = "test-token"
LIMIT_S = 120.0
IMAGES = os.environ.get("TESTS_IMAGES", "oxydra")
QUICK = replace(
    POLICY,
    check_interval=0.1,
    check_timeout=2.0,
    failed_checks=10,
    load_time=0.0,
    backoff_first=0.05,
    backoff_max=0.4,
)


@dataclass(frozen=True)
class Settings:
    backend: str = "hashing"
    model: str = "all-MiniLM-L6-v2"


HASHING = Settings()


def _children() -> frozenset[psutil.Process]:
    return frozenset(psutil.Process().children())


@dataclass(frozen=True)
class Place:
    """A runtime directory in one tier, and the embedders that runners share there.

    `others` are processes that this one has started for other tests.
    """

    tier: str
    directory: Path
    images: str = IMAGES
    engine: str = "auto"
    others: frozenset[psutil.Process] = field(default_factory=_children)

    def config(self, settings: Settings = HASHING) -> Config:
        return Config.model_validate(
            {
                "tier": self.tier,
                "embedder": {"backend": settings.backend, "model": settings.model},
                "container": {"images": self.images, "engine": self.engine},
            }
        )

    def home(self, settings: Settings = HASHING) -> EmbedderHome:
        return EmbedderHome.locate(self.config(settings), self.directory)

    def driver(self) -> TierDriver:
        return driver_for(self.config(), self.tier)

    def embedder(
        self,
        settings: Settings = HASHING,
        policy: Policy = QUICK,
        environ: Mapping[str, str] = os.environ,
    ) -> Embedder:
        """The share of one more runner."""
        return Embedder(self.home(settings), self.driver(), policy, environ)

    @property
    def image(self) -> str:
        return image_name(self.images, ImageRole.EMBEDDER)

    @property
    def container(self) -> str:
        """What the embedder's container is called."""
        return ContainerPlace.of("", self.home().path).container(Role.EMBEDDER)

    def require_image(self) -> "Place":
        """Fail at once, instead of after a timeout, where the image was not built."""
        if self.tier != "process":
            found = subprocess.run(["docker", "image", "inspect", self.image], capture_output=True)
            assert found.returncode == 0, f"there is no image {self.image}: runner images build"
        return self

    def is_clean(self) -> bool:
        """Nothing of an embedder is left but its empty files, its token and its log."""
        home = self.home()
        return (
            not home.socket.exists()
            and not home.state.exists()
            and home.leases.read_text() == ""
            and not self.children()
            and self.containers() == []
        )

    def children(self) -> frozenset[psutil.Process]:
        """Processes that this one has started since."""
        return _children() - self.others

    def containers(self) -> list[str]:
        """The engine's containers that belong here, running or not."""
        if self.tier == "process":
            return []
        return containers_of(self.home())

    def hang(self, pid: int) -> None:
        """Stop the embedder with this process id, and all that belongs to it, as a hang does."""
        process = psutil.Process(pid)
        for each in (*process.children(recursive=True), process):
            each.suspend()


def containers_of(home: EmbedderHome) -> list[str]:
    """The engine's containers of this home, running or not."""
    label = f"label=oxydra.workspace={ContainerPlace.of('', home.path).digest}"
    return docker("ps", "--all", "--quiet", "--filter", label).split()


def docker(*arguments: str) -> str:
    """What the engine's own command says."""
    done = subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


async def until(
    share: Embedder, state: str, where: Callable[[control_pb2.GuestStatus], bool] = bool
) -> control_pb2.GuestStatus:
    deadline = asyncio.get_running_loop().time() + LIMIT_S
    while (seen := await share.status()).state != state or not where(seen):
        assert asyncio.get_running_loop().time() < deadline, f"{state} expected: {seen}"
        await asyncio.sleep(0.02)
    return seen


class EmbedderProcess:
    """One embedder in `directory`, with a lease held for it until `drop_lease`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "embedder.sock"
        self.lock = directory / "embedder.lock"
        self.leases = directory / "leases"
        self.log = directory / "embedder.log"
        self._lease: int | None = os.open(self.leases, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lease, fcntl.LOCK_SH)
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str, token: str = TOKEN, **environment: str) -> None:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "guest.embedding.server", "--bootstrap-stdin"),
                    *("--socket", str(self.socket), "--leases", str(self.leases)),
                    *(arguments or ("--backend", "hashing")),
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
            )
        self._processes.append(process)
        assert process.stdin is not None
        process.stdin.write(envelope.service(token, parties.identity(Party.EMBEDDER)))
        process.stdin.close()

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        return self._processes[-1]

    def client(self) -> RemoteEmbedder:
        return RemoteEmbedder(parties.embedder(f"unix:{self.socket}", TOKEN))

    def drop_lease(self) -> None:
        if self._lease is not None:
            os.close(self._lease)
            self._lease = None

    def close(self) -> None:
        self.drop_lease()
        for process in self._processes:
            process.kill()
            process.wait()


async def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait until `condition` holds; fails after a hang guard."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {LIMIT_S} s: {what}"
        await asyncio.sleep(0.02)


async def until_state(embedder: RemoteEmbedder, state: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while (seen := await embedder.state()) != state:
        assert time.monotonic() < deadline, f"still {seen!r} after {LIMIT_S} s"
        await asyncio.sleep(0.02)
