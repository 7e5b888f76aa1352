"""The composition: one host per user, half-way failures, recovery, the end of everything."""

import asyncio
import contextlib
import io
import os
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from wire import envelope, logs
from wire.errors import Code, WireError
from wire.identity import Identity, Party, Peer
from wire.settings import (
    AgentSettings,
    AuditSettings,
    ContainerSettings,
    EmbedderSettings,
    MemorySettings,
    ProjectSettings,
    TelemetrySettings,
    WorkspaceSettings,
    from_json,
)
from wire.status import from_rpc_error
from wire.transport import open_channel
from wire.v1 import control_pb2, control_pb2_grpc

from runner.config.models import Config
from runner.errors import ConfigError, HostError, TierError, WorkspaceError
from runner.host import guests as guests_module
from runner.host import host as host_module
from runner.host.authority import Authority
from runner.host.control import ControlServer, connect_control
from runner.host.embedder import EmbedderHome
from runner.host.host import Host
from runner.host.runtime import (
    LastStart,
    Runtime,
    host_lock,
    load_state,
    lock_holder,
    save_state,
)
from runner.host.supervisor import Policy
from runner.tiers.base import Capabilities, Handle
from runner.workspace.mounts import Role
from runner.workspace.workspace import Workspace
from tests.support.guests.fake_tier import Behaviour, FakeDriver

GUARD_S = 60.0
QUICK = Policy(ready_poll=0.005, check_interval=0.02, backoff_first=0.01, stop_grace=0.1)
NO_ENGINE = {"container": ContainerSettings(engine="unix:///nowhere/docker.sock")}


class House:
    """A place for hosts, and the fake tier that their guests live in."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = Config(
            workspace_root=root / "ws",
            runtime_dir=root / "rt",
            tier="process",
            embedder=EmbedderSettings(backend="none"),
        )
        self.driver = FakeDriver()
        (root / "cwd").mkdir()

    def host(self, user_id: str = "alice", config: Config | None = None, **more: Any) -> Host:
        arguments: dict[str, Any] = {
            "driver": self.driver,
            "policy": QUICK,
            "environ": {},
            "working_directory": self.root / "cwd",
        }
        return Host(config or self.config, user_id, **{**arguments, **more})

    def runtime(self, user_id: str = "alice") -> Runtime:
        return Runtime.locate(self.config, user_id)

    def leftovers(self) -> set[str]:
        """Files of a host that should not outlive it, and guests that run."""
        names = {path.name for path in self.root.rglob("*") if path.is_file() or path.is_socket()}
        running = {f"guest {guest.pid}" for guest in self.driver.launched if guest.running}
        allowed = {"host.log", "host.lock", "guest.log", "memory.db.reserve", "last_start.json"}
        allowed |= {path.name for path in (self.root / "ws" / ".audit").rglob("*")}
        if (lock := self.runtime().lock).exists() and lock.read_bytes():
            names.add("content of host.lock")
        return (names - allowed) | running


@pytest.fixture
def house() -> Iterator[House]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oxo-") as root:
        yield House(Path(root))


@pytest.fixture
async def running(house: House) -> AsyncIterator[Host]:
    async with house.host() as host:
        yield host
    assert house.leftovers() == set()


async def test_a_host_serves_and_leaves_nothing(house: House) -> None:
    async with house.host() as host:
        agent = await host.gateway()
        assert agent.endpoint == f"unix:{house.root}/ws/alice/ipc/agent/agent.sock"
        assert agent.token
        runtime = house.runtime()
        assert runtime.socket.is_socket()
        assert runtime.token.stat().st_mode & 0o777 == 0o600
        assert len(load_state(runtime.state)) == 1
        holder = lock_holder(runtime.lock)
        assert holder is not None
        assert holder.pid == os.getpid()
    last = LastStart.load(runtime)
    assert last == LastStart(host.tier, EmbedderHome.locate(house.config, runtime.base).path)
    assert house.leftovers() == set()
    await host.stop()
    async with asyncio.timeout(GUARD_S):
        await host.wait_stopped()


class WithShell(FakeDriver):
    """It tries to start shell guests, which are none."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, unsupported={})


