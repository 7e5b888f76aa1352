"""What is asked of pods, and how long policies may take."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import pytest
from wire.boundary import CHECKS, POLICIES, POLICY, BoundarySpec
from wire.errors import Code
from wire.network_probe import POLICED, WAYS, Spec, Target
from wire.v1 import control_pb2

from runner.boundary.check import AGENT, PROOF
from runner.boundary.spec import host_addresses
from runner.errors import TierError
from runner.tiers.base import Confinement, Network, Port
from runner.tiers.kubernetes.cluster_network import (
    ClusterAddresses,
    Neighbours,
    pod_network_spec,
    pod_spec,
)
from runner.tiers.kubernetes.enforcement import require_enforced, until_enforced, watch_policies
from runner.tiers.kubernetes.names import Owner
from runner.tiers.kubernetes.pods import pod_of
from runner.tiers.kubernetes.policies import policies
from runner.tiers.kubernetes.settings import KubernetesSettings
from runner.workspace.mounts import Role
from tests.support.boundary.guarded_host import CANARY, TOKEN
from tests.support.boundary.pod import pod_launch

API = Target("10.96.0.1", 443, "the API server")
LISTENER = "tcp:10.244.1.7:7005"
ENFORCED: dict[str, str] = {}
UNENFORCED = {POLICIES: "10.96.0.1 can be reached"}
BROKEN = {**UNENFORCED, "mounts": "/state is mounted"}


def specified(*, own_kernel: bool = False) -> BoundarySpec:
    return pod_spec(
        pod_launch(),
        Confinement(5, 6, seccomp=True, own_kernel=own_kernel),
        tokens={"the token": TOKEN},
        canary=CANARY,
        addresses=ClusterAddresses((API,), LISTENER),
    )


def test_a_pods_specification_survives_its_way() -> None:
    spec = specified()
    assert BoundarySpec.from_json(spec.to_json()) == spec
    assert spec.policed
    assert spec.remote
    assert (spec.forbidden, spec.egress_listener, spec.socket) == ((API,), LISTENER, "")
    assert spec.checks == (*CHECKS, POLICIES)
    assert {"/state", "/.oxydra", "/vault", "/ipc"} <= set(spec.absent)
    assert (spec.private, spec.other_users) == ((), ())
    assert spec.host_addresses == tuple(host_addresses())
    assert TOKEN not in spec.to_json().decode()
    assert not specified(own_kernel=True).host_tmpfs


def test_an_agents_specification_survives_its_way() -> None:
    spec = pod_network_spec(ClusterAddresses((API,), LISTENER))
    assert Spec.from_json(spec.to_json()) == spec
    assert (spec.policed, spec.forbidden, spec.egress_listener) == (True, (API,), LISTENER)
    assert spec.host_addresses == tuple(host_addresses())


def test_both_sides_call_the_network_the_same() -> None:
    assert str(Network.POLICY) == POLICY


def test_the_volumes_of_a_pod_are_those_that_it_is_given() -> None:
    made = pod_of(pod_launch(), KubernetesSettings(), "oxydra")
    (container,) = made["spec"]["containers"]
    given = {each["mountPath"] for each in container["volumeMounts"]}
    assert given == {*(row.virtual for row in specified().shared), "/run"}


@pytest.mark.parametrize("forbidden", [(), (Target("kubernetes.default.svc", 443),)])
def test_what_proves_nothing_is_refused(forbidden: tuple[Target, ...]) -> None:
    with pytest.raises(ValueError):
        ClusterAddresses(forbidden)


NEIGHBOURS = Neighbours(
    api=(Target("10.96.0.1", 443), Target("fd96::1", 443)),
    names=("10.96.0.10",),
    nodes=("10.0.0.1",),
    guests={
        Role.AGENT: ("10.1.0.1", "fd01::1"),
        Role.SHELL: ("10.1.0.2",),
        Role.EGRESS: ("10.1.0.3",),
        Role.SHELL_EGRESS: ("10.1.0.5",),
        Role.EMBEDDER: ("10.1.0.4",),
    },
    others=("10.1.9.9",),
)
EVERYBODY: set[tuple[str, int]] = {
    *{("10.96.0.1", 443), ("fd96::1", 443), ("10.96.0.10", 53)},
    *(("10.0.0.1", port) for port in (22, 10250, 10255)),
    *(("10.1.9.9", port) for port in range(7001, 7006)),
}


@pytest.mark.parametrize(
    ("role", "own", "listener"),
    [
        (
            Role.SHELL,
            {
                *{("10.1.0.1", 7001), ("fd01::1", 7001), ("10.1.0.4", 7006)},
                *{("10.1.0.3", 7003), ("10.1.0.3", 7004), ("10.1.0.5", 7003)},
            },
            "tcp:10.1.0.5:7005",
        ),
        (
            Role.AGENT,
            {("10.1.0.3", 7003), ("10.1.0.5", 7003), ("10.1.0.5", 7005)},
            "tcp:10.1.0.3:7004",
        ),
    ],
)
def test_a_guest_may_reach_only_whom_its_policy_names(
    role: Role, own: set[tuple[str, int]], listener: str
) -> None:
    around = NEIGHBOURS.of(role)
    assert {target[:2] for target in around.forbidden} == EVERYBODY | own
    assert len(around.forbidden) == len(EVERYBODY | own)
    assert all(target.label for target in around.forbidden)
    assert around.listener == listener


@pytest.mark.parametrize("role", [Role.AGENT, Role.SHELL])
def test_what_is_forbidden_is_what_the_policies_do_not_open(role: Role) -> None:
    name = Owner("alice").name(role.value)
    made = policies(Owner("alice"), KubernetesSettings())
    (policy,) = (each for each in made if each["metadata"]["name"] == name)
    opened = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
    own = {
        target.port
        for target in NEIGHBOURS.of(role).forbidden
        if target.address.startswith("10.1.0.")
    }
    itself = Port.GATEWAY if role is Role.AGENT else Port.SHELL
    assert own == {port.value for port in Port} - opened - {itself.value}


def test_a_crowd_of_others_is_bounded() -> None:
    others = tuple(f"10.2.0.{number}" for number in range(200))
    assert len(replace(NEIGHBOURS, others=others).of(Role.SHELL).forbidden) < 120


def test_what_is_not_there_yet_is_left_out() -> None:
    around = Neighbours(api=(API,)).of(Role.SHELL)
    assert (around.forbidden, around.listener) == ((API,), "")


def report(failed: dict[str, str]) -> control_pb2.BoundaryReport:
    checks = [
        control_pb2.BoundaryCheck(
            name=name, passed=name not in failed, details=failed.get(name, "")
        )
        for name in dict.fromkeys((*CHECKS, POLICIES, *failed))
    ]
    return control_pb2.BoundaryReport(passed=not failed, checks=checks)


def reports(*failed: dict[str, str]) -> Callable[[], Awaitable[control_pb2.BoundaryReport]]:
    """One run after the other; there may be no more."""
    left: Iterator[dict[str, str]] = iter(failed)

    async def run() -> control_pb2.BoundaryReport:
        return report(next(left))

    return run


@pytest.mark.parametrize(
    "runs",
    [
        (ENFORCED, ENFORCED),
        (UNENFORCED, ENFORCED, ENFORCED),
        (ENFORCED, UNENFORCED, ENFORCED, ENFORCED),
    ],
)
async def test_policies_are_enforced_once_two_runs_in_a_row_pass(
    runs: tuple[dict[str, str], ...],
) -> None:
    run = reports(*runs)
    require_enforced(await until_enforced(run, pause_s=0))
    with pytest.raises(RuntimeError):
        await run()


async def test_a_pass_after_the_time_needs_a_second_one_too() -> None:
    found = await until_enforced(reports(ENFORCED, UNENFORCED), within_s=0, pause_s=0)
    assert not found.passed


@pytest.mark.parametrize("runs", [(BROKEN,), (UNENFORCED, BROKEN), (ENFORCED, BROKEN)])
async def test_other_hits_are_not_waited_for(runs: tuple[dict[str, str], ...]) -> None:
    found = await until_enforced(reports(*runs), pause_s=0)
    with pytest.raises(TierError, match="the boundary of the shell guest does not hold"):
        require_enforced(found)


@pytest.mark.parametrize("guest", ["", AGENT])
async def test_the_proof_may_be_late_but_is_no_matter_of_the_network(guest: str) -> None:
    unproven = {guest + PROOF: "nobody answers"}
    require_enforced(await until_enforced(reports(unproven, ENFORCED, ENFORCED), pause_s=0))
    with pytest.raises(TierError, match="the boundary of the shell guest does not hold"):
        require_enforced(await until_enforced(reports(unproven), within_s=0, pause_s=0))


async def test_policies_are_looked_at_again_until_they_fail_twice() -> None:
    run = reports(ENFORCED, UNENFORCED, ENFORCED, UNENFORCED, UNENFORCED)
    found = await watch_policies(run, every_s=0, pause_s=0)
    assert found == report(UNENFORCED)


async def test_a_run_that_proves_nothing_ends_nobody() -> None:
    nothing = [{PROOF: "nobody answers"}, {"probe": "no answer"}]
    asked = reports(*nothing, *nothing, UNENFORCED, UNENFORCED)
    away = [TierError(Code.UNAVAILABLE, "the cluster does not answer")] * 3

    async def run() -> control_pb2.BoundaryReport:
        if away:
            raise away.pop()
        return await asked()

    assert await watch_policies(run, every_s=0, pause_s=0) == report(UNENFORCED)


async def test_policies_are_looked_at_when_pods_change() -> None:
    changed, runs = asyncio.Event(), asyncio.Queue[None]()

    async def run() -> control_pb2.BoundaryReport:
        runs.put_nowait(None)
        return report(UNENFORCED if told else ENFORCED)

    told = False
    watching = asyncio.create_task(watch_policies(run, changed=changed, pause_s=0))
    await asyncio.sleep(0)
    assert runs.empty()
    changed.set()
    await runs.get()
    assert not changed.is_set()
    told = True
    changed.set()
    assert not (await asyncio.wait_for(watching, 60)).passed
    assert runs.qsize() == 2


async def test_a_probe_that_does_not_work_is_not_waited_for() -> None:
    found = await until_enforced(reports({"probe": "no answer"}), pause_s=0)
    assert not found.passed


@pytest.mark.parametrize("way", WAYS)
async def test_ways_of_an_agent_that_policies_shut_are_told_from_others(way: str) -> None:
    failed = {AGENT + way: f"{way} leads out"}
    with pytest.raises(TierError) as refused:
        require_enforced(report(failed), "agent")
    assert refused.value.code is Code.FAILED_PRECONDITION
    assert f"{way} leads out" in refused.value.details
    unenforced = refused.value.brief == "this cluster's network does not enforce NetworkPolicy"
    assert unenforced == (way in POLICED)
    assert ("Calico or Cilium; then runner start" in refused.value.resolution) == unenforced
