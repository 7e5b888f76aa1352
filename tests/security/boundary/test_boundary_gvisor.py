"""The self-test on gVisor's kernel, which numbers files itself, tells no peers and hides less:
silent in a hardened container, and each way to break the boundary is caught."""

import os
import re
import socket
import subprocess
from collections.abc import Callable

import pytest
from wire.boundary import KERNEL_OF_GVISOR

from runner.tiers.base import Network
from tests.support.boundary.guarded_host import (
    CANARY,
    CONTROL_TOKEN,
    DOCKER_SOCKET,
    TOKEN,
    Alter,
    GuardedHost,
    Words,
    hits,
    in_container,
    in_gvisor_tier,
    with_options,
    without,
)

pytestmark = pytest.mark.runsc


async def found_by(guarded: GuardedHost, alter: Alter = list) -> dict[str, str]:
    """The hits in a hardened container under runsc whose command line is altered."""

    def under_runsc(words: Words) -> Words:
        return with_options(alter(words), "--runtime", "runsc")

    return hits(await in_container(guarded, under_runsc, micro_vm=True))


def options(*further: str) -> Alter:
    return lambda words: with_options(words, *further)


async def test_the_drivers_own_guest_passes_and_is_gvisors(guarded: GuardedHost) -> None:
    report = await in_gvisor_tier(guarded, Network.NONE)
    assert hits(report) == {}
    (kernel,) = (check.details for check in report.checks if check.name == "kernel")
    assert kernel == KERNEL_OF_GVISOR


def somebody_elses_directory(guarded: GuardedHost) -> Alter:
    ours, theirs = f"{guarded.alice}/shared:", f"{guarded.bob}/shared:"
    return lambda words: [word.replace(ours, theirs) for word in words]


def root_with_powers(_: GuardedHost) -> Alter:
    def alter(words: Words) -> Words:
        place = words.index("--user")
        words = [*words[:place], *words[place + 2 :]]
        powers = ("SYS_ADMIN", "MKNOD", "SYS_PTRACE", "DAC_OVERRIDE")
        return with_options(words, "--user", "0:0", *(f"--cap-add={each}" for each in powers))

    return alter


def beside_the_daemon(_: GuardedHost) -> Alter:
    """A process outside of the commands' namespace, and the daemon no first process."""

    def alter(words: Words) -> Words:
        at = words.index("oxydra-shell-daemon")
        return [*words[:at], "sh", "-c", '"$0" "$@"; exit', *words[at:]]

    return alter


WEAKNESSES: list[tuple[str, Callable[[GuardedHost], Alter], str, str]] = [
    (
        "a private directory under another name",
        lambda guarded: options("--volume", f"{guarded.alice}/.oxydra:/data"),
        "mounts",
        "/data",
    ),
    (
        "another user's workspace",
        lambda guarded: options("--volume", f"{guarded.bob}:/other:ro"),
        "mounts",
        "/other",
    ),
    ("the host's root", lambda _: options("--volume", "/:/host:ro"), "mounts", "/host"),
    ("a directory of somebody else", somebody_elses_directory, "mounts", "/shared is another"),
    (
        "the engine's socket",
        lambda _: options("--volume", f"{DOCKER_SOCKET}:{DOCKER_SOCKET}"),
        "mounts",
        "docker.sock",
    ),
    (
        "a writable root",
        lambda _: lambda words: without(words, "--read-only"),
        "root_filesystem",
        "/usr is on a writable file system",
    ),
    ("further groups", lambda _: options("--group-add", "998"), "identity", "further groups"),
    ("root with powers", root_with_powers, "identity", "commands run as root"),
    (
        "a daemon that is not its guest's first process",
        beside_the_daemon,
        "process_memory",
        "can be read",
    ),
]


@pytest.mark.parametrize(
    ("weaken", "check", "words"),
    [row[1:] for row in WEAKNESSES],
    ids=[row[0] for row in WEAKNESSES],
)
async def test_a_weakness_is_caught(
    guarded: GuardedHost, weaken: Callable[[GuardedHost], Alter], check: str, words: str
) -> None:
    found = await found_by(guarded, weaken(guarded))
    assert words in found.get(check, ""), found


async def test_a_hard_link_to_the_database_is_caught(guarded: GuardedHost) -> None:
    """Nothing inside tells: the runner sees it in the directory on the host."""
    database = guarded.alice / ".oxydra" / "memory.db"
    os.link(database, guarded.alice / "shared" / "holiday.jpg")
    os.link(guarded.bob / ".oxydra" / "memory.db", guarded.alice / "tmp" / "b")
    found = await found_by(guarded)
    assert "a file of .oxydra is there as /shared/holiday.jpg" in found["private_paths"]
    assert found.keys() == {"private_paths"}


@pytest.mark.root
async def test_a_private_directory_below_a_shared_one_is_caught(guarded: GuardedHost) -> None:
    """The mount comes along, and gVisor's own table does not show it."""
    inside = guarded.alice / "shared" / "inside"
    inside.mkdir()
    subprocess.run(["mount", "--bind", guarded.alice / "vault", inside], check=True)
    try:
        found = await found_by(guarded)
    finally:
        subprocess.run(["umount", inside], check=True)
    assert "vault is there as /shared/inside" in found["private_paths"]


async def test_a_socket_that_the_host_serves_is_caught(guarded: GuardedHost) -> None:
    path = guarded.alice / "shared" / "engine.sock"
    guarded.serve(path)
    found = await found_by(guarded)
    assert "/shared/engine.sock is served from outside the guest" in found["unix_sockets"]


async def test_a_socket_that_nobody_serves_is_none(guarded: GuardedHost) -> None:
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(guarded.alice / "shared" / "left.sock"))
    assert await found_by(guarded) == {}


async def test_a_secret_and_the_canary_in_the_environment_are_closed(guarded: GuardedHost) -> None:
    """The daemon's own is in no /proc that a command sees."""
    environment = options("--env", f"KEY={CONTROL_TOKEN}", "--env", f"ENVELOPE={CANARY}")
    assert await found_by(guarded, environment) == {}


async def test_secrets_in_files_are_caught(guarded: GuardedHost) -> None:
    (guarded.alice / "ipc" / "shell" / "left").write_text(f"{TOKEN} {CANARY}")
    found = await found_by(guarded)
    assert re.search("the shell's token is in /ipc/left", found["secrets"])
    assert re.search("the canary is in /ipc/left", found["canary"])
