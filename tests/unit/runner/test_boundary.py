"""What the runner asks, and what it makes of answers from a guest that may be hostile."""

import json
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from wire.boundary import CANARY, CHECKS, BoundarySpec, mark_of, marked
from wire.errors import Code, WireError
from wire.status import abort
from wire.transport import new_token
from wire.v1 import control_pb2, shell_pb2, shell_pb2_grpc

from runner.boundary.check import check_boundary, could_not_run, require_passed
from runner.boundary.spec import build_spec, new_canary
from runner.config.models import Config
from runner.errors import TierError
from runner.host.launch import ShellLauncher
from runner.tiers.base import Capabilities, Confinement, LaunchSpec
from runner.workspace.mounts import Role, bind, workspace_directories
from runner.workspace.workspace import Workspace
from tests.support import parties
from tests.support.boundary.probed_guest import ProbedGuest

TOKEN = marked("a-mark-of-its-own", "a-secret-of-some-length")
HOST_CAPABILITIES = Capabilities(tier="process", unsupported={})
HEALTHY = [{"name": name, "passed": True, "details": "fine"} for name in CHECKS]


ENDED = shell_pb2.ExecExit()
BROKEN = shell_pb2.ExecExit(exit_code=1)
_CHUNK_BYTES = 65_536


class AnsweringShell(shell_pb2_grpc.ShellServicer):
    """A shell guest that makes up what the probe wrote and how it ended."""

    def __init__(self, stdout: bytes, stderr: bytes, end: shell_pb2.ExecExit) -> None:
        self.on_start: Callable[[shell_pb2.StartExecRequest], None] = lambda _request: None
        self._stdout = stdout
        self._stderr = stderr
        self._end = end

    async def Hello(
        self, request: shell_pb2.ShellHelloRequest, context: Any
    ) -> shell_pb2.ShellHelloReply:
        return shell_pb2.ShellHelloReply()

    async def Admit(self, request: shell_pb2.AdmitRequest, context: Any) -> shell_pb2.AdmitReply:
        return shell_pb2.AdmitReply()

    async def Start(
        self, request: shell_pb2.StartExecRequest, context: Any
    ) -> shell_pb2.StartExecReply:
        assert request.probe
        assert not request.command
        self.on_start(request)
        return shell_pb2.StartExecReply()

    async def Run(
        self, request: shell_pb2.StartExecRequest, context: Any
    ) -> AsyncIterator[shell_pb2.ExecOutputEvent]:
        yield shell_pb2.ExecOutputEvent(exit=self._end)

    async def Output(
        self, request: shell_pb2.ExecOutputRequest, context: Any
    ) -> AsyncIterator[shell_pb2.ExecOutputEvent]:
        for offset in range(0, len(self._stdout), _CHUNK_BYTES):
            data = self._stdout[offset : offset + _CHUNK_BYTES]
            yield shell_pb2.ExecOutputEvent(stdout=shell_pb2.OutputChunk(offset=offset, data=data))
        yield shell_pb2.ExecOutputEvent(stderr=shell_pb2.OutputChunk(data=self._stderr))
        yield shell_pb2.ExecOutputEvent(exit=self._end)

    async def SetEgress(
        self, request: shell_pb2.SetEgressRequest, context: Any
    ) -> shell_pb2.SetEgressReply:
        return shell_pb2.SetEgressReply()

    async def Extend(
        self, request: shell_pb2.ExtendExecRequest, context: Any
    ) -> shell_pb2.ExtendExecReply:
        return shell_pb2.ExtendExecReply()

    async def Read(
        self, request: shell_pb2.ReadExecRequest, context: Any
    ) -> shell_pb2.ReadExecReply:
        return shell_pb2.ReadExecReply()

    async def Wait(self, request: shell_pb2.WaitExecRequest, context: Any) -> shell_pb2.ExecExit:
        return self._end

    async def Input(
        self, request: shell_pb2.ExecInputRequest, context: Any
    ) -> shell_pb2.ExecInputReply:
        return shell_pb2.ExecInputReply()

    async def Cancel(
        self, request: shell_pb2.CancelExecRequest, context: Any
    ) -> shell_pb2.CancelExecReply:
        return shell_pb2.CancelExecReply()

    async def Release(
        self, request: shell_pb2.ReleaseExecRequest, context: Any
    ) -> shell_pb2.ReleaseExecReply:
        return shell_pb2.ReleaseExecReply()


