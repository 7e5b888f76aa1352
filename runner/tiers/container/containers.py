"""Guests' containers: creating, starting, waiting, removing. Everything here blocks.

Of a container's standard streams, the envelope goes in, and its output goes into its log. The
connection stays open while the guest runs. When it ends, for example because the runner dies, the
guest's standard input ends.
"""

import contextlib
import logging
import socket
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from signal import Signals
from typing import Any, Final

import docker
import docker.errors
import requests
from docker.utils.socket import frames_iter
from wire.errors import Code

from runner.errors import TierError
from runner.images.naming import ImageRole, image_name
from runner.tiers.base import Handle, LaunchSpec, Limits, Network
from runner.tiers.container.engine import Engine, judge
from runner.tiers.container.names import (
    LABEL_LAUNCH,
    LABEL_ROLE,
    LABEL_USER,
    LABEL_WORKSPACE,
    ObjectNames,
)
from runner.tiers.container.networks import Networks, remove_networks, sweep_unused
from runner.tiers.container.options import create_arguments
from runner.tiers.container.ownership_probe import check_mounts, check_owner
from runner.tiers.running import LOG_BYTES_MAX, OutputLog
from runner.workspace.mounts import SERVED, Role

_STREAM_TIMEOUT_S: Final = 10.0


class Streams:
    """The attached connection of one container, served by its own threads.

    Attach before the container starts. `client` must not be shared; it is closed with the
    connection. Raises `WorkspaceError` if the log is not a plain file.
    """

    def __init__(
        self,
        client: docker.APIClient,
        container: str,
        spec: LaunchSpec,
        log_bytes_max: int = LOG_BYTES_MAX,
    ) -> None:
        self._client = client
        self._spec = spec
        with contextlib.ExitStack() as undo:
            undo.callback(client.close)
            self._log = OutputLog(spec.log_path, spec.home, spec.role, spec.user_id, log_bytes_max)
            undo.callback(self._log.close)
            self._response = client.attach_socket(
                container, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            )
            self._socket: socket.socket = getattr(self._response, "_sock", self._response)
            self._socket.settimeout(None)
            undo.pop_all()
        self._pump = threading.Thread(target=self._copy, name="guest-log", daemon=True)
        self._pump.start()

    def send_envelope(self) -> None:
        """Send the envelope without waiting until the guest has read it."""
        threading.Thread(target=self._send, name="guest-envelope", daemon=True).start()

    def finish(self, last_line: str = "") -> None:
        """Call this once the container has ended: copy its remaining output and `last_line` to the
        log.

        Blocks for seconds if the engine does not end the stream.
        """
        self._pump.join(_STREAM_TIMEOUT_S)
        if last_line:
            self._log.add_line(last_line)
        self.close()

    def close(self) -> None:
        """Close the connection and thereby the guest's standard input."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._pump.join()
        self._log.close()
        self._response.close()
        self._client.close()

    def _send(self) -> None:
        with contextlib.suppress(OSError):  # the guest has ended already
            self._socket.sendall(self._spec.envelope)

    def _copy(self) -> None:
        with contextlib.suppress(OSError):
            for _, block in frames_iter(self._socket, tty=False):  # type: ignore[no-untyped-call]
                self._log.write(block)


_TIMEOUT_S: Final = 45.0
_PAUSE_S: Final = 0.1
SETTLED: Final = timedelta(minutes=1)
"""A living runner removes its guests much sooner."""
log = logging.getLogger(__name__)
_AGAIN_S: Final = 1.0
_SIGNALLED: Final = 128
_KILLED: Final = 137
_MIB: Final = 1024 * 1024
_IMAGES: Final = {role: ImageRole.EGRESS if role in SERVED else ImageRole(role) for role in Role}


def remove(client: docker.APIClient, container: str) -> None:
    """Kill and remove a container with its anonymous volumes. Returns when it is gone.

    Raises `TierError` if the engine does not manage to.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            client.remove_container(container, v=True, force=True)
        except docker.errors.NotFound:
            return
        except docker.errors.APIError as error:
            if error.status_code != requests.codes.conflict:  # it is already being removed
                raise
            time.sleep(_PAUSE_S)
    raise TierError(
        Code.UNAVAILABLE,
        f"the container {container[:12]} cannot be removed",
        details=f"the engine has been removing it for {_TIMEOUT_S:g} s",
        resolution=f"docker rm --force {container[:12]}",
    )


