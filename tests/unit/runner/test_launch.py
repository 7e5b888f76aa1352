"""What one launch carries: the whole envelope, a clean environment, nothing secret elsewhere."""

import io
import os
from dataclasses import replace
from pathlib import Path

import pytest
from wire import envelope
from wire.errors import Code, WireError
from wire.limits import ENVELOPE_VERSION
from wire.settings import (
    AgentSettings,
    EgressSettings,
    McpServerSettings,
    McpSettings,
    MemorySettings,
    ShellSettings,
    ToolsSettings,
    UserSettings,
    from_json,
)
from wire.v1 import bootstrap_pb2

from runner.config.models import Config
from runner.errors import ConfigError, HostError
from runner.host.launch import (
    AgentLauncher,
    Launchers,
    ShellLauncher,
    guest_environment,
)
from runner.host.supervisor import Launch
from runner.projects.project import Project
from runner.tiers.base import Capabilities, Limits, Network
from runner.workspace.keys import read_api_key
from runner.workspace.mounts import Role
from runner.workspace.workspace import Workspace
from tests.support import parties

SECRET = "sk-very-secret-4711"
AGENT = AgentSettings(provider="openai", model="m", api_key_env="MY_KEY", instructions="be kind")
RULE = "NZST-12NZDT,M9.5.0,M4.1.0/3"
ENVIRON = {
    "MY_KEY": f" {SECRET}\n",
    "OPENAI_API_KEY": SECRET,
    "OXYDRA_LOG_LEVEL": "debug",
    "TZ": RULE,  # a zone without a name
}

EMBEDDER = bootstrap_pb2.Link(endpoint="unix:/run/e/embedder.sock", token="et")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "ws", "alice")


HOST_FILES = Capabilities(tier="process", unsupported={})
OWN_FILES = Capabilities(
    tier="container",
    unsupported={},
    own_files=frozenset(Role),
    own_programs=True,
)


def launcher(
    workspace: Workspace,
    config: Config | None = None,
    tier: Capabilities = HOST_FILES,
    environ: dict[str, str] = ENVIRON,
) -> AgentLauncher:
    config = config or Config(agent=AGENT)
    return AgentLauncher(config, workspace, tier, parties.AUTHORITY, environ=environ)


def launch(made: AgentLauncher, shell_reason: str = "no shell") -> Launch:
    return made.prepare(EMBEDDER, bootstrap_pb2.Link(unavailable_reason=shell_reason))


def opened(made: Launch) -> bootstrap_pb2.BootstrapEnvelope:
    return envelope.read(io.BytesIO(made.spec.envelope))


def test_the_envelope_holds_everything_the_guest_needs(workspace: Workspace) -> None:
    config = Config(
        agent=AGENT,
        memory=MemorySettings(vector_weight=0.25, typed_scope="session"),
        tools=ToolsSettings(enabled=("typed_memory",), approval="ask"),
        shell=ShellSettings(allow=("git *",), operators=False),
        log_level="debug",
    )
    made = launch(launcher(workspace, config))
    message = opened(made)
    assert (message.version, message.user_id, message.tier) == (
        ENVELOPE_VERSION,
        "alice",
        "process",
    )
    assert message.launch_id == made.spec.launch_id != ""
    assert (message.gateway, message.token) == (made.peer.endpoint, made.peer.token)
    assert made.peer.endpoint == f"unix:{workspace.path}/ipc/agent/agent.sock"
    assert message.paths.internal == str(workspace.path / ".oxydra")
    assert message.paths.shared == str(workspace.path / "shared")
    assert message.paths.tmp == str(workspace.path / "tmp")
    assert message.paths.vault == str(workspace.path / "vault")
    assert message.paths.ipc == str(workspace.path / "ipc" / "agent")
    assert message.paths.database == str(workspace.path / ".oxydra" / "memory.db")
    assert from_json(message.settings) == config.for_user("alice")
    assert message.secrets == bootstrap_pb2.Secrets()
    assert message.embedder.endpoint == "unix:/run/e/embedder.sock"
    assert message.embedder.token == "et"
    assert not message.shell.endpoint
    assert message.shell.unavailable_reason == "no shell"
    assert message.log_level == "debug"


def test_every_launch_has_a_token_and_an_id_of_its_own(workspace: Workspace) -> None:
    made = launcher(workspace)
    first, second = launch(made), launch(made)
    assert first.peer.token != second.peer.token
    assert first.spec.launch_id != second.spec.launch_id