async def reported_by(shell: AnsweringShell, tmp_path: Path) -> control_pb2.BoundaryReport:
    directory = tempfile.mkdtemp(dir="/tmp", prefix="bs-")
    server = grpc.aio.server()
    shell_pb2_grpc.add_ShellServicer_to_server(shell, server)
    server.add_insecure_port(f"unix:{directory}/shell.sock")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"unix:{directory}/shell.sock") as channel:
            return await check_boundary(channel, ProbedGuest(tmp_path).spec)
    finally:
        await server.stop(0)
        shutil.rmtree(directory)


async def answered(
    tmp_path: Path, answer: str, stderr: str = "", end: shell_pb2.ExecExit = ENDED
) -> control_pb2.BoundaryReport:
    """The report where this is what the probe wrote."""
    shell = AnsweringShell(answer.encode(), stderr.encode(), end)
    return await reported_by(shell, tmp_path)


def failure(report: control_pb2.BoundaryReport) -> str:
    """The only check of a report about a probe that did not work."""
    (check,) = report.checks
    assert (check.name, check.passed, report.passed) == ("probe", False, False)
    return check.details


async def test_a_healthy_answer_passes(tmp_path: Path) -> None:
    report = await answered(tmp_path, json.dumps(HEALTHY))
    assert report.passed
    assert [check.name for check in report.checks] == list(CHECKS)
    assert report.checked_at.endswith("+00:00")
    require_passed(report)


async def test_the_specification_arrives_with_listeners_on_the_host(tmp_path: Path) -> None:
    """Both can be reached here, where nothing is confined."""
    shell = AnsweringShell(json.dumps(HEALTHY).encode(), b"", ENDED)
    asked: list[BoundarySpec] = []

    def connect(request: shell_pb2.StartExecRequest) -> None:
        asked.append(spec := BoundarySpec.from_json(request.stdin))
        socket.create_connection(("127.0.0.1", spec.listener_port)).close()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"\0{spec.listener_name}")

    shell.on_start = connect
    assert (await reported_by(shell, tmp_path)).passed
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("all is well", "it wrote no report"),
        ("{}", "it wrote no report"),
        ("[1]", "it wrote no report"),
        ("[" * 100_000, "it wrote no report"),
        ("", "it wrote no report"),
        ("x" * 1_000_000, "it wrote more than a report"),
        (json.dumps([*HEALTHY, HEALTHY[0]]), "answered twice"),
        (json.dumps([{**HEALTHY[0], "name": "extra"}]), "unknown"),
        (json.dumps([{**HEALTHY[0], "passed": 1}]), "malformed"),
        (json.dumps([{**HEALTHY[0], "details": None}]), "malformed"),
        (json.dumps([{**HEALTHY[0], "name": []}]), "unknown"),
    ],
)
async def test_nonsense_is_a_failed_probe(tmp_path: Path, answer: str, why: str) -> None:
    assert why in failure(await answered(tmp_path, answer))


async def test_a_probe_that_breaks_has_failed_whatever_it_wrote(tmp_path: Path) -> None:
    report = await answered(tmp_path, json.dumps(HEALTHY), "broken", BROKEN)
    assert "it ended with code 1: broken" in failure(report)


async def test_a_check_that_is_not_answered_has_failed(tmp_path: Path) -> None:
    report = await answered(tmp_path, json.dumps(HEALTHY[1:]))
    assert not report.passed
    assert [check.name for check in report.checks if not check.passed] == [CHECKS[0]]


async def test_a_hit_is_passed_on_without_what_a_terminal_would_obey(tmp_path: Path) -> None:
    hostile = {**HEALTHY[0], "passed": False, "details": "\x1b[2J\nfound" + "x" * 5000}
    report = await answered(tmp_path, json.dumps([hostile, *HEALTHY[1:]]))
    assert not report.passed
    assert report.checks[0].details.startswith("\\x1b[2J\\nfound")
    assert len(report.checks[0].details) == 1000


