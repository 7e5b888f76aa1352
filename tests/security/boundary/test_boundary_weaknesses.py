"""Every check and every part of the hardening against a start that has that one weakness.

Most are broken by `test_boundary_bubblewrap` and `test_boundary_container`, the others here. What
no probe notices is a list: a guest with all of that at once passes, and the design page names each.
"""

import os
import subprocess
from collections.abc import Iterator

import pytest
from wire.boundary import CHECKS
from wire.settings import ContainerSettings

from runner.tiers.base import Network
from runner.tiers.container.engine import Engine
from runner.tiers.container.options import create_arguments
from runner.tiers.process.bubblewrap import Bubblewrap
from tests.security.boundary import test_boundary_bubblewrap as bubblewrap
from tests.security.boundary import test_boundary_container as container
from tests.support.boundary.guarded_host import (
    REPOSITORY,
    GuardedHost,
    Words,
    hits,
    in_bubblewrap,
    in_container,
    shell_image,
    with_options,
    without,
)

DESIGN = REPOSITORY / "docs" / "design" / "2026-11-20-boundary-self-test.md"


def beside(words: Words, command: str) -> Words:
    """A bubblewrap command line in which `command` runs beside the daemon."""
    place = words.index("--", words.index("--chdir")) + 1
    return [*words[:place], "sh", "-c", f'{command} & exec "$@"', "sh", *words[place:]]


@pytest.mark.bubblewrap
async def test_a_directory_that_somebody_holds_open_is_caught(guarded: GuardedHost) -> None:
    private = str(guarded.alice / "vault")
    holding = ["sh", "-c", 'exec 9<"$0" && exec "$@"', private]
    found = hits(await in_bubblewrap(guarded, lambda words: [*holding, *beside(words, "sleep 99")]))
    assert "leads out, to" in found["descriptors"]


@pytest.mark.bubblewrap
@pytest.mark.root
async def test_the_kernels_settings_are_caught_where_the_runner_is_root(
    guarded: GuardedHost,
) -> None:
    def alter(words: Words) -> Words:
        words = without(words, "--remount-ro", "/proc")
        return without(words, "--ro-bind-try", "/proc/sys", "/proc/sys")

    found = hits(await in_bubblewrap(guarded, alter))
    assert "/proc/sys/vm/drop_caches can be written" in found["kernel_settings"]


@pytest.mark.bubblewrap
@pytest.mark.parametrize("kept", ["ipc", "uts"])
async def test_a_namespace_of_the_host_is_caught(guarded: GuardedHost, kept: str) -> None:
    def alter(words: Words) -> Words:
        words = without(without(words, "--unshare-all"), "--hostname", "oxydra-shell")
        place = words.index("--unshare-user")
        others = {"ipc", "uts", "net", "pid", "cgroup-try"} - {kept}
        return [*words[:place], *(f"--unshare-{name}" for name in others), *words[place:]]

    found = hits(await in_bubblewrap(guarded, alter))
    assert found == {"namespaces": f"the {kept} namespace is the host's"}


@pytest.fixture
def metadata_service() -> Iterator[str]:
    """A container whose network has somebody at the metadata address; its name."""
    name = f"oxydra-test-metadata-{os.getpid()}"
    subprocess.run(["docker", "network", "create", name], check=True, capture_output=True)
    serve = "import socketserver as s; s.TCPServer(('', 80), s.BaseRequestHandler).serve_forever()"
    command = [
        *("docker", "run", "--detach", "--rm", "--name", name, "--network", name, "--user", "0"),
        *("--link-local-ip", "169.254.169.254", shell_image(), "python3", "-c", serve),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True)
        connect = "import socket as s\nwhile s.socket().connect_ex(('127.0.0.1', 80)): pass"
        ready = ["docker", "exec", name, "timeout", "30", "python3", "-c", connect]
        subprocess.run(ready, check=True)
        yield name
    finally:
        subprocess.run(["docker", "rm", "--force", name], check=False, capture_output=True)
        subprocess.run(["docker", "network", "rm", name], check=True, capture_output=True)


@pytest.mark.docker
async def test_the_metadata_service_is_caught(guarded: GuardedHost, metadata_service: str) -> None:
    def alter(words: Words) -> Words:
        words = without(words, "--network", "none")
        return with_options(words, "--network", f"container:{metadata_service}")

    found = hits(await in_container(guarded, alter))
    assert "169.254.169.254 can be reached" in found["metadata_address"]


def test_every_check_is_seen_to_catch_a_weakness() -> None:
    assert tuple(CAUGHT) == CHECKS
    assert all(callable(test) for test in CAUGHT.values())


CAUGHT = {
    "identity": bubblewrap.test_root_inside_is_caught,
    "capabilities": container.test_a_kept_capability_is_caught,
    "no_new_privileges": container.test_missing_no_new_privileges_is_caught,
    "seccomp": bubblewrap.test_a_missing_filter_of_system_calls_is_caught,
    "namespaces": test_a_namespace_of_the_host_is_caught,
    "kernel": container.test_a_runtime_that_only_bears_the_name_of_a_virtual_machine_is_caught,
    "mounts": bubblewrap.test_the_hosts_own_directories_are_caught,
    "private_paths": bubblewrap.test_a_hard_link_to_the_database_is_caught,
    "other_users": bubblewrap.test_another_users_workspace_is_caught,
    "root_filesystem": bubblewrap.test_a_writable_root_is_caught,
    "kernel_settings": test_the_kernels_settings_are_caught_where_the_runner_is_root,
    "devices": container.test_a_device_of_the_host_is_caught,
    "mounting": container.test_root_with_powers_is_caught,
    "processes": container.test_the_hosts_processes_are_caught,
    "process_memory": container.test_root_with_powers_is_caught,
    "descriptors": test_a_directory_that_somebody_holds_open_is_caught,
    "unix_sockets": bubblewrap.test_the_control_socket_is_caught,
    "network": container.test_the_hosts_network_is_caught,
    "metadata_address": test_the_metadata_service_is_caught,
    "secrets": bubblewrap.test_a_secret_in_a_file_is_caught,
    "canary": bubblewrap.test_the_agents_canary_is_caught,
}

