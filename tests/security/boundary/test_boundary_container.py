"""The self-test in a container: silent in a hardened one, and each way to break the boundary
is caught by the check that is meant for it."""

import re

import pytest

from runner.tiers.base import Network
from tests.support.boundary.guarded_host import (
    CANARY,
    CONTROL_TOKEN,
    DOCKER_SOCKET,
    GuardedHost,
    Words,
    hits,
    in_container,
    in_container_tier,
    with_options,
    without,
)

pytestmark = pytest.mark.docker


async def broken(guarded: GuardedHost, *options: str) -> dict[str, str]:
    """The hits in a container with further options."""
    return hits(await in_container(guarded, lambda words: with_options(words, *options)))


async def test_a_hardened_container_passes(guarded: GuardedHost) -> None:
    assert hits(await in_container(guarded)) == {}


async def test_the_drivers_own_container_passes(guarded: GuardedHost) -> None:
    assert hits(await in_container_tier(guarded, Network.NONE)) == {}


async def test_egress_network_is_caught(guarded: GuardedHost) -> None:
    """What the tier gives to egress alone: no other guest may start with it."""
    found = hits(await in_container_tier(guarded, Network.OUTBOUND))
    assert "there are network interfaces: eth0" in found["network"]


async def test_private_directories_are_caught_under_any_name(guarded: GuardedHost) -> None:
    private, vault = f"{guarded.alice}/.oxydra", f"{guarded.alice}/vault"
    mounts = (f"{private}:/.oxydra", f"{private}:/data", f"{vault}:/vault:ro")
    found = await broken(guarded, *(word for mount in mounts for word in ("--volume", mount)))
    for place in ("/.oxydra", "/data"):
        assert f".oxydra is there as {place}" in found["private_paths"]
        assert place in found["mounts"]
    assert "/vault is there" in found["private_paths"]
    assert "/vault" in found["mounts"]


async def test_the_engines_socket_is_caught(guarded: GuardedHost) -> None:
    found = await broken(guarded, "--volume", f"{DOCKER_SOCKET}:{DOCKER_SOCKET}")
    assert "docker.sock" in found["mounts"]
    assert "docker.sock" in found["private_paths"]
    assert "docker.sock" in found["unix_sockets"]


async def test_the_hosts_network_is_caught(guarded: GuardedHost) -> None:
    def alter(words: Words) -> Words:
        return with_options(without(words, "--network", "none"), "--network", "host")

    found = hits(await in_container(guarded, alter))
    assert "the host's 127.0.0.1 can be reached" in found["network"]
    assert "the net namespace is the host's" in found["namespaces"]
    assert "abstract socket oxydra-boundary-" in found["unix_sockets"]


async def test_a_network_that_was_not_asked_for_is_caught(guarded: GuardedHost) -> None:
    def alter(words: Words) -> Words:
        return with_options(without(words, "--network", "none"), "--network", "bridge")

    found = hits(await in_container(guarded, alter))
    assert "there are network interfaces: eth0" in found["network"]
    assert "there are routes" in found["network"]


@pytest.mark.parametrize("capability", ["SYS_ADMIN", "NET_RAW", "DAC_READ_SEARCH"])
async def test_a_kept_capability_is_caught(guarded: GuardedHost, capability: str) -> None:
    found = await broken(guarded, "--cap-add", capability)
    assert "CapBnd" in found["capabilities"]


async def test_root_with_powers_is_caught(guarded: GuardedHost) -> None:
    def alter(words: Words) -> Words:
        place = words.index("--user")
        words = [*words[:place], *words[place + 2 :]]
        words = without(words, "--security-opt", "no-new-privileges")
        powers = ("SYS_ADMIN", "MKNOD", "SYS_PTRACE", "DAC_OVERRIDE")
        options = ["--user", "0:0", "--security-opt", "seccomp=unconfined"]
        options += ["--security-opt", "apparmor=unconfined"]
        return with_options(words, *options, *(f"--cap-add={power}" for power in powers))

    found = hits(await in_container(guarded, alter))
    assert {"capabilities", "no_new_privileges"} <= found.keys()
    assert "commands run as root" in found["identity"]
    assert "a file system can be mounted" in found["mounting"]
    assert "oxydra-shell's environ can be read" in found["process_memory"]


async def test_missing_no_new_privileges_is_caught(guarded: GuardedHost) -> None:
    found = hits(
        await in_container(
            guarded, lambda words: without(words, "--security-opt", "no-new-privileges")
        )
    )
    assert found.keys() == {"no_new_privileges"}


async def test_a_writable_root_is_caught(guarded: GuardedHost) -> None:
    found = hits(await in_container(guarded, lambda words: without(words, "--read-only")))
    assert "the root file system is mounted read-write" in found["mounts"]
    assert "/usr is on a writable file system" in found["root_filesystem"]


async def test_the_hosts_processes_are_caught(guarded: GuardedHost) -> None:
    found = await broken(guarded, "--pid", "host")
    assert "the pid namespace is the host's" in found["namespaces"]
    assert "of another user is visible" in found["processes"]


async def test_the_hosts_shared_memory_is_caught(guarded: GuardedHost) -> None:
    found = await broken(guarded, "--ipc", "host")
    assert "the ipc namespace is the host's" in found["namespaces"]


async def test_a_device_of_the_host_is_caught(guarded: GuardedHost) -> None:
    found = await broken(guarded, "--device", "/dev/kmsg")
    assert "/dev/kmsg" in found["devices"]


async def test_further_groups_are_caught(guarded: GuardedHost) -> None:
    found = await broken(guarded, "--group-add", "998")
    assert found == {"identity": "commands belong to further groups: [998]"}


async def test_a_missing_filter_is_caught_where_the_engine_has_one(guarded: GuardedHost) -> None:
    healthy = await in_container(guarded)
    filtered = next(check.details for check in healthy.checks if check.name == "seccomp")
    found = await broken(guarded, "--security-opt", "seccomp=unconfined")
    expected = {"seccomp"} if "by the tier" in filtered else set()
    assert found.keys() == expected


async def test_a_secret_and_the_canary_in_the_environment_are_caught(guarded: GuardedHost) -> None:
    """In that of a process beside the daemon, whose own is closed to commands."""

    def beside(words: list[str]) -> list[str]:
        at = words.index("oxydra-shell-daemon")
        child = ["sh", "-c", 'env "$0" "$1" sleep 1000 & shift; exec "$@"']
        return [*words[:at], *child, f"KEY={CONTROL_TOKEN}", f"ENVELOPE={CANARY}", *words[at:]]

    found = hits(await in_container(guarded, beside))
    assert re.search(r"the control token is in /proc/\d+/environ", found["secrets"])
    assert re.search(r"the canary is in /proc/\d+/environ", found["canary"])


async def test_the_daemons_own_environment_is_closed(guarded: GuardedHost) -> None:
    """As its memory is: to the self-test, and so to every command."""
    further = ("--env", f"KEY={CONTROL_TOKEN}")
    assert not hits(await in_container(guarded, lambda words: with_options(words, *further)))


async def test_a_runtime_that_only_bears_the_name_of_a_virtual_machine_is_caught(
    guarded: GuardedHost,
) -> None:
    found = hits(await in_container(guarded, micro_vm=True))
    assert found.keys() == {"kernel"}
    assert "same boot id" in found["kernel"]
