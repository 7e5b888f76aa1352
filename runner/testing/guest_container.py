"""A guest's container as testcontainers knows containers."""

from collections.abc import Sequence
from pathlib import Path

import docker
import docker.errors
from docker.models.containers import Container
from testcontainers.core.container import BytesExecResult
from testcontainers.core.exceptions import ContainerStartException


class GuestContainer:
    """Fits `testcontainers.core.waiting_utils.WaitStrategyTarget`, so that every wait
    strategy works on it, and `exec` besides.

    The runner starts, replaces and removes the container; this looks it up by its
    name each time, so it means the one that there is now.
    """

    def __init__(self, client: docker.DockerClient, name: str, log: Path) -> None:
        self._client = client
        self._log = log
        self.name = name

    def get_wrapped_container(self) -> Container:
        """The SDK's object. Raises `ContainerStartException` where there is none now."""
        try:
            return self._client.containers.get(self.name)
        except docker.errors.NotFound:
            raise ContainerStartException(f"there is no container {self.name}") from None

    @property
    def status(self) -> str:
        """As the engine calls it; "not_started" where there is no container."""
        try:
            return str(self.get_wrapped_container().status)
        except ContainerStartException:
            return "not_started"

    def reload(self) -> None:
        """Nothing to do: every look is a fresh one."""

    def get_logs(self) -> tuple[bytes, bytes]:
        """What all guests of this role have said; both streams of a guest go to one file."""
        try:
            return self._log.read_bytes(), b""
        except FileNotFoundError:
            return b"", b""

    def exec(self, command: str | Sequence[str], *, user: str = "") -> BytesExecResult:
        """Run a command in there, as the guest's own user unless told otherwise."""
        container = self.get_wrapped_container()
        words = command if isinstance(command, str) else list(command)
        code, output = container.exec_run(words, user=user)
        return BytesExecResult(code, output)

    def get_container_host_ip(self) -> str:
        """Guests listen on no address."""
        raise ContainerStartException(f"{self.name} publishes no port: use its Unix socket")

    def get_exposed_port(self, port: int) -> int:
        """Guests listen on no port."""
        raise ContainerStartException(f"{self.name} publishes no port, not {port} either")
