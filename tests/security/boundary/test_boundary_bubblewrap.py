"""The self-test in the process tier: silent in a healthy guest, and each way to break the
boundary is caught by the check that is meant for it."""

import socket
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from shell_daemon.processes import seccomp
from tests.support.boundary.guarded_host import (
    CANARY,
    CONTROL_TOKEN,
    TOKEN,
    GuardedHost,
    Words,
    hits,
    in_bubblewrap,
    in_process_tier,
    with_mounts,
    without,
)

pytestmark = pytest.mark.bubblewrap


async def test_a_healthy_guest_passes(guarded: GuardedHost) -> None:
    assert hits(await in_bubblewrap(guarded)) == {}


async def test_the_drivers_own_guest_passes(guarded: GuardedHost) -> None:
    assert hits(await in_process_tier(guarded)) == {}


async def test_what_commands_left_behind_raises_no_alarm(guarded: GuardedHost) -> None:
    """Names that look like something else, and sockets that nobody serves any more."""
    shared = guarded.alice / "shared"
    (shared / "vault").mkdir()
    (shared / ".oxydra").mkdir()
    (shared / "link").symlink_to("/.oxydra")
    (guarded.alice / "ipc" / "shell" / "gateway.sock").mkdir()
    for directory in ("shared", "tmp", "cache", "ipc/shell"):
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(guarded.alice / directory / "stale.sock"))
    assert hits(await in_bubblewrap(guarded)) == {}


@pytest.mark.parametrize("place", ["/.oxydra", "/data", "/shared/nested", "/run/there"])
async def test_the_private_directory_is_caught_under_any_name(
    guarded: GuardedHost, place: str
) -> None:
    private = str(guarded.alice / ".oxydra")
    found = hits(
        await in_bubblewrap(guarded, lambda words: with_mounts(words, "--bind", private, place))
    )
    assert f".oxydra is there as {place}" in found["private_paths"]
    assert place in found["mounts"]


async def test_a_read_only_private_directory_is_caught(guarded: GuardedHost) -> None:
    private = str(guarded.alice / ".oxydra")
    found = hits(
        await in_bubblewrap(
            guarded, lambda words: with_mounts(words, "--ro-bind", private, "/data")
        )
    )
    assert {"private_paths", "mounts"} <= set(found)


async def test_the_vault_is_caught(guarded: GuardedHost) -> None:
    vault = str(guarded.alice / "vault")
    found = hits(
        await in_bubblewrap(guarded, lambda words: with_mounts(words, "--ro-bind", vault, "/vault"))
    )
    assert "/vault is there" in found["private_paths"]
    assert "/vault" in found["mounts"]


async def test_skills_that_commands_can_write_are_caught(guarded: GuardedHost) -> None:
    skills = str(guarded.alice / "skills")
    found = hits(
        await in_bubblewrap(guarded, lambda words: with_mounts(words, "--bind", skills, "/skills"))
    )
    assert "/skills is mounted read-write instead of read-only" in found["mounts"]


async def test_a_hard_link_to_the_database_is_caught(guarded: GuardedHost) -> None:
    (guarded.alice / "shared" / "innocent.txt").hardlink_to(guarded.alice / ".oxydra" / "memory.db")
    found = hits(await in_bubblewrap(guarded))
    assert found.keys() == {"private_paths"}
    assert "/shared/innocent.txt" in found["private_paths"]


async def test_all_of_ipc_is_caught(guarded: GuardedHost) -> None:
    shell, all_of_it = str(guarded.alice / "ipc" / "shell"), str(guarded.alice / "ipc")

    def alter(words: Words) -> Words:
        words = [all_of_it if word == shell else word for word in words]
        return [word.replace("/ipc/shell.sock", "/ipc/shell/shell.sock") for word in words]

    found = hits(await in_bubblewrap(guarded, alter))
    assert "/ipc is another directory" in found["mounts"]
    assert "ipc is there as /ipc" in found["private_paths"]
    assert "a file of ipc/agent is there as /ipc/agent/agent.sock" in found["private_paths"]
    assert "/ipc/agent/agent.sock is served from outside" in found["unix_sockets"]


async def test_the_control_socket_is_caught(guarded: GuardedHost) -> None:
    control = str(guarded.runtime / "control.sock")
    found = hits(
        await in_bubblewrap(
            guarded, lambda words: with_mounts(words, "--bind", control, "/run/innocent")
        )
    )
    assert "/run/innocent" in found["mounts"]
    assert "/run/innocent" in found["private_paths"]
    assert "/run/innocent is served from outside" in found["unix_sockets"]


async def test_another_users_workspace_is_caught(guarded: GuardedHost) -> None:
    theirs = str(guarded.bob / "shared")
    found = hits(
        await in_bubblewrap(guarded, lambda words: with_mounts(words, "--bind", theirs, "/other"))
    )
    assert "as /other" in found["other_users"]
    assert "/other" in found["mounts"]
    assert "bob" not in found["other_users"]


async def test_a_shared_directory_of_somebody_else_is_caught(guarded: GuardedHost) -> None:
    ours, theirs = str(guarded.alice / "shared"), str(guarded.bob / "shared")
    found = hits(
        await in_bubblewrap(
            guarded, lambda words: [theirs if word == ours else word for word in words]
        )
    )
    assert "/shared is another directory" in found["mounts"]
    assert "as /shared" in found["other_users"]


