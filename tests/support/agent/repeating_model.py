"""A model that does as it is told, for tests of what stands before an agent."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from guest.agent.turn import TIME


class RepeatingModel:
    """Repeats the question. "call TOOL JSON" calls that tool, and its result is told; "wait" ends
    only when the turn is stopped. "keep what you were told" and "keep the result" save the last
    line of a client's instructions, and the last result of a call.

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
        if asked in ("keep what you were told", "keep the result"):
            asked = (
                f"call memory_save {json.dumps({'content': self._found(messages, info, asked)})}"
            )
        if asked.startswith("call "):
            _, tool, arguments = asked.split(" ", 2)
            yield "Let me see. "
            yield {0: DeltaToolCall(tool, arguments, tool_call_id="c1")}
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
