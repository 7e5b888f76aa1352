"""`runner users`, on directories that a host would have made."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from runner.access.scopes import Scope
from runner.access.tokens import Tokens
from runner.host.runtime import LastStart, Runtime, host_lock
from runner.tiers.kubernetes import leadership
from runner.tiers.kubernetes.settings import KubernetesSettings
from runner.workspace.workspace import Workspace
from tests.support.settings import load_config
from tests.unit.runner.cli.conftest import RunCommand


@pytest.fixture
def workspaces(run_command: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Workspaces of alice and bob, as the process tier leaves them."""
    monkeypatch.setenv("OXYDRA_RUNTIME_DIR", str(tmp_path / "r"))
    config = load_config(overrides={"--tier": "process"})
    for user in ("alice", "bob"):
        Workspace.locate(config, user).provision()
        runtime = Runtime.locate(config, user)
        runtime.create()
        LastStart("process", tmp_path / "e").save(runtime)
        closed = config.workspace_root / user / "shared" / "closed"
        closed.mkdir()
        (closed / "file").write_bytes(b"x" * 5000)
        (closed / "link").symlink_to(tmp_path / "kept")
        closed.chmod(0)
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("not a user's")
    return config.workspace_root


def users(run_command: RunCommand) -> list[str]:
    return [user["user_id"] for user in json.loads(run_command("users", "list", "--json").out)]


def test_a_user_is_removed_with_everything_once_it_is_agreed(
    workspaces: Path, run_command: RunCommand, tmp_path: Path
) -> None:
    refused = run_command("users", "remove", "alice", typed="n\n")
    assert refused.code == 1
    assert users(run_command) == ["alice", "bob"]
    done = run_command("users", "remove", "alice", typed="y\n")
    assert done.code == 0, done.err
    assert str(workspaces / "alice" / ".oxydra") in done.out
    assert str(tmp_path / "r") in done.out
    assert users(run_command) == ["bob"]
    assert [path for path in tmp_path.rglob("*") if "alice" in path.name] == []
    assert (tmp_path / "kept" / "file").read_text() == "not a user's"
    assert (workspaces / "bob" / "shared" / "closed").exists()


def test_a_replica_that_waits_does_not_call_the_users_of_the_other_one_stopped(
    workspaces: Path, run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert workspaces.is_dir()

    async def elsewhere(_: KubernetesSettings) -> tuple[str, str]:
        return "agents", "oxydra-runner-1"

    monkeypatch.setattr(leadership, "active_elsewhere", elsewhere)
    refused = run_command("--tier", "kubernetes", "users", "list")
    assert refused.code == 1
    assert "oxydra-runner-1 is the active runner of agents" in refused.err
    runtime = Runtime.locate(load_config(overrides={"--tier": "kubernetes"}), "alice")
    runtime.create()
    with host_lock(runtime.lock):
        assert "running" in run_command("--tier", "kubernetes", "users", "list").out


def test_without_a_terminal_only_yes_removes(workspaces: Path, run_command: RunCommand) -> None:
    done = run_command("users", "remove", "alice")
    assert done.code == 1
    assert "fix: runner users remove alice --yes" in done.err
    assert run_command("users", "remove", "alice", "--yes").code == 0
    assert users(run_command) == ["bob"]


def test_a_user_whose_agent_runs_is_not_removed(workspaces: Path, run_command: RunCommand) -> None:
    runtime = Runtime.locate(load_config(), "alice")
    with host_lock(runtime.lock):
        done = run_command("users", "remove", "alice", "--yes")
    assert done.code == 1
    assert "the agent of user alice runs" in done.err
    assert "runner users remove alice --stop" in done.err
    assert users(run_command) == ["alice", "bob"]


def test_nobody_is_left_with_a_way_to_a_later_user_of_that_name(
    workspaces: Path, run_command: RunCommand
) -> None:
    tokens = Tokens.locate(load_config())
    for user in ("alice", "bob"):
        tokens.create(user, "laptop", frozenset([Scope.CHAT]), timedelta(days=1))
    done = run_command("users", "remove", "alice", "--yes")
    assert "access token laptop" in done.out
    assert [token.user_id for token in tokens.all()] == ["bob"]


def test_what_stays_is_named(
    workspaces: Path, run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("runner.toml").write_text(
        '[users.alice.memory]\nremote_url = "https://{user_id}.db.example"'
    )
    done = run_command("users", "remove", "alice", "--yes")
    assert done.code == 0, done.err
    assert "the memory on https://alice.db.example stays" in done.out
    assert "section [users.alice]" in done.out


def test_a_user_who_is_not_there_is_said(workspaces: Path, run_command: RunCommand) -> None:
    done = run_command("users", "remove", "carol", "--yes")
    assert done.code == 1
    assert "there is no user carol" in done.err
