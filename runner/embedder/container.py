"""The embedder as a container, for the tiers whose guests are containers.

It has no network, no right and no file but `socket/`, `state/` and its model;
the locks work across the mounts, for host and container share one kernel. Its
output goes to the log in `state/`, where it survives the container, which the
engine removes as soon as it ends.
"""

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from signal import Signals
from typing import Any, Final

import docker
import docker.errors
import docker.types
from wire.errors import Code

from runner.config.models import ContainerSection
from runner.embedder.home import Child, EmbedderHome, EmbedderSettings
from runner.embedder.weights import weights_of
from runner.errors import TierError
from runner.host import logs
from runner.images.naming import ImageRole, image_name
from runner.tiers.container.engine import Engine, EngineFacts, judge
from runner.tiers.container.names import LABEL_ROLE, LABEL_VERSION
from runner.workspace.ownership import Owner

MEMORY_BYTES: Final = 4 * 1024**3
PROCESSES: Final = 256
_SOCKET: Final = "/embedder/socket"
_STATE: Final = "/embedder/state"
_LABEL: Final = "oxydra.home"
_LOOK_S: Final = 5.0
_REMOVAL_S: Final = 30.0
_PAUSE_S: Final = 0.1


class ContainerEmbedder(EmbedderHome):
    """Runs the embedder's image as `owner`. Its container's name says whose it is."""

    def __init__(
        self,
        runtime_dir: Path,
        settings: EmbedderSettings,
        container: ContainerSection,
        owner: Owner,
    ) -> None:
        self.image = image_name(container.images, ImageRole.EMBEDDER)
        self._engine = Engine(container.engine)
        self._setting = container.engine
        super().__init__(runtime_dir, settings, owner)
        self.name = f"oxydra-embedder-{self.key}"

    def _kind(self, runtime_dir: Path) -> tuple[str, ...]:
        """An engine has one name space for all who use it, so the place counts too."""
        return (
            self.image,
            self._setting,
            str(self.owner.uid),
            os.path.realpath(runtime_dir),
        )

    async def pid(self) -> int:
        if self.is_running():
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(asyncio.to_thread(self._pid), _LOOK_S)
        return 0

    async def signal(self, number: Signals) -> None:
        if self.is_running():
            await asyncio.to_thread(self._send, self.name, number)

    async def spawn(self, token: str) -> Child:
        os.close(self.open_log())
        child = _Container(logs.size(self.log), self._send)
        starting = asyncio.create_task(asyncio.to_thread(self._start, token, child))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(TierError):
                await starting
                await asyncio.to_thread(self._remove)
            raise
        return child

    def _start(self, token: str, child: "_Container") -> None:
        weights = weights_of(self.backend, self.model)
        binds = [(self.socket_directory, _SOCKET, "rw"), (self.state_directory, _STATE, "rw")]
        binds += [(directory, inside, "ro") for directory, inside in weights.mounts.items()]
        facts = self._engine.facts()
        judge(facts, None)
        with self._engine.client() as api:
            self._remove_from(api)
            try:
                created = api.create_container(
                    self.image,
                    entrypoint=self._command(),
                    name=self.name,
                    user=f"{self.owner.uid}:{self.owner.gid}",
                    working_dir=_STATE,
                    environment={
                        "HOME": "/tmp",  # noqa: S108 - the container's own
                        "PYTHONUTF8": "1",
                        "HF_HUB_OFFLINE": "1",
                        **weights.environment,
                    },
                    labels={
                        LABEL_ROLE: ImageRole.EMBEDDER.value,
                        LABEL_VERSION: version("oxydra"),
                        _LABEL: str(self.path),
                    },
                    stdin_open=True,
                    host_config=_confined(facts, self.owner, binds),
                )["Id"]
            except docker.errors.ImageNotFound:
                raise TierError(
                    Code.FAILED_PRECONDITION,
                    f"there is no image {self.image}",
                    resolution="runner images build",
                ) from None
            try:
                child.watch(created, self._until_removed)
                with _attached(api, created) as stdin:
                    api.start(created)
                    stdin.sendall(f"{token}\n".encode())
            except BaseException:
                self._remove_from(api)
                raise

    def _command(self) -> list[str]:
        redirected = f'exec "$@" >>{_STATE}/{self.log.name} 2>&1'
        command = ["/bin/sh", "-c", redirected, "sh", "oxydra-embedder", "--token-stdin"]
        command += ["--socket", f"{_SOCKET}/{self.socket.name}"]
        command += ["--leases", f"{_STATE}/{self.leases.name}"]
        return [*command, "--backend", self.backend, "--model", self.model]

    def _pid(self) -> int:
        with contextlib.suppress(TierError), self._engine.client() as api:
            return int(api.inspect_container(self.name)["State"]["Pid"])
        return 0

    def _send(self, container: str, number: Signals) -> None:
        with contextlib.suppress(TierError), self._engine.client() as api:
            api.kill(container, int(number))

    def _until_removed(self, container: str) -> int | None:
        """Wait until the container is no more; how it ended, None where nobody can tell."""
        with contextlib.suppress(TierError), self._engine.client() as api:
            status = int(api.wait(container, condition="removed")["StatusCode"])
            return 128 - status if status > 128 else status
        return None

    def _remove(self) -> None:
        with self._engine.client() as api:
            self._remove_from(api)

    def _remove_from(self, api: docker.APIClient) -> None:
        """End and remove what bears our name, if it is ours; returns when it is gone."""
        deadline = time.monotonic() + _REMOVAL_S
        while True:
            try:
                found = api.inspect_container(self.name)
                if (found["Config"]["Labels"] or {}).get(_LABEL) != str(self.path):
                    raise TierError(
                        Code.ALREADY_EXISTS,
                        f"the container name {self.name} is taken",
                        details="a container that the runner did not make bears it",
                        resolution=f"docker rm --force {self.name}",
                    )
                api.remove_container(found["Id"], force=True)
            except docker.errors.NotFound:
                return
            except docker.errors.APIError as error:
                if time.monotonic() > deadline:
                    raise TierError(
                        Code.UNAVAILABLE,
                        f"the container {self.name} does not go away",
                        details=error.explanation or str(error),
                        resolution=f"docker rm --force {self.name}",
                    ) from None
                time.sleep(_PAUSE_S)  # most likely its removal is under way