async def test_what_a_self_test_could_not_look_through_is_moved_aside_where_there_is_one(
    house: House,
) -> None:
    left = house.root / "ws" / "alice" / "ipc" / "shell" / "left"
    left.mkdir(parents=True)
    async with house.host() as host:
        assert host.no_shell
        assert (left.is_dir(), host.notices) == (True, [])
    host = house.host(driver=WithShell())
    with pytest.raises(WireError, match="bad bootstrap envelope"):
        await host.start()
    assert "ipc/shell was moved aside to" in host.notices[0]
    assert left.parent.is_dir()
    assert not left.exists()


async def test_status_tells_of_every_guest(house: House, running: Host) -> None:
    status = await running.status()
    assert (status.user_id, status.tier, status.pid) == ("alice", "fake", os.getpid())
    assert status.workspace == str(house.root / "ws" / "alice")
    assert (status.provider, status.version) == ("offline", "0.1.0")
    agent, shell, egress, commands, embedder = status.guests
    assert (agent.role, agent.state) == ("agent", "ready")
    assert (shell.role, shell.state) == ("shell", "disabled")
    assert shell.reason == house.driver.capabilities.unsupported[Role.SHELL]
    assert (egress.role, egress.state) == ("egress", "disabled")
    assert egress.reason == "nothing is configured to leave"
    assert (commands.role, commands.state) == ("shell-egress", "disabled")
    assert commands.reason == shell.reason
    assert (embedder.role, embedder.state) == ("embedder", "disabled")


async def test_the_guest_hears_why_it_has_no_shell_and_no_embedder(
    house: House, running: Host
) -> None:
    message = envelope.read(io.BytesIO(house.driver.launched[-1].spec.envelope))
    assert message.shell.unavailable_reason == house.driver.capabilities.unsupported[Role.SHELL]
    assert message.embedder.unavailable_reason == 'embedder.backend = "none"'
    assert not message.shell.endpoint
    assert not message.embedder.endpoint


async def test_a_second_host_for_the_same_user_is_refused_and_the_first_goes_on(
    house: House, running: Host
) -> None:
    with pytest.raises(HostError, match="is there already") as raised:
        await house.host().start()
    assert raised.value.code is Code.ALREADY_EXISTS
    assert f"pid {os.getpid()}, since " in raised.value.details
    assert "runner stop" in raised.value.resolution
    assert (await running.status()).guests[0].state == "ready"
    assert len(house.driver.launched) == 1


async def test_a_second_host_with_another_runtime_directory_is_refused_too(
    house: House, running: Host
) -> None:
    other = house.config.model_copy(update={"runtime_dir": house.root / "rt2"})
    with pytest.raises(HostError, match="another runner serves the workspace"):
        await house.host(config=other).start()


async def test_two_users_have_two_hosts(house: House, running: Host) -> None:
    async with house.host("bob") as bob:
        assert (await bob.gateway()).endpoint != (await running.gateway()).endpoint


async def test_control_reaches_the_host(house: House, running: Host) -> None:
    control = await connect_control(house.config, "alice")
    assert control is not None
    async with control:
        assert (await control.status()).user_id == "alice"
        before = await running.gateway()
        assert (await control.gateway()).token == before.token
        await control.restart("agent")
        assert (await control.gateway()).token != before.token
        await control.stop()
    assert house.leftovers() == set()
    assert await connect_control(house.config, "alice") is None


@pytest.mark.parametrize(
    ("role", "what"),
    [("shell", "no shell guest"), ("embedder", "shared by all users"), ("x", "unknown role 'x'")],
)
async def test_what_cannot_be_restarted_says_so(
    house: House, running: Host, role: str, what: str
) -> None:
    control = await connect_control(house.config, "alice")
    assert control is not None
    async with control:
        with pytest.raises(WireError, match=what):
            await control.restart(role)


