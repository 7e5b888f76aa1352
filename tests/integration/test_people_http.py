"""People as the operator adds, invites and removes them over HTTP, before fake agents."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import httpx
import pytest
import pytest_asyncio
from wire.errors import Code, WireError
from wire.settings import ProjectSettings
from wire.v1.control_pb2 import (
    BoundaryReport,
    GetEgressReply,
    OpenedProject,
    OpenProjectReply,
    StatusReply,
)
from wire.v1.egress_pb2 import EgressConfiguration, EgressUpstream

from runner.access.callers import Caller
from runner.access.scopes import Scope
from runner.audit.log import LogLocation
from runner.audit.reading import verify
from runner.config.loading import LoadedSettings
from runner.errors import HostError
from runner.host.awake import Due
from runner.serve import safety
from runner.serve.login.links import Links
from runner.serve.metrics import HttpMetrics
from runner.serve.operator import host as operator_host
from runner.serve.operator.host import Commands
from runner.serve.operator.settings import SettingsFile
from runner.serve.server import HttpServer
from runner.workspace.configuration_file import Changes
from tests.support.gateway.front import Front, open_front
from tests.support.gateway.http_front import ask, open_http, operator, page

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def front() -> AsyncIterator[Front]:
    async with open_front() as made:
        yield made


@pytest.fixture
def done() -> list[object]:
    """Whose agents were started, whether without containers, and what changed in the file."""
    return []


@pytest_asyncio.fixture(loop_scope="module")
async def server(front: Front, done: list[object]) -> AsyncIterator[HttpServer]:
    def start(user_id: str, insecure: bool) -> list[str]:
        done.append((user_id, insecure))
        return []

    def change(changes: Changes, write: bool) -> LoadedSettings:
        done.append(changes)
        return loaded

    loaded = LoadedSettings(front.config, None, {})
    commands = Commands(lambda: front.config, start, SettingsFile(lambda: loaded, change))
    async with open_http(front, commands) as made:
        yield made


async def test_a_person_lets_themself_in_by_a_link_and_sees_their_own_agent_alone(
    front: Front, server: HttpServer, done: list[object]
) -> None:
    async with operator(front, server) as client, page(server) as theirs:
        await ask(client, "AddUser", user_id="dora")
        await ask(client, "Start", user_id="dora")
        assert done == [("dora", False)]
        invited = await ask(client, "Invite", user_id="dora")
        assert invited["links"][0].startswith(f"{server.url}/#link=")
        assert datetime.fromisoformat(invited["until"])
        link = invited["links"][0].partition("#link=")[2]
        me = (await theirs.post("/api/login", json={"link": link})).json()
        assert (me["user_id"], me["users"], me["operator"]) == ("dora", ["dora"], False)
        assert me["scopes"] == ["admin", "chat", "memory"]
        safety = "/api/users/{}/safety".format
        mine = (await theirs.get(safety("dora"))).json()
        assert (mine.keys(), mine["week"]["calls"], me["program"]) == ({"tier", "week"}, 0, "")
        assert (await client.get(safety("dora"))).json()["workspace"].endswith("/dora")
        assert (await theirs.post(safety("dora"), json={})).status_code == 412
        for method in ("GET", "POST"):
            assert (await theirs.request(method, safety("alice"))).status_code == 403
        (token,) = (await ask(client, "ListTokens"))["tokens"]
        assert token["name"].startswith("browser-")
        assert token["last_used_at"] is None or datetime.fromisoformat(token["last_used_at"])
        assert token["bearer"].startswith("Whoever has this is dora")
        await ask(client, "RevokeToken", user_id="dora", name=token["name"])
        assert (await theirs.get("/api/me")).status_code == 401


async def test_what_an_agent_can_reach_tells_its_user_nothing_else_of_the_host(
    front: Front, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream = EgressUpstream(name="ollama", url="http://127.0.0.1:1", host_socket="/run/x.sock")
    reach = EgressConfiguration(
        upstreams=[upstream], name_servers=["10.9.8.7"], own_addresses=["10.9.8.7"], user_id="fay"
    )
    host = AsyncMock()
    host.__aenter__.return_value = host
    project = OpenedProject(name="api", path="/srv/api", reason="chown /srv/api", walls=["x"])
    host.status.return_value = StatusReply(tier="container", projects=[project])
    host.get_egress.return_value = GetEgressReply(configuration=reach)
    monkeypatch.setattr(safety, "connect_control", AsyncMock(return_value=host))
    async with page(server) as theirs:
        await theirs.post("/api/login", json={"token": front.access("fay", "laptop").token})
        found = (await theirs.get("/api/users/fay/safety")).json()
        assert found["egress"] == {"upstreams": [{"name": "ollama", "url": "http://127.0.0.1:1"}]}
        assert found["projects"] == [{"name": "api", "walls": ["x"]}]
        audit = front.config.workspace_root / "audit"
        wrong = HostError(Code.FAILED_PRECONDITION, f"{audit} is not a directory")
        monkeypatch.setattr(LogLocation, "check", Mock(side_effect=wrong))
        reply = await theirs.get("/api/users/fay/safety")
        assert (reply.status_code, str(audit) in reply.text) == (503, False)


async def test_who_is_not_let_in_any_more_gets_no_answer(
    front: Front, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asked(*_: object) -> AsyncMock:
        front.tokens.revoke("fay")
        for session in Links.locate(front.config).sessions.iterdir():
            session.unlink()
        return host

    host = AsyncMock()
    host.__aenter__.return_value = host
    host.status.return_value = StatusReply()
    host.get_egress.return_value = GetEgressReply()
    host.check_boundary.return_value = BoundaryReport()
    monkeypatch.setattr(safety, "connect_control", asked)
    monkeypatch.setattr(operator_host, "connect_control", asked)
    monkeypatch.setattr(operator_host, "is_running", Mock(return_value=True))
    for method in ("GET", "POST"):
        async with page(server) as theirs:
            await theirs.post("/api/login", json={"token": front.access("fay", "laptop").token})
            reply = await theirs.request(method, "/api/users/fay/safety", json={})
            assert reply.status_code == 401, reply.text
    async with operator(front, server) as client:
        for url, json in (("users/fay/safety", None), ("host/Status", {"user_id": "alice"})):
            method = "GET" if json is None else "POST"
            reply = await client.request(method, f"/api/{url}", json=json)
            assert reply.status_code == 401, reply.text
    gone = WireError(Code.UNAUTHENTICATED, "gone")
    asking = Caller("fay", frozenset({Scope.METRICS}), "http", ended=lambda: gone)
    numbers = HttpMetrics().page(front.config, lambda _: asking)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(numbers)) as client:
        assert (await client.get("http://127.0.0.1/metrics")).status_code == 401


async def test_a_project_is_opened_by_its_name_in_the_settings_alone(
    front: Front, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = ProjectSettings(path=Path("/srv/api"))
    monkeypatch.setitem(front.config.workspace.projects, "api", api)
    host = AsyncMock()
    host.__aenter__.return_value = host
    host.open_project.return_value = OpenProjectReply(notices=["anew"])
    monkeypatch.setattr(operator_host, "connect_control", AsyncMock(return_value=host))
    async with operator(front, server) as client:
        listed = await ask(client, "ListProjects", user_id="default")
        assert listed == {"projects": [{"name": "api", "path": "/srv/api", "write": False}]}
        opened = await ask(client, "OpenProject", user_id="default", name="api")
        assert opened == {"notices": ["anew"]}
        host.open_project.assert_awaited_once_with(
            "/srv/api", name="api", write=False, hide=(), lift=()
        )
        for more, status in (({"name": "/etc"}, 404), ({"name": "api", "path": "/etc"}, 400)):
            asked = {"user_id": "default", **more}
            reply = await client.post("/api/host/OpenProject", json=asked)
            assert reply.status_code == status, reply.text
        await ask(client, "CloseProject", user_id="default", name="api")
        host.close_project.assert_awaited_once_with("api")


async def test_nobody_is_added_twice_or_under_a_bad_name(front: Front, server: HttpServer) -> None:
    (front.config.workspace_root / "alice").mkdir(mode=0o700, exist_ok=True)
    async with operator(front, server) as client:
        for user_id, status, said in (
            ("alice", 409, "already"),
            ("../x", 400, "a-z, 0-9"),
            ("", 400, "a-z, 0-9"),
        ):
            reply = await client.post("/api/host/AddUser", json={"user_id": user_id})
            assert (reply.status_code, said in reply.text) == (status, True), user_id
        reply = await client.post("/api/host/Invite", json={"user_id": "nobody"})
        assert reply.status_code == 404


async def test_a_removal_says_what_goes_and_what_stays_and_wants_the_name(
    front: Front, server: HttpServer, done: list[object]
) -> None:
    root: Path = front.config.workspace_root
    async with operator(front, server) as client, page(server) as theirs, page(server) as late:
        await ask(client, "AddUser", user_id="erik")
        (root / "erik" / "shared").mkdir(mode=0o700)
        (root / "erik" / "shared" / "report.txt").write_text("of erik")
        front.config.users["erik"] = front.config.for_user("erik")
        first, second = [
            (await ask(client, "Invite", user_id="erik"))["links"][0].partition("#link=")[2]
            for _ in range(2)
        ]
        assert (await theirs.post("/api/login", json={"link": first})).status_code == 401
        await theirs.post("/api/login", json={"link": second})
        pending = (await ask(client, "Invite", user_id="erik"))["links"][0].partition("#link=")[2]
        found = await ask(client, "ListBelongings", user_id="erik")
        assert "files shared with the agent" in [part["what"] for part in found["parts"]]
        assert (found["settings"], len(found["tokens"])) == (True, 1)
        for confirm in ({}, {"confirm": "Erik"}):
            reply = await client.post("/api/host/RemoveUser", json={"user_id": "erik"} | confirm)
            assert (reply.status_code, "erik" in reply.text) == (400, True)
        assert (root / "erik" / "shared" / "report.txt").exists()
        await ask(client, "RemoveUser", user_id="erik", confirm="erik")
        assert not (root / "erik").exists()
        assert done == [{("users", "erik"): None}]
        assert (await theirs.get("/api/me")).status_code == 401
        await ask(client, "AddUser", user_id="erik")
        assert (await late.post("/api/login", json={"link": pending})).status_code == 401
        assert (await ask(client, "ListTokens"))["tokens"] == []


async def test_what_the_operator_does_is_recorded_and_how_it_ended(
    front: Front, server: HttpServer
) -> None:
    (front.config.workspace_root / "alice").mkdir(mode=0o700, exist_ok=True)
    async with operator(front, server) as client:
        made = await ask(client, "CreateToken", user_id="alice", name="phone")
        await client.post("/api/host/RevokeToken", json={"user_id": "alice", "name": "nope"})
        await ask(client, "ListUsers")
    place = LogLocation(front.config.workspace_root / ".serve", "operator")
    text = "".join(file.read_text() for file in place.files())
    lines = [json.loads(line) for line in text.splitlines()]
    acts = [(each["method"], each["asked"]) for each in lines if each["event"] == "operator"]
    assert acts[-2:] == [
        ("CreateToken", {"user_id": "alice", "name": "phone"}),
        ("RevokeToken", {"user_id": "alice", "name": "nope"}),
    ]
    ends = [each["outcome"] for each in lines if each["event"] == "operator-end"]
    assert ends[-2:] == ["ok", "not_found"]
    assert made["secret"] not in text
    assert verify(place).findings == ()


async def test_a_stopped_user_is_shown_with_what_is_due_and_who_starts_the_agent(
    front: Front, server: HttpServer
) -> None:
    (front.config.workspace_root / "edith").mkdir(mode=0o700)
    due = Due(datetime(2026, 11, 30, 7, tzinfo=UTC), problem="the engine is away")
    due.save(front.config, "edith")
    async with operator(front, server) as client:
        shown = await ask(client, "Status", user_id="edith")
        assert shown["state"] == "stopped"
        assert shown["next_due"] == "2026-11-30T07:00:00+00:00"
        assert (shown["started_by"], shown["problem"]) == ("", "the engine is away")
        await ask(client, "RemoveUser", user_id="edith", confirm="edith")
    assert Due.load(front.config, "edith") is None
