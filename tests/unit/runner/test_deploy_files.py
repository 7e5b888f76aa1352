"""The files under deploy/: they name what exists and grant no more than is said."""

import configparser
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from typer.testing import CliRunner

from runner.cli.app import app
from tests.support.settings import load_config

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
CAPABILITIES = {"CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"}


@pytest.fixture
def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(DEPLOY / "systemd/oxydra.service")
    return parser


@pytest.fixture
def service() -> dict[str, Any]:
    content = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())
    assert set(content) == {"services"}
    assert set(content["services"]) == {"runner"}
    found: dict[str, Any] = content["services"]["runner"]
    return found


def test_the_settings_are_accepted() -> None:
    config = load_config(DEPLOY / "runner.toml", environ={})
    assert config.tier == "container"
    assert config.workspace_root == Path("/var/lib/oxydra/workspaces")
    assert config.runtime_dir == Path("/var/lib/oxydra/run")
    assert list(config.users) == ["default"]


def test_the_unit_runs_a_command_that_exists(unit: configparser.ConfigParser) -> None:
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert program == "/opt/oxydra/bin/runner"
    assert words[words.index("--config") + 1] == "/etc/oxydra/runner.toml"
    assert words[-2:] == ["start", "--all"]
    assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0


@pytest.mark.parametrize(("name", "command"), [("oxydra-serve", ["serve"])])
def test_the_units_of_servers_have_no_rights_that_the_hosts_have_not(
    unit: configparser.ConfigParser, name: str, command: list[str]
) -> None:
    served = configparser.ConfigParser(interpolation=None)
    served.optionxform = str  # type: ignore[assignment, method-assign]
    served.read(DEPLOY / f"systemd/{name}.service")
    words = shlex.split(served["Service"]["ExecStart"])[1:]
    assert words[-len(command) :] == command
    assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0
    granted = {
        name.removeprefix("CAP_") for name in served["Service"]["CapabilityBoundingSet"].split()
    }
    assert granted < CAPABILITIES
    for key, value in unit["Service"].items():
        if key.startswith(("Protect", "Private", "NoNew", "Lock", "SystemCall", "RestrictS")):
            assert served["Service"][key] == value, key


def test_the_unit_may_write_where_the_settings_say_and_has_few_capabilities(
    unit: configparser.ConfigParser,
) -> None:
    section = unit["Service"]
    assert section["ProtectSystem"] == "strict"
    assert f"/var/lib/{section['StateDirectory']}" == "/var/lib/oxydra"
    granted = {name.removeprefix("CAP_") for name in section["CapabilityBoundingSet"].split()}
    assert granted == CAPABILITIES


def test_the_runner_of_the_compose_file_is_hardened(service: dict[str, Any]) -> None:
    assert service["read_only"] is True
    assert service["network_mode"] == "none"
    assert service["cap_drop"] == ["ALL"]
    assert set(service["cap_add"]) == CAPABILITIES
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "ports", "devices"} & set(service)


def test_the_compose_file_mounts_the_data_at_its_own_path(service: dict[str, Any]) -> None:
    mounted = [tuple(volume.split(":")) for volume in service["volumes"]]
    assert mounted == [
        ("/var/run/docker.sock", "/var/run/docker.sock"),
        ("/var/lib/oxydra", "/var/lib/oxydra"),
        ("../runner.toml", "/etc/oxydra/runner.toml", "ro"),
    ]
    assert service["environment"]["OXYDRA_CONFIG"] == "/etc/oxydra/runner.toml"
