"""What a person allows in the chat for a session is run without a question there, is recorded, and
is theirs to take back."""

import json

import pytest

from tests.support.commands.household import COMMAND, Household
from tests.support.commands.terminal import Terminal

pytestmark = pytest.mark.bubblewrap

OFFERED = """  1 yes, and in this session: commands that begin with `ls` in /shared
  2 yes, and in this session: `ls -l` in /shared
"""


async def test_a_person_is_asked_once_for_commands_that_begin_alike(household: Household) -> None:
    household.environment |= {
        "OXYDRA_EMBEDDER__BACKEND": "none",
        "OXYDRA_AGENT__PROVIDER": "offline",
        "OXYDRA_TOOLS__APPROVAL": "ask",
    }
    command, here = [*COMMAND, "chat"], household.working_directory
    async with Terminal(command, household.environment, here) as terminal:
        at = await terminal.expect("· /help")
        terminal.type("run ls -l\r")
        at = await terminal.expect(OFFERED, after=at)
        at = await terminal.expect("[y/N/1/2]", after=at)
        terminal.type("1\r")
        at = await terminal.expect("[y/N/1/2] 1", after=at)
        at = await terminal.expect("exit code 0", after=at)
        terminal.type("run ls -a\r")
        at = await terminal.expect("exit code 0; allowed by your word of ", after=at)
        terminal.type("run ls -a; id\r")
        at = await terminal.expect("[y/N]", after=at)
        terminal.type("n\r")
        at = await terminal.expect("was not approved by the user", after=at)
        terminal.type("/approvals\r")
        at = await terminal.expect("  commands that begin with `ls` in /shared\n", after=at)
        (given,) = json.loads(household.works("approvals", "list", "--json"))
        assert given["text"] == "commands that begin with `ls` in /shared"
        assert given["channel"] == "cli"
        history = household.works("sessions", "show", given["scope"].removeprefix("session:"))
        assert "; allowed by your word of " in history
        calls = json.loads(household.works("audit", "list", "--json"))
        assert [(each["tool"], each["actor"], each["asked"]) for each in calls] == [
            ("shell_exec", "agent", True),
            ("approval", "person", False),
            ("shell_exec", "agent", False),
            ("shell_exec", "agent", True),
        ]
        assert calls[1]["about"] == f"allows {given['text']} ({given['scope']})"
        assert calls[2]["granted"].endswith(given["text"])
        terminal.type(f"/approvals {given['grant_id'][:14]}\r")
        at = await terminal.expect("withdrawn: commands that begin with `ls`", after=at)
        terminal.type("run ls -a\r")
        at = await terminal.expect("[y/N/1/2]", after=at)
        terminal.type("2\r")
        at = await terminal.expect("exit code 0", after=at)
        (given,) = json.loads(household.works("approvals", "list", "--json"))
        done = household.works("approvals", "withdraw", given["grant_id"])
        assert done == "withdrawn: `ls -a` in /shared\n"
        assert household.run("approvals", "withdraw", given["grant_id"]).returncode == 1
        terminal.type("\x04")
        assert await terminal.ended() == 0
