"""One suite for every tier driver: what `runner.tiers.base.TierDriver` promises."""

import asyncio
import contextlib
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from wire import envelope, logs, transport
from wire.identity import Party
from wire.limits import ENVELOPE_VERSION
from wire.v1 import bootstrap_pb2

from runner.errors import TierError, WorkspaceError
from runner.logs import ROTATE_BYTES
from runner.tiers.base import Handle, Inspection, LaunchSpec, Port, TierDriver
from runner.tiers.container.driver import ContainerDriver
from runner.tiers.kubernetes.settings import KubernetesSettings
from runner.tiers.process.bubblewrap import Bubblewrap
from runner.tiers.process.driver import ProcessDriver
from runner.workspace.directories import Owner
from runner.workspace.mounts import Role
from runner.workspace.workspace import Workspace
from tests.support import parties
from tests.support.guests import engine
from tests.support.guests.engine import GUEST_UID
from tests.support.guests.fake_tier import Behaviour, FakeDriver
from tests.support.guests.standin_guest import command
from tests.support.memory.store import until
from tests.support.scratch import SCRATCH

GUARD_S = 60.0
TOKEN = "a-launch-token"
FAKE = {
    "serve": Behaviour(log="serving\n"),
    "obstinate": Behaviour(log="serving\n", obstinate=True),
    "exit_7": Behaviour(exit_code=7, log="about to exit\n"),
    "fail": Behaviour(exit_code=logs.EXIT_OPERATOR, log="the database is corrupt\n"),
}


@dataclass
class Tier:
    """A driver, another one as the next runner would have it, and launches for them."""

    name: str
    role: Role
    driver: TierDriver
    another: Callable[[], TierDriver]
    workspace: Workspace
    inside: bool = False
    """Guests have files and programs of their own."""
    remote: bool = False
    """Guests have addresses of their own, and nobody here knows their processes."""
    started: list[Handle] = field(default_factory=list)
    successors: list[TierDriver] = field(default_factory=list)

    def successor(self) -> TierDriver:
        """A driver as the next runner has it; closed with the tier's own."""
        self.successors.append(self.another())
        return self.successors[-1]

    def spec(self, behaviour: str) -> LaunchSpec:
        launch_id = f"launch-{len(self.started)}"
        name = launch_id if self.remote else ""
        inside = Port.GATEWAY.listener if self.remote else "unix:/ipc/agent.sock"
        message = bootstrap_pb2.BootstrapEnvelope(
            version=ENVELOPE_VERSION,
            launch_id=launch_id,
            user_id="alice",
            token=TOKEN,
            identity=parties.identity(Party.AGENT, name).message(),
            gateway=inside if self.inside else self.endpoint,
        )
        return LaunchSpec(
            role=self.role,
            user_id=self.user_id,
            home=self.workspace.path,
            launch_id=launch_id,
            command=engine.command_inside(behaviour) if self.inside else command(behaviour),
            mounts=self.workspace.mounts(Role.AGENT),
            environment={"PATH": "/usr/bin:/bin", "MARK": "only this"},
            envelope=envelope.encode(message),
            log_path=self.workspace.log(Role.AGENT),
            working_directory=Path("/run" if self.remote else "/.oxydra")
            if self.inside
            else self.workspace.path,
            owner=(self.workspace.owner.uid, self.workspace.owner.gid),
        )

    @property
    def user_id(self) -> str:
        """Whose guest it is; the embedder is nobody's."""
        return "" if self.role is Role.EMBEDDER else "alice"

    @property
    def endpoint(self) -> str:
        if self.remote:
            return self.started[-1].endpoint(Port.GATEWAY)
        return f"unix:{self.workspace.socket(Role.AGENT)}"

    async def start(self, behaviour: str = "serve", *, ready: bool = True) -> Handle:
        handle = await self.driver.start(self.spec(behaviour))
        self.started.append(handle)
        if ready:
            await self.until_ready()
        return handle

    async def until_ready(self) -> None:
        async with asyncio.timeout(GUARD_S):
            while not await self.answers():
                await asyncio.sleep(0.02)

    async def answers(self) -> bool:
        if self.remote and not self.started:
            return False
        peer = parties.gateway(self.endpoint, TOKEN)
        if self.remote:
            peer = replace(peer, launch_id=self.started[-1].launch_id)
        elif not self.workspace.socket(Role.AGENT).exists():
            return False
        async with transport.open_channel(peer) as channel:
            return await transport.check_health(channel)

    @property
    def log(self) -> str:
        return self.workspace.log(Role.AGENT).read_text()