async def test_control_tells_which_launch_must_answer(
    house: House, running: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = replace(await running.gateway(), endpoint="tcp:10.0.0.9:7001", launch_id="l-1")

    async def gateway() -> Peer:
        return elsewhere

    monkeypatch.setattr(running, "gateway", gateway)
    control = await connect_control(house.config, "alice")
    assert control is not None
    async with control:
        told = await control.gateway()
    assert (told.endpoint, told.name) == (elsewhere.endpoint, "agent.l-1")


async def test_control_needs_its_token(house: House, running: Host) -> None:
    runtime = house.runtime()
    identity = Identity.from_pem(runtime.identity.read_text())
    peer = Peer(f"unix:{runtime.socket}", Party.RUNNER, "wrong", identity)
    async with open_channel(peer) as channel:
        with pytest.raises(Exception, match="launch token"):
            await control_pb2_grpc.RunnerControlStub(channel).Stop(control_pb2.StopRequest())
    assert (await running.status()).guests[0].state == "ready"


@pytest.mark.parametrize("party", [Party.AGENT, Party.SHELL, Party.EMBEDDER, Party.RUNNER])
async def test_control_hears_commands_only(house: House, party: Party) -> None:
    authority = Authority.new()
    runtime = house.runtime()
    runtime.create()
    server = ControlServer(
        runtime, house.host(), authority.issue(Party.RUNNER), authority.issue(Party.CLI)
    )
    await server.start()
    assert runtime.identity.stat().st_mode & 0o777 == 0o600
    peer = Peer(f"unix:{runtime.socket}", Party.RUNNER, server.token, authority.issue(party))
    async with open_channel(peer) as channel:
        with pytest.raises(grpc.RpcError) as raised:
            await control_pb2_grpc.RunnerControlStub(channel).Stop(control_pb2.StopRequest())
    assert from_rpc_error(raised.value).code is Code.PERMISSION_DENIED
    await server.stop()
    assert not runtime.identity.exists()


async def test_connecting_where_nothing_runs_makes_nothing(house: House) -> None:
    assert await connect_control(house.config, "alice") is None
    assert [path.name for path in house.root.iterdir()] == ["cwd"]


async def test_a_host_that_does_not_answer_is_named(house: House) -> None:
    house.runtime().create()
    with host_lock(house.runtime().lock):
        with pytest.raises(HostError, match=f"the runner with pid {os.getpid()} is stuck"):
            await connect_control(house.config, "alice", appear_s=0.05)
        house.runtime().token.write_text("t")
        with pytest.raises(HostError, match="is stuck"):
            await connect_control(house.config, "alice", appear_s=0.05)


async def test_restart_takes_up_new_settings(house: House) -> None:
    changed = house.config.model_copy(update={"agent": AgentSettings(max_steps=3)})
    async with house.host(reload=lambda: changed) as host:
        await host.restart()
        assert host.provider == "offline"
        assert house.driver.launched[-1].spec.envelope != b""
        message = envelope.read(io.BytesIO(house.driver.launched[-1].spec.envelope))
        assert from_json(message.settings).agent.max_steps == 3


async def test_restart_with_bad_settings_keeps_the_running_guest(house: House) -> None:
    def bad() -> Config:
        raise ConfigError(Code.INVALID_ARGUMENT, "bad setting")

    moved = house.config.model_copy(update={"workspace_root": house.root / "elsewhere"})
    for reload, what in ((bad, "bad setting"), (lambda: moved, "workspace_root has changed")):
        async with house.host(reload=reload) as host:
            before = await host.gateway()
            with pytest.raises(WireError, match=what):
                await host.restart()
            assert await host.gateway() == before


async def test_a_guest_that_cannot_start_unwinds_everything(house: House) -> None:
    house.driver = FakeDriver(lambda _: Behaviour(exit_code=1, log="Boom\n"))
    with pytest.raises(TierError) as raised:
        await house.host().start()
    assert raised.value.details == "Boom"
    assert house.leftovers() == set()
    house.driver = FakeDriver()
    async with house.host():
        pass


@pytest.mark.parametrize(
    "step",
    [
        "host_log",
        "clear_leftovers",
        "Embedder",
        "Guests",
        "ControlServer",
    ],
)
async def test_a_start_that_fails_at_any_step_unwinds_what_came_before(
    house: House, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise HostError(Code.INTERNAL, f"{step} is broken")

    with monkeypatch.context() as patched:
        patched.setattr(host_module, step, fail)
        with pytest.raises(HostError, match=f"{step} is broken"):
            await house.host().start()
    assert house.leftovers() == set()
    assert lock_holder(house.runtime().lock) is None
    async with house.host():
        pass


async def test_a_full_disk_is_a_sentence(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device", "/somewhere")

    monkeypatch.setattr(guests_module, "save_state", full)
    with pytest.raises(TierError, match="cannot be started: No space left on device"):
        await house.host().start()
    assert house.leftovers() == set()


async def test_a_cancelled_start_leaves_nothing(house: House) -> None:
    house.driver = FakeDriver(lambda _: Behaviour(healthy=False))
    starting = asyncio.create_task(house.host().start())
    async with asyncio.timeout(GUARD_S):
        while not house.driver.launched:
            await asyncio.sleep(0.005)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert house.leftovers() == set()


async def test_stop_from_elsewhere_while_it_starts(house: House) -> None:
    house.driver = FakeDriver(lambda _: Behaviour(healthy=False))
    starting = asyncio.create_task(house.host().start())
    async with asyncio.timeout(GUARD_S):
        while (control := await connect_control(house.config, "alice")) is None:
            await asyncio.sleep(0.005)
    async with control:
        assert (await control.status()).guests[0].state == "starting"
        await control.stop()
    with pytest.raises(HostError) as raised:
        await starting
    assert raised.value.code is Code.CANCELLED
    assert house.leftovers() == set()


async def test_every_step_of_the_end_runs_and_what_failed_is_told(house: House) -> None:
    host = house.host()
    await host.start()

    async def broken(handle: Handle, grace: float = 0.0) -> None:
        raise ZeroDivisionError("a bug")

    real, house.driver.stop = house.driver.stop, broken  # type: ignore[method-assign]
    with pytest.raises(HostError, match="not everything could be ended") as raised:
        await host.stop()
    assert "guests" in raised.value.details
    assert "a bug" in raised.value.details
    assert lock_holder(house.runtime().lock) is None
    assert not house.runtime().socket.exists()
    assert not house.runtime().token.exists()
    assert load_state(house.runtime().state) != ()  # the next start ends that guest
    house.driver.stop = real  # type: ignore[method-assign]
    async with house.host() as again:
        assert any("was killed" in notice for notice in again.notices)
    assert house.leftovers() == set()


async def test_the_guest_of_a_killed_runner_is_ended_before_another_starts(house: House) -> None:
    killed = FakeDriver()
    async with house.host(driver=killed) as host:
        state = house.runtime().state.read_bytes()
        orphan = killed.launched[0]
        successor = FakeDriver(world=killed)
        await host.stop()
    orphan.revive()
    house.runtime().state.write_bytes(state)
    for path in (house.runtime().token, house.runtime().socket):
        path.write_text("stale")
    async with house.host(driver=successor) as again:
        assert not orphan.running
        assert len(again.notices) == 1
        assert "was ended" in again.notices[0]
        assert again.notices == list((await again.status()).notices)
    assert house.leftovers() == set()


async def test_state_that_cannot_be_read_is_told_and_passed(house: House) -> None:
    house.runtime().create()
    house.runtime().state.write_text("{")
    async with house.host() as host:
        assert "could not be read" in host.notices[0]


async def test_the_guest_of_a_tier_that_is_not_there_stops_the_start(house: House) -> None:
    house.runtime().create()
    save_state(
        house.runtime().state, [Handle("container", Role.AGENT, "alice", "x", {"container": "c"})]
    )
    with pytest.raises(TierError, match="no container engine answers at /nowhere"):
        await house.host(config=house.config.model_copy(update=NO_ENGINE)).start()
    assert house.driver.launched == []


async def test_a_budget_that_covers_no_answer_is_named_at_the_start(house: House) -> None:
    agent = {"budget": {"day_tokens": 9_000, "month_tokens": 90_000}}
    house.config = Config.model_validate({**house.config.model_dump(), "agent": agent})
    async with house.host() as host:
        (notice,) = host.notices
        assert notice.startswith("agent.budget.day_tokens = 9000 does not cover one answer: 8,192")
        assert "lower max_output_tokens" in notice


@pytest.mark.parametrize("wrong", ["x" * 5_000, "Mars/Olympus"])
async def test_a_wrong_time_zone_is_named_at_the_start(house: House, wrong: str) -> None:
    async with house.host(environ={"TZ": wrong}) as host:
        (notice,) = host.notices
        assert notice.startswith(f"TZ is {wrong[:40]!r}, not the IANA name of a time zone, such as")


async def test_a_loopback_server_is_not_for_guests_elsewhere(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    egress = {"host_loopback": ["http://127.0.0.1:11434/v1"]}
    house.config = Config.model_validate({**house.config.model_dump(), "egress": egress})
    async with house.host(reload=lambda: house.config) as host:
        assert host.notices == []  # nothing is to be done where guests share the loopback
        monkeypatch.setattr(Workspace, "here", False)
        await host.reload_egress()
        monkeypatch.undo()
        assert host.notices == [
            "egress.host_loopback has no effect: guests are not on this machine"
        ]


async def test_an_old_database_is_adopted_with_a_notice(house: House) -> None:
    old = house.root / "cwd" / ".oxydra"
    old.mkdir()
    with contextlib.closing(sqlite3.connect(old / "memory.db")) as database:
        database.execute("CREATE TABLE t (x)")
    content = (old / "memory.db").read_bytes()
    async with house.host() as host:
        assert "was moved from" in host.notices[0]
        new = house.root / "ws" / "alice" / ".oxydra" / "memory.db"
        assert new.read_bytes() == content
        assert list((await host.status()).notices) == host.notices
    assert "was moved from" in house.runtime().log.read_text()


async def test_a_database_of_ones_own_choice_leaves_the_old_one_alone(house: House) -> None:
    old = house.root / "cwd" / ".oxydra"
    old.mkdir()
    (old / "memory.db").write_bytes(b"old")
    chosen = house.config.model_copy(update={"memory": MemorySettings(db_path=".oxydra/x.db")})
    async with house.host(config=chosen) as host:
        assert host.notices == []
    assert (old / "memory.db").exists()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"memory": MemorySettings(db_path="tmp/m.db")}, ConfigError),
        (
            {"agent": AgentSettings(provider="openai", model="m", api_key_env="NOT_SET")},
            ConfigError,
        ),
        ({"workspace_root": Path("/" + "d" * 100)}, WireError),
        ({"runtime_dir": Path("/" + "d" * 90)}, WireError),
        ({"workspace_root": Path("/etc/hostname/ws")}, WorkspaceError),
        ({"tier": "container", **NO_ENGINE}, TierError),
        ({"tier": "micro_vm", **NO_ENGINE}, TierError),
    ],
)
async def test_what_can_be_refused_is_refused_before_anything_is_made(
    house: House, change: dict[str, object], error: type[WireError]
) -> None:
    config = house.config.model_copy(update=change)
    with pytest.raises(error) as raised:
        await house.host(config=config, driver=None if "tier" in change else house.driver).start()
    assert raised.value.resolution
    assert [path.name for path in house.root.iterdir()] == ["cwd"]


