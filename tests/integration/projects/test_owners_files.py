"""Whose the files of a project are that agent and commands write, and what they cannot read."""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from wire.v1 import gateway_pb2 as pb

from runner.client.gateway import GatewayClient, new_turn_id
from runner.config.models import Config
from runner.host.host import Host
from runner.host.removal import remove
from runner.testing import UserPair
from tests.support.tiers import every_tier

OWNER = 1000
HASHING = {"backend": "hashing"}
RUNTIME = {"micro_vm": {"runtime": "runsc"}}


class Work:
    """A directory of another account's that is the project `work` of a user."""

    def __init__(self, root: Path, tier: str) -> None:
        self.path = root / "work"
        self.path.mkdir()
        (self.path / "deep").mkdir()
        self.make(".env", "secret")
        self.make("deep/key", "secret")
        self.make("script", "#!/bin/sh\r\necho\r\n", 0o750)
        self.make("two\nlines and blank", "x", 0o600)
        (self.path / "link").symlink_to("script")
        os.chown(self.path / "link", OWNER, OWNER, follow_symlinks=False)
        for path in (self.path, self.path / "deep"):
            path.chmod(0o755)
            os.chown(path, OWNER, OWNER)
        project = {"path": self.path, "write": True, "hide": [".env", "deep/key"]}
        self.settings: dict[str, Any] = {
            "tier": tier,
            "container": RUNTIME.get(tier, {}),
            "workspace": {"projects": {"work": project}},
        }
        self.pair = UserPair(root=root / "oxydra", **self.settings)

    def make(self, name: str, content: str, mode: int = 0o640) -> Path:
        path = self.path / name
        path.write_bytes(content.encode())
        path.chmod(mode)
        os.chown(path, OWNER, OWNER)
        return path

    def save(self, name: str, content: str) -> None:
        """As an editor does."""
        self.make(f"{name}.new", content).rename(self.path / name)

    def run(self, command: str) -> str:
        return self.pair.call_tool("shell_exec", {"command": command}).text

    def listed(self) -> dict[str, tuple[int, ...]]:
        found = dict[str, tuple[int, ...]]()
        for path in (self.path, *self.path.rglob("*")):
            seen = path.lstat()
            found[str(path.relative_to(self.path))] = (
                *(seen.st_uid, seen.st_gid, seen.st_mode, seen.st_ino),
                *(seen.st_mtime_ns, seen.st_nlink, seen.st_size),
            )
        return found


@pytest.fixture(params=every_tier("projects_owner", pytest.mark.root))
def work(request: pytest.FixtureRequest) -> Iterator[Work]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oxo-") as root:
        made = Work(Path(root), request.param)
        before = made.listed()
        with made.pair:
            assert made.listed() == before
            yield made
        assert "oxo-" not in Path("/proc/self/mountinfo").read_text()


def test_what_agent_and_commands_write_is_the_owners(work: Work) -> None:
    before = work.listed()
    assert not [each for each in work.pair.status().notices if "project" in each]
    said = work.run("cd /projects/work && echo a > made && mkdir dir && echo >> script && ls -ln")
    assert (work.path / "made").exists(), said
    for name in ("file", "script2"):
        work.pair.call_tool("file_write", {"path": f"/projects/work/{name}", "content": "x"})
    arguments = {"path": "/projects/work/new/way/in", "content": "x", "create_parents": True}
    work.pair.call_tool("file_write", arguments)
    arguments = {"path": "/projects/work/script", "old": "echo", "new": "true"}
    assert not work.pair.call_tool("file_edit", arguments).is_error
    found = work.listed()
    assert {each[:2] for each in found.values()} == {(OWNER, OWNER)}
    names = ("made", "dir", "file", "new/way", "new/way/in", "script")
    assert [oct(found[name][2] & 0o777) for name in names] == (
        ["0o644", "0o755", "0o644", "0o755", "0o644", "0o750"]
    )
    assert (work.path / "script").read_bytes() == b"#!/bin/sh\r\ntrue\r\n\n"
    for name in ("link", "two\nlines and blank", ".env", "deep/key"):
        assert found[name] == before[name]