@pytest.fixture
def workspace() -> Iterator[Workspace]:
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="oxc-") as root:
        made = Workspace(Path(root), "alice")
        made.provision()
        yield made


@pytest.fixture
def role(request: pytest.FixtureRequest) -> Role:
    """Whose guest it is: the agent's, or as `both_roles` says."""
    found: Role = getattr(request, "param", Role.AGENT)
    return found


every_role = pytest.mark.parametrize(
    "role",
    [Role.AGENT, Role.EMBEDDER, pytest.param(Role.EGRESS, marks=pytest.mark.long)],
    indirect=True,
)
"""For what a role decides: names, labels, handles and who recovers them. The embedder is nobody's.
Guests of the shell have a suite of their own."""


@pytest.fixture(
    params=[
        "process",
        "fake",
        pytest.param("container", marks=pytest.mark.docker),
        pytest.param(
            "kubernetes", marks=[pytest.mark.kubernetes, pytest.mark.xdist_group("kubernetes")]
        ),
    ]
)
async def tier(
    request: pytest.FixtureRequest, workspace: Workspace, role: Role
) -> AsyncIterator[Tier]:
    if request.param == "process":
        made = Tier("process", role, ProcessDriver(), ProcessDriver, workspace)
    elif request.param == "fake":
        fake = FakeDriver(lambda spec: FAKE[spec.command[-1]])
        made = Tier("fake", role, fake, lambda: FakeDriver(world=fake), workspace)
    elif request.param == "kubernetes":
        made = in_cluster(request, workspace, role)
    else:
        settings = engine.standin_images()
        owned = replace(workspace, common_owner=engine.owner())
        owned.provision()
        driver = ContainerDriver(settings)
        made = Tier(
            "container", role, driver, lambda: ContainerDriver(settings), owned, inside=True
        )
    yield made
    for handle in made.started:
        await made.driver.stop(handle, 0)
    if made.inside:
        assert await made.driver.clear(made.user_id, made.workspace.path) == []
    for each in (*made.successors, made.driver):
        await each.close()


def in_cluster(request: pytest.FixtureRequest, workspace: Workspace, role: Role) -> Tier:
    """The kubernetes tier, in a namespace of its own."""
    from runner.tiers.kubernetes.driver import KubernetesDriver

    cluster, namespace = request.getfixturevalue("cluster"), request.getfixturevalue("namespace")
    settings = KubernetesSettings(
        kubeconfig=cluster.plane.kubeconfig(namespace, namespace=namespace), start_s=30
    )
    images = engine.standin_images()
    owned = replace(workspace, common_owner=Owner(GUEST_UID, GUEST_UID, frozenset({GUEST_UID})))

    def driver() -> TierDriver:
        return KubernetesDriver(settings, images)

    return Tier("kubernetes", role, driver(), driver, owned, inside=True, remote=True)


@pytest.fixture
async def process_tier(workspace: Workspace) -> AsyncIterator[Tier]:
    made = Tier("process", Role.AGENT, ProcessDriver(), ProcessDriver, workspace)
    yield made
    for handle in made.started:
        await made.driver.stop(handle, 0)


async def within(awaitable: Any) -> Any:
    async with asyncio.timeout(GUARD_S):
        return await awaitable


@every_role
async def test_a_started_guest_runs_and_answers(tier: Tier) -> None:
    handle = await tier.start()
    found = await tier.driver.inspect(handle)
    assert found.running
    assert found.exit_code is None
    assert (found.pid > 0) is not tier.remote
    assert (found.resident_bytes > 0) is not tier.remote
    assert (handle.driver, handle.role, handle.user_id, handle.launch_id) == (
        tier.name,
        tier.role,
        tier.user_id,
        "launch-0",
    )
    await until(lambda: "serving" in tier.log)