@pytest.mark.parametrize("user_id", ["../bob", "", "b" * 300, "bøb"])
async def test_a_bad_user_id_makes_nothing(house: House, user_id: str) -> None:
    with pytest.raises(WorkspaceError, match="bad user id"):
        await house.host(user_id).start()
    assert [path.name for path in house.root.iterdir()] == ["cwd"]


async def test_a_guest_that_dies_is_replaced_and_its_handle_written_down(
    house: House, running: Host
) -> None:
    await house.driver.launched[0].end(-9)
    async with asyncio.timeout(GUARD_S):
        while len(house.driver.launched) < 2:
            await asyncio.sleep(0.005)
    await running.gateway()
    (handle,) = load_state(house.runtime().state)
    assert handle.data["pid"] == house.driver.launched[1].pid


async def test_a_guest_with_an_operators_error_fails_the_start_with_its_words(
    house: House,
) -> None:
    line = (
        '{"event": "startup_failed", "error": {"code": "data_loss", "brief": "the database is'
        ' corrupt", "details": "d", "resolution": "r"}}\n'
    )
    house.driver = FakeDriver(lambda _: Behaviour(exit_code=logs.EXIT_OPERATOR, log=line))
    with pytest.raises(WireError, match="the database is corrupt") as raised:
        await house.host().start()
    assert raised.value.code is Code.DATA_LOSS
    assert house.leftovers() == set()