def sweep_ended(client: docker.APIClient, settled: timedelta = SETTLED) -> None:
    """Remove guests of all homes that ended `settled` ago. Their runner was killed, and if its
    workspace is gone too, no later start would find them."""
    latest = datetime.now(UTC) - settled
    for found in client.containers(all=True, filters={"label": LABEL_LAUNCH, "status": "exited"}):
        with contextlib.suppress(docker.errors.NotFound):
            ended = client.inspect_container(found["Id"])["State"]["FinishedAt"]
            if datetime.fromisoformat(f"{ended[:19]}+00:00") < latest:
                remove(client, found["Id"])


def free_name(client: docker.APIClient, name: str, place: ObjectNames) -> None:
    """Remove what an earlier runner of `place` left under `name`.

    Raises `TierError` if the name belongs to somebody else.
    """
    try:
        found = client.inspect_container(name)
    except docker.errors.NotFound:
        return
    place.require_own("container", name, found["Config"].get("Labels"))
    remove(client, found["Id"])


@dataclass(frozen=True)
class Container:
    """A started guest. `streams` is None if an earlier runner started it."""

    container_id: str
    name: str
    pid: int
    role: Role
    place: ObjectNames
    launch_id: str
    network: Network = Network.OUTBOUND
    limits: Limits | None = None
    streams: Streams | None = None


