"""`runner acp`: the agent for editors that speak the Agent Client Protocol, over standard input and
output."""

import logging
import os
import stat
from typing import Final, cast

import acp
from wire.errors import Code, WireError

from runner.acp.agent import EditorAgent
from runner.cli.agent import lasting_agent, running_agent
from runner.cli.options import Options

CHANNEL: Final = "acp"
"""The channel that sessions and notes of this account's own editors record."""


def in_one_line(record: logging.LogRecord) -> bool:
    """Let the library say what an editor did wrong without a traceback."""
    why = record.exc_info[1] if record.exc_info else None
    record.msg, record.args = f"{record.getMessage()}: {why}" if why else record.getMessage(), ()
    record.exc_info = record.exc_text = None
    return True


async def serve(options: Options) -> None:
    """Serve one editor until it leaves. Raises `WireError` if there is none at the other end of the
    standard streams, or no agent to begin with."""
    modes = [os.fstat(number).st_mode for number in (0, 1)]
    if not all(stat.S_ISFIFO(each) or stat.S_ISSOCK(each) for each in modes):
        raise WireError(
            Code.INVALID_ARGUMENT,
            "no editor has started this: standard input and output are no pipes",
            resolution="name this command in the editor's settings (docs/guide/editors.md)",
        )
    lines = logging.StreamHandler()
    lines.addFilter(in_one_line)
    logging.getLogger().addHandler(lines)
    async with running_agent(options):
        pass
    async with lasting_agent(options, CHANNEL) as gateway:
        agent = EditorAgent(gateway)
        try:
            await acp.run_agent(cast("acp.Agent", agent))
        finally:
            await agent.close()
