"""`runner access` and `runner --connect`, as they are typed."""

import json
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from wire.errors import WireError

from runner.cli.agent import connecting
from runner.cli.options import Options
from runner.client.access import AccessFile
from tests.support.servers.authority import Authority
from tests.unit.runner.cli.conftest import RunCommand


@pytest.fixture
def run(run_command: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunCommand:
    (tmp_path / "ws" / "alice").mkdir(parents=True, mode=0o700)
    (tmp_path / "ws").chmod(0o700)
    monkeypatch.setenv("OXYDRA_ACCESS__LISTEN", "0.0.0.0:7443")
    return run_command


def test_a_token_is_written_once_and_listed_without_its_secret(
    run: RunCommand, tmp_path: Path
) -> None:
    assert run("access", "list").out == "nobody has an access token\n"
    kinds = ("--file", "--header-file", "--access-file")
    files = {option: tmp_path / option[2:] for option in kinds}
    named = [str(word) for each in files.items() for word in each]
    address = ("--address", "host.example:7443")
    made = run("--user", "alice", "access", "create", "laptop", *address, *named)
    assert (made.code, made.out) == (0, "")
    access = json.loads(files["--access-file"].read_text())
    assert files["--file"].read_text() == f"{access['token']}\n"
    assert files["--header-file"].read_text() == f"Authorization: Bearer {access['token']}\n"
    assert {stat.S_IMODE(file.stat().st_mode) for file in files.values()} == {0o600}
    assert access["token"].startswith("oxa_")
    assert (access["address"], access["server_name"]) == ("host.example:7443", "access")
    assert access["certificate"].startswith("-----BEGIN CERTIFICATE-----")
    assert "PRIVATE" not in access["certificate"]
    assert "alice/laptop: chat, memory, until" in made.err
    assert "Whoever has this is alice: they see all conversations" in made.err
    assert access["token"] not in made.err
    listed = run("access", "list")
    assert access["token"] not in listed.out
    assert "never" in listed.out
    (found,) = json.loads(run("access", "list", "--json").out)
    assert (found["scopes"], found["expired"]) == (["chat", "memory"], False)
    assert found["last_used_at"] is None
    not_theirs = run("access", "revoke", "laptop")
    assert "fix: runner --user alice access revoke laptop\n" in not_theirs.err
    assert run("--user", "alice", "access", "revoke", "laptop").code == 0
    gone = run("--user", "alice", "access", "revoke", "laptop")
    assert (gone.code, "alice has no token named laptop" in gone.err) == (1, True)


def test_a_token_that_nobody_could_use_is_not_made(
    run: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = run("--user", "nobody", "access", "create", "laptop")
    assert "there is no user nobody" in unknown.err
    there = tmp_path / "there.json"
    there.write_text("precious")
    taken = run("--user", "alice", "access", "create", "laptop", "--file", str(there))
    assert "is there already" in taken.err
    assert there.read_text() == "precious"
    wrong = run("--user", "alice", "access", "create", "laptop", "--expires", "never")
    assert "12h, 30d or 8w" in wrong.err
    assert run("--user", "alice", "access", "create", "laptop", "--scope", "root").code == 2
    monkeypatch.delenv("OXYDRA_ACCESS__LISTEN")
    access_file = ("--access-file", str(tmp_path / "laptop.json"))
    nowhere = run("--user", "alice", "access", "create", "laptop", *access_file)
    assert "neither [access] socket nor [access] listen is set" in nowhere.err
    assert run("access", "list").out == "nobody has an access token\n"


@pytest.mark.parametrize("listens", [True, False])
def test_the_token_is_shown_alone_whatever_the_settings(
    run: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    if not listens:
        monkeypatch.delenv("OXYDRA_ACCESS__LISTEN")
    made = run("--user", "alice", "access", "create", "phone")
    assert (made.code, made.out[:4], made.out.count("\n")) == (0, "oxa_", 1)
    (tmp_path / "token").write_text(made.out)
    (tmp_path / "token").chmod(0o600)
    wrong = run("--connect", str(tmp_path / "token"), "sessions", "list")
    assert "--access-file FILE" in wrong.err
    assert made.out.strip() not in made.err


def test_a_certificate_of_the_operators_own_is_named_in_the_access_file(
    run: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def access_file(name: str) -> Any:
        file = tmp_path / f"{name}.json"
        run("--user", "alice", "access", "create", name, "--access-file", str(file))
        return json.loads(file.read_text())

    authority = Authority(tmp_path)
    certificate = authority.certificate_for("agents.example")
    monkeypatch.setenv("OXYDRA_ACCESS__CERTIFICATE", str(certificate))
    monkeypatch.setenv("OXYDRA_ACCESS__KEY", str(certificate))
    public = access_file("a")
    assert (public["server_name"], public["certificate"]) == ("agents.example", "")
    (tmp_path / "authority.pem").write_text(authority.pem)
    monkeypatch.setenv("OXYDRA_ACCESS__AUTHORITY", str(tmp_path / "authority.pem"))
    private = access_file("b")
    assert private["certificate"] == authority.pem
    monkeypatch.setenv("OXYDRA_ACCESS__AUTHORITY", str(tmp_path / "nowhere.pem"))
    there = ("--access-file", str(tmp_path / "c.json"))
    lost = run("--user", "alice", "access", "create", "c", *there)
    assert "[access] authority names it" in lost.err
    assert len(json.loads(run("access", "list", "--json").out)) == 2


@pytest.mark.parametrize(
    "address", ["host", "host:port", "https://host:7443", "unix:a.sock", "a b:1"]
)
def test_an_address_that_no_client_could_reach_is_refused(run: RunCommand, address: str) -> None:
    words = ("--user", "alice", "access", "create", "a", "--address", address)
    assert "--address goes with --access-file" in run(*words).err
    refused = run(*words, "--access-file", "a.json")
    assert refused.code == 2
    assert "neither HOST:PORT nor unix:/PATH" in refused.err


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"LISTEN": "7443"}, "an address and a port"),
        ({"CERTIFICATE": "/c.pem"}, "certificate and key go together"),
        ({"AUTHORITY": "/a.pem"}, "authority goes with certificate and key"),
        ({"SOCKET_GROUP": "staff"}, "socket_group goes with socket"),
        ({"SOCKET": "/s", "SOCKET_GROUP": "no group"}, "the name of a group"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    run: RunCommand, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], problem: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"OXYDRA_ACCESS__{name}", value)
    refused = run("access", "list")
    assert refused.code == 1
    assert problem in refused.err
    assert "bad setting access" in refused.err


def test_an_access_file_and_a_user_are_not_named_together(run: RunCommand) -> None:
    both = run("--connect", "laptop.json", "--user", "alice", "sessions", "list")
    assert both.code == 2
    assert "--connect names the user already" in both.err
    missing = run("--connect", "laptop.json", "sessions", "list")
    assert "cannot read the access file laptop.json" in missing.err


def test_who_knows_the_old_command_is_told_the_new_one(run: RunCommand) -> None:
    refused = run("access", "serve")
    assert (refused.code, "fix: runner serve\n" in refused.err) == (1, True)


def test_an_access_file_is_no_way_to_the_host(run: RunCommand) -> None:
    for words in (
        ("status",),
        ("stop",),
        ("users", "list"),
        ("memory", "token"),
        ("access", "list"),
    ):
        refused = run("--connect", "laptop.json", *words)
        assert refused.code == 1
        assert "this needs the account that runs the agent" in refused.err, words


async def test_an_access_file_is_read_once_so_that_it_may_be_a_pipe(tmp_path: Path) -> None:
    file = tmp_path / "laptop.json"
    access = AccessFile(
        address=f"unix:{tmp_path}/a.sock",
        token="oxa_t",
        user_id="alice",
        name="laptop",
        expires_at=datetime.now(UTC),
    )
    file.write_text(access.model_dump_json())
    file.chmod(0o600)
    reach = connecting(Options(connect=file))
    file.unlink()
    for _ in range(2):
        with pytest.raises(WireError, match="nobody answers at unix:"):
            await reach()