class Containers:
    """What one engine runs for us. With `runtime` None, the engine's default OCI runtime."""

    def __init__(self, engine: Engine, *, images: str, runtime: str | None) -> None:
        self._engine = engine
        self._images = images
        self._runtime = runtime
        self._networks = Networks()
        self._notices: list[str] | None = None
        self.seccomp = False
        """Known once the engine was judged."""

    def judge(self) -> list[str]:
        """See `runner.tiers.container.engine.judge`. Asks once and remembers the answer."""
        if self._notices is None:
            facts = self._engine.facts()
            notices = judge(facts, self._runtime)
            self.seccomp = facts.seccomp
            self._notices = notices
        return self._notices

    def start(self, spec: LaunchSpec) -> Container:
        """See `TierDriver.start`."""
        self.judge()
        check_owner(spec.owner)
        check_mounts(spec.mounts, spec.owner)
        image = image_name(self._images, _IMAGES[spec.role])
        place = ObjectNames.of_launch(spec)
        with self._engine.client() as client, contextlib.ExitStack() as undo:
            _check_image(client, image)
            free_name(client, place.container(spec.role, spec.tool), place)
            network = str(Network.NONE)
            if spec.network is Network.OUTBOUND:
                undo.callback(self._networks.release, client, place, spec.launch_id)
                network = self._networks.acquire(client, place, spec.launch_id)
            arguments = create_arguments(
                spec, self._engine.facts(), image=image, network=network, runtime=self._runtime
            )
            try:
                created: str = client.create_container(**arguments)["Id"]
                undo.callback(remove, client, created)
                streams = Streams(self._engine.open(), created, spec)
                undo.callback(streams.close)
                client.start(created)
                streams.send_envelope()
                state = client.inspect_container(created)["State"]
            except docker.errors.APIError as error:
                raise TierError(
                    Code.UNAVAILABLE,
                    f"cannot start the {spec.role} guest",
                    details=str(error.explanation or error),
                    resolution="runner doctor",
                ) from None
            undo.pop_all()
        return Container(
            container_id=created,
            name=arguments["name"],
            pid=int(state["Pid"]),
            role=spec.role,
            place=place,
            launch_id=spec.launch_id,
            network=spec.network,
            limits=spec.limits,
            streams=streams,
        )

    def kill(self, container: Container, number: Signals) -> None:
        """Send a signal. Does nothing if the guest has ended. Raises `TierError` without an
        engine."""
        with self._engine.client() as client, contextlib.suppress(docker.errors.APIError):
            client.kill(container.container_id, int(number))

    def until_gone(self, container: Container) -> int | None:
        """Wait until a guest has ended and remove what is left of it. Returns its exit code.

        Keeps waiting while the engine does not answer, because guests may outlive it.
        """
        status = self._wait(container)
        try:
            with self._engine.client() as client:
                last_line = _killed_line(client, container) if status == _KILLED else ""
                if container.streams is not None:
                    container.streams.finish(last_line)
                remove(client, container.container_id)
                if container.network is Network.OUTBOUND:
                    self._networks.release(client, container.place, container.launch_id)
        except TierError as error:
            log.warning("the container %s is not cleared up: %s", container.name, error)
        if status is None:
            return None
        return _SIGNALLED - status if status > _SIGNALLED else status

    def recover(self, handle: Handle) -> Container | None:
        """The running guest of an earlier runner; None if it is gone or somebody else's."""
        container_id = handle.data.get("container")
        if not isinstance(container_id, str) or not container_id:
            return None
        with self._engine.client() as client:
            try:
                found: dict[str, Any] = client.inspect_container(container_id)
            except docker.errors.NotFound:
                return None
        labels, state = found["Config"].get("Labels") or {}, found["State"]
        known = (labels.get(LABEL_LAUNCH), labels.get(LABEL_ROLE), labels.get(LABEL_USER))
        if known != (handle.launch_id, str(handle.role), handle.user_id) or not state["Running"]:
            return None
        return Container(
            container_id=found["Id"],
            name=found["Name"].lstrip("/"),
            pid=int(state["Pid"]),
            role=handle.role,
            place=ObjectNames(handle.user_id, labels.get(LABEL_WORKSPACE, "")),
            launch_id=handle.launch_id,
        )

    def clear(self, place: ObjectNames) -> list[str]:
        """Remove every container and network of `place`. Returns what was removed, in words."""
        self.judge()
        with self._engine.client() as client:
            sweep_ended(client)
            sweep_unused(client)
            found: list[dict[str, Any]] = client.containers(all=True, filters=place.filters)
            for each in found:
                remove(client, each["Id"])
            names = [f"container {each['Names'][0].lstrip('/')}" for each in found]
            names += [f"network {name}" for name in remove_networks(client, place)]
        return [f"an earlier runner left the {name}; it was removed" for name in names]

    def _wait(self, container: Container) -> int | None:
        while True:
            with contextlib.suppress(TierError), self._engine.client() as client:
                try:
                    ended = client.wait(container.container_id, timeout=None)
                    return int(ended["StatusCode"])
                except docker.errors.NotFound:
                    return None
            time.sleep(_AGAIN_S)


def _check_image(client: docker.APIClient, image: str) -> None:
    try:
        client.inspect_image(image)  # type: ignore[no-untyped-call]
    except docker.errors.NotFound:
        raise TierError(
            Code.FAILED_PRECONDITION,
            f"there is no image {image}",
            details="the container engine does not have it, and the runner pulls none",
            resolution="runner images build (or: runner images load FILE)",
        ) from None


def _killed_line(client: docker.APIClient, container: Container) -> str:
    """That the guest was killed, and whether for its memory, as far as the engine knows: it may
    hear of that only after the end, and then forgets it."""
    limit = f" (limit of {container.limits.memory_bytes // _MIB} MiB)" if container.limits else ""
    with contextlib.suppress(docker.errors.APIError):
        if client.inspect_container(container.container_id)["State"]["OOMKilled"]:
            return f"the {container.role} guest was killed: out of memory{limit}"
    return f"the {container.role} guest was killed, perhaps because it was out of memory{limit}"
