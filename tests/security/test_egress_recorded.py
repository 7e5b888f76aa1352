"""Nothing leaves unrecorded, however egress or the runner ends, and no command has a say in it."""

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from wire.settings import EgressRoleSettings, EgressSettings, EmbedderSettings
from wire.transport import open_channel
from wire.v1 import gateway_pb2 as pb
from wire.v1 import gateway_pb2_grpc

from runner.audit.log import LogLocation
from runner.audit.reading import verify
from runner.config.models import Config
from runner.egress.log import Requests, Wanted
from runner.host.control import ControlClient, connect_control
from runner.host.host import Host
from tests.support.egress.origins import Origin, names, origin
from tests.support.egress.recorded import newest

pytestmark = pytest.mark.bubblewrap

HOST = "files.example.org"


@dataclass
class House:
    """A host whose commands may reach one server outside."""

    config: Config
    control: ControlClient
    agent: "gateway_pb2_grpc.GatewayAsyncStub"
    server: Origin

    async def run(self, command: str, session_id: str = "") -> dict[str, Any]:
        """What a command writes, and how it ends."""
        arguments = json.dumps({"command": command, "timeout_s": 60})
        request = pb.CallToolRequest(
            name="shell_exec", arguments_json=arguments, session_id=session_id
        )
        reply = await self.agent.CallTool(request)
        assert not reply.is_error, reply.text
        found: dict[str, Any] = json.loads(reply.text.split("\nNote: ")[0])
        return found

    @property
    def place(self) -> str:
        return f"http://{HOST}:{self.server.port}"

    @property
    def log(self) -> LogLocation:
        return LogLocation.locate(self.config, "alice")

    async def pid(self) -> int:
        guests = (await self.control.status()).guests
        return next(each.pid for each in guests if each.role == "shell-egress")


@asynccontextmanager
async def opened(**shell: Any) -> AsyncIterator[House]:
    """A host of the process tier; `shell` is what its commands may reach besides the server."""
    with tempfile.TemporaryDirectory(prefix="oxw", dir="/tmp") as root:
        async with names({HOST: ["127.0.0.1"]}) as (name_server, _), origin() as server:
            config = Config(
                workspace_root=Path(root) / "w",
                runtime_dir=Path(root) / "r",
                tier="process",
                embedder=EmbedderSettings(backend="none"),
                egress=EgressSettings(
                    shell=EgressRoleSettings(**shell or {"allow": (f"{HOST}:{server.port}",)}),
                    private_networks=("127.0.0.0/8",),
                    name_servers=(name_server,),
                ),
            )
            async with Host(config, "alice"):
                control = await connect_control(config, "alice")
                assert control is not None
                async with control, open_channel(await control.gateway()) as channel:
                    yield House(config, control, gateway_pb2_grpc.GatewayStub(channel), server)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with opened() as made:
        yield made


async def test_what_left_and_what_did_not_is_recorded(house: House) -> None:
    said = await house.run(f"curl -sS {house.place}/a?key=secret; curl -s http://other.example/")
    assert "you sent" in said["stdout"]
    assert "oxydra: egress: other.example:80 is not allowed" in said["stderr"]
    refused, done = Requests(house.log).list(limit=2)
    assert (refused.host, refused.decision, refused.role) == ("other.example", "refused", "shell")
    assert refused.reason
    assert (done.host, done.method, done.path) == (HOST, "GET", "/a")
    assert (done.outcome, done.status, done.address) == ("done", 200, "127.0.0.1")
    assert done.received > 0
    assert "secret" not in f"{refused}{done}"
    assert verify(house.log).findings == ()


async def test_what_was_on_its_way_when_egress_was_killed_is_recorded(house: House) -> None:
    streaming = asyncio.create_task(house.run(f"curl -s {house.place}/forever | wc -c"))
    await newest(house.log, HOST, "running")
    os.kill(await house.pid(), signal.SIGKILL)
    cut = await newest(house.log, HOST, "cut")
    assert cut.path == "/forever"
    await streaming
    said: dict[str, Any] = {}
    async with asyncio.timeout(60):
        while "you sent" not in said.get("stdout", ""):
            said = await house.run(f"curl -sS {house.place}/again")
    assert (await newest(house.log, HOST, "done")).path == "/again"
    assert verify(house.log).findings == ()


async def test_a_command_cannot_answer_the_question_about_itself() -> None:
    async with opened(ask=True) as house:
        session = await house.agent.CreateSession(pb.CreateSessionRequest())
        asking = asyncio.create_task(
            house.run(
                f"curl -s {house.place}/a & sleep 2; ls -R / 2>/dev/null | grep -c gateway.sock;"
                f"curl -s -X POST http://127.0.0.1:${{http_proxy##*:}}/Decide; wait",
                session_id=session.session_id,
            )
        )
        async with asyncio.timeout(60):
            while not (
                found := await house.agent.ListApprovals(pb.ListApprovalsRequest())
            ).approvals:
                await asyncio.sleep(0.05)
        await asyncio.sleep(3)
        assert len(found.approvals) == 1
        assert found == await house.agent.ListApprovals(pb.ListApprovalsRequest())
        assert house.server.requests == []
        refusal = pb.DecideRequest(approval_id=found.approvals[0].approval_id, approved=False)
        await house.agent.Decide(refusal)
        said = await asking
        assert "0" in said["stdout"].splitlines()
        assert "a person said no" in said["stdout"]
        assert house.server.requests == []
        (refused,) = Requests(house.log).list(Wanted(host=HOST))
        assert refused.reason.endswith("a person said no")


async def test_what_a_person_has_allowed_counts_after_egress_was_killed() -> None:
    async with opened(ask=True) as house:
        session = (await house.agent.CreateSession(pb.CreateSessionRequest())).session_id
        asking = asyncio.create_task(house.run(f"curl -sS {house.place}/a", session))
        async with asyncio.timeout(60):
            while not (
                found := await house.agent.ListApprovals(pb.ListApprovalsRequest())
            ).approvals:
                await asyncio.sleep(0.05)
        (approval,) = found.approvals
        await house.agent.Decide(pb.DecideRequest(approval_id=approval.approval_id, approved=True))
        assert "you sent" in (await asking)["stdout"]
        os.kill(await house.pid(), signal.SIGKILL)
        said: dict[str, Any] = {}
        async with asyncio.timeout(60):
            while "you sent" not in said.get("stdout", ""):
                said = await house.run(f"curl -sS {house.place}/again", session)
        other = await house.run(f"curl -s {house.place}/elsewhere")
        assert "not allowed" in other["stdout"]
        assert [each.path for each in house.server.requests] == ["/a", "/again"]


async def test_a_command_of_no_session_is_told_that_nobody_can_be_asked() -> None:
    async with opened(ask=True) as house:
        said = await house.run(f"curl -s {house.place}/a")
        assert "nobody can be asked" in said["stdout"]
        assert not (await house.agent.ListApprovals(pb.ListApprovalsRequest())).approvals