def test_a_users_own_section_is_what_counts(workspace: Workspace) -> None:
    config = Config.model_validate({"users": {"alice": {"agent": {"max_steps": 3}}}})
    assert from_json(opened(launch(launcher(workspace, config))).settings).agent.max_steps == 3
    other = Workspace(workspace.root, "bob")
    assert from_json(opened(launch(launcher(other, config))).settings) == UserSettings()


def test_secrets_travel_in_the_envelope_and_nowhere_else(workspace: Workspace) -> None:
    made = launch(launcher(workspace))
    spec = made.spec
    elsewhere = repr((spec, spec.command, dict(spec.environment), spec.mounts, spec.log_path))
    assert SECRET.encode() not in spec.envelope
    for secret in (made.peer.token, "et"):
        assert secret.encode() in spec.envelope
        if secret != "et":
            assert secret not in elsewhere
    assert not [name for name in spec.environment if name.startswith("OXYDRA_") or "KEY" in name]


def test_what_opens_an_account_stays_out_of_the_envelope(workspace: Workspace) -> None:
    environ = {"MY_KEY": SECRET, "OTHER": "other-key-0123", "HEADER": "header-0123", "GIT": "git-0"}
    config = Config.model_validate(
        {
            "agent": {
                "provider": "openai",
                "model": "m",
                "api_key_env": "MY_KEY",
                "base_url": "https://me:passw0rd@models.example/v1?t=query-s3cret",
                "keys": {"anthropic_env": "OTHER"},
            },
            "memory": {"remote_url": "https://m.example", "auth_token_env": "OTHER"},
            "mcp": {
                "servers": {
                    "docs": {"url": "https://d.example", "headers_env": {"X-Key": "HEADER"}},
                    "git": {"command": "git-mcp", "secret_env": {"T": "GIT"}},
                }
            },
            "egress": {"proxy": "http://10.0.0.1:3128", "proxy_auth_env": "HEADER"},
        }
    )
    made = launcher(workspace, config, environ=environ)
    spec = launch(made).spec
    for secret in (SECRET, "other-key-0123", "header-0123", "passw0rd", "query-s3cret"):
        assert secret.encode() not in spec.envelope
    message = opened(launch(made))
    assert dict(message.secrets.servers) == {"git/T": "git-0"}
    assert from_json(message.settings).agent.base_url == "https://models.example/v1"


def test_a_guests_environment_is_a_short_list(tmp_path: Path) -> None:
    environ = {
        "PATH": "/bin",
        "LANG": "C.UTF-8",
        "HOME": "/root",
        "AWS_SECRET_ACCESS_KEY": "x",
        "PYTHONPATH": "/evil",
        "LD_PRELOAD": "/evil.so",
        "HTTPS_PROXY": "http://u:p@proxy",
    }
    made = guest_environment(tmp_path, environ)
    made.pop("PYTHONUSERBASE", None)
    assert made == {
        "PATH": "/bin",
        "LANG": "C.UTF-8",
        "HOME": str(tmp_path),
        "PYTHONUTF8": "1",
        "GRPC_VERBOSITY": "NONE",
    }
    assert guest_environment(tmp_path, {})["PATH"]


@pytest.mark.parametrize("tier", [HOST_FILES, OWN_FILES], ids=["process", "container"])
@pytest.mark.parametrize(
    ("setting", "host", "name", "rule"),
    [
        ("auto", "Pacific/Auckland", "Pacific/Auckland", RULE),
        ("auto", RULE, "auto", RULE),
        ("auto", "", "UTC", "UTC0"),
        ("auto", "x" * 5_000, "auto", "UTC0"),
        ("Pacific/Auckland", "America/New_York", "Pacific/Auckland", RULE),
        ("Europe/Berlin", RULE, "Europe/Berlin", "CET-1CEST,M3.5.0,M10.5.0/3"),
    ],
)
def test_the_agent_is_in_the_users_time_zone(
    workspace: Workspace, tier: Capabilities, setting: str, host: str, name: str, rule: str
) -> None:
    config = Config.model_validate({"agent": {"time_zone": setting}})
    made = launch(launcher(workspace, config, tier, {"TZ": host}))
    assert made.spec.environment["TZ"] == rule
    assert from_json(opened(made).settings).agent.time_zone == name


def test_python_never_starts_from_a_directory_that_tools_can_write(workspace: Workspace) -> None:
    spec = launch(launcher(workspace)).spec
    assert "-P" in spec.command
    assert spec.environment["HOME"] == str(workspace.path / ".oxydra")
    assert spec.role is Role.AGENT
    assert spec.log_path == workspace.path / "logs" / "agent" / "guest.log"


