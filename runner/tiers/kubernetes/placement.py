"""How pods listen, and how the runner and they reach each other."""

from pathlib import Path
from types import MappingProxyType

from wire.v1 import bootstrap_pb2

from runner.host.recovery import RecoveryState
from runner.tiers.base import GuestMounts, Handle, Network, Placement, Port
from runner.tiers.kubernetes import recovery


class PodPlacement(Placement):
    """Guests listen on ports, prove which launch they are, and end `lease_s` after they last heard
    of a runner."""

    network = Network.POLICY
    environment = MappingProxyType({"HOME": "/state/.oxydra", "TMPDIR": "/state/tmp"})
    shell_directory = Path("/run")
    lasting = True
    addressed = True

    def __init__(self, lease_s: int) -> None:
        self.until = ("--lease", str(lease_s))

    def name(self, launch_id: str) -> str:
        return launch_id

    def listener(self, socket: Path, seen: GuestMounts, port: Port) -> str:
        return port.listener

    def reached(self, socket: Path) -> str:
        return ""

    def egress_endpoint(self, socket: Path, seen: GuestMounts, handle: Handle | None) -> str:
        return handle.endpoint(Port.SHELL_LISTENER) if handle is not None else ""

    def recovered(self, path: Path) -> RecoveryState | None:
        return recovery.load(path)

    def leave(self, state: RecoveryState, path: Path) -> None:
        recovery.save(state, path)

    def link(
        self, base: bootstrap_pb2.Link, handle: Handle | None, port: Port
    ) -> bootstrap_pb2.Link:
        """A guest that does not run has no address: then the link says only who it will be."""
        if not base.token:
            return base
        link = bootstrap_pb2.Link(token=base.token, identity=base.identity)
        if handle is not None:
            link.endpoint = handle.endpoint(port)
            link.launch_id = handle.launch_id
        return link
