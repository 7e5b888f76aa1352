"""Launches that cannot be: the engine, a name, an image or a directory stands in the way."""

import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker.errors
import pytest
from wire.errors import Code
from wire.settings import ContainerSettings

from runner.errors import TierError, WorkspaceError
from runner.tiers.base import Handle, LaunchSpec, Network
from runner.tiers.container import ownership_probe
from runner.tiers.container.driver import ContainerDriver
from runner.tiers.container.engine import Engine
from runner.tiers.container.names import ObjectNames
from runner.workspace.directories import Owner
from runner.workspace.mounts import Access, BoundMount, Mount, Role
from runner.workspace.workspace import Workspace

UID = os.geteuid() or 10_001
STRANGERS = {"Id": "stranger", "Config": {"Labels": {}}, "Labels": {}}


class Client:
    """An engine in memory. `failing` names calls that the engine refuses."""

    api_version = "1.41"

    def __init__(self) -> None:
        self.containers_by_name: dict[str, dict[str, Any]] = {}
        self.networks_by_name: dict[str, dict[str, Any]] = {}
        self.failing: dict[str, Exception] = {}
        self.has_image = True
        self.freed_by_removal = False

    def version(self) -> dict[str, Any]:
        return {"Components": [{"Name": "Engine"}]}

    def info(self) -> dict[str, Any]:
        return {"SecurityOptions": ["name=seccomp"], "Runtimes": {"runc": {}}}

    def close(self) -> None:
        pass

    def inspect_image(self, image: str) -> None:
        if not self.has_image:
            raise docker.errors.ImageNotFound("no")

    def inspect_container(self, name: str) -> dict[str, Any]:
        return found(self.containers_by_name, name)

    def inspect_network(self, name: str) -> dict[str, Any]:
        return found(self.networks_by_name, name)

    def create_network(self, name: str, labels: dict[str, str], **_: Any) -> None:
        self._try("create_network")
        self.networks_by_name[name] = {"Id": name, "Name": name, "Labels": labels}

    def networks(self, filters: dict[str, list[str]]) -> list[dict[str, Any]]:
        assert filters == {"label": ["oxydra.workspace"]}
        return list(self.networks_by_name.values())

    def remove_network(self, name: str) -> None:
        if self.networks_by_name[name].get("in use"):
            raise docker.errors.APIError("403")
        del self.networks_by_name[name]
        if self.freed_by_removal:
            self.failing.pop("create_network", None)

    def create_container(self, name: str, labels: dict[str, str], **_: Any) -> dict[str, str]:
        self._try("create_container")
        self.containers_by_name[name] = {"Id": f"id-{name}", "Config": {"Labels": labels}}
        return {"Id": f"id-{name}"}

    def remove_container(self, container: str, **_: Any) -> None:
        for name, known in self.containers_by_name.items():
            if known["Id"] == container:
                del self.containers_by_name[name]
                return
        raise docker.errors.NotFound("gone")

    def attach_socket(self, container: str, params: Any) -> Any:
        self._try("attach_socket")
        ours, _theirs = socket.socketpair()
        return SimpleNamespace(_sock=ours, close=ours.close, keep=_theirs)

    def start(self, container: str) -> None:
        self._try("start")

    def _try(self, call: str) -> None:
        if call in self.failing:
            raise self.failing[call]