class _Container:
    """A `Child`: a container that removes itself, and a thread that waits for that."""

    def __init__(self, log_start: int, send: Callable[[str, Signals], None]) -> None:
        self.log_start = log_start
        self.exited = asyncio.Event()
        self.code: int | None = None
        self._id = ""
        self._send = send
        self._loop = asyncio.get_running_loop()

    async def send(self, number: Signals) -> None:
        if not self.exited.is_set():
            await asyncio.to_thread(self._send, self._id, number)

    def watch(self, container: str, until_removed: Callable[[str], int | None]) -> None:
        """Take over the created container; called from any thread."""
        self._id = container
        threading.Thread(
            target=self._wait, args=[until_removed], name="embedder-waiter", daemon=True
        ).start()

    def _wait(self, until_removed: Callable[[str], int | None]) -> None:
        code = until_removed(self._id)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody asks any more
            self._loop.call_soon_threadsafe(self._note, code)

    def _note(self, code: int | None) -> None:
        self.code = code
        self.exited.set()


def _confined(facts: EngineFacts, owner: Owner, binds: list[tuple[Path, str, str]]) -> Any:
    security = ["no-new-privileges:true"]
    mounts: dict[str, Any] = {}
    if facts.has_security("selinux"):
        security.append("label=level:s0")  # every user's guests may connect
        mounts["binds"] = [f"{path}:{inside}:{access},z" for path, inside, access in binds]
    else:
        mounts["mounts"] = [
            docker.types.Mount(inside, str(path), "bind", read_only=access == "ro")
            for path, inside, access in binds
        ]
    config = docker.types.HostConfig(
        version=facts.api_version,
        auto_remove=True,
        init=True,
        ipc_mode="private",
        network_mode="none",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=security,
        mem_limit=MEMORY_BYTES,
        memswap_limit=MEMORY_BYTES,
        pids_limit=PROCESSES,
        tmpfs={"/tmp": "size=64m,mode=1777,nosuid,nodev"},  # noqa: S108 - the container's own
        log_config=docker.types.LogConfig(type="none"),
        **mounts,
    )
    if facts.podman and facts.has_security("rootless"):
        config["UsernsMode"] = f"keep-id:uid={owner.uid},gid={owner.gid}"
    elif facts.has_security("userns"):
        config["UsernsMode"] = "host"
    return config


@contextlib.contextmanager
def _attached(api: docker.APIClient, container: str) -> Iterator[socket.socket]:
    """The container's standard input, which ends with the block."""
    stream = api.attach_socket(container, params={"stdin": 1, "stream": 1})
    connection: socket.socket = stream._sock
    try:
        yield connection
        connection.shutdown(socket.SHUT_WR)
    finally:
        stream.close()
