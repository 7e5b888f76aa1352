"""A container's standard streams: the envelope goes in, its output goes into its log.

The connection stays open while the guest runs. When it ends, for example because the runner dies,
the guest's standard input ends.
"""

import contextlib
import socket
import threading
from typing import Final

import docker
from docker.utils.socket import frames_iter

from runner.tiers.base import LaunchSpec
from runner.tiers.output import LOG_BYTES_MAX, OutputLog

_TIMEOUT_S: Final = 10.0


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
        self._pump.join(_TIMEOUT_S)
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