async def test_a_shared_network_is_caught(guarded: GuardedHost) -> None:
    found = hits(await in_bubblewrap(guarded, lambda words: [words[0], *_shared_network(words)]))
    assert "the host's 127.0.0.1 can be reached" in found["network"]
    assert "the net namespace is the host's" in found["namespaces"]
    assert "abstract socket oxydra-boundary-" in found["unix_sockets"]


def _shared_network(words: Words) -> Words:
    place = words.index("--unshare-all") + 1
    return [*words[1:place], "--share-net", *words[place:]]


async def test_a_missing_filter_of_system_calls_is_caught(guarded: GuardedHost) -> None:
    """The daemon's own code has one that does nothing."""
    idle = guarded.root / "seccomp.py"
    own = Path(seccomp.__file__)
    idle.write_text(f"{own.read_text()}\ndef confine(**_): pass\n")
    found = hits(
        await in_bubblewrap(
            guarded, lambda words: with_mounts(words, "--ro-bind", str(idle), str(own))
        )
    )
    assert found["seccomp"] == (
        "no system call filter around commands; "
        "the kernel can be asked for keys: add_key, request_key, keyctl"
    )


async def test_a_kept_capability_is_caught(guarded: GuardedHost) -> None:
    def alter(words: Words) -> Words:
        words = without(words, "--disable-userns")
        return with_mounts(words, "--cap-add", "CAP_SYS_ADMIN")

    found = hits(await in_bubblewrap(guarded, alter))
    assert found.keys() == {"capabilities"}
    assert "CapEff" in found["capabilities"]


def _own_init(words: Words) -> Words:
    """With bubblewrap's own process 1, whose environment and arguments commands can read."""
    return without(words, "--as-pid-1")


async def test_a_secret_in_the_environment_is_caught(guarded: GuardedHost) -> None:
    report = await in_bubblewrap(guarded, _own_init, {"SOME": f"x{CONTROL_TOKEN}y"})
    found = hits(report)
    assert found == {"secrets": "the control token is in /proc/1/environ"}


async def test_a_secret_in_a_command_line_is_caught(guarded: GuardedHost) -> None:
    def alter(words: Words) -> Words:
        return with_mounts(_own_init(words), "--setenv", "T", TOKEN)

    found = hits(await in_bubblewrap(guarded, alter))
    assert found == {"secrets": "the shell's token is in /proc/1/cmdline"}


async def test_a_secret_in_a_file_is_caught(guarded: GuardedHost) -> None:
    (guarded.alice / "ipc" / "shell" / "old.json").write_text(f'{{"token":"{TOKEN}"}}\n')
    found = hits(await in_bubblewrap(guarded))
    assert found == {"secrets": "the shell's token is in /ipc/old.json"}


async def test_the_agents_canary_is_caught(guarded: GuardedHost) -> None:
    found = hits(await in_bubblewrap(guarded, _own_init, {"ENVELOPE": f"…{CANARY}…"}))
    assert found == {"canary": "the canary is in /proc/1/environ"}


async def test_the_hosts_processes_are_caught(guarded: GuardedHost) -> None:
    def alter(words: Words) -> Words:
        words = without(_own_init(words), "--unshare-all")
        place = words.index("--unshare-user")
        others = ["--unshare-ipc", "--unshare-uts", "--unshare-net", "--unshare-cgroup-try"]
        return [*words[:place], *others, *words[place:]]

    found = hits(await in_bubblewrap(guarded, alter))
    assert "the pid namespace is the host's" in found["namespaces"]


async def test_root_inside_is_caught(guarded: GuardedHost) -> None:
    def alter(words: Words) -> Words:
        place = words.index("--uid")
        return [*words[:place], "--uid", "0", "--gid", "0", *words[place + 4 :]]

    found = hits(await in_bubblewrap(guarded, alter))
    assert "commands run as root" in found["identity"]


async def test_a_writable_root_is_caught(guarded: GuardedHost) -> None:
    found = hits(await in_bubblewrap(guarded, lambda words: without(words, "--remount-ro", "/")))
    assert "the root file system is mounted read-write" in found["mounts"]
    assert "/ is on a writable file system" in found["root_filesystem"]


async def test_writable_programs_are_caught(guarded: GuardedHost) -> None:
    def alter(words: Words) -> Words:
        place = list(pairwise(words)).index(("--ro-bind", sys.prefix))
        return [*words[:place], "--bind", *words[place + 1 :]]

    found = hits(await in_bubblewrap(guarded, alter))
    assert f"{sys.prefix} is mounted read-write" in found["mounts"]
    assert f"{sys.prefix} is on a writable file system" in found["root_filesystem"]


async def test_the_hosts_own_directories_are_caught(guarded: GuardedHost) -> None:
    found = hits(
        await in_bubblewrap(guarded, lambda words: with_mounts(words, "--ro-bind", "/", "/host"))
    )
    assert "/host is mounted from /" in found["mounts"]


async def test_the_hosts_run_in_place_of_its_own_is_caught(guarded: GuardedHost) -> None:
    def alter(words: Words) -> Words:
        place = words.index("/run") - 3
        return [*words[:place], "--bind", "/run", "/run", *words[place + 4 :]]

    found = hits(await in_bubblewrap(guarded, alter))
    assert "/run is mounted from" in found["mounts"]


async def test_the_hosts_devices_are_caught(guarded: GuardedHost) -> None:
    def alter(words: Words) -> Words:
        place = words.index("--dev")
        words = [*words[:place], "--dev-bind", "/dev", "/dev", *words[place + 2 :]]
        return without(words, "--remount-ro", "/dev")

    found = hits(await in_bubblewrap(guarded, alter))
    assert "further devices" in found["devices"]
