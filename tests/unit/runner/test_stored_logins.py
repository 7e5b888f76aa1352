"""Logins in files: who reads them, what takes whose place, and what egress is given."""

import shutil
from pathlib import Path

import pytest
from wire.envelope import Secrets
from wire.settings import UserSettings
from wire.v1.egress_pb2 import EgressLogin, EgressRenewed

from runner.egress.configuration import upstreams
from runner.errors import ConfigError
from runner.workspace import logins

URL = "https://mcp.example.org/mcp"


def login(**changed: object) -> EgressLogin:
    whole = {"id": "a", "url": URL, "access_token": "t", "token_url": "https://as.example.net/t"}
    return EgressLogin(**{**whole, **changed})  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "oxydra" / "logins"


def renewed(upstream: str = "mcp-docs", **changed: object) -> EgressRenewed:
    return EgressRenewed(upstream=upstream, login=login(**changed))


def test_a_login_is_in_a_file_that_nobody_else_can_read(directory: Path) -> None:
    logins.write("ann", "docs", login())
    assert logins.read("ann", "docs") == login()
    assert logins.read("bob", "docs") is None
    (stored,) = directory.iterdir()
    assert (directory.stat().st_mode & 0o777, stored.stat().st_mode & 0o777) == (0o700, 0o600)
    stored.chmod(0o644)
    with pytest.raises(ConfigError, match="others can read the key file"):
        logins.read("ann", "docs")


def test_what_is_no_login_says_how_to_get_one(directory: Path) -> None:
    logins.write("ann", "docs", login())
    (directory / "ann@docs").write_text("{")
    with pytest.raises(ConfigError) as refused:
        logins.read("ann", "docs")
    assert refused.value.resolution == "runner tools login docs"
    assert logins.kept("ann") == {"docs"}
    assert not logins.forget("ann", "d" * 300)
    assert not logins.forget("ann", "*")
    assert logins.forget("ann", "docs")
    assert logins.kept("ann") == set()


def test_a_renewed_login_takes_the_place_of_its_own_older_one_alone() -> None:
    logins.renew("ann", renewed(renewals=1))
    assert logins.read("ann", "docs") is None
    logins.write("ann", "docs", login(renewals=2))
    for late in (renewed(renewals=1), renewed(renewals=2), renewed(renewals=3, id="b")):
        logins.renew("ann", late)
        assert logins.read("ann", "docs") == login(renewals=2)
    logins.renew("ann", renewed(renewals=3))
    assert logins.read("ann", "docs") == login(renewals=3)


def test_a_guest_chooses_no_path(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    logins.write("ann", "docs", login())
    other = Path(shutil.copy2(directory / "ann@docs", directory.parent / "docs"))
    assert other.stat().st_mode & 0o777 == 0o600
    before = {path: path.read_bytes() for path in directory.parent.rglob("*") if path.is_file()}
    (directory / "ann@x").mkdir()
    logins.renew("ann", renewed("mcp-x/../../docs", renewals=9))
    (directory / "ann@x").rmdir()
    (directory / "ann@docs").chmod(0o644)
    logins.renew("ann", renewed(renewals=9))
    assert "a renewed login is not kept" in caplog.text
    assert before == {p: p.read_bytes() for p in directory.parent.rglob("*") if p.is_file()}


def test_a_user_who_is_forgotten_has_none() -> None:
    for user, server in (("ann", "docs"), ("ann", "more"), ("anna", "docs")):
        logins.write(user, server, login())
    logins.forget("ann", "docs")
    assert (logins.read("ann", "docs"), logins.read("ann", "more")) == (None, login())
    logins.forget("ann")
    assert (logins.read("ann", "more"), logins.read("anna", "docs")) == (None, login())


def test_egress_gets_the_login_of_the_address_of_now() -> None:
    logins.write("ann", "docs", login())

    def given(url: str, *, reads: bool = True) -> dict[str, str]:
        settings = UserSettings.model_validate({"mcp": {"servers": {"docs": {"url": url}}}})
        found = upstreams(settings, "ann", Secrets(), reads=reads)
        return {each.name: each.login.access_token for each in found if "docs" in each.name}

    assert given(URL) == {"mcp-docs": "t", "mcp-docs.login": ""}
    assert given("https://mcp.example.org/other") == {"mcp-docs": ""}
    assert given(URL, reads=False) == {"mcp-docs": ""}