@pytest.mark.parametrize("value", [None, "", " \n"])
def test_a_missing_credential_is_named_before_anything_is_made(
    workspace: Workspace, value: str | None
) -> None:
    environ = {} if value is None else {"MY_KEY": value}
    with pytest.raises(ConfigError, match="MY_KEY is not set") as raised:
        launcher(workspace, environ=environ)
    assert raised.value.code is Code.FAILED_PRECONDITION
    assert "MY_KEY" in raised.value.resolution
    assert not workspace.root.exists()


@pytest.mark.parametrize("value", ["sk-\u00fc", "two\nlines", "\udcff"])
def test_a_credential_that_no_header_can_carry_is_refused_unseen(value: str) -> None:
    with pytest.raises(ConfigError, match="MY_KEY holds") as raised:
        read_api_key(AGENT, {"MY_KEY": value})
    assert value not in str(raised.value)


def test_no_credential_is_needed_where_none_is_named() -> None:
    assert read_api_key(AgentSettings(), {}) == ""


def test_a_bad_place_for_the_database_is_refused_before_anything_is_made(
    workspace: Workspace,
) -> None:
    config = Config(memory=MemorySettings(db_path="shared/m.db"))
    with pytest.raises(ConfigError, match=r"memory\.db_path"):
        launcher(workspace, config)
    assert not workspace.root.exists()


def test_a_guest_with_files_of_its_own_is_told_virtual_paths(workspace: Workspace) -> None:
    made = launcher(workspace, tier=OWN_FILES)
    shell = ShellLauncher(Config(), workspace, OWN_FILES, parties.AUTHORITY)
    started = made.prepare(EMBEDDER, shell.link)
    message = opened(started)
    assert message.tier == "container"
    assert message.paths.internal == "/.oxydra"
    assert message.paths.database == "/.oxydra/memory.db"
    assert message.gateway == "unix:/ipc/agent.sock"
    assert message.shell.endpoint == "unix:/shell/shell.sock"
    assert message.shell.token == shell.agent_token
    assert message.embedder.endpoint == "unix:/embedder/embedder.sock"
    assert started.peer.endpoint == f"unix:{workspace.path}/ipc/agent/agent.sock"
    assert started.spec.command == ("oxydra-guest", "--bootstrap-stdin", "--exit-with-parent")
    extra = [bound for bound in started.spec.mounts if bound.mount.virtual == "/embedder"]
    assert [(str(bound.host_path), bound.mount.access) for bound in extra] == [("/run/e", "ro")]
    text = repr(message)
    assert str(workspace.root) not in text


def project(path: Path, name: str = "code") -> Project:
    (path / ".git").mkdir(parents=True)
    meant, wall = path.stat(), (path / ".git").stat()
    found = {".git": (wall.st_dev, wall.st_ino)}
    whole = (meant.st_dev, meant.st_ino)
    return Project(name, path, (os.geteuid(), 0), whole, True, held=found, lifted=(".idea",))


@pytest.mark.parametrize("tier", [HOST_FILES, OWN_FILES, replace(OWN_FILES, own_kernel=True)])
def test_a_project_is_told_and_mounted(
    tmp_path: Path, workspace: Workspace, tier: Capabilities
) -> None:
    code = project(tmp_path / "my code")
    made = launch(launcher(replace(workspace, projects=(code,)), tier=tier))
    (told,) = opened(made).paths.projects
    inside = "/projects/code" if tier.own_files else str(code.path)
    assert (told.name, told.path, told.writable) == ("code", inside, True)
    assert (list(told.walls), list(told.lifted)) == ([".git"], [".idea"])
    assert told.HasField("directory") is not tier.own_kernel
    shell = ShellLauncher(Config(), replace(workspace, projects=(code,)), tier, parties.AUTHORITY)
    for found in (made.spec, shell.prepare().spec):
        assert [each for each in found.mounts if each.identity] == list(code.rows)
        assert found.directories["/projects/code/.git"] == code.held[".git"]
    (code.path / ".git").rmdir()
    with pytest.raises(WireError, match="as a project"):
        shell.prepare()


def test_without_one_nothing_is_told_and_other_projects_make_another_launch(
    tmp_path: Path, workspace: Workspace
) -> None:
    made = launch(launcher(workspace))
    assert not opened(made).paths.projects
    assert not opened(made).settings["workspace"].count("code")
    prints = {made.fingerprint}
    for number in range(2):
        with_one = replace(workspace, projects=(project(tmp_path / str(number)),))
        prints.add(launch(launcher(with_one)).fingerprint)
        shell = ShellLauncher(Config(), with_one, HOST_FILES, parties.AUTHORITY)
        prints.add(shell.prepare().fingerprint)
    assert len(prints) == 5


