"""How a guest sees what the runner hands it."""

from pathlib import Path

import pytest

from runner.tiers.base import GuestMounts
from runner.workspace.mounts import Role, bind

WORKSPACE = Path("/srv/ws/alice")


def test_a_guest_without_files_of_its_own_sees_the_hosts() -> None:
    mounts = GuestMounts(bind(Role.AGENT, WORKSPACE), own_files=False)
    assert mounts.path(WORKSPACE / ".oxydra") == WORKSPACE / ".oxydra"
    socket = "ipc/agent/agent.sock"
    assert mounts.endpoint(WORKSPACE / socket) == f"unix:{WORKSPACE}/{socket}"


@pytest.mark.parametrize(
    ("role", "host", "seen"),
    [
        (Role.AGENT, ".oxydra/memory.db", "/.oxydra/memory.db"),
        (Role.AGENT, "ipc/agent/agent.sock", "/ipc/agent.sock"),
        (Role.AGENT, "ipc/shell/shell.sock", "/shell/shell.sock"),
        (Role.SHELL, "ipc/shell/shell.sock", "/ipc/shell.sock"),
        (Role.SHELL, "shared", "/shared"),
    ],
)
def test_others_see_the_virtual_paths(role: Role, host: str, seen: str) -> None:
    mounts = GuestMounts(bind(role, WORKSPACE), own_files=True)
    assert mounts.path(WORKSPACE / host) == Path(seen)


@pytest.mark.parametrize(
    "hidden", [".oxydra", "vault", "ipc/agent/agent.sock", "ipc", "logs/shell", ""]
)
def test_what_no_mount_brings_has_no_path(hidden: str) -> None:
    mounts = GuestMounts(bind(Role.SHELL, WORKSPACE), own_files=True)
    with pytest.raises(ValueError, match="in no mount"):
        mounts.path(WORKSPACE / hidden)