@every_role
async def test_a_handle_survives_being_written_down_and_holds_no_secret(tier: Tier) -> None:
    handle = await tier.start()
    written = json.dumps(handle.to_json())
    assert TOKEN not in written
    assert Handle.from_json(json.loads(written)) == handle


@every_role
async def test_stop_ends_a_guest_and_again_is_fine(tier: Tier) -> None:
    handle = await tier.start()
    for _ in range(3):
        await within(tier.driver.stop(handle))
        found = await tier.driver.inspect(handle)
        assert not found.running
        assert found.exit_code == 0
    assert not await tier.answers()


async def test_stop_may_be_asked_for_by_many_at_once(tier: Tier) -> None:
    handle = await tier.start()
    await within(asyncio.gather(*(tier.driver.stop(handle) for _ in range(5))))
    assert not (await tier.driver.inspect(handle)).running


async def test_a_guest_that_does_not_end_when_asked_is_killed(tier: Tier) -> None:
    handle = await tier.start("obstinate")
    await within(tier.driver.stop(handle, grace=0.3))
    assert (await tier.driver.inspect(handle)).exit_code == -signal.SIGKILL


@every_role
async def test_stop_without_grace_kills_at_once(tier: Tier) -> None:
    handle = await tier.start("obstinate" if tier.remote else "serve")  # nodes ask for a second
    await within(tier.driver.stop(handle, grace=0))
    assert (await tier.driver.inspect(handle)).exit_code == -signal.SIGKILL


async def test_a_cancelled_stop_still_ends_the_guest(tier: Tier) -> None:
    handle = await tier.start("obstinate")
    stopping = asyncio.create_task(tier.driver.stop(handle, grace=60))
    await asyncio.sleep(0.1)
    stopping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await stopping
    await within(tier.driver.stop(handle, grace=0))
    assert not (await tier.driver.inspect(handle)).running


@pytest.mark.parametrize(("behaviour", "code"), [("exit_7", 7), ("fail", logs.EXIT_OPERATOR)])
async def test_a_guest_that_ends_is_data_and_no_error(
    tier: Tier, behaviour: str, code: int
) -> None:
    handle = await tier.start(behaviour, ready=False)
    assert await within(tier.driver.wait(handle)) == code
    found = await tier.driver.inspect(handle)
    assert (found.running, found.exit_code) == (False, code)
    await until(lambda: bool(tier.log))
    await tier.driver.stop(handle)


async def test_many_may_wait_and_one_who_leaves_disturbs_nobody(tier: Tier) -> None:
    handle = await tier.start()
    first, second = (asyncio.create_task(tier.driver.wait(handle)) for _ in range(2))
    await asyncio.sleep(0.05)
    first.cancel()
    assert (await tier.driver.inspect(handle)).running
    await tier.driver.stop(handle)
    assert await within(second) == 0
    assert await within(tier.driver.wait(handle)) == 0


@every_role
async def test_a_handle_of_somebody_else_is_simply_gone(tier: Tier) -> None:
    stranger = Handle(tier.name, tier.role, "bob", "never-launched", {"pid": os.getpid()})
    assert await tier.driver.inspect(stranger) == Inspection(running=False)
    assert await within(tier.driver.wait(stranger)) is None
    await tier.driver.stop(stranger)
    assert not await tier.driver.recover(stranger)


@every_role
async def test_the_next_runner_recovers_a_guest_and_can_end_it(tier: Tier) -> None:
    handle = await tier.start()
    successor = tier.successor()
    assert not (await successor.inspect(handle)).running
    again = Handle.from_json(json.loads(json.dumps(handle.to_json())))
    assert await successor.recover(again)
    found = await successor.inspect(again)
    assert found.running
    assert found.pid == (await tier.driver.inspect(handle)).pid
    waiting = asyncio.create_task(successor.wait(again))
    await within(successor.stop(again))
    await within(waiting)
    assert not (await successor.inspect(again)).running
    assert not await tier.answers()


@every_role
async def test_a_guest_that_has_ended_is_not_recovered(tier: Tier) -> None:
    handle = await tier.start()
    await tier.driver.stop(handle)
    assert not await tier.successor().recover(handle)


