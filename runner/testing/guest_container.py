"""A guest's container, for use with testcontainers."""

from collections.abc import Sequence
from pathlib import Path

import docker
import docker.errors
from docker.models.containers import Container
from testcontainers.core.container import BytesExecResult
from testcontainers.core.exceptions import ContainerStartException


class GuestContainer:
    """Implements `testcontainers.core.waiting_utils.WaitStrategyTarget`, so that every wait
    strategy accepts it; adds `exec`.

    The runner starts, replaces and removes the container. It is looked up by name on each use, so
    this always means the current one.
    """

    def __init__(self, client: docker.DockerClient, name: str, log: Path) -> None:
        self._client = client
        self._log = log
        self.name = name

    def get_wrapped_container(self) -> Container:
        """The Docker SDK's object. Raises `ContainerStartException` if there is none now."""
        try:
            return self._client.containers.get(self.name)
        except docker.errors.NotFound:
            raise ContainerStartException(f"there is no container {self.name}") from None

    @property
    def status(self) -> str:
        """The status in the engine's words; "not_started" if there is no container."""
        try:
            return str(self.get_wrapped_container().status)
        except ContainerStartException:
            return "not_started"

    def reload(self) -> None:
        """Does nothing: nothing is cached."""

    def get_logs(self) -> tuple[bytes, bytes]:
        """The log of this role. Both streams of a guest go to one file."""
        try:
            return self._log.read_bytes(), b""
        except FileNotFoundError:
            return b"", b""

    def exec(self, command: str | Sequence[str], *, user: str = "") -> BytesExecResult:
        """Run a command in the container, by default as the guest's own user."""
        container = self.get_wrapped_container()
        words = command if isinstance(command, str) else list(command)
        code, output = container.exec_run(words, user=user)
        return BytesExecResult(code, output)

    def get_container_host_ip(self) -> str:
        """Raises: guests listen on no address."""
        raise ContainerStartException(f"{self.name} publishes no port: use its Unix socket")

    def get_exposed_port(self, port: int) -> int:
        """Raises: guests listen on no port."""
        raise ContainerStartException(f"{self.name} publishes no port, not {port} either")
