"""Settings that are tables with names of the operator's own: from every layer, and as they are
shown."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from wire.settings import is_free

from runner.config.models import Config
from runner.config.positions import lines_of
from runner.errors import ConfigError
from tests.support.settings import load_config
from tests.unit.runner.cli.conftest import RunCommand

FILE = """\
[mcp.servers.git]
command = "git-mcp"
env = { LOG_LEVEL = "debug" }
[mcp.servers.git.secret_env]
GITHUB_TOKEN = "MY_TOKEN"
Mixed__Name = "MY_OTHER"
[mcp.servers.git.credentials.forge]
env = "GH"
variable = "FORGE"
hosts = ["api.github.com"]
[mcp.servers.docs]
url = "https://docs.example/mcp"
headers_env.Authorization = "DOCS_AUTHORIZATION"
headers_env."X-Key" = "DOCS_KEY"
[agent.prices."openai:gpt-4.1"]
input = 2
output = 8
[egress.credentials.gh]
env = "GH"
variable = "GH_TOKEN"
hosts = ["api.github.com"]
[workspace.projects.api]
path = "/srv/api"
hide = [".env"]
[users.alice.mcp.servers.git.env]
LOG_LEVEL = "info"
MORE = "1"
"""
GIT = {"LOG_LEVEL": "debug"}
SECRETS = {"GITHUB_TOKEN": "MY_TOKEN", "Mixed__Name": "MY_OTHER"}
HEADERS = {"Authorization": "DOCS_AUTHORIZATION", "X-Key": "DOCS_KEY"}


@pytest.fixture(autouse=True)
def in_place(
    run_command: RunCommand,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OXYDRA_CONFIG", raising=False)


def tables(model: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[tuple[str, FieldInfo]]:
    """Every setting that is a table, with `*` for a name that is free."""
    for name, field in model.model_fields.items():
        inner, key = field.annotation, (*above, name)
        if get_origin(inner) is dict:
            yield ".".join(key), field
            inner, key = get_args(inner)[1], (*key, "*")
        if isinstance(inner, type) and issubclass(inner, BaseModel) and above != ("users",):
            yield from tables(inner, key)


def test_the_file_of_this_test_has_every_such_table() -> None:
    given = [key for key in lines_of(FILE) if key[0] != "users"]
    for name, field in tables(Config):
        parts = name.split(".")
        if parts[0] == "users":
            continue
        assert any(
            len(key) > len(parts)
            and all(part in ("*", own) for part, own in zip(parts, key, strict=False))
            for key in given
        ), name
        assert is_free(field) == (name.endswith("env")), name


def test_they_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "runner.toml"
    file.write_text(FILE)
    config = load_config(file, environ={})
    servers = config.mcp.servers
    assert (servers["git"].env, servers["git"].secret_env) == (GIT, SECRETS)
    assert servers["docs"].headers_env == HEADERS
    assert config.agent.prices["openai:gpt-4.1"].output == 8
    assert config.egress.credentials["gh"].variable == "GH_TOKEN"
    own = config.for_user("alice").mcp.servers["git"]
    assert (own.env, own.secret_env) == ({"LOG_LEVEL": "info", "MORE": "1"}, SECRETS)


def test_they_come_from_the_environment_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "runner.toml"
    file.write_text(FILE)
    config = load_config(
        file,
        environ={
            "OXYDRA_MCP__SERVERS__GIT__ENV__LOG_LEVEL": "error",
            "OXYDRA_MCP__SERVERS__GIT__ENV__a__B": "x,y",
            "OXYDRA_MCP__SERVERS__GIT__SECRET_ENV__GITHUB_TOKEN": "OTHER",
            "OXYDRA_USERS__ALICE__MCP__SERVERS__GIT__ENV__MORE": "2",
            "OXYDRA_MCP__SERVERS__DOCS__HEADERS_ENV__Authorization": "OTHER",
            "OXYDRA_AGENT__PRICES__openai:gpt-4.1__INPUT": "3",
            "OXYDRA_EGRESS__CREDENTIALS__GH__VARIABLE": "GITHUB_TOKEN",
        },
    )
    servers = config.mcp.servers
    assert servers["git"].env == {"LOG_LEVEL": "error", "a__B": "x,y"}
    assert servers["git"].secret_env == {**SECRETS, "GITHUB_TOKEN": "OTHER"}
    assert servers["docs"].headers_env == {**HEADERS, "Authorization": "OTHER"}
    assert config.for_user("alice").mcp.servers["git"].env["MORE"] == "2"
    assert config.agent.prices["openai:gpt-4.1"].input == 3
    assert config.egress.credentials["gh"].variable == "GITHUB_TOKEN"


def test_they_are_shown_name_by_name_and_without_what_may_be_a_key(
    run_command: RunCommand,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("runner.toml").write_text(FILE.replace("DOCS_KEY", "gsk_0123abc").replace("info", "s3cr"))
    monkeypatch.setenv("MY_TOKEN", "t0ps3cret")
    done = run_command("config", "show", "--json", "--user", "alice")
    found = {each["key"]: each for each in json.loads(done.out)["settings"]}
    git = "mcp.servers.git"
    assert found[f"{git}.secret_env.GITHUB_TOKEN"]["value"] == "MY_TOKEN"
    assert found[f"{git}.secret_env.GITHUB_TOKEN"]["line"] == 5
    assert found["mcp.servers.docs.headers_env.Authorization"]["line"] == 13
    assert found[f"{git}.env.MORE"]["line"] == 27
    table = run_command("config", "show", "--user", "alice").out
    for each in (done.out, table):
        assert not any(secret in each for secret in ("gsk_0123abc", "s3cr", "t0ps3cret"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('secret_env.TOKEN = "sk-hunter2"', "git.secret_env.TOKEN: the value is not shown"),
        ('secret_env."a b" = "hunter2"', 'git.secret_env."a b": the value is not shown'),
        ("env.HUNTER2 = 3", "git.env.HUNTER2: the value is not shown; accepted: a text"),
        ('env = "A=hunter2"', "git.env: the value is not shown; accepted: a table of texts"),
        ('args = "--key hunter2"', "git.args: the value is not shown; accepted: a list of texts"),
        ('tools = [{A = "hunter2"}]', "git.tools: the value is not shown"),
        ('env.A.B = "hunter2"', "unknown setting mcp.servers.git.env.A.B"),
        ('secrt_env.A = "hunter2"', "unknown setting mcp.servers.git.secrt_env.A"),
    ],
)
def test_a_wrong_entry_is_named_and_its_value_not_shown(
    tmp_path: Path, line: str, said: str
) -> None:
    file = tmp_path / "runner.toml"
    file.write_text(f'[mcp.servers.git]\ncommand = "x"\n{line}\n')
    with pytest.raises(ConfigError) as raised:
        load_config(file, environ={})
    assert said in raised.value.brief
    assert "hunter2" not in str(raised.value)


def test_every_table_of_servers_in_the_guide_is_accepted() -> None:
    text = Path(__file__, "../../../../../docs/guide/mcp-servers.md").resolve().read_text()
    blocks: list[Any] = [each.split("```")[0] for each in text.split("```toml\n")[1:]]
    assert blocks
    for block in blocks:
        Config.model_validate(tomllib.loads(block))
        Path("runner.toml").write_text(block)
        load_config(environ={})
