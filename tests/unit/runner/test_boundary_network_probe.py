"""The runner's judgement of what an agent guest says of its ways out."""

import shutil
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from wire.errors import Code
from wire.network_probe import WAYS, Spec, Target, connect
from wire.v1 import control_pb2, gateway_pb2, gateway_pb2_grpc

from runner.boundary.check import AGENT, PROOF, check_network, require_passed, together
from runner.errors import TierError

SHUT = dict.fromkeys(WAYS, "")


@dataclass
class AnsweringAgent(gateway_pb2_grpc.GatewayServicer):
    """Says this of each way; with None it fails."""

    ways: Mapping[str, str] | None
    asked: list[Spec] = field(default_factory=list)

    async def ProbeNetwork(self, request: Any, context: Any) -> gateway_pb2.ProbeNetworkReply:
        self.asked.append(Spec.from_json(request.spec))
        if self.ways is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "an old agent")
            raise AssertionError
        ways = [
            gateway_pb2.ProbedRoute(name=name, shut=not found, found=found)
            for name, found in self.ways.items()
        ]
        return gateway_pb2.ProbeNetworkReply(ways=ways)


def says(ways: Mapping[str, str] | None) -> AnsweringAgent:
    return AnsweringAgent(ways)  # type: ignore[abstract]


async def reported(
    agent: AnsweringAgent,
    known: Mapping[str, str] | None = None,
    spec: Spec = Spec(egress_listener="/egress/http.sock"),  # noqa: B008 - immutable
) -> control_pb2.BoundaryReport:
    directory = tempfile.mkdtemp(dir="/tmp", prefix="bw-")
    server = grpc.aio.server()
    gateway_pb2_grpc.add_GatewayServicer_to_server(agent, server)
    server.add_insecure_port(f"unix:{directory}/agent.sock")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"unix:{directory}/agent.sock") as channel:
            return await check_network(channel, spec, known)
    finally:
        await server.stop(0)
        shutil.rmtree(directory)


def hits(report: control_pb2.BoundaryReport) -> dict[str, str]:
    return {check.name: check.details for check in report.checks if not check.passed}


async def test_an_agent_whose_ways_are_shut_passes() -> None:
    agent = says(SHUT)
    report = await reported(agent)
    assert report.passed
    assert [check.name for check in report.checks] == [AGENT + name for name in WAYS]
    require_passed(report, "agent")
    (asked,) = agent.asked
    assert asked.egress_listener == "/egress/http.sock"
    assert asked.listener_port
    assert asked.listener_name


async def test_one_open_way_is_named_and_refused() -> None:
    report = await reported(says({**SHUT, "dns": "8.8.8.8 can be asked\x1b[2J"}))
    assert list(hits(report)) == ["agent: dns"]
    assert "\x1b" not in hits(report)["agent: dns"]
    with pytest.raises(TierError) as refused:
        require_passed(report, "agent")
    assert refused.value.code is Code.FAILED_PRECONDITION
    assert refused.value.brief == "the boundary of the agent guest does not hold"
    assert "agent: dns: 8.8.8.8" in refused.value.details
    assert "runner doctor --boundary" in refused.value.resolution


async def test_a_way_that_is_not_reported_has_failed() -> None:
    ways = {name: "" for name in WAYS if name != "ipv6"}
    assert hits(await reported(says(ways))) == {"agent: ipv6": "the agent did not report it"}


async def test_an_agent_that_cannot_say_has_failed() -> None:
    report = await reported(says(None))
    assert list(hits(report)) == ["agent: probe"]
    assert not report.passed


async def test_a_way_that_the_tier_cannot_shut_is_shown_as_open() -> None:
    report = await reported(says({**SHUT, "abstract": "it answers"}), {"abstract": "why"})
    assert report.passed
    (shown,) = (check for check in report.checks if check.name == "agent: abstract")
    assert shown.details == "open: why"
    other = await reported(says({**SHUT, "vsock": "it answers"}), {"abstract": "why"})
    assert not other.passed


async def test_behind_policies_somebody_who_listens_must_be_forbidden() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = Target("127.0.0.1", server.getsockname()[1], "the API server")
        spec = Spec(policed=True, forbidden=(Target("127.0.0.1", 1), target))
        assert (await reported(says(SHUT), spec=spec)).passed
    report = await reported(says(SHUT), spec=spec)
    assert list(hits(report)) == [AGENT + PROOF]
    assert f"the API server 127.0.0.1 port {target.port}: refused" in hits(report)[AGENT + PROOF]


async def test_behind_policies_the_runner_listens_on_all_its_addresses() -> None:
    class Connecting(AnsweringAgent):
        async def ProbeNetwork(self, request: Any, context: Any) -> gateway_pb2.ProbeNetworkReply:
            port = Spec.from_json(request.spec).listener_port
            targets = [Target("127.0.0.2", port), Target("127.0.0.1", port)]
            outcomes.append(list(connect(targets).values()))
            return await super().ProbeNetwork(request, context)

    outcomes: list[list[str]] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        spec = Spec(policed=True, forbidden=(Target("127.0.0.1", server.getsockname()[1]),))
        for each in (spec, spec._replace(policed=False)):
            await reported(Connecting(SHUT), spec=each)  # type: ignore[abstract]
    assert outcomes == [["connected", "connected"], ["refused", "connected"]]


async def test_two_reports_are_one_that_is_as_bad_as_the_worse() -> None:
    good = await reported(says(SHUT))
    bad = await reported(says({**SHUT, "ipv4": "x"}))
    both = together([bad, good])
    assert not both.passed
    assert both.checked_at == good.checked_at
    assert len(both.checks) == 2 * len(WAYS)
    assert together([good, good]).passed
