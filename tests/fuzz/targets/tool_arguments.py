"""Arguments as a model writes them, for every tool, and commands for the policy.

They are taken or refused in a message that a model can read and that shows no secret. What was
taken is taken again as the same. What the policy lets pass without operators is what is executed.
"""

import asyncio
import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from wire.limits import COMMAND_MAX_CHARS, TOOL_OUTPUT_MAX_BYTES
from wire.settings import ShellSettings

from guest import composition
from guest.errors import ToolError
from guest.tools.arguments import check
from guest.tools.base import Tool
from guest.tools.command_policy import CommandPolicy
from guest.tools.files import file_tools
from guest.tools.files.roots import Roots, VirtualPaths
from guest.tools.output import HostPaths, Reader, Renderer
from guest.tools.pipeline import check_paths
from guest.tools.redaction.placeholders import Placeholders
from guest.tools.redaction.scrubber import Scrubber
from guest.tools.shell.background import BackgroundCommands
from guest.tools.shell.client import ShellClient
from guest.tools.shell.tool import shell_tools
from tests.fuzz.material import Choices, OneInput, Target, chosen
from tests.fuzz.targets.export_lines import ODD
from tests.support import parties
from tests.support.memory.store import opened
from tests.support.tools.memory_tools import RIGHT

_SECRET: Final = "launch-token-0123456789"
_PIECES: Final = [_SECRET[at : at + 16] for at in range(len(_SECRET) - 15)]
"""Shorter pieces are shown where a text was cut: they may be no more than all keys begin with."""
_SCRUBBER: Final = Scrubber([_SECRET])
_RENDERER: Final = Renderer(_SCRUBBER, HostPaths({}), TOOL_OUTPUT_MAX_BYTES)
_FILES: Final[dict[str, dict[str, Any]]] = {
    "file_read": {"path": "/shared/a"},
    "file_list": {"path": "/shared"},
    "file_search": {"path": "/shared", "query": "x"},
    "file_write": {"path": "/shared/a", "content": "x"},
    "file_edit": {"path": "/shared/a", "old": "x", "new": "y"},
    "file_delete": {"path": "/shared/a"},
    "shell_exec": {"command": "ls -l"},
}
_POLICIES: Final = tuple(
    CommandPolicy(ShellSettings.model_validate(rules))
    for rules in (
        {"deny": ["rmx *", "rmx"]},
        {"allow": ["ls *", "git *", "echo *"]},
        {"operators": False},
        {"operators": False, "deny": ["rmx*"]},
    )
)
_COMMANDS: Final = (
    *("ls -l", "rmx a", "a=1 rmx", "env -S'rmx a'", "xargs rmx", "bash -c 'rmx a'", "$(rmx a)"),
    *("printf -v 'a[$(rmx)]' x", "PS4='$(rmx a)'; set -x; :", "cat <<E\n$(rmx)\nE", "r\\mx a"),
    *("git log --oneline | head", "echo 'a\"b' \"c\" $'\\x41'", "if rmx; then :; fi", "`rmx`"),
)


def _one_input(data: bytes, tools: list[Tool]) -> None:
    choices = Choices(data)
    if choices.below(4) == 3:
        _command(choices)
        return
    tool = choices.one_of(tools)
    arguments = _arguments(choices, tool)
    try:
        checked = check(tool, arguments, _SCRUBBER.scrub)
        check_paths(tool, checked, VirtualPaths())
    except ToolError as refusal:
        told = _RENDERER.error(refusal, Reader(Placeholders().of("alice", "s1")))
        assert told
        assert told.encode(), "it is text that can be sent"
        assert len(told.splitlines()) == 1
        assert not any(piece in told for piece in _PIECES), "a refusal shows a secret"
        return
    again = checked.model_dump(mode="json", exclude_unset=True)
    assert check(tool, again, _SCRUBBER.scrub) == checked
    assert check(tool, json.dumps(again), _SCRUBBER.scrub) == checked


def _arguments(choices: Choices, tool: Tool) -> str | dict[str, Any]:
    """Arguments as text or as an object, from those that are right."""
    if choices.below(4) == 3:
        return choices.rest().decode(errors="surrogateescape")
    given = dict({**RIGHT, **_FILES}.get(tool.name, {}))
    for _ in range(choices.below(4)):
        field = choices.one_of((*tool.arguments.model_fields, "unknown", _SECRET))
        match choices.below(4):
            case 0:
                given.pop(field, None)
            case 1:
                given[field] = choices.text()
            case 2:
                given[field] = choices.one_of(
                    (_SECRET, [_SECRET], {"a": _SECRET}, "." * 55 + _SECRET)
                )
            case _:
                given[field] = choices.one_of(ODD)
    return given if choices.below(2) else json.dumps(given)


def _command(choices: Choices) -> None:
    policy = choices.one_of(_POLICIES)
    command = choices.one_of(_COMMANDS) if choices.below(4) else ""
    command = (command + choices.text())[:COMMAND_MAX_CHARS]
    try:
        policy.check(command)
        argv = policy.argv(command)
    except ToolError as refusal:
        assert str(refusal)
        return
    if not policy.rules.operators:
        assert argv
        if "#" not in command:  # a comment for bash, and none for shlex
            with suppress(ValueError):
                assert list(argv) == shlex.split(command), "it is executed as something else"
    if policy.rules.deny and argv:
        assert not argv[0].startswith("rmx")


@contextmanager
def _opened(scratch: Path) -> Iterator[OneInput]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        tools = runner.run(_all_tools(scratch, stack))
        yield lambda data: _one_input(data, tools)
        runner.run(stack.aclose())


async def _all_tools(scratch: Path, stack: AsyncExitStack) -> list[Tool]:
    directories = {name: scratch / name for name in ("shared", "tmp", "vault")}
    for directory in directories.values():
        directory.mkdir()
    memory = await stack.enter_async_context(opened(scratch / "memory.db"))
    roots = Roots(directories)
    stack.callback(roots.close)
    shell = ShellClient(parties.shell(f"unix:{scratch}/none.sock", "token"))
    stack.push_async_callback(shell.close)
    return [
        *composition.tools_of_memory(memory, "user"),
        *file_tools(roots),
        *shell_tools(shell, BackgroundCommands(shell, memory.state_of, str)),
    ]


def _seeds() -> Mapping[str, bytes]:
    tools = len(RIGHT) + len(_FILES)
    right = {f"right-{number}": bytes([0, number, 0, 0, 0]) for number in range(tools)}
    odd = {
        f"odd-{number}": bytes([0, number, 0, 1, number, 3, number, 0])
        for number in range(0, tools, 2)
    }
    texts = {
        "nothing": chosen(0, 1, 3),
        "nested": chosen(0, 1, 3, b'{"content": ' + b"[" * 1000),
        "number": chosen(0, 1, 3, b'{"content": ' + b"9" * 1000),
        "surrogate": chosen(0, 1, 3, b'{"content": "\\ud800"}'),
        "not-json": chosen(0, 1, 3, b"{'content': 1}"),
    }
    commands = {
        f"command-{number}": chosen(3, number % len(_POLICIES), 1, number, 0)
        for number in range(len(_COMMANDS))
    }
    return right | odd | texts | commands


TARGET = Target("tool_arguments", 110, _opened, _seeds, longest=1024)
