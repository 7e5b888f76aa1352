"""A save is claimed only if it happened.

A model may forget to save, or say that it did. The guard of one turn knows what the user
asked to be kept, what the calls really did, and what the answer may therefore say
(docs/design/2026-11-21-save-promise.md).
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from guest.agent.guard.claims import claims_of
from guest.agent.guard.deeds import Deeds
from guest.agent.guard.earlier import Earlier
from guest.agent.guard.forgotten import forgotten
from guest.agent.guard.held_text import HeldText
from guest.agent.guard.intent import Wish, wish_of
from guest.agent.guard.saving import Saver
from guest.agent.guard.sentences import split
from guest.agent.guard.sources import NothingMeant, sources_of
from guest.agent.guard.statements import NOT_THAT, NOTHING
from guest.agent.turn import Pipeline, TurnRequest
from guest.tools.base import Approve, Safety, ToolContext, ToolResult


class SaveGuard:
    """Watches one turn. `text` is its answers' way to the user; `context` makes that of a
    call at this point of the turn."""

    def __init__(
        self,
        pipeline: Pipeline,
        request: TurnRequest,
        approve: Approve | None,
        earlier: Earlier,
        context: Callable[[], ToolContext],
    ) -> None:
        changing = {tool.name for tool in pipeline.tools() if tool.safety is not Safety.READ_ONLY}
        self._deeds = Deeds(changing)
        self._saver = Saver(pipeline, context, approve)
        self._wish = wish_of(request.text)
        self._previous = earlier.answer
        self._answer = ""
        if earlier.saved:
            self._deeds.remembered()
        self.text = HeldText(self._is_false, lambda: self._due() is not None)

    def saw(self, tool: str, arguments: Any, result: ToolResult, step: int) -> None:
        """Take note of a call that ended in model request `step`."""
        self._deeds.saw(tool, arguments, result, step)

    def shown(self, note_ids: Collection[str]) -> None:
        """The prompt had these notes, so that the model may say of them that they are saved."""
        if note_ids:
            self._deeds.remembered()

    async def amend(self, answer: str) -> str:
        """What the final answer, of which the user sees `answer`, must still say."""
        self._answer = answer
        try:
            if saved := await self._save():
                return saved
        except NothingMeant as nothing:
            return f"(Nothing was saved: {nothing}.)"
        said = []
        if any(map(self._is_false, self.text.struck)):
            said.append(NOT_THAT if self._deeds.anything else NOTHING)
        lost = self._deeds.unmended()
        if lost and (self._wish is not None or any(map(claims_of, self._all(answer)))):
            said.append(f"(Not saved: {'; '.join(lost)})")
        return " ".join(said)

    async def keep(self) -> str:
        """Save what was asked to be kept although the turn has failed, and say how it went;
        empty where nothing was due, or where what was meant never came to be."""
        try:
            return await self._save()
        except NothingMeant:
            return ""

    async def _save(self) -> str:
        if (wish := self._due()) is None:
            return ""
        sources = await sources_of(
            wish,
            self._deeds.calls,
            self._saver.read_file,
            answer=self._answer,
            previous=self._previous,
        )
        return await self._saver.save(sources, rest=bool(self._deeds.kept))

    def _due(self) -> Wish | None:
        """What the user has asked to be kept and is not; None where nothing is missing."""
        wish = self._wish
        if wish is None or (wish.in_file and self._deeds.wrote):
            return None
        if not self._deeds.kept:
            return wish
        words = forgotten(wish.words, self._deeds.kept.values())
        return replace(wish, words=words) if words else None

    def _is_false(self, sentence: str) -> bool:
        of_memory = self._wish is not None and not self._wish.in_file
        return self._deeds.is_false(sentence, of_memory=of_memory)

    def _all(self, answer: str) -> list[str]:
        return [*split(answer), *self.text.struck]