def test_what_a_turn_changed_is_told_and_taken_back(work: Work) -> None:
    before = work.listed()

    async def asked(*commands: str, **undo: Any) -> tuple[pb.FileChanges, pb.UndoFilesReply]:
        async with await GatewayClient.open(work.pair.gateway(), channel_name="t") as agent:
            session = (await agent.create_session()).session_id
            files = pb.FileChanges()
            for command in commands:
                async for event in agent.run_turn(session, command, new_turn_id()):
                    files = event.completed.files if event.HasField("completed") else files
            return files, await agent.undo_files(session, **undo)

    hostile = "cd /projects/work && rm script link && echo x > made && mkdir n && ln -s /etc n/out"
    hostile += " && chmod 600 deep && echo y >> 'two\nlines and blank' ; git init -q n/r; true"
    files, undone = asyncio.run(asked(f"run {hostile}", asked=True))
    told = {each.path.removeprefix("/projects/work/"): each.kind for each in files.changes}
    assert files.uncounted == ""
    assert told.items() >= {"script": "deleted", "link": "deleted", "made": "added"}.items()
    assert not [each for each in told if ".git" in each or "key" in each or ".env" in each]
    assert not undone.asks, undone
    found = work.listed()
    (work.path / "deep").chmod(0o755)
    for name in ("script", "link", "two\nlines and blank"):
        assert found[name][:3] == before[name][:3], name
    assert "made" not in found
    assert (work.path / "script").read_bytes() == b"#!/bin/sh\r\necho\r\n"


KILLED = """
import asyncio, os, sys
from runner.config.models import Config
from runner.host.host import Host

async def main():
    host = Host(Config.model_validate_json(sys.argv[1]), "alice")
    await host.start()
    os._exit(9)

asyncio.run(main())
"""


@pytest.mark.parametrize("tier", every_tier("projects_owner", pytest.mark.root))
async def test_nothing_that_the_runner_does_touches_it(tier: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oxo-") as root:
        work = Work(Path(root), tier)
        before = work.listed()
        places = {"workspace_root": f"{root}/w", "runtime_dir": f"{root}/r"}
        config = Config.model_validate({**places, "embedder": HASHING, **work.settings})
        given = config.model_dump_json(exclude_defaults=True)
        killed = [sys.executable, "-c", KILLED, given]
        done = subprocess.run(killed, check=False, capture_output=True, text=True)
        assert done.returncode == 9, done.stderr
        assert f"{root}/r" in Path("/proc/self/mountinfo").read_text()
        async with Host(config, "alice") as host:
            assert work.listed() == before
            assert (await host.check_boundary()).passed
            await host.restart()
            async with await GatewayClient.open(await host.gateway(), channel_name="t") as agent:
                await agent.back_up_memory()
            assert work.listed() == before
        assert f"{root}/r" not in Path("/proc/self/mountinfo").read_text()
        subprocess.run([*killed], check=False, capture_output=True)
        await remove(config, "alice")
        assert work.listed() == before
        assert not (Path(root) / "w/alice").exists()


def test_nobody_reads_what_is_hidden(work: Work) -> None:
    for command in (
        "cat .env deep/key",
        "mv deep d2; cat d2/key",
        "mv .env e; cat e",
        "rm .env; cat .env",
        "ln .env e; cat e",
        "cp -r . /tmp/copy; cat /tmp/copy/.env /tmp/copy/deep/key",
        "grep -r secret .",
    ):
        assert "secret" not in work.run(f"cd /projects/work; {command}"), command
    for name in (".env", "deep/key"):
        assert work.pair.call_tool("file_read", {"path": f"/projects/work/{name}"}).is_error
    found = work.pair.call_tool("file_search", {"path": "/projects/work", "query": "secret"})
    assert "key:" not in found.text
    assert (work.path / ".env").read_text() == "secret"


@pytest.mark.parametrize("name", [".env", "deep/key"])
def test_a_file_that_is_saved_by_renaming_stays_hidden(work: Work, name: str) -> None:
    work.run("nohup sleep 1000 >/dev/null 2>&1 &")
    work.save(name, "secret again")
    deadline = time.monotonic() + 120
    while not any(guest.restarts for guest in work.pair.status().guests):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    said = ""
    while "there" not in said:
        said = work.run(f"cat /projects/work/{name}; pgrep sleep; echo there")
        assert "secret" not in said
        assert time.monotonic() < deadline
    (shell,) = (guest for guest in work.pair.status().guests if guest.restarts)
    assert shell.role == "shell"
    assert f"{name} in the project work was replaced" in shell.last_end
    assert (work.path / name).read_text() == "secret again"
