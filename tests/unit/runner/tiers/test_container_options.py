"""What a launch becomes: the arguments a container is created with."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.errors import TierError, WorkspaceError
from runner.host.launch import EMBEDDER_MOUNT
from runner.tiers.base import LaunchSpec, Limits, Network
from runner.tiers.container.engine import EngineFacts
from runner.tiers.container.names import ObjectNames
from runner.tiers.container.options import create_arguments
from runner.workspace.mounts import MOUNTS, Access, BoundMount, Mount, Role, bind

WORKSPACE = Path("/srv/oxydra/alice")
SECRET = b"sk-the-envelope"


def spec(role: Role = Role.AGENT, workspace: Path = WORKSPACE, **changes: Any) -> LaunchSpec:
    made = LaunchSpec(
        role=role,
        user_id="alice",
        home=workspace,
        launch_id="launch-1",
        command=("oxydra-guest", "--bootstrap-stdin"),
        mounts=bind(role, workspace) if role in MOUNTS else (),
        environment={"HOME": "/.oxydra"},
        envelope=SECRET,
        log_path=workspace / "logs" / "agent" / "guest.log",
        working_directory=Path("/.oxydra"),
        owner=(10_001, 10_002),
        limits=Limits(memory_bytes=512 * 1024 * 1024, processes=99, cpus=1.5),
    )
    return replace(made, **changes)


def facts(*security: str, podman: bool = False) -> EngineFacts:
    return EngineFacts("1.41", podman, {"SecurityOptions": [f"name={each}" for each in security]})


def arguments(
    launch: LaunchSpec, engine: EngineFacts | None = None, **changes: Any
) -> dict[str, Any]:
    given = {"image": "oxydra-agent:1", "network": "none", "runtime": None, **changes}
    return create_arguments(launch, engine or facts("seccomp"), **given)


def test_a_guest_is_confined_whatever_it_is() -> None:
    host = arguments(spec())["host_config"]
    expected = {
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges:true"],
        "ReadonlyRootfs": True,
        "Init": True,
        "IpcMode": "private",
        "NetworkMode": "none",
        "PidsLimit": 99,
        "Memory": 512 * 1024 * 1024,
        "MemorySwap": 512 * 1024 * 1024,
        "CpuQuota": 150_000,
        "CpuPeriod": 100_000,
        "LogConfig": {"Type": "none", "Config": {}},
    }
    assert {name: host.get(name) for name in expected} == expected
    for never in ("Privileged", "Devices", "CapAdd", "PidMode", "Binds", "VolumesFrom", "Runtime"):
        assert not host.get(never), never
    for option in ("noexec", "nosuid", "nodev", "size=16777216", "uid=10001", "gid=10002"):
        assert option in host["Tmpfs"]["/run"].split(",")


def test_commands_and_their_way_out_come_last_when_memory_or_processors_run_out() -> None:
    for role in (Role.SHELL, Role.SHELL_EGRESS):
        made = arguments(spec(role))["host_config"]
        assert (made["OomScoreAdj"], made["CpuShares"]) == (900, 256)
    for role in (Role.AGENT, Role.EGRESS):
        made = arguments(spec(role))["host_config"]
        assert not made.get("OomScoreAdj")
        assert not made.get("CpuShares")


def test_who_what_and_where() -> None:
    made = arguments(spec())
    assert made["user"] == "10001:10002"
    assert made["entrypoint"] == ["oxydra-guest", "--bootstrap-stdin"]
    assert made["environment"] == {"HOME": "/.oxydra"}
    assert made["hostname"] == "agent"
    assert made["name"] == f"oxydra-{ObjectNames.of('alice', WORKSPACE).digest[:8]}-alice-agent"


@pytest.mark.parametrize("role", MOUNTS)
def test_the_mounts_are_the_table(role: Role) -> None:
    mounts = arguments(spec(role))["host_config"]["Mounts"]
    assert [(each["Source"], each["Target"], each["ReadOnly"]) for each in mounts] == [
        (str(bound.host_path), bound.mount.virtual, bound.mount.access == "ro")
        for bound in bind(role, WORKSPACE)
    ]
    assert {each["Type"] for each in mounts} == {"bind"}


def test_nothing_secret_is_among_the_arguments() -> None:
    assert SECRET.decode() not in json.dumps(arguments(spec()))


def test_the_labels_say_whose_it_is() -> None:
    labels = arguments(spec())["labels"]
    assert labels["oxydra.user"] == "alice"
    assert labels["oxydra.role"] == "agent"
    assert labels["oxydra.launch"] == "launch-1"
    assert labels["oxydra.workspace"] == ObjectNames.of("alice", WORKSPACE).digest


def test_a_runtime_is_passed_on() -> None:
    assert arguments(spec(), runtime="kata")["host_config"]["Runtime"] == "kata"


def test_with_selinux_directories_of_both_guests_have_a_shared_label() -> None:
    further = BoundMount(EMBEDDER_MOUNT, Path("/run/embedder"))
    agent = spec(mounts=(*bind(Role.AGENT, WORKSPACE), further))
    host = arguments(agent, facts("seccomp", "selinux"))["host_config"]
    assert not host.get("Mounts")
    assert host["Binds"] == [
        f"{WORKSPACE}/.oxydra:/.oxydra:rw,Z",
        f"{WORKSPACE}/shared:/shared:rw,z",
        f"{WORKSPACE}/tmp:/tmp:rw,z",
        f"{WORKSPACE}/vault:/vault:ro,Z",
        f"{WORKSPACE}/skills:/skills:ro,z",
        f"{WORKSPACE}/ipc/agent:/ipc:rw,Z",
        f"{WORKSPACE}/ipc/shell:/shell:ro,z",
        f"{WORKSPACE}/ipc/agent-out:/egress:ro,z",
        "/run/embedder:/embedder:ro,z",
    ]
    shell = arguments(spec(Role.SHELL), facts("selinux"))["host_config"]
    assert shell["Binds"] == [
        f"{WORKSPACE}/shared:/shared:rw,z",
        f"{WORKSPACE}/tmp:/tmp:rw,z",
        f"{WORKSPACE}/cache:/cache:rw,Z",
        f"{WORKSPACE}/skills:/skills:ro,z",
        f"{WORKSPACE}/ipc/shell:/ipc:rw,z",
        f"{WORKSPACE}/ipc/shell-out:/egress:ro,z",
    ]
    egress = arguments(spec(Role.EGRESS), facts("selinux"))["host_config"]
    assert egress["Binds"] == [
        f"{WORKSPACE}/ipc/egress:/ipc:rw,Z",
        f"{WORKSPACE}/ipc/agent-out:/agent:rw,z",
        f"{WORKSPACE}/ipc/host:/host:ro,Z",
    ]
    commands = arguments(spec(Role.SHELL_EGRESS), facts("selinux"))["host_config"]
    assert commands["Binds"] == [
        f"{WORKSPACE}/ipc/out:/ipc:rw,Z",
        f"{WORKSPACE}/ipc/shell-out:/shell:rw,z",
    ]


OPERATORS = BoundMount(
    Mount("project", "", "/projects/code", Access.READ_WRITE), Path("/srv/a:b"), (1, 2)
)


@pytest.mark.parametrize("security", ["seccomp", "selinux"])
def test_the_operators_own_keeps_its_labels_and_what_is_mounted_below_stays_out(
    security: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = b"system_u:object_r:container_file_t:s0\0"
    monkeypatch.setattr(os, "getxattr", lambda _path, _name: label)
    launch = spec(mounts=(*bind(Role.SHELL, WORKSPACE), OPERATORS))
    host = arguments(launch, facts(security))["host_config"]
    assert not any("code" in each for each in host.get("Binds") or ())
    assert dict(host["Mounts"][-1]) == {
        "Target": "/projects/code",
        "Source": "/srv/a:b",
        "Type": "bind",
        "ReadOnly": False,
        "BindOptions": {"NonRecursive": True},
    }


@pytest.mark.parametrize(
    "label", [b"u:r:user_home_t:s0\0", b"u:r:container_file_t:s0:c1,c2\0", b""]
)
def test_with_selinux_a_project_with_other_labels_is_refused(
    label: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getxattr", lambda _path, _name: label)
    with pytest.raises(TierError) as refused:
        arguments(spec(mounts=(OPERATORS,)), facts("selinux"))
    assert refused.value.resolution == "chcon -R -t container_file_t -l s0 /srv/a:b"


def test_podman_gets_no_project_with_something_mounted_below() -> None:
    row = BoundMount(OPERATORS.mount, Path("/dev"), (1, 2))
    with pytest.raises(WorkspaceError, match="as a project"):
        arguments(spec(mounts=(row,)), facts(podman=True))


def test_with_selinux_a_users_guests_have_one_level_and_other_users_another() -> None:
    def level(launch: LaunchSpec) -> str:
        options = arguments(launch, facts("selinux"))["host_config"]["SecurityOpt"]
        (found,) = (each for each in options if each.startswith("label=level:s0:c"))
        return str(found)

    assert level(spec()) == level(spec(Role.SHELL))
    assert level(spec()) != level(spec(workspace=WORKSPACE.parent / "bob"))


def test_with_selinux_every_users_guests_reach_the_embedder() -> None:
    socket = BoundMount(Mount("socket", "", "/embedder/socket", Access.READ_WRITE), Path("/run/e"))
    embedder = spec(Role.EMBEDDER, mounts=(socket,), user_id="")
    host = arguments(embedder, facts("selinux"))["host_config"]
    assert "label=level:s0" in host["SecurityOpt"]
    assert host["Binds"] == ["/run/e:/embedder/socket:rw,z"]


def test_with_selinux_a_colon_in_the_path_is_refused() -> None:
    with pytest.raises(TierError) as raised:
        arguments(spec(workspace=Path("/srv/a:b/alice")), facts("selinux"))
    assert "workspace_root" in raised.value.resolution
    assert arguments(spec(workspace=Path("/srv/a:b/alice")))


@pytest.mark.parametrize(
    ("engine", "mode"),
    [
        (facts("rootless", podman=True), "keep-id"),
        (facts(podman=True), None),
        (facts("userns"), "host"),
        (facts(), None),
    ],
)
def test_a_guests_uid_is_the_owners_whatever_the_engine_maps(
    engine: EngineFacts, mode: str | None
) -> None:
    assert arguments(spec(), engine)["host_config"].get("UsernsMode") == mode


def test_a_place_is_known_by_where_it_really_lies(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert ObjectNames.of("a", tmp_path / "link") == ObjectNames.of("a", tmp_path / "real")
    assert ObjectNames.of("a", tmp_path / os.curdir) != ObjectNames.of("a", tmp_path / "real")


def test_only_a_way_out_makes_the_metadata_address_the_guests_own() -> None:
    assert "networking_config" not in arguments(spec())
    outbound = arguments(spec(network=Network.OUTBOUND), network="oxydra-net")
    assert "169.254.169.254" in json.dumps(outbound["networking_config"]["EndpointsConfig"])
