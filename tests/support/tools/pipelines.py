"""Small tools and a pipeline to look into."""

import asyncio
import json
import re
from dataclasses import replace
from typing import Any, cast

from pydantic import Field
from wire.errors import Code

from guest.errors import GuestError, ToolError
from guest.tools.base import Arguments, Excerpt, Safety, Tool, ToolContext, ToolOutput
from guest.tools.output import HostPaths, Reader, Renderer
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.placeholders import Placeholders
from guest.tools.redaction.scrubber import REDACTED, Scrubber
from guest.tools.shell.tool import shell_tools

SECRET = "launch-token-0123456789"
ALICE = ToolContext("alice", "session-1", "turn-1", "test")


def shell_exec(run: Any) -> Tool:
    """The tool that runs commands, as it is offered, with this `run`."""
    return replace(shell_tools(cast(Any, None), cast(Any, None))[0], run=run)


def cut_out(scrubber: Scrubber, excerpt: Excerpt) -> str:
    """What a result shows of `excerpt`, with `[redacted]` for every placeholder."""
    renderer = Renderer(scrubber, HostPaths({}), 1_000_000)
    reader = Reader(Placeholders().of("alice", "session-1"))
    return unnumbered(str(json.loads(renderer.output(ToolOutput(excerpt), reader).text)))


def unnumbered(text: str) -> str:
    """`text` with `[redacted]` for every placeholder."""
    return re.sub(r"\[redacted:[0-9a-f]{12}\]", REDACTED, text)


class EchoArguments(Arguments):
    text: str = Field(default="", max_length=100_000)


async def echo(ctx: ToolContext, arguments: EchoArguments) -> ToolOutput:
    return ToolOutput({"text": arguments.text, "user": ctx.user_id}, summary=arguments.text)


async def sleep(_: ToolContext, __: EchoArguments) -> ToolOutput:
    await asyncio.sleep(60)
    return ToolOutput({})


async def bug(_: ToolContext, arguments: EchoArguments) -> ToolOutput:
    raise ZeroDivisionError(arguments.text)


async def broken(_: ToolContext, __: EchoArguments) -> ToolOutput:
    raise GuestError(Code.DATA_LOSS, "the store is corrupt", resolution="restore it")


async def mendable(_: ToolContext, arguments: EchoArguments) -> ToolOutput:
    raise ToolError(f"try another text than {arguments.text}")


async def own_timeout(_: ToolContext, __: EchoArguments) -> ToolOutput:
    raise TimeoutError


def tool(name: str, run: Any, safety: Safety = Safety.READ_ONLY, timeout: float = 5.0) -> Tool:
    return Tool(name, f"{name} for tests", EchoArguments, safety, timeout, run)


def registry(*tools: Tool) -> Registry:
    """A registry of tools that only tests have."""
    return Registry(tools, {"test": [tool.name for tool in tools]})


def pipeline(**options: Any) -> ToolPipeline:
    tools = [
        tool("echo", echo),
        tool("slow_read", sleep, timeout=0.05),
        tool("slow_write", sleep, Safety.SIDE_EFFECTING, timeout=0.05),
        tool("bug", bug),
        tool("broken", broken),
        tool("mendable", mendable),
        tool("own_timeout", own_timeout),
        tool("run", echo, Safety.PRIVILEGED),
    ]
    options.setdefault("scrubber", Scrubber([SECRET]))
    return ToolPipeline(registry(*tools), **options)
