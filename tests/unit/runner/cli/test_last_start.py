"""What commands know of how a host was started last: its tier, for fixes, and its embedder."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.cli.agent import start_command
from runner.cli.operation.doctor import show_examination
from runner.cli.operation.logs import show_log
from runner.cli.options import Options
from runner.config.models import Config
from runner.errors import WorkspaceError
from runner.host.runtime import LastStart, Runtime
from tests.support.scratch import SCRATCH


@pytest.fixture
def config() -> Iterator[Config]:
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="last-") as directory:
        yield Config(workspace_root=Path(directory, "w"), runtime_dir=Path(directory, "r"))


@pytest.fixture
def runtime(config: Config) -> Runtime:
    runtime = Runtime.locate(config, "alice")
    runtime.create()
    return runtime


@pytest.mark.parametrize(
    ("last", "options", "fix"),
    [
        ("process", Options(), "runner --insecure --user alice start --detach"),
        ("container", Options(), "runner --user alice start --detach"),
        ("micro_vm", Options(), "runner --user alice --tier micro_vm start --detach"),
        (
            "process",
            Options(tier="container"),
            "runner --user alice --tier container start --detach",
        ),
        ("container", Options(insecure=True), "runner --insecure --user alice start --detach"),
    ],
)
def test_a_fix_starts_the_tier_that_was_used_last(
    config: Config, runtime: Runtime, last: str, options: Options, fix: str
) -> None:
    LastStart(last, Path("/e")).save(runtime)
    given = Options(user_id="alice", tier=options.tier, insecure=options.insecure)
    assert start_command(given, config) == fix


def test_the_doctor_examines_the_tier_that_was_used_last(
    config: Config,
    runtime: Runtime,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    LastStart("process", Path("/e")).save(runtime)
    monkeypatch.setenv("OXYDRA_WORKSPACE_ROOT", str(config.workspace_root))
    monkeypatch.setenv("OXYDRA_RUNTIME_DIR", str(runtime.base))
    show_examination(Options(user_id="alice"), json=True)
    assert "process tier, user alice" in capsys.readouterr().out


def test_the_doctor_examines_the_settings_where_the_last_start_is_not_believed(
    config: Config,
    runtime: Runtime,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runtime.base.chmod(0o777)
    monkeypatch.setenv("OXYDRA_WORKSPACE_ROOT", str(config.workspace_root))
    monkeypatch.setenv("OXYDRA_RUNTIME_DIR", str(runtime.base))
    monkeypatch.setenv("OXYDRA_TIER", "process")
    show_examination(Options(user_id="alice"), json=True)
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
    assert found["configuration"]["what"] == "process tier, user alice"
    assert found["runtime directory"]["state"] == "problem"


@pytest.mark.parametrize(
    "content", [None, "", "[]", '{"tier": 1}', '{"tier": "gone", "embedder": "/e"}', "\0"]
)
def test_without_a_last_start_a_fix_starts_the_tier_of_the_settings(
    config: Config, runtime: Runtime, content: str | None
) -> None:
    if content is not None:
        runtime.last_start.write_text(content)
    alice = Options(user_id="alice")
    assert start_command(alice, config) == "runner --user alice start --detach"
    insecure = config.model_copy(update={"tier": "process"})
    assert start_command(alice, insecure) == "runner --insecure --user alice start --detach"


def test_what_another_account_could_have_written_is_not_believed(
    config: Config, runtime: Runtime
) -> None:
    LastStart("process", Path("/e")).save(runtime)
    runtime.base.chmod(0o777)
    with pytest.raises(WorkspaceError):
        start_command(Options(user_id="alice"), config)


def test_the_embedders_log_is_that_of_the_embedder_which_the_host_uses(
    config: Config,
    runtime: Runtime,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also where the command is not told the tier that it was started in."""
    home = runtime.base / "embedder-of-alice"
    (home / "state").mkdir(parents=True, mode=0o700)
    (home / "state" / "embedder.log").write_text("loading the model\n")
    LastStart("process", home).save(runtime)
    monkeypatch.setenv("OXYDRA_WORKSPACE_ROOT", str(config.workspace_root))
    monkeypatch.setenv("OXYDRA_RUNTIME_DIR", str(runtime.base))
    options = Options(user_id="alice")
    show_log(options, "embedder", 10, since="", follow=False, as_json=False)
    assert "loading the model" in capsys.readouterr().out
