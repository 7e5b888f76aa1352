"""Where guests listen in a tier, and how they notice that their runner is gone."""

from collections.abc import Mapping
from dataclasses import dataclass

from wire.v1 import bootstrap_pb2

from runner.tiers.base import Capabilities, Handle, Network, Port
from runner.workspace.mounts import Role


@dataclass(frozen=True)
class Placement:
    """On this machine guests listen on Unix sockets and end with the runner's end of a pipe. On
    others they listen on ports, prove which launch they are, and end `lease_s` after they last
    heard of a runner."""

    remote: bool = False
    lease_s: int = 0

    @classmethod
    def of(cls, capabilities: Capabilities) -> "Placement":
        return cls(capabilities.remote, capabilities.lease_s)

    @property
    def until(self) -> tuple[str, ...]:
        """The guest's argument that says how long it lives."""
        return ("--lease", str(self.lease_s)) if self.remote else ("--exit-with-parent",)

    @property
    def network(self) -> Network:
        """Of guests that only others of their user connect to."""
        return Network.POLICY if self.remote else Network.NONE

    def name(self, launch_id: str) -> str:
        """What a guest's certificate says of its launch: nothing where its socket says it."""
        return launch_id if self.remote else ""


class Rooms:
    """Where the guests of one user are now, for the links between them. `remote`: on other
    machines."""

    def __init__(self, remote: bool) -> None:
        self.remote = remote
        self._handles: dict[Role, Handle] = {}

    def moved(self, handles: Mapping[Role, Handle]) -> None:
        """Take up the handles of all guests that run."""
        self._handles = dict(handles)

    def link(self, role: Role, port: Port, base: bootstrap_pb2.Link) -> bootstrap_pb2.Link:
        """`base`, at the place where the guest of `role` is now. On another machine, one that does
        not run has no place: then the link says only who it will be."""
        if not (self.remote and base.token):
            return base
        link = bootstrap_pb2.Link(token=base.token, identity=base.identity)
        if (handle := self._handles.get(role)) is not None:
            link.endpoint = handle.endpoint(port)
            link.launch_id = handle.launch_id
        return link
