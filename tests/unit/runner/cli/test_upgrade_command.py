"""`runner upgrade --check`, with hosts and an engine that only pretend."""

import json
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from wire.errors import Code, WireError
from wire.v1 import control_pb2

from runner.cli.setup import upgrade as module
from tests.unit.runner.cli.conftest import RunCommand

NOW = version("oxydra")


class Control:
    def __init__(self, version: str) -> None:
        self.version = version

    async def __aenter__(self) -> "Control":
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def status(self) -> control_pb2.StatusReply:
        return control_pb2.StatusReply(version=self.version)


class Docker:
    """Has an agent image of this version, an older one, and a container of that."""

    def inspect_image(self, name: str) -> dict[str, Any]:
        if name != f"oxydra-agent:{NOW}":
            from docker.errors import ImageNotFound

            raise ImageNotFound(name)
        return {"Id": "sha256:new", "Size": 1}

    def images(self) -> list[dict[str, Any]]:
        return [
            {"Id": "sha256:old", "RepoTags": ["oxydra-agent:0.0.1", "other:0.0.1"], "Size": 1},
            {"Id": "sha256:new", "RepoTags": [f"oxydra-agent:{NOW}"], "Size": 1},
        ]

    def containers(self, **_: object) -> list[dict[str, Any]]:
        labels = {"oxydra.version": "0.0.1"}
        return [{"ImageID": "sha256:old", "Names": ["/oxydra-1-agent"], "Labels": labels}]


@pytest.fixture
def hosts(
    run_command: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """The versions of the hosts that run, by user. There is no engine."""
    running: dict[str, str] = {}
    for user in ("alice", "bob"):
        (tmp_path / "ws" / user).mkdir(parents=True)

    async def connect_if_running(_: object, user_id: str) -> Control | None:
        return Control(running[user_id]) if user_id in running else None

    async def no_agent(*_: object, **__: object) -> None:
        raise WireError(Code.UNAVAILABLE, "no agent")

    monkeypatch.setattr(module, "connect_if_running", connect_if_running)
    monkeypatch.setattr(module, "connect_agent", no_agent)
    monkeypatch.setenv("OXYDRA_CONTAINER__ENGINE", "unix:///nowhere/engine.sock")
    return running


def test_a_host_of_another_version_is_to_be_started_again(
    hosts: dict[str, str], run_command: RunCommand
) -> None:
    hosts.update(alice=NOW, bob="0.0.9")
    done = run_command("upgrade", "--check", "--insecure", "--json")
    assert done.code == 1
    found = {each["what"]: each for each in json.loads(done.out)["found"]}
    assert found["host of alice"]["todo"] == ""
    assert found["host of bob"]["version"] == "0.0.9"
    todo = "runner --user bob stop && runner --insecure --user bob start --detach"
    assert found["host of bob"]["todo"] == todo


def test_where_all_is_of_one_version_nothing_is_to_be_done(
    hosts: dict[str, str], run_command: RunCommand
) -> None:
    hosts.update(alice=NOW)
    done = run_command("upgrade", "--check", "--insecure")
    assert done.code == 0, done.err
    assert f"installed: oxydra {NOW}" in done.out
    assert "nothing is of another version" in done.out


def test_images_and_containers_are_compared(
    hosts: dict[str, str], run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Engine:
        def __init__(self, _: str) -> None: ...

        @contextmanager
        def client(self) -> Any:
            yield Docker()

    monkeypatch.setattr(module, "Engine", Engine)
    done = run_command("upgrade", "--check", "--json")
    assert done.code == 1
    found = {
        each["what"]: (each["version"], each["todo"]) for each in json.loads(done.out)["found"]
    }
    assert found == {
        "image oxydra-agent": (NOW, ""),
        "image oxydra-shell": ("", "runner images build"),
        "image oxydra-embedder": ("", "runner images build"),
        "image oxydra-egress": ("", "runner images build"),
        "image oxydra-agent:0.0.1": ("0.0.1", "runner images prune"),
        "container oxydra-1-agent": ("0.0.1", "stop and start the host that runs it"),
    }


def test_an_engine_that_is_needed_and_not_there_is_said(
    hosts: dict[str, str], run_command: RunCommand
) -> None:
    done = run_command("upgrade", "--check")
    assert done.code == 1
    assert "container engine" in done.out


def test_nothing_is_upgraded_by_itself(hosts: dict[str, str], run_command: RunCommand) -> None:
    done = run_command("upgrade")
    assert done.code == 1
    assert "changes nothing by itself" in done.err
