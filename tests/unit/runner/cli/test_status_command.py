"""`runner status`: its exit code, and fixes for the options that were given; what `stop` says
of what is due."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from wire.v1 import control_pb2

from runner.cli.operation import lifecycle, status
from runner.cli.options import Options
from runner.host.awake import Due


class Control:
    """The connection to a host that answers `reply`."""

    def __init__(self, reply: control_pb2.StatusReply) -> None:
        self._reply = reply

    async def __aenter__(self) -> "Control":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def status(self) -> control_pb2.StatusReply:
        return self._reply

    async def stop(self) -> None:
        pass


@pytest.mark.parametrize(
    ("state", "passed", "code"),
    [
        ("ready", True, 0),
        ("starting", True, 0),
        ("disabled", True, 0),
        ("unhealthy", True, 0),
        ("backing_off", True, 1),
        ("failed", True, 1),
        ("ready", False, 1),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
async def test_a_guest_that_does_not_work_is_an_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    state: str,
    passed: bool,
    code: int,
    as_json: bool,
) -> None:
    fix = "fix: runner restart"
    guest = control_pb2.GuestStatus(role="agent", state=state, reason=fix)
    reply = control_pb2.StatusReply(
        user_id="alice",
        guests=[guest],
        boundary=control_pb2.BoundaryReport(passed=passed),
        notices=["see runner doctor"],
    )

    async def connect(*_: object) -> Control:
        return Control(reply)

    monkeypatch.setattr(status, "connect_if_running", connect)
    (file := tmp_path / "my.toml").write_text("")
    options = Options(config_file=file, user_id="alice", insecure=True)
    assert await status.show_status(options, json=as_json) == code
    if not as_json:
        shown = " ".join(capsys.readouterr().out.split())
        assert f"runner --config {file} --user alice restart" in shown
        assert f"runner --insecure --config {file} --user alice doctor" in shown


@pytest.mark.parametrize("waker", ["", "runner serve"])
async def test_to_keep_it_stopped_is_offered_where_somebody_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], waker: str
) -> None:
    async def connect(*_: object) -> Control:
        return Control(control_pb2.StatusReply())

    monkeypatch.setattr(lifecycle, "connect_if_running", connect)
    for module in (lifecycle, status):
        monkeypatch.setattr(module, "waker_of", lambda _: waker)
    (file := tmp_path / "my.toml").write_text(f'workspace_root = "{tmp_path}/users"\n')
    options = Options(config_file=file, user_id="alice")
    Due(datetime.now(UTC) + timedelta(hours=1)).save(options.load(), "alice")
    await lifecycle.stop(options)
    shown = capsys.readouterr().out
    assert shown.startswith("stopped\ndue next: ")
    assert f"{waker or 'nobody'} starts the agent for it" in shown
    assert ("--for-good" in shown) is bool(waker)