def test_a_guest_is_told_which_directories_were_meant_where_numbers_are_the_same(
    workspace: Workspace,
) -> None:
    link = bootstrap_pb2.Link()
    for tier in ("process", "micro_vm"):
        files = OWN_FILES.own_files if tier == "micro_vm" else frozenset[Role]()
        own_kernel = tier == "micro_vm"
        capabilities = replace(OWN_FILES, tier=tier, own_files=files, own_kernel=own_kernel)
        assert not opened(launcher(workspace, tier=capabilities).prepare(link, link)).mounted
    told = opened(launcher(workspace, tier=OWN_FILES).prepare(link, link)).mounted
    meant = {bound.mount.virtual: bound.host_path for bound in workspace.mounts(Role.AGENT)}
    assert told.keys() == meant.keys()
    for virtual, path in meant.items():
        assert (told[virtual].device, told[virtual].inode) == (
            path.stat().st_dev,
            path.stat().st_ino,
        )
    (workspace.path / "vault").rmdir()
    (workspace.path / "vault").symlink_to(workspace.path / "shared")
    with pytest.raises(WireError, match="vault"):
        launcher(workspace, tier=OWN_FILES).prepare(link, link)


def test_only_egress_has_a_way_out(workspace: Workspace) -> None:
    made = Launchers(Config(agent=AGENT), workspace, OWN_FILES, parties.AUTHORITY, environ=ENVIRON)
    assert made.shell is not None
    egress_guests = (made.egress.prepare(Role.EGRESS), made.egress.prepare(Role.SHELL_EGRESS))
    launches = (launch(made.agent), made.shell.prepare(), *egress_guests)
    assert [(each.spec.role, each.spec.network) for each in launches] == [
        (Role.AGENT, Network.NONE),
        (Role.SHELL, Network.NONE),
        (Role.EGRESS, Network.OUTBOUND),
        (Role.SHELL_EGRESS, Network.OUTBOUND),
    ]
    listeners = [
        [word for word in each.spec.command if word.endswith("-listener")] for each in egress_guests
    ]
    assert listeners == [["--agent-listener"], ["--shell-listener"]]


def test_commands_have_a_way_out_only_where_there_are_commands(workspace: Workspace) -> None:
    def idle(**section: object) -> str:
        shell = ShellSettings.model_validate(section)
        egress = EgressSettings.model_validate({"shell": {"ask": True}})
        config = Config(shell=shell, egress=egress)
        made = Launchers(config, workspace, OWN_FILES, parties.AUTHORITY, environ=ENVIRON)
        return made.egress.why_idle(Role.SHELL_EGRESS)

    assert idle() == ""
    assert "shell.enabled is false" in idle(enabled=False)


def test_a_database_must_lie_where_the_guest_has_a_mount(workspace: Workspace) -> None:
    config = Config(memory=MemorySettings(db_path="data/m.db"))
    assert launcher(workspace, config).db_path == workspace.path / "data" / "m.db"
    with pytest.raises(ConfigError, match=r"memory\.db_path"):
        launcher(workspace, config, OWN_FILES)


def test_the_shell_gets_its_token_and_its_limits_and_nothing_else(workspace: Workspace) -> None:
    section = ShellSettings(
        memory_mb=256, processes=64, cpus=0.5, timeout_s=7, git_identity="-A B <a@b.example>"
    )
    made = ShellLauncher(Config(shell=section), workspace, HOST_FILES, parties.AUTHORITY)
    started = made.prepare()
    spec = started.spec
    received = envelope.read_service(io.BytesIO(spec.envelope))
    assert received.token == started.peer.token
    assert made.agent_token.encode() not in spec.envelope
    for token in (started.peer.token, made.agent_token):
        assert token not in repr((spec, spec.command, dict(spec.environment)))
    assert "--sealed" in spec.command
    assert spec.limits == Limits(256 * 1024 * 1024, 64, 0.5)
    assert spec.network is Network.NONE
    assert started.peer.endpoint == f"unix:{workspace.path}/ipc/shell/shell.sock"
    assert spec.command[spec.command.index("--socket") + 1] == "/ipc/shell.sock"
    assert spec.command[spec.command.index("--default-timeout") + 1] == "7"
    assert "--git-identity=-A B <a@b.example>" in spec.command
    assert set(spec.environment) == {"HOME", "PATH", "PYTHONUTF8", "GRPC_VERBOSITY"}
    seen = {bound.mount.virtual for bound in spec.mounts}
    assert seen == {"/shared", "/tmp", "/cache", "/skills", "/ipc", "/egress"}
    assert started.peer.token != made.prepare().peer.token