async def test_a_role_that_the_tier_cannot_run_is_refused_with_the_declared_reason(
    tier: Tier,
) -> None:
    driver = ProcessDriver(Bubblewrap(path="")) if tier.name == "process" else tier.driver
    for role, reason in driver.capabilities.unsupported.items():
        with pytest.raises(TierError) as raised:
            await driver.start(replace(tier.spec("serve"), role=role))
        assert raised.value.details == reason


async def test_a_log_that_is_a_trap_is_refused_and_nothing_runs(tier: Tier) -> None:
    victim = tier.workspace.path / "victim"
    victim.write_text("precious")
    tier.workspace.log(Role.AGENT).symlink_to(victim)
    with pytest.raises(WorkspaceError, match="cannot use the log"):
        await tier.driver.start(tier.spec("serve"))
    assert victim.read_text() == "precious"
    assert not await tier.answers()


async def test_a_large_log_is_rotated_at_start(tier: Tier) -> None:
    path = tier.workspace.log(Role.AGENT)
    with path.open("wb") as file:
        file.truncate(ROTATE_BYTES + 1)
    await tier.start()
    assert path.with_name("guest.log.1").stat().st_size == ROTATE_BYTES + 1
    assert path.stat().st_size < 10_000


async def test_a_process_guest_sees_only_the_environment_it_was_given(process_tier: Tier) -> None:
    os.environ["OXYDRA_TEST_SECRET"] = "sk-secret"
    try:
        handle = await process_tier.start("report")
    finally:
        del os.environ["OXYDRA_TEST_SECRET"]
    pid = (await process_tier.driver.inspect(handle)).pid
    environ = Path(f"/proc/{pid}/environ").read_bytes()
    assert set(environ.rstrip(b"\0").split(b"\0")) == {b"PATH=/usr/bin:/bin", b"MARK=only this"}
    assert TOKEN.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert TOKEN not in process_tier.log
    assert os.getsid(pid) == pid


async def test_what_a_process_guest_started_ends_with_it(process_tier: Tier) -> None:
    for grace in (5.0, 0.0):
        handle = await process_tier.start("family")
        pid = (await process_tier.driver.inspect(handle)).pid
        children = psutil.Process(pid).children()
        assert len(children) == 1
        await within(process_tier.driver.stop(handle, grace))
        assert not any(child.is_running() and child.status() != "zombie" for child in children)


async def test_what_a_crashed_process_guest_left_is_ended_too(process_tier: Tier) -> None:
    handle = await process_tier.start("family")
    pid = (await process_tier.driver.inspect(handle)).pid
    (child,) = psutil.Process(pid).children()
    os.kill(pid, signal.SIGKILL)
    assert await within(process_tier.driver.wait(handle)) == -signal.SIGKILL
    assert not (child.is_running() and child.status() != "zombie")


async def test_a_command_that_is_not_there_is_an_error_and_leaves_nothing(
    process_tier: Tier,
) -> None:
    with pytest.raises(TierError, match="cannot start the agent guest"):
        await process_tier.driver.start(
            replace(process_tier.spec("serve"), command=("/no/such/guest",))
        )


async def test_a_process_with_a_recycled_pid_is_no_guest_of_ours(process_tier: Tier) -> None:
    handle = await process_tier.start()
    for wrong in (
        {"create_time": handle.data["create_time"] - 100},
        {"command": ["sleep", "1"]},
        {"pid": os.getpid()},
        {"pid": "x"},
    ):
        stranger = replace(handle, data={**handle.data, **wrong})
        assert not await ProcessDriver().recover(stranger)
    assert not await ProcessDriver().recover(replace(handle, data={}))
    assert (await process_tier.driver.inspect(handle)).running


async def test_the_end_of_the_runner_is_the_end_of_the_guests_input(process_tier: Tier) -> None:
    """What `--exit-with-parent` stands on: the pipe is open for as long as the runner lives."""
    handle = await process_tier.start()
    pid = (await process_tier.driver.inspect(handle)).pid
    pipe = os.readlink(f"/proc/{pid}/fd/0")
    ends = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    assert ends.count(pipe) == 1
