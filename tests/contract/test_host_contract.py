"""The host's API, frozen: methods and fields are only added; and the commands in the console."""

import re
from dataclasses import fields
from pathlib import Path

from runner.audit.calls import Filter
from runner.cli.options import command_names
from tests.support.gateway.http_front import METHODS

FROZEN = """
ListUsers
Status user_id
Start user_id insecure
Stop user_id
Restart user_id role
CheckBoundary user_id
ListProjects user_id
OpenProject user_id name
CloseProject user_id name
Doctor user_id
ListTokens
CreateToken user_id name scopes expires
RevokeToken user_id name
ListCalls user_id limit cursor tool outcome session_id channel since
AddUser user_id
Invite user_id
ListBelongings user_id
RemoveUser user_id confirm
GetSettings user_id
SetSettings user_id values key
ListModels user_id provider base_url key
PlanTools user_id block
AddTools user_id block
TryModel user_id values key
"""


def test_every_method_has_the_fields_that_it_had() -> None:
    for line in FROZEN.split("\n")[1:-1]:
        method, *names = line.split()
        assert set(names) <= set(METHODS[method].fields.split()), method


def test_every_method_is_frozen() -> None:
    assert list(METHODS) == [line.split()[0] for line in FROZEN.split("\n")[1:-1]]
    assert {each.name for each in fields(Filter)} <= set(METHODS["ListCalls"].fields.split())


def test_the_console_knows_every_command() -> None:
    source = (Path(__file__).parents[2] / "web/src/components/notices.js").read_text()
    table = source.partition("const COMMANDS = {")[2].partition("};")[0]
    assert set(re.findall(r"(\w+):", table)) == command_names()
