"""The questions of the boundary self-test: written by the runner, read by the probe in the shell
guest.

It crosses as JSON on the probe's standard input. Nothing in it helps to guess a secret: tokens are
in it only by their marks, private files and other users only by inode numbers. Standard library
only: the probe runs without any other package, and its start delays every cold start.
"""

import json
from typing import Any, Final, NamedTuple

from wire.network_probe import Target
from wire.text import parsed_json

CHECKS: Final = (
    "identity",
    "capabilities",
    "no_new_privileges",
    "seccomp",
    "namespaces",
    "kernel",
    "mounts",
    "private_paths",
    "other_users",
    "root_filesystem",
    "kernel_settings",
    "devices",
    "mounting",
    "processes",
    "process_memory",
    "descriptors",
    "unix_sockets",
    "network",
    "metadata_address",
    "secrets",
    "canary",
)
"""Every check, in the order of the report. All of them must be answered."""

POLICY: Final = "policy"
"""The network of a guest that has one, in which policies let only named peers through."""
POLICIES: Final = "policies"
"""One more check, of a guest with such a network."""
PROJECTS: Final = "projects"
"""One more check, of a guest that has directories of the operator's."""
POLICED_CHECKS: Final = ("metadata_address", POLICIES)
"""What fails in such a guest while the policies of its network are not enforced."""

CANARY: Final = "the canary"
"""The label of the mark that only the check `canary` looks for."""

CROWD_MAX: Final = 2_000_000
"""How much may lie in `/shared` and in `/tmp`, in the `cost` of `wire.disk`: so many files, or
a tenth as many directories and sockets. The runner moves aside what is more before a shell starts,
so that the walk of the self-test ends."""

KERNEL_OF_HOST: Final = "shared with the host"
KERNEL_OF_MACHINE: Final = "its own, in a virtual machine"
KERNEL_OF_GVISOR: Final = "its own, gVisor's, in user space"
KERNELS: Final = (KERNEL_OF_HOST, KERNEL_OF_MACHINE, KERNEL_OF_GVISOR)
"""Whose kernel a guest runs on: what the check `kernel` finds where it passes."""

_MARK_END: Final = "."


class SharedDirectory(NamedTuple):
    """A row of the mount table: where the guest has it, and which directory it must be.

    `beacon` is the name of an empty file that the runner keeps in that directory during the test,
    for a guest with a kernel of its own, which may number files as it likes. `inode` is 0 for a
    volume of another machine, of which the runner does not know the numbers. With `operators` it is
    a directory or a file of the operator's own, in which nothing is made; a guest with such a
    kernel knows it by when it was `changed` last, and by when one `entry` was.
    """

    virtual: str
    writable: bool
    device: int
    inode: int
    beacon: str = ""
    operators: bool = False
    changed: int = 0
    entry: str = ""
    entry_changed: int = 0


class PrivatePath(NamedTuple):
    """Something on the host that the guest must not reach. `inode` is 0 if nothing is there now,
    `path` is empty if the name itself is private."""

    label: str
    path: str
    device: int
    inode: int


class Mark(NamedTuple):
    """A random word to look for: the canary, or the public beginning of a token."""

    label: str
    text: str


class BoundarySpec(NamedTuple):
    """What must hold inside. Numbers of devices and namespaces are the host's.

    The guest must not share the `namespaces`. `network` is what its tier has given it. `read_only`
    are mount points of programs that the tier adds. `host_tmpfs` are device numbers ("0:25") of the
    host's in-memory file systems. During the test the runner listens on `listener_port` of the
    host's 127.0.0.1 and on the abstract Unix socket `listener_name`. With `own_kernel` the guest
    must have another boot id, and the numbers of the host's kernel mean nothing in it.
    `egress_listener` is a path or an endpoint: a path is the only socket served from outside.

    A `remote` guest may be on another machine: the numbers of the host count only where its boot id
    is the host's, and its mounts are those of a pod. With the network `POLICY` it must not
    reach the `forbidden` targets. `checks` are those to be answered.
    """

    uid: int
    gid: int
    groups: tuple[int, ...]
    seccomp: bool
    own_kernel: bool
    boot_id: str
    namespaces: dict[str, int]
    network: str
    shared: tuple[SharedDirectory, ...]
    read_only: tuple[str, ...]
    absent: tuple[str, ...]
    private: tuple[PrivatePath, ...]
    other_users: tuple[tuple[int, int], ...]
    host_tmpfs: tuple[str, ...]
    host_addresses: tuple[str, ...]
    socket: str
    marks: tuple[Mark, ...]
    listener_port: int = 0
    listener_name: str = ""
    egress_listener: str = ""
    remote: bool = False
    forbidden: tuple[Target, ...] = ()
    checks: tuple[str, ...] = CHECKS

    @property
    def policed(self) -> bool:
        """Whether the guest has a network, in which policies let only named peers through."""
        return self.network == POLICY

    def to_json(self) -> bytes:
        return json.dumps(self._asdict(), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, content: bytes) -> "BoundarySpec":
        """Raises `ValueError` for anything that is not such a specification."""
        try:
            fields: dict[str, Any] = parsed_json(content)
            for name in ("groups", "read_only", "absent", "host_tmpfs", "host_addresses", "checks"):
                fields[name] = tuple(fields[name])
            fields["shared"] = tuple(SharedDirectory(*row) for row in fields["shared"])
            fields["private"] = tuple(PrivatePath(*row) for row in fields["private"])
            fields["other_users"] = tuple((row[0], row[1]) for row in fields["other_users"])
            fields["forbidden"] = tuple(Target(*row) for row in fields["forbidden"])
            fields["marks"] = tuple(Mark(*row) for row in fields["marks"])
            return cls(**fields)
        except (TypeError, KeyError, IndexError) as error:
            raise ValueError(f"not a boundary specification: {error!r}") from None


def marked(mark: str, secret: str) -> str:
    """A token that can be recognised by its `mark`, which says nothing about the rest."""
    return f"{mark}{_MARK_END}{secret}"


def mark_of(token: str) -> str:
    """The mark of a token; empty if it has none."""
    mark, end, _ = token.partition(_MARK_END)
    return mark if end else ""
