"""A guest made of files, for the probe's checks: what the kernel would show, under a
directory of the test."""

import os
from pathlib import Path

from wire.boundary import BoundarySpec, SharedDirectory

from shell_daemon.probe.world import Budgets, World

UID = os.geteuid()
STATUS = {
    "PPid": "1",
    "Uid": f"{UID}\t{UID}\t{UID}\t{UID}",
    "Gid": "7\t7\t7\t7",
    "Groups": "7",
    **{f"Cap{name}": "0000000000000000" for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")},
    "NoNewPrivs": "1",
    "Seccomp": "2",
}
ROOT_LINE = "20 1 0:40 / / ro,relatime - overlay overlay rw"


class ProbedGuest:
    """`proc` and `root` are the guest's; `spec` what is asked of it."""

    def __init__(self, directory: Path) -> None:
        self.proc = directory / "proc"
        self.root = directory / "root"
        self.mountinfo = [ROOT_LINE]
        self.spec = BoundarySpec(
            uid=UID,
            gid=7,
            groups=(),
            seccomp=True,
            own_kernel=False,
            boot_id="boot-of-the-host",
            namespaces={},
            network="none",
            shared=(),
            read_only=(),
            absent=("/.oxydra", "/vault"),
            private=(),
            other_users=(),
            host_tmpfs=("0:25",),
            host_addresses=(),
            socket="/ipc/shell.sock",
            marks=(),
        )
        for place in ("self/ns", "net", "sys/kernel/random"):
            (self.proc / place).mkdir(parents=True)
        self.root.mkdir()
        self.status()
        self.write("net/unix", "Num RefCount Protocol Flags Type St Inode Path\n")
        self.write("net/dev", "Inter-|\n face |\n    lo: 0\n")
        self.write("net/route", "Iface Destination Gateway\n")
        self.write("sys/kernel/random/boot_id", "boot-of-the-host\n")
        self.write("cmdline", "BOOT_IMAGE=/vmlinuz quiet\n")

    def in_gvisor(self) -> None:
        """The guest has gVisor's kernel, as the runner promised; what that does not list is not
        there."""
        self.spec = self.spec._replace(own_kernel=True)
        self.write("sys/kernel/random/boot_id", "boot-of-the-guest\n")
        self.write("cmdline", "BOOT_IMAGE=/vmlinuz-4.4.0-gvisor quiet\n")
        lines = (self.proc / "self/status").read_text().splitlines(keepends=True)
        kept = [line for line in lines if not line.startswith(("CapAmb", "NoNewPrivs"))]
        self.write("self/status", "".join(kept))

    def status(self, **changes: str) -> None:
        """What /proc/self/status says."""
        lines = {**STATUS, **changes}.items()
        self.write("self/status", "".join(f"{name}:\t{value}\n" for name, value in lines))

    def first_process(self, *, seccomp: int = 2, no_new_privileges: int = 1) -> None:
        """What /proc/1/status says."""
        self.write("1/status", f"Seccomp:\t{seccomp}\nNoNewPrivs:\t{no_new_privileges}\n")

    def write(self, name: str, content: str | bytes) -> None:
        """A file below /proc."""
        path = self.proc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def share(self, virtual: str, line: str = "") -> Path:
        """A row of the mount table, mounted as it should be."""
        path = self.root / virtual.lstrip("/")
        path.mkdir(parents=True)
        found = path.stat()
        row = SharedDirectory(virtual, True, found.st_dev, found.st_ino)
        self.spec = self.spec._replace(shared=(*self.spec.shared, row))
        self.mount(line or f"30 20 254:0 /host{virtual} {virtual} rw - ext4 /dev/vda rw")
        return path

    def mount(self, line: str) -> None:
        self.mountinfo.append(line)

    def look(self, budgets: Budgets = Budgets(), **changes: object) -> World:  # noqa: B008
        """The guest as the checks see it, with these changes to what is asked."""
        self.write("self/mountinfo", "\n".join(self.mountinfo))
        return World(self.spec._replace(**changes), proc=self.proc, root=self.root, budgets=budgets)  # type: ignore[arg-type]