async def test_a_probe_that_hangs_has_failed(tmp_path: Path) -> None:
    report = await answered(tmp_path, "", end=shell_pb2.ExecExit(exit_code=143, timed_out=True))
    assert "no answer within" in failure(report)


async def test_a_guest_without_room_says_so_itself(tmp_path: Path) -> None:
    shell = AnsweringShell(b"", b"", ENDED)

    async def refuse(_: shell_pb2.StartExecRequest, context: Any) -> shell_pb2.StartExecReply:
        error = WireError(Code.RESOURCE_EXHAUSTED, "the disk is full", resolution="make room")
        await abort(context, error)
        raise AssertionError("it was aborted")

    shell.Start = refuse  # type: ignore[method-assign,assignment]
    with pytest.raises(WireError) as raised:
        await reported_by(shell, tmp_path)
    assert (raised.value.brief, raised.value.resolution) == ("the disk is full", "make room")


async def test_only_a_test_that_could_not_run_says_nothing_of_the_boundary(tmp_path: Path) -> None:
    hit = {**HEALTHY[0], "passed": False}
    for answer, expected in (
        ("no report", True),
        (json.dumps([hit, *HEALTHY[1:]]), False),
        (json.dumps(HEALTHY[1:]), False),
    ):
        (place := tmp_path / str(len(answer))).mkdir()
        assert could_not_run(await answered(place, answer)) is expected
    assert not could_not_run(control_pb2.BoundaryReport())


async def test_a_shell_that_does_not_answer_is_a_failed_probe(tmp_path: Path) -> None:
    async with grpc.aio.insecure_channel("unix:/tmp/no-such.sock") as channel:
        report = await check_boundary(channel, ProbedGuest(tmp_path).spec)
    assert failure(report)


def test_hits_stop_the_start() -> None:
    bad = control_pb2.BoundaryCheck(name="mounts", passed=False, details="/vault is mounted")
    good = control_pb2.BoundaryCheck(name="identity", passed=True, details="uid 5")
    with pytest.raises(TierError) as raised:
        require_passed(control_pb2.BoundaryReport(passed=False, checks=[good, bad]))
    assert raised.value.code is Code.FAILED_PRECONDITION
    assert raised.value.details == "mounts: /vault is mounted"
    assert "runner doctor --boundary" in raised.value.resolution


def test_an_empty_report_stops_the_start() -> None:
    with pytest.raises(TierError):
        require_passed(control_pb2.BoundaryReport())


@pytest.fixture
def workspaces(tmp_path: Path) -> Path:
    for user in ("alice", "bob-with-a-name"):
        for directory in ("", *workspace_directories()):
            (tmp_path / "ws" / user / directory).mkdir(parents=True, exist_ok=True)
    (tmp_path / "runtime/bob-with-a-name").mkdir(parents=True)
    (tmp_path / "runtime/bob-with-a-name/control.token").write_text("x")
    (tmp_path / "ws/alice/.oxydra/memory.db").write_text("x")
    return tmp_path / "ws"


def specified(workspaces: Path, **changes: Any) -> BoundarySpec:
    alice = workspaces / "alice"
    launch = LaunchSpec(
        role=Role.SHELL,
        user_id="alice",
        home=alice,
        launch_id="x",
        command=("oxydra-shell-daemon", "--socket", "/ipc/shell.sock"),
        mounts=bind(Role.SHELL, alice),
        environment={},
        envelope=b"",
        log_path=alice / "logs/shell/x",
        working_directory=Path("/shared"),
        owner=(5, 5),
    )
    given = {"tokens": {"the token": TOKEN}, "canary": new_canary(), **changes}
    confinement = Confinement(uid=5, gid=6)
    runtime = workspaces.parent / "runtime"
    return build_spec(launch, confinement, workspace=alice, runtime=runtime, **given)


def test_a_specification_survives_its_way(workspaces: Path) -> None:
    spec = specified(workspaces)
    assert BoundarySpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"uid": 1}', b"\xff"])
def test_what_is_no_specification_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        BoundarySpec.from_json(content)


