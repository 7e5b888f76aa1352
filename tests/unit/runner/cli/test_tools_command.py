"""`runner tools`: what is told before a server is added, what is written, and where keys are."""

import json
import os
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from wire.settings import McpServerSettings
from wire.v1.egress_pb2 import EgressLogin

from runner.cli import logins as cli_logins
from runner.config.loading import load_settings
from runner.tools.blocks import read_block
from runner.tools.drafts import forget, preset, presets
from runner.workspace import logins
from runner.workspace.credentials import read_server_secrets
from runner.workspace.keys import variable_file
from tests.unit.runner.cli.conftest import RunCommand

TOKEN = "ghp_0123456789abcdef"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config/oxydra/runner.toml"


def block(**server: Any) -> str:
    return json.dumps({"mcpServers": {"it": server}})


def settings_of(text: str) -> dict[str, Any]:
    (draft,) = read_block(text)
    found: dict[str, Any] = draft.settings["mcp"]["servers"][draft.name]
    McpServerSettings.model_validate(found)
    return found


NPX = {"command": "npx", "args": ["-y", "@scope/server@1.2.3"]}


@pytest.mark.parametrize(
    "text",
    [
        block(**NPX),
        json.dumps({"servers": {"it": {"type": "stdio", **NPX}}, "inputs": []}),
        json.dumps({"mcp": {"servers": {"it": NPX}}}),
        json.dumps({"it": NPX}),
        json.dumps({"name": "it", **NPX}),
        block(command="cmd", args=["/c", "npx", "@scope/server@1.2.3"]),
    ],
)
def test_the_block_of_every_program_is_the_same_server(text: str) -> None:
    assert settings_of(text) == {
        "command": "npx",
        "args": ["-y", "@scope/server@1.2.3"],
        "isolated": True,
        "start_timeout_s": 180,
        "egress": {"presets": ["npm"]},
    }