def found(known: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    if name not in known:
        raise docker.errors.NotFound("no such thing")
    return known[name]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspace(tmp_path, "alice", Owner(UID, UID, frozenset({0, UID})))
    made.provision()
    return made


@pytest.fixture
def client() -> Iterator[Client]:
    made = Client()
    before = threading.active_count()
    yield made
    assert threading.active_count() <= before, "a thread is left"


@pytest.fixture
def spec(workspace: Workspace) -> LaunchSpec:
    return LaunchSpec(
        role=Role.AGENT,
        user_id="alice",
        home=workspace.path,
        launch_id="launch-1",
        command=("oxydra-guest",),
        mounts=workspace.mounts(Role.AGENT),
        environment={},
        envelope=b"secret",
        log_path=workspace.log(Role.AGENT),
        working_directory=Path("/.oxydra"),
        owner=(UID, UID),
        network=Network.OUTBOUND,
    )


def driver(client: Any, **settings: Any) -> ContainerDriver:
    section = ContainerSettings(**settings)
    engine = Engine("auto", lambda url, version: client, {})
    return ContainerDriver(section, engine=engine)


async def refused(client: Client, spec: LaunchSpec) -> TierError:
    with pytest.raises(TierError) as raised:
        await driver(client).start(spec)
    assert raised.value.resolution
    return raised.value


def nothing_is_left(client: Client) -> bool:
    return not client.containers_by_name and not client.networks_by_name


async def test_a_missing_image_is_refused_with_the_command_that_builds_it(
    client: Client, spec: LaunchSpec
) -> None:
    client.has_image = False
    error = await refused(client, spec)
    assert "oxydra-agent:" in error.brief
    assert "runner images build" in error.resolution
    assert nothing_is_left(client)


async def test_a_name_of_somebody_elses_is_refused_and_kept(
    client: Client, spec: LaunchSpec, workspace: Workspace
) -> None:
    name = ObjectNames.of("alice", workspace.path).container(Role.AGENT)
    client.containers_by_name[name] = STRANGERS
    error = await refused(client, spec)
    assert error.code is Code.ALREADY_EXISTS
    assert error.resolution == f"docker rm --force {name}"
    assert client.containers_by_name == {name: STRANGERS}


async def test_a_network_of_somebody_elses_is_refused_and_kept(
    client: Client, spec: LaunchSpec, workspace: Workspace
) -> None:
    name = f"{ObjectNames.of('alice', workspace.path).prefix}-outbound"
    client.networks_by_name[name] = STRANGERS
    error = await refused(client, spec)
    assert error.code is Code.ALREADY_EXISTS
    assert error.resolution == f"docker network rm {name}"
    assert client.networks_by_name == {name: STRANGERS}


NO_ADDRESSES = docker.errors.APIError(
    "500", explanation="could not find an available, non-overlapping IPv4 address pool"
)
OLD, YOUNG = "2020-01-01T00:00:00.123456789Z", "2999-01-01T00:00:00Z"


async def test_an_engine_without_addresses_says_how_to_get_some(
    client: Client, spec: LaunchSpec
) -> None:
    client.failing["create_network"] = NO_ADDRESSES
    kept: dict[str, dict[str, Any]] = {
        "young": {"Id": "young", "Created": YOUNG},
        "used": {"Id": "used", "Created": OLD, "in use": True},
    }
    client.networks_by_name = dict(kept)
    error = await refused(client, spec)
    assert error.code is Code.RESOURCE_EXHAUSTED
    assert "docker network prune" in error.resolution
    assert client.networks_by_name == kept


async def test_networks_that_killed_runners_left_make_room(
    client: Client, spec: LaunchSpec
) -> None:
    later = docker.errors.APIError("500", explanation="the disk is full")
    client.failing = {"create_network": NO_ADDRESSES, "create_container": later}
    client.freed_by_removal = True
    client.networks_by_name = {"old": {"Id": "old", "Created": OLD}}
    assert "the disk is full" in (await refused(client, spec)).details
    assert nothing_is_left(client)


@pytest.mark.parametrize("call", ["create_network", "create_container", "attach_socket", "start"])
async def test_a_start_that_fails_half_way_leaves_nothing(
    client: Client, spec: LaunchSpec, call: str
) -> None:
    client.failing[call] = docker.errors.APIError("500", explanation="the disk is full")
    error = await refused(client, spec)
    assert "the disk is full" in error.details
    assert nothing_is_left(client)


async def test_a_log_that_is_a_trap_leaves_nothing(client: Client, spec: LaunchSpec) -> None:
    spec.log_path.symlink_to("/etc/passwd")
    with pytest.raises(WorkspaceError):
        await driver(client).start(spec)
    assert nothing_is_left(client)


async def test_root_is_refused_whatever_runs_it(client: Client, spec: LaunchSpec) -> None:
    error = await refused(client, replace(spec, owner=(0, 0)))
    assert "never run as root" in error.brief
    assert "container.guest_uid" in error.resolution
    assert nothing_is_left(client)


def test_somebody_elses_uid_is_refused_where_the_runner_is_not_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    ownership_probe.check_owner((1000, 1000))
    with pytest.raises(TierError, match="cannot run as uid 10001"):
        ownership_probe.check_owner((10_001, 10_001))


async def test_a_runtime_that_only_the_configuration_knows_is_refused(client: Client) -> None:
    engine = Engine("auto", lambda url, version: client, {})  # type: ignore[arg-type, return-value]
    made = ContainerDriver(ContainerSettings(runtime="kata"), "micro_vm", engine)
    assert made.capabilities.own_kernel
    with pytest.raises(TierError, match="no runtime 'kata'"):
        await made.check()


async def test_a_directory_that_the_guest_cannot_write_is_named(
    client: Client, spec: LaunchSpec, workspace: Workspace
) -> None:
    if os.geteuid() != 0:
        (workspace.path / "shared").chmod(0o500)
    else:
        os.chown(workspace.path / "shared", 0, 0)
    error = await refused(client, spec)
    assert error.code is Code.PERMISSION_DENIED
    assert str(workspace.path / "shared") in error.brief
    assert error.resolution == f"sudo chown -R {UID}:{UID} {workspace.path / 'shared'}"


async def test_a_directory_that_is_gone_is_named(
    client: Client, spec: LaunchSpec, workspace: Workspace
) -> None:
    (workspace.path / "vault").rmdir()
    assert str(workspace.path / "vault") in (await refused(client, spec)).brief


def test_what_is_only_read_need_not_be_writable(tmp_path: Path) -> None:
    """And what lies above does not matter, for a bind mount does not pass through it."""
    closed = tmp_path / "closed"
    (closed / "inside").mkdir(parents=True)
    (closed / "inside").chmod(0o555)
    os.chown(closed / "inside", UID, UID)
    if os.geteuid() == 0:
        closed.chmod(0o700)
    bound = [BoundMount(Mount("x", "x", "/x", Access.READ_ONLY), closed / "inside")]
    ownership_probe.check_mounts(bound, (UID, UID))
    bound = [BoundMount(Mount("x", "x", "/x", Access.READ_WRITE), closed / "inside")]
    with pytest.raises(TierError, match="cannot write to"):
        ownership_probe.check_mounts(bound, (UID, UID))


@pytest.mark.parametrize("data", [{}, {"container": ""}, {"container": 7}, {"container": "gone"}])
async def test_a_handle_without_a_container_is_not_recovered(
    client: Client, data: dict[str, Any]
) -> None:
    handle = Handle("container", Role.AGENT, "alice", "launch-1", data)
    assert not await driver(client).recover(handle)


async def test_a_container_of_another_launch_is_not_recovered(
    client: Client, spec: LaunchSpec
) -> None:
    labels = {"oxydra.launch": "other", "oxydra.role": "agent", "oxydra.user": "alice"}
    client.containers_by_name["id"] = {
        "Id": "id",
        "Name": "/x",
        "Config": {"Labels": labels},
        "State": {"Running": True, "Pid": 1},
    }
    handle = Handle("container", Role.AGENT, "alice", "launch-1", {"container": "id"})
    assert not await driver(client).recover(handle)
