"""A save is claimed only if it happened.

A model may forget to call `memory_save`, or say that it did. After its answer
the runtime looks at what the tools really did in this turn: what the user
plainly asked to be kept is then saved by the runtime itself, and a claim
without any deed is corrected in the same answer.
"""

import re
from typing import Any

from wire.errors import WireError

from guest.agent.turn import Pipeline
from guest.tools.base import Approve, ToolContext, ToolResult

_ASKED = re.compile(
    r"(?:please[ ,]+)?(?:remember|keep in mind|don['’]t forget)\s*(?:that\b|:)\s*(?P<text>\S.*)",
    re.IGNORECASE | re.DOTALL,
)
_CLAIMED = re.compile(
    r"\b(?:I|I['’]ve|I have|it|that|this)\s+(?:have |has |is |been |just |now |already )*"
    r"(?:saved|stored|noted|memori[sz]ed|updated|deleted|forgotten)\b",
    re.IGNORECASE,
)
_SAVES = frozenset({"memory_save", "memory_update", "remember", "write_memory"})


class SaveGuard:
    """Watches the calls of one turn; `amend` says what the answer must still say."""

    def __init__(self, pipeline: Pipeline, context: ToolContext, approve: Approve | None) -> None:
        self._pipeline = pipeline
        self._context = context
        self._approve = approve
        self._kept = False
        self._changed = False

    def saw(self, tool: str, result: ToolResult, *, changes: bool) -> None:
        """Take note of a finished call; `changes`: it was no ReadOnly one."""
        if not result.is_error:
            self._changed |= changes
            self._kept |= tool in _SAVES

    async def amend(self, asked: str, answer: str) -> str:
        """What to add to `answer`; empty where it is true as it stands."""
        wanted = _ASKED.fullmatch(asked.strip())
        if wanted and not self._kept:
            return await self._save(wanted["text"])
        if not self._changed and _CLAIMED.search(answer):
            return "(In truth nothing was saved or changed in this turn: no tool did it.)"
        return ""

    async def _save(self, text: str) -> str:
        if "memory_save" not in {tool.name for tool in self._pipeline.tools()}:
            return "(Nothing was saved: memory_save is switched off.)"
        arguments: dict[str, Any] = {"content": text}
        try:
            result = await self._pipeline.call(
                self._context, "memory_save", arguments, self._approve
            )
        except WireError as error:
            return f"(Nothing was saved: {error.brief}.)"
        if result.is_error:
            return f"(Nothing was saved: {result.text})"
        return f"(Saved by the runtime, as you asked: {result.summary})"
