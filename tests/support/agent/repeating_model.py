"""A model that does as it is told, for tests of what stands before an agent."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any, cast

from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from guest.agent.turn import TIME

_CALL = re.compile(r"^call (\S+) (.+)", re.DOTALL | re.MULTILINE)
_SAY = re.compile(r"^say (.+)", re.DOTALL | re.MULTILINE)


class RepeatingModel:
    """Repeats the question. "call TOOL JSON" calls that tool, and its result is told; "say TEXT" is
    answered with that text alone, or where it must call a tool, with a call that has it as
    arguments; "wait" ends only when the turn is stopped. "keep what you were told" and "keep the
    result" save the last line of a client's instructions, and the last result of a call.

    Attributes:
        seen: What the model was sent, request by request.
        told: With which instructions and tools.
    """

    def __init__(self) -> None:
        self.seen: list[list[ModelMessage]] = []
        self.told: list[AgentInfo] = []
        self.made = FunctionModel(stream_function=self._answer)

    def prompts(self) -> list[str]:
        """What stands for the user in the last request."""
        parts = [part for message in self.seen[-1] for part in message.parts]
        said = [str(part.content) for part in parts if isinstance(part, UserPromptPart)]
        return [text for text in said if not text.startswith(TIME)]

    async def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        self.seen.append(list(messages))
        self.told.append(info)
        last = messages[-1].parts[-1]
        if isinstance(last, ToolReturnPart):
            yield f"It gave: {last.model_response_str()[:60]}"
            return
        asked = str(last.content) if isinstance(last, UserPromptPart) else ""
        if said := _SAY.search(asked):
            if must := cast(Any, info.model_settings or {}).get("tool_choice"):
                yield {0: DeltaToolCall(must[0], said[1], tool_call_id=f"c{len(self.seen)}")}
            else:
                yield said[1]
            return
        if asked in ("keep what you were told", "keep the result"):
            asked = (
                f"call memory_save {json.dumps({'content': self._found(messages, info, asked)})}"
            )
        if called := _CALL.search(asked):
            yield "Let me see. "
            yield {0: DeltaToolCall(called[1], called[2], tool_call_id="c1")}
            return
        yield "You said: "
        if asked == "wait":
            await asyncio.Event().wait()
        yield asked

    @staticmethod
    def _found(messages: list[ModelMessage], info: AgentInfo, asked: str) -> str:
        if asked == "keep what you were told":
            lines = str(info.instructions).splitlines()
            return [line[2:] for line in lines if line.startswith("> ")][-1]
        parts = [part for message in messages for part in message.parts]
        return [part.model_response_str() for part in parts if isinstance(part, ToolReturnPart)][-1]
