"""The runtime's own save, through the same pipeline as every other."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from wire.errors import WireError

from guest.agent.guard.parts import parts_of
from guest.agent.guard.quoting import beginning
from guest.agent.guard.sources import Source
from guest.agent.guard.statements import SAVED
from guest.agent.turn import Pipeline
from guest.tools.base import Approve, ToolContext, ToolResult

_TOOLS: Final = {"memory_save": 4000, "remember": 2000, "write_memory": 4000}
"""What can save, the first choice first, and the longest note that each is given."""
_FAILURES_MAX: Final = 3


class Saver:
    """Saves what a user asked to be kept on the runtime's behalf, in the `context` of a call
    at that point of the turn."""

    def __init__(
        self, pipeline: Pipeline, context: Callable[[], ToolContext], approve: Approve | None
    ) -> None:
        self._pipeline = pipeline
        self._context = context
        self._approve = approve

    async def read_file(self, arguments: dict[str, object]) -> ToolResult:
        """`file_read`; what an operator must mend is an error of it, too."""
        return await self._call(replace(self._context(), actor="automatic"), "file_read", arguments)

    async def save(self, sources: Sequence[Source], *, rest: bool = False) -> str:
        """Save `sources`; a sentence for the user on what is stored and what could not be.
        `rest`: something else that was asked for is stored already."""
        offered = {tool.name for tool in self._pipeline.tools()}
        tool = next((name for name in _TOOLS if name in offered), "")
        if not tool:
            return "(Nothing was saved: every tool that saves is off in [tools] of runner.toml.)"
        told: list[str] = []
        failed: list[str] = []
        for source in sources:
            stored, lost = await self._save(tool, source)
            told += stored
            failed += lost
        if not told:
            what = "Not everything" if rest else "Nothing"
            return f"({what} was saved: {'; '.join(failed)}.)"
        missing = f". Not saved: {'; '.join(failed)}" if failed else ""
        return f"{SAVED}{'; '.join(told)}{missing})"

    async def _save(self, tool: str, source: Source) -> tuple[list[str], list[str]]:
        """What was stored of one source, and what was not, in words."""
        context = replace(self._context(), actor="automatic")
        if source.material:
            context = replace(context, material=(source.name,))
        elif not source.name:
            context = replace(context, material=())  # the user's own words
        stored: list[str] = []
        lost: dict[str, list[int]] = {}
        parts = parts_of(source, _TOOLS[tool])
        failures = 0
        for number, part in enumerate(parts, 1):
            result = await self._call(context, tool, _arguments(tool, part))
            if not result.is_error:
                stored.append(result.summary)
                failures = 0
                continue
            lost.setdefault(result.summary, []).append(number)
            failures += 1
            if failures == _FAILURES_MAX:
                lost[result.summary] += range(number + 1, len(parts) + 1)
                break
        told = [f"{'; '.join(stored)} {_what(source, len(parts))}"] if stored else []
        return told, [
            _which(numbers, len(parts), source) + reason for reason, numbers in lost.items()
        ]

    async def _call(
        self, context: ToolContext, tool: str, arguments: dict[str, object]
    ) -> ToolResult:
        try:
            result = await self._pipeline.call(context, tool, arguments, self._approve)
        except WireError as error:
            return ToolResult(error.brief, True, error.brief, 0)
        return replace(result, summary=result.summary.rstrip("."))


def _arguments(tool: str, content: str) -> dict[str, object]:
    if tool != "write_memory":
        return {"content": content}
    key = f"kept-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    return {"key": key, "content": content}


def _what(source: Source, parts: int) -> str:
    if not source.name:
        return beginning(source.text)
    many = f", in {parts} parts" if parts > 1 else ""
    left_out = f"; {source.left_out}" if source.left_out else ""
    return f"from {source.name}{many}{left_out}"


def _which(numbers: Sequence[int], parts: int, source: Source) -> str:
    if parts == 1:
        return f"{source.name}: " if source.name else ""
    shown = f"{numbers[0]}–{numbers[-1]}" if len(numbers) > 2 else " and ".join(map(str, numbers))
    return f"part {shown} of {parts} of {source.name or 'your words'}: "
