"""Completion in shells: the scripts that ask for it, and the answers."""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, Literal

import typer
from wire.errors import WireError
from wire.limits import ID_PATTERN

from runner.cli.options import Options, program

Shell = Literal["bash", "zsh", "fish"]

_PROGRAMS: Final = ("runner", "oxydra")
_SESSIONS: Final = 50
_WITHIN_S: Final = 1.0
"""So long an agent has to name its sessions: a person waits at the key."""


def script(shell: Shell) -> str:
    """What a shell reads to complete the words of this program, under both of its names."""
    from typer._completion_shared import get_completion_script

    return "\n".join(
        get_completion_script(prog_name=name, complete_var=_variable(name), shell=shell)
        for name in _PROGRAMS
    )


def to_complete(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a shell has called, which sets a variable."""
    return bool(environ.get(_variable(program())))


def complete(app: typer.Typer) -> int:
    """Answer a shell and return the exit code that it expects. Nothing else is written: what goes
    wrong completes nothing."""
    from typer._completion_classes import completion_init

    completion_init()
    try:
        app(prog_name=program(), complete_var=_variable(program()), standalone_mode=False)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except Exception:
        return 1
    return 0


def user_names(context: typer.Context, incomplete: str) -> list[str]:
    """The users of this machine."""
    from runner.config.users import known_users

    with suppress(WireError, OSError):
        return [name for name in known_users(_options(context).load()) if _fits(name, incomplete)]
    return []


def session_ids(context: typer.Context, incomplete: str) -> list[str]:
    """The latest sessions of a running agent. Only ids, because titles are text of others, which a
    shell would have to read."""
    import asyncio

    from runner.cli.agent import running_agent

    async def listed() -> Iterable[str]:
        async with asyncio.timeout(_WITHIN_S), running_agent(_options(context)) as agent:
            return [session.session_id for session in await agent.list_sessions(_SESSIONS)]

    with suppress(WireError, OSError, TimeoutError):
        return [each for each in asyncio.run(listed()) if _fits(each, incomplete)]
    return []


def _variable(name: str) -> str:
    return f"_{name.upper()}_COMPLETE"


def _fits(name: str, incomplete: str) -> bool:
    return name.startswith(incomplete) and re.fullmatch(ID_PATTERN, name) is not None


def _options(context: typer.Context) -> Options:
    """The options of every command as far as they are typed."""
    typed = context.find_root().params
    return Options(
        config_file=typed.get("config"),
        user_id=typed.get("user") or Options.user_id,
        tier=typed.get("tier"),
        insecure=bool(typed.get("insecure")),
        workspace_root=typed.get("workspace_root"),
        connect=typed.get("connect"),
    )