BUBBLEWRAP_CAUGHT = {
    "--unshare-all": test_a_namespace_of_the_host_is_caught,
    "--unshare-user": bubblewrap.test_root_inside_is_caught,
    "--cap-drop": bubblewrap.test_a_kept_capability_is_caught,
    "--uid": bubblewrap.test_root_inside_is_caught,
    "--gid": bubblewrap.test_root_inside_is_caught,
    "--ro-bind": bubblewrap.test_writable_programs_are_caught,
    "--ro-bind-try": test_the_kernels_settings_are_caught_where_the_runner_is_root,
    "--bind": bubblewrap.test_a_shared_directory_of_somebody_else_is_caught,
    "--tmpfs": bubblewrap.test_the_hosts_run_in_place_of_its_own_is_caught,
    "--dev": bubblewrap.test_the_hosts_devices_are_caught,
    "--remount-ro": bubblewrap.test_a_writable_root_is_caught,
}
BUBBLEWRAP_NO_HARDENING = {"--proc", "--dir", "--symlink", "--setenv", "--chdir", "--"}
BUBBLEWRAP_UNNOTICED = {
    "--as-pid-1",
    "--clearenv",
    "--die-with-parent",
    "--disable-userns",
    "--hostname",
    "--new-session",
    "--perms",
    "--size",
    "prlimit --core",
    "prlimit --data",
    "prlimit --nofile",
    "prlimit --nproc",
}


@pytest.mark.bubblewrap
async def test_every_option_of_bubblewrap_is_caught_or_listed(guarded: GuardedHost) -> None:
    words = Bubblewrap().command(guarded.launch((os.getuid(), os.getgid()), Network.NONE))
    end = words.index("prlimit")
    options = {word for word in words[:end] if word.startswith("--")}
    options |= {
        f"prlimit {word.partition('=')[0]}" for word in words[end + 1 : words.index("--", end)]
    }
    assert options == BUBBLEWRAP_CAUGHT.keys() | BUBBLEWRAP_NO_HARDENING | BUBBLEWRAP_UNNOTICED


@pytest.mark.bubblewrap
async def test_a_guest_of_bubblewrap_without_all_that_is_listed_passes(
    guarded: GuardedHost,
) -> None:
    def alter(words: Words) -> Words:
        for option in ("--as-pid-1", "--clearenv", "--die-with-parent", "--disable-userns"):
            words = without(words, option)
        words = without(without(words, "--new-session"), "--hostname", "oxydra-shell")
        while "--size" in words:
            words = without(words, "--size", words[words.index("--size") + 1])
        start = words.index("prlimit")
        return [*words[:start], *words[words.index("--", start) + 1 :]]

    assert hits(await in_bubblewrap(guarded, alter)) == {}


CONTAINER_CAUGHT = {
    "CapDrop": container.test_a_kept_capability_is_caught,
    "IpcMode": container.test_the_hosts_shared_memory_is_caught,
    "Mounts": container.test_private_directories_are_caught_under_any_name,
    "NetworkMode": container.test_the_hosts_network_is_caught,
    "ReadonlyRootfs": container.test_a_writable_root_is_caught,
    "Runtime": container.test_a_runtime_that_only_bears_the_name_of_a_virtual_machine_is_caught,
    "SecurityOpt": container.test_missing_no_new_privileges_is_caught,
    "User": container.test_root_with_powers_is_caught,
}
CONTAINER_NO_HARDENING = {"RestartPolicy"}
CONTAINER_UNNOTICED = {
    *("CpuPeriod", "CpuQuota", "CpuShares", "Memory", "MemorySwap", "PidsLimit", "ShmSize"),
    *("Init", "LogConfig", "OomScoreAdj", "Tmpfs", "Ulimits"),
}


@pytest.mark.docker
def test_every_option_of_a_container_is_caught_or_listed(guarded: GuardedHost) -> None:
    launch = guarded.launch((10_001, 10_001), Network.NONE)
    arguments = create_arguments(
        launch,
        Engine(ContainerSettings().engine).facts(),
        image="image",
        network="none",
        runtime="runc",
    )
    options = {*arguments["host_config"], "User"} - {"Binds", "UsernsMode"}
    known = CONTAINER_CAUGHT.keys() | CONTAINER_NO_HARDENING | CONTAINER_UNNOTICED
    assert options - {"Init"} == known - {"Init"}


@pytest.mark.docker
async def test_a_container_without_all_that_is_listed_passes(guarded: GuardedHost) -> None:
    """It has no limits, the engine's init and log, and a `/run` in which programs may lie."""

    def alter(words: Words) -> Words:
        words = without(words, "--pids-limit", "256")
        words = without(words, "--tmpfs", "/run:rw,nosuid,nodev,size=16m")
        return with_options(words, "--init", "--tmpfs", "/run:rw,exec", "--shm-size", "1g")

    assert hits(await in_container(guarded, alter)) == {}


def test_the_design_names_what_no_probe_notices() -> None:
    page = DESIGN.read_text()
    assert [
        option
        for option in sorted(BUBBLEWRAP_UNNOTICED | CONTAINER_UNNOTICED)
        if f"`{option}`" not in page
    ] == []