def test_uvx_reaches_its_index_and_what_the_block_allows_and_shared_is_told_by_a_path() -> None:
    given = {"command": "uvx", "args": ["it==1", "/shared/a"], "allow": ["https://a.example"]}
    found = settings_of(block(**given))
    assert found["egress"] == {"presets": ["pypi"], "allow": ["https://a.example"]}
    assert found["shared"] == "rw"
    inside = block(command="uvx", args=["it==1", "--dsn=sqlite:///shared/a"], shared="ro")
    assert settings_of(inside)["shared"] == "ro"
    one = settings_of(block(**NPX, allow="https://a.example"))
    assert one["egress"]["allow"] == ["https://a.example"]
    plain = settings_of(block(command="python3", args=["-m", "it"]))
    assert plain == {"command": "python3", "args": ["-m", "it"], "isolated": True}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "it is not JSON"),
        ("{}", "it has no server"),
        ('{"mcpServers": {}}', "it has no server"),
        ("[]", "no block of MCP servers"),
        ("[" * 100_000, "no block of MCP servers"),
        (block(), "no block of MCP servers"),
        (block(command="npx", env=["A"]), "no block of MCP servers"),
        (json.dumps(NPX), "it is not {NAME: "),
        (block(command="docker", args=["run", "-i", "x"]), "starts a container"),
        (block(url="https://a.example/sse", type="sse"), "speaks SSE"),
        (block(command="npx", args=["x", "--api-key", TOKEN]), "an argument of it holds a key"),
        (block(command="npx", args=["x", f"--token={TOKEN}"]), "an argument of it holds a key"),
        (block(command="uvx", args=["x", "postgres://me:pw@db/x"]), "an argument of it holds"),
        (block(command="npx", args=["x", "${workspaceFolder}"]), "an argument of it holds"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(Exception, match=why):
        read_block(text)


@pytest.mark.parametrize("name", ["files", "memory", "shell"])
def test_a_name_of_our_own_families_is_refused(
    name: str, run_command: RunCommand, tmp_path: Path, file: Path
) -> None:
    (tmp_path / "block.json").write_text(json.dumps({"mcpServers": {name: NPX}}))
    done = run_command("tools", "add", "--json", "block.json", "--yes")
    assert done.code == 1
    assert "choose another name" in done.err
    assert f"it is set in what was to be written to {file}" in done.err
    assert not file.exists()


EVERYTHING = {
    "mcpServers": {
        "Code Host": {
            "command": "npx",
            "args": ["host@1.0.0"],
            "env": {
                "HOST_TOKEN": TOKEN,
                "DATABASE": "postgres://me:secret-word@db.example/x",
                "LEVEL": "info",
            },
            "disabled": False,
        },
        "far": {
            "url": "https://mcp.example.org/mcp",
            "headers": {"Authorization": f"Bearer {TOKEN}"},
        },
    }
}


def test_no_key_is_written_into_the_configuration(
    run_command: RunCommand, tmp_path: Path, file: Path
) -> None:
    (tmp_path / "block.json").write_text(json.dumps(EVERYTHING))
    done = run_command("tools", "add", "--json", "block.json", "--yes")
    assert (done.code, done.err) == (0, "")
    for line in (
        "code-host: not used: disabled",
        "  runs npx -y host@1.0.0",
        "  may reach npm (https://registry.npmjs.org)",
        "  sees of /shared: none",
        "  may reach https://mcp.example.org/mcp",
        "  has keys: Authorization (AUTHORIZATION_OF_FAR)",
    ):
        assert line in done.out.splitlines()
    for secret in (TOKEN, "secret-word"):
        assert secret not in done.out
        assert secret not in file.read_text()
    servers = load_settings().config.mcp
    assert servers.servers["code-host"].env == {"LEVEL": "info"}
    assert read_server_secrets(servers, {}) == {
        "code-host/HOST_TOKEN": TOKEN,
        "code-host/DATABASE": "postgres://me:secret-word@db.example/x",
        "far/Authorization": f"Bearer {TOKEN}",
    }
    stored = [variable_file(name) for name in ("HOST_TOKEN_OF_CODE_HOST", "AUTHORIZATION_OF_FAR")]
    assert [path.stat().st_mode & 0o777 for path in stored] == [0o600, 0o600]
    assert (
        read_server_secrets(servers, {"HOST_TOKEN_OF_CODE_HOST": "other"})["code-host/HOST_TOKEN"]
        == "other"
    ), "a variable that is set counts more"
    done = run_command("tools", "list")
    assert "HOST_TOKEN (HOST_TOKEN_OF_CODE_HOST)" in done.out
    for name in ("code-host", "far"):
        assert run_command("tools", "remove", name).code == 0
    assert load_settings().config.mcp.servers == {}
    assert [path.exists() for path in stored] == [False, False]


def test_a_key_in_small_letters_is_a_key(
    run_command: RunCommand, tmp_path: Path, file: Path
) -> None:
    far = {"url": "https://a.example/mcp", "headers": {"x-api-key": "abcdef123456"}}
    both = {"far": far, "near": {**NPX, "env": {"host_token": TOKEN}}}
    (tmp_path / "block.json").write_text(json.dumps({"mcpServers": both}))
    done = run_command("tools", "add", "--json", "block.json", "--yes")
    assert (done.code, done.err) == (0, "")
    for secret in ("abcdef123456", TOKEN):
        assert secret not in done.out + file.read_text()
    found = read_server_secrets(load_settings().config.mcp, {})
    assert found == {"far/x-api-key": "abcdef123456", "near/host_token": TOKEN}


def test_nothing_that_changes_what_runs_is_left_untold(
    run_command: RunCommand, tmp_path: Path, file: Path
) -> None:
    (tmp_path / "block.json").write_text(block(**NPX))
    assert "takes the place" not in run_command("tools", "add", "--json", "block.json", "--yes").out
    options = "--import=data:text/javascript,x"
    args = ["-y", "@scope/server@1.2.3", "a\nit: has keys: none"]
    text = block(command="npx", args=args, env={"NODE_OPTIONS": options})
    (tmp_path / "block.json").write_text(text)
    done = run_command("tools", "add", "--json", "block.json", typed="n\n")
    lines = done.out.splitlines()
    assert any(each.startswith("it: takes the place of what is there: runs npx") for each in lines)
    assert f"  with NODE_OPTIONS={options}" in lines
    assert r"  runs npx -y @scope/server@1.2.3 a\nit: has keys: none" in lines
    assert lines.count("  has keys: none") == 1


TWO = ("a-b", "a_b")


def test_a_user_has_keys_and_servers_of_their_own(
    run_command: RunCommand, tmp_path: Path, file: Path
) -> None:
    for user in TWO:
        text = block(command="npx", args=["x@1.0.0"], env={"API_KEY": f"key-of-{user}"})
        (tmp_path / "block.json").write_text(text)
        done = run_command("--user", user, "tools", "add", "--json", "block.json", "--yes")
        assert (done.code, done.err) == (0, "")
    config = load_settings().config
    assert config.mcp.servers == {}
    for user in TWO:
        found = read_server_secrets(config.for_user(user).mcp, {})
        assert found == {"it/API_KEY": f"key-of-{user}"}
    names = [config.for_user(user).mcp.servers["it"].secret_env["API_KEY"] for user in TWO]
    assert f'"{names[0]}" (stored)' in run_command("--user", "a-b", "config", "show").out
    for user in ("default", "a-b"):
        forget(user)
    assert [variable_file(name).exists() for name in names] == [False, True]


def test_a_key_that_the_block_does_not_have_is_a_variable_or_is_asked_for(
    run_command: RunCommand, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for blank in ("<YOUR_TOKEN>", "${input:token}", "", "your-key-here"):
        text = block(command="npx", args=["x@1.0.0"], env={"HOST_TOKEN": blank})
        (tmp_path / "block.json").write_text(text)
        done = run_command("tools", "add", "--json", "block.json", "--yes")
        assert done.code == 1
        assert "first: export HOST_TOKEN=VALUE" in done.err
        assert not file.exists()
    monkeypatch.setenv("HOST_TOKEN", TOKEN)
    done = run_command("tools", "add", "--json", "block.json", "--yes")
    assert done.code == 0
    assert "it: takes what the variable HOST_TOKEN holds now\n" in done.out
    assert TOKEN not in done.out + file.read_text()
    monkeypatch.delenv("HOST_TOKEN")  # as in the next terminal
    servers = load_settings().config.mcp
    assert read_server_secrets(servers, os.environ) == {"it/HOST_TOKEN": TOKEN}
    assert run_command("tools", "add", "--json", "block.json", "--yes").code == 0, "the same again"


def test_a_stored_key_never_goes_to_another_server(
    run_command: RunCommand, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"calendar_user": "me", "calendar_host": "one.example", "CALDAV_PASSWORD": TOKEN}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert run_command("tools", "add", "calendar", "--yes").code == 0
    monkeypatch.delenv("CALDAV_PASSWORD")
    monkeypatch.setenv("calendar_host", "two.example")
    before = file.read_text()
    done = run_command("tools", "add", "calendar", "--yes")
    assert done.code == 1
    assert "CALDAV_PASSWORD is not known" in done.err
    assert file.read_text() == before
    monkeypatch.setenv("CALDAV_PASSWORD", "another")
    assert run_command("tools", "add", "calendar", "--yes").code == 0
    found = read_server_secrets(load_settings().config.mcp, {})
    assert found == {"calendar/CALDAV_PASSWORD": "another"}


@pytest.mark.parametrize(
    ("url", "told"),
    [("http://mcp.example/mcp", True), ("https://mcp.example/mcp", False)]
    + [(f"http://{host}:9/mcp", False) for host in ("localhost", "127.0.0.1", "[::1]")],
)
def test_a_key_that_travels_unencrypted_is_told(
    url: str, told: bool, run_command: RunCommand, tmp_path: Path
) -> None:
    (tmp_path / "block.json").write_text(block(url=url, headers={"Authorization": TOKEN}))
    done = run_command("tools", "add", "--json", "block.json", "--yes")
    assert done.code == 0
    assert ("(AUTHORIZATION_OF_IT), which travel unencrypted\n" in done.out) is told


@pytest.mark.filterwarnings("ignore::getpass.GetPassWarning")
def test_what_decides_on_hosts_is_asked_first_and_a_key_after_the_yes(
    run_command: RunCommand, file: Path
) -> None:
    done = run_command("tools", "add", "calendar", typed="cal.example\nme\nn\n")
    assert done.code == 1
    assert "  may reach npm (https://registry.npmjs.org); https://cal.example" in done.out
    assert not file.exists()
    done = run_command("tools", "add", "calendar", typed=f"https://cal.example/\nme\ny\n{TOKEN}\n")
    assert done.code == 0
    assert TOKEN not in done.out + done.err + file.read_text()
    servers = load_settings().config.mcp
    assert servers.servers["calendar"].env["CALDAV_BASE_URL"] == "https://cal.example/"
    assert read_server_secrets(servers, {}) == {"calendar/CALDAV_PASSWORD": TOKEN}


OURS = [draft.name for draft in presets()]


def test_every_preset_is_told_with_what_it_may_reach(run_command: RunCommand) -> None:
    done = run_command("tools", "list", "--available")
    assert done.code == 0
    for name in OURS:
        assert f"\n{name}: " in f"\n{done.out}"
    assert "  may reach npm (https://registry.npmjs.org); https://calendar_host" in done.out


@pytest.mark.parametrize("name", [name for name in OURS if preset(name).settings])
def test_a_preset_can_be_added_and_removed_as_easily(
    name: str, run_command: RunCommand, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = preset(name)
    for key in draft.keys:
        monkeypatch.setenv(key, "value.example")
    done = run_command("tools", "add", name, "--yes")
    assert (done.code, done.err) == (0, "")
    assert "  why: " in done.out
    server = load_settings().config.mcp.servers.get(name)
    if server is not None and server.command in ("npx", "uvx"):
        assert server.isolated, "the code of others"
        assert any("@" in each[1:] or "==" in each for each in server.args), "an exact version"
        assert {"npm_config_before", "UV_EXCLUDE_NEWER"} & server.env.keys(), "of all packages"
    assert "is there already" not in done.out
    done = run_command("tools", "add", name, "--yes")
    assert (done.code, done.err) == (0, "")
    assert "  is there already, with these settings" in done.out or server is None
    assert done.out.splitlines()[-1].startswith("was there already, with these settings; ")
    assert run_command("tools", "remove", name).code == 0
    assert not tomllib.loads(file.read_text()).get("mcp", {}).get("servers")


def test_a_team_keeps_presets_of_its_own(
    run_command: RunCommand, tmp_path: Path, file: Path
) -> None:
    own = tmp_path / "crm.toml"
    own.write_text(
        'about = "Our customers."\n[settings.mcp.servers.crm]\ncommand = "crm"\nisolated = true\n'
        "[settings.agent]\nmax_steps = 9\n"
    )
    done = run_command("tools", "add", str(own), "--yes")
    assert done.code == 0
    assert "crm: Our customers." in done.out
    assert "  sets agent.max_steps = 9" in done.out
    assert load_settings().config.agent.max_steps == 9
    own.write_text("about = 1\n")
    done = run_command("tools", "add", str(own), "--yes")
    assert done.code == 1
    assert "is no preset\n  why: it has no 'settings'\n" in done.err
    assert "fix: runner tools list --available; or: runner tools add --json FILE" in done.err
    unknown = run_command("tools", "add", "nothing", "--yes")
    assert unknown.code == 1
    assert "nothing is no preset; there are atlassian, browser," in unknown.err


def test_a_preset_names_its_server_and_its_keys_as_it_likes(
    run_command: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "team.toml"
    own.write_text(
        'about = "Our customers."\n[keys]\ncrm_url = "where"\nCRM_TOKEN = "its token"\n'
        '[settings.mcp.servers.crm]\nurl = "${crm_url}"\n'
        'headers_env = { Authorization = "${CRM_TOKEN}" }\n'
    )
    monkeypatch.setenv("crm_url", "https://crm.example.org/mcp")
    monkeypatch.setenv("CRM_TOKEN", TOKEN)
    assert run_command("tools", "add", str(own), "--yes").code == 0
    assert load_settings().config.mcp.servers["crm"].url == "https://crm.example.org/mcp"
    stored = variable_file("CRM_TOKEN_OF_TEAM")
    assert stored.exists()
    assert run_command("tools", "remove", "crm").code == 0
    assert not stored.exists()


def test_documents_need_nothing_and_nothing_is_written(run_command: RunCommand, file: Path) -> None:
    done = run_command("tools", "add", "documents")
    assert (done.code, done.err) == (0, "")
    assert "are read already" in done.out
    assert not file.exists()


def test_what_a_server_takes_the_place_of_is_told_before_the_yes(
    run_command: RunCommand, file: Path
) -> None:
    file.parent.mkdir(parents=True)
    file.write_text('[mcp.servers.time]\ncommand = "mine"\nargs = ["--utc"]\n')
    done = run_command("tools", "add", "time", typed="n\n")
    assert done.code == 1
    assert "  takes the place of what is there: runs mine --utc; may reach" in done.out
    done = run_command("tools", "add", "time", "--yes")
    assert done.out.splitlines()[-1].startswith("added; ")


@pytest.mark.parametrize("name", ["nosuch", "time", "web", "../presets/web", "of-all"])
def test_what_is_not_set_is_not_said_to_be_removed(
    name: str, run_command: RunCommand, file: Path
) -> None:
    file.parent.mkdir(parents=True)
    before = '[mcp.servers.of-all]\ncommand = "x"\n'
    file.write_text(before)
    done = run_command("--user", "ann", "tools", "remove", name)
    assert (done.code, done.out) == (1, "")
    assert f"{name} is not set\n" in done.err
    assert ("what is set for all" in done.err) is (name == "of-all")
    fix = "--user default tools remove of-all" if name == "of-all" else "--user ann tools list"
    assert f"fix: runner {fix}\n" in done.err
    assert file.read_text() == before


def test_what_another_preset_needs_stays_when_one_is_removed(
    run_command: RunCommand, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    web, search = ("\nweb: Lets the agent and", "\nsearch: Lets the agent search")
    assert web not in f"\n{run_command('tools', 'list').out}"
    monkeypatch.setenv("searxng_host", "searx.example")
    for name in ("web", "search"):
        assert run_command("tools", "add", name, "--yes").code == 0
    listed = f"\n{run_command('tools', 'list').out}"
    assert web in listed
    assert search in listed
    done = run_command("tools", "remove", "web")
    assert done.code == 1
    assert "web stays\n  why: search sets the same\n  fix: runner tools remove search\n" in done.err
    done = run_command("--user", "ann", "tools", "remove", "search")
    assert "fix: runner --user default tools remove search\n" in done.err
    done = run_command("tools", "remove", "search")
    assert done.out.startswith("removed, but for what web sets, too; ")
    config = load_settings().config.for_user("default")
    assert (config.tools.web_search, config.egress.shell.ask) == ("", True)
    assert run_command("tools", "remove", "web").out.startswith("removed; ")
    assert not load_settings().config.for_user("default").egress.shell.ask


@pytest.mark.parametrize("given", ["block of it.json", "./block of it.json", "-"])
def test_a_block_without_its_option_is_told_the_option(
    given: str, run_command: RunCommand, tmp_path: Path
) -> None:
    (tmp_path / "block of it.json").write_text(block(**NPX))
    done = run_command("tools", "add", given)
    assert done.code == 1
    assert f"fix: runner tools add --json {shlex.quote(given)}\n" in done.err
    assert ("No such file" in done.err) is (given == "-")


@pytest.mark.parametrize(
    "words", [["time"], ["--json", "block of it.json"], ["--json", "-"], ["./crm.toml"]]
)
def test_without_a_terminal_the_whole_command_is_told(
    words: list[str], run_command: RunCommand, tmp_path: Path
) -> None:
    (tmp_path / "block of it.json").write_text(block(**NPX))
    (tmp_path / "crm.toml").write_text('about = "x"\n[settings.agent]\nmax_steps = 9\n')
    done = run_command("--user", "ann", "tools", "add", *words, stdin=block(**NPX).encode())
    assert done.code == 1
    assert done.err.endswith(f"fix: runner --user ann tools add {shlex.join(words)} --yes\n")


def test_commands_in_what_a_preset_says_are_for_the_same_user(run_command: RunCommand) -> None:
    fix = "after it is added: runner --user ann tools login linear\n"
    assert fix in run_command("--user", "ann", "tools", "list", "--available").out
    done = run_command("--user", "ann", "tools", "add", "linear", "--yes")
    assert fix in done.out
    assert done.out.endswith("; if it wants a login: runner --user ann tools login linear\n")


def test_a_logout_without_a_login_says_so(
    run_command: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody(*_: object) -> bool:
        return False

    monkeypatch.setattr(cli_logins, "host_runs", nobody)
    logins.write("default", "docs", EgressLogin(id="a"))
    done = run_command("tools", "logout", "dosc")
    assert (done.code, done.out) == (1, "")
    assert "there is no login at dosc\n  fix: runner tools list\n" in done.err
    assert run_command("tools", "logout", "docs").code == 0
    assert logins.read("default", "docs") is None