@pytest.mark.parametrize(
    "changed",
    [{"audit": AuditSettings(keep_days=1)}, {"telemetry": TelemetrySettings(sample_ratio=0.5)}],
    ids=lambda changed: next(iter(changed)),
)
async def test_what_holds_until_the_end_is_not_taken_up_by_a_restart(
    house: House, changed: dict[str, Any]
) -> None:
    other = house.config.model_copy(update=changed)
    async with house.host(reload=lambda: other) as host:
        with pytest.raises(WireError, match=f"{next(iter(changed))} has changed"):
            await host.restart("agent")


async def test_a_directory_that_is_refused_ends_nothing(house: House) -> None:
    fields: dict[str, Any] = {"name": "", "write": True, "hide": (), "lift": ()}
    async with house.host() as host:
        launched = len(house.driver.launched)
        with pytest.raises(WorkspaceError):
            await host.open_project(path=str(house.root / "ws"), **fields)
        assert not host.opened
        assert len(house.driver.launched) == launched
        assert house.driver.launched[-1].running


async def test_in_a_cluster_there_are_no_projects_and_the_reason_is_told(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workspace, "here", False)  # as that of a volume
    code, told = house.root / "code", "there are no projects here: the guests of a cluster see"
    code.mkdir()
    of_settings = WorkspaceSettings(projects={"code": ProjectSettings(path=code)})
    config = house.config.model_copy(update={"workspace": of_settings})
    fields: dict[str, Any] = {"name": "", "write": True, "hide": (), "lift": ()}
    async with house.host(config=config) as host:
        assert sum(told in each for each in host.notices) == 1
        launched = len(house.driver.launched)
        with pytest.raises(HostError, match=told) as refused:
            await host.open_project(path=str(house.root), **fields)
        assert refused.value.code is Code.FAILED_PRECONDITION
        with pytest.raises(HostError, match=told):
            await host.close_project("code")
        assert not host.opened
        assert len(house.driver.launched) == launched
        assert house.driver.launched[-1].running
        mounts = [bound.host_path for each in house.driver.launched for bound in each.spec.mounts]
        assert mounts
        assert code not in mounts
    with pytest.raises(HostError, match=told):
        await house.host(opened={"code": ProjectSettings(path=code)}).__aenter__()