def test_nothing_helps_to_guess_a_secret_or_names_what_is_private(workspaces: Path) -> None:
    (workspaces / "alice/vault/love-letter.txt").write_text("x")
    spec = specified(workspaces)
    text = spec.to_json().decode()
    assert "a-secret-of-some-length" not in text
    assert "love-letter" not in text
    assert "bob" not in text
    letter = (workspaces / "alice/vault/love-letter.txt").stat().st_ino
    assert letter in {place.inode for place in spec.private}
    assert [mark.text for mark in spec.marks if mark.label != CANARY] == ["a-mark-of-its-own"]


def test_what_is_private_is_named_with_its_numbers(workspaces: Path) -> None:
    spec = specified(workspaces, private=[workspaces / "nothing"])
    found = {place.path.removeprefix(f"{workspaces.parent}/"): place for place in spec.private}
    database = (workspaces / "alice/.oxydra/memory.db").stat()
    nameless = {place[2:]: place.label for place in spec.private if not place.path}
    assert nameless[database.st_dev, database.st_ino] == "a file of .oxydra"
    assert {"ws", "ws/alice", "ws/alice/vault", "ws/alice/ipc", "runtime"} <= found.keys()
    assert {"ws/alice/ipc/agent", "ws/alice/logs/shell"} <= found.keys()
    token = (workspaces.parent / "runtime/bob-with-a-name/control.token").stat()
    assert token.st_ino in {place.inode for place in spec.private if not place.path}
    assert found["ws/nothing"].inode == 0
    assert (
        not {"ws/alice/shared", "ws/alice/tmp", "ws/alice/cache", "ws/alice/ipc/shell"}
        & found.keys()
    )
    bobs = (workspaces / "bob-with-a-name/.oxydra").stat()
    assert (bobs.st_dev, bobs.st_ino) in spec.other_users


def test_the_record_of_tool_calls_is_private_with_its_files(workspaces: Path) -> None:
    records = workspaces / ".audit" / "alice"
    records.mkdir(parents=True)
    (records / "head.json").write_text("{}")
    private = specified(workspaces, records=records).private
    inodes = {place.inode: place.label for place in private}
    assert inodes[records.stat().st_ino] == "the record of tool calls"
    assert "record of tool calls" in inodes[(records / "head.json").stat().st_ino]


def test_what_was_mounted_is_compared_with_what_was_checked_before(workspaces: Path) -> None:
    """The attack: a directory is replaced after the check, and is still there at the self-test."""
    shell = ShellLauncher(
        Config(), Workspace(workspaces, "alice"), HOST_CAPABILITIES, parties.AUTHORITY
    )
    launch = shell.prepare().spec
    meant = (workspaces / "alice/shared").stat()
    (workspaces / "alice/shared").rename(workspaces / "alice/away")
    (workspaces / "bob-with-a-name/shared").rename(workspaces / "alice/shared")
    spec = build_spec(
        launch,
        Confinement(uid=5, gid=6),
        workspace=workspaces / "alice",
        runtime=workspaces.parent / "runtime",
        tokens={},
    )
    (shared,) = (each for each in spec.shared if each.virtual == "/shared")
    assert (shared.device, shared.inode) == (meant.st_dev, meant.st_ino)


def test_where_a_link_of_an_agent_leads_is_not_private(workspaces: Path) -> None:
    """The attack: a link beside the memory declares a file that every shell guest may see to be
    private, so that no shell is ever started again."""
    (workspaces / "alice/shared/known.txt").write_text("x")
    link = workspaces / "alice/.oxydra/link"
    link.symlink_to("../shared/known.txt")
    (workspaces / "alice/.oxydra/other").symlink_to("/usr/bin/env")
    private = {place[2:] for place in specified(workspaces).private}
    for seen in (workspaces / "alice/shared/known.txt", Path("/usr/bin/env")):
        assert (seen.stat().st_dev, seen.stat().st_ino) not in private
    assert (link.lstat().st_dev, link.lstat().st_ino) in private


def test_what_has_no_mark_is_not_looked_for(workspaces: Path) -> None:
    """A key of a provider is never told, in whatever form; the canary stands for it."""
    token = new_token()
    spec = specified(workspaces, tokens={"a key": "hunter2", "long": token}, canary="")
    assert [(mark.label, mark.text) for mark in spec.marks] == [("long", mark_of(token))]
    labels = [mark.label for mark in specified(workspaces).marks]
    assert labels == ["the token", CANARY]