def test_a_guest_that_no_tier_limits_watches_its_own_memory(workspace: Workspace) -> None:
    config = Config(shell=ShellSettings(memory_mb=256))
    unlimited = replace(HOST_FILES, limits_memory=False)
    commands = [
        ShellLauncher(config, workspace, tier, parties.AUTHORITY).prepare().spec.command
        for tier in (HOST_FILES, unlimited)
    ]
    assert "--memory-bytes" not in commands[0]
    assert commands[1][-2:] == ("--memory-bytes", str(256 * 1024 * 1024))


def test_without_a_shell_the_reason_is_kept(workspace: Workspace) -> None:
    settings = Config(shell=ShellSettings(enabled=False))
    off = Launchers(settings, workspace, OWN_FILES, parties.AUTHORITY, environ={})
    assert (off.shell, off.no_shell) == (None, "shell.enabled is false in the configuration")
    without = replace(HOST_FILES, unsupported={Role.SHELL: "no bubblewrap"})
    lacking = Launchers(Config(), workspace, without, parties.AUTHORITY, environ={})
    assert (lacking.shell, lacking.no_shell) == (None, "no bubblewrap")
    with_shell = Launchers(Config(), workspace, HOST_FILES, parties.AUTHORITY, environ={})
    assert with_shell.shell is not None


def test_a_tier_elsewhere_refuses_servers_that_need_a_guest() -> None:
    class Elsewhere(Workspace):
        here = False

    settings = McpServerSettings(command="x", isolated=True)
    config = Config(mcp=McpSettings(servers={"forge": settings}))
    away = Elsewhere(Path("/nowhere"), "alice")
    with pytest.raises(HostError, match="starts no guests for MCP servers") as refused:
        Launchers(config, away, HOST_FILES, parties.AUTHORITY, environ={})
    assert refused.value.details == "mcp.servers.forge is isolated or has a secret"
    assert Launchers(Config(), away, HOST_FILES, parties.AUTHORITY, environ={}).tools == {}


def test_the_agent_does_not_learn_the_rules_and_credentials_of_a_server(
    workspace: Workspace,
) -> None:
    credential = {"env": "KEY", "hosts": ["api.example.org"], "variable": "KEY"}
    server = McpServerSettings.model_validate(
        {
            "command": "x",
            "egress": {"allow": ["api.example.org"]},
            "credentials": {"key": credential},
        }
    )
    config = Config(mcp=McpSettings(servers={"forge": server}))
    environ = {"KEY": "0123456789abcdef"}
    made = Launchers(config, workspace, HOST_FILES, parties.AUTHORITY, environ=environ)
    launch = made.agent.prepare(bootstrap_pb2.Link(), bootstrap_pb2.Link())
    told = envelope.read(io.BytesIO(launch.spec.envelope))
    (known,) = from_json(told.settings).mcp.servers.values()
    assert known.has_guest
    assert "example.org" not in str(told.settings)
    with pytest.raises(ConfigError, match="KEY") as missing:
        Launchers(config, workspace, HOST_FILES, parties.AUTHORITY, environ={})
    assert "mcp.servers.forge.credentials.key.env names it" in str(missing.value.details)


def test_new_rules_are_taken_by_every_way_out_or_by_none(workspace: Workspace) -> None:
    def config(place: str, **credential: object) -> Config:
        rules = {"allow": [place]}
        given = {"key": {**credential, "hosts": [place]}} if credential else {}
        server = {"command": "x", "isolated": True, "egress": rules, "credentials": given}
        return Config.model_validate(
            {"egress": {"shell": rules}, "mcp": {"servers": {"forge": server}}}
        )

    def allowed() -> list[list[str]]:
        own = (made.egress, made.tools["forge"][1])
        return [list(each.configuration().shell.allow) for each in own]

    def take(new: Config) -> None:
        made.take_egress(new.for_user("alice"))

    made = Launchers(config("a.example.org"), workspace, HOST_FILES, parties.AUTHORITY, environ={})
    take(config("b.example.org"))
    assert allowed() == [["b.example.org"]] * 2
    with pytest.raises(ConfigError, match="KEY"):
        take(config("c.example.org", env="KEY", variable="KEY"))
    assert allowed() == [["b.example.org"]] * 2
    take(Config.model_validate({"egress": {"shell": {"allow": ["d.example.org"]}}}))
    assert allowed() == [["d.example.org"], []]
