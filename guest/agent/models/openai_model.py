"""OpenAI's chat API, as other servers speak it, too.

OpenAI numbers the calls of an answer, and sends the id and the name of each once. Others number all
of them 0 or none, leave the ids out, or repeat ids and names with every piece. A piece of a call is
put where its id says, else its number, else to the last one.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.messages import ModelResponseStreamEvent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIStreamedResponse


@dataclass
class _Call:
    """A call as far as it has come."""

    id: str
    number: int | None
    name: str = ""
    arguments: str = ""

    @property
    def is_whole(self) -> bool:
        try:
            json.loads(self.arguments)
        except (ValueError, RecursionError):
            return False
        return True


@dataclass
class _Stream(OpenAIStreamedResponse):
    _calls: list[_Call] = field(default_factory=list, init=False)

    def _map_tool_call_delta(self, choice: Any) -> Iterable[ModelResponseStreamEvent]:
        for piece in choice.delta.tool_calls or ():
            place = self._place_of(piece)
            call, said = self._calls[place], piece.function
            piece.index = place
            call.id = call.id or piece.id or ""
            if said is not None:
                if said.name and said.name == call.name:
                    said.name = None
                call.name += said.name or ""
                given = said.arguments or ""
                call.arguments += given if isinstance(given, str) else json.dumps(given)
        return super()._map_tool_call_delta(choice)

    def _place_of(self, piece: Any) -> int:
        """Which call a piece belongs to; a new one if it begins one."""
        number = getattr(piece, "index", None)
        name = piece.function.name if piece.function is not None else None
        same_number = [n for n, call in enumerate(self._calls) if number in (None, call.number)]
        if piece.id:
            known = [n for n, call in enumerate(self._calls) if call.id == piece.id]
            if known or (same_number and not name):
                return known[0] if known else same_number[-1]
        elif same_number:
            last = self._calls[same_number[-1]]
            is_other = name != last.name and (last.arguments or number is None)
            if not (name and last.name and (is_other or last.is_whole)):
                return same_number[-1]
        self._calls.append(_Call(piece.id or "", number))
        return len(self._calls) - 1


class OpenAIModel(OpenAIChatModel):
    """A model of OpenAI, or of a server that speaks its API."""

    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return _Stream
