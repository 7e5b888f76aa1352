"""A person's own calls of the memory tools: the model's tools, and none of its doubts."""

import json
from collections.abc import Mapping
from typing import Any, Final

from wire.errors import Code

from guest.agent.turn import Pipeline
from guest.errors import GuestError
from guest.gateway import bounds
from guest.memory.types import MemoryFull
from guest.tools.base import ToolContext

_CHANNEL: Final = "gateway"


class Refused(GuestError):  # noqa: N818 - a condition that callers expect and handle
    """A memory tool has refused a call."""


def channel_of(given: str) -> str:
    """Where the origin of a note says that a person has written it. Raises `GuestError`."""
    return bounds.identifier("channel", given, optional=True) or _CHANNEL


class Person:
    """Calls tools for one user, who has decided on every call and vouches for its text."""

    def __init__(self, user_id: str, pipeline: Pipeline) -> None:
        self._user_id = user_id
        self._pipeline = pipeline

    async def call(
        self, tool: str, arguments: Mapping[str, object], *, link: str = "", channel: str = ""
    ) -> tuple[Any, list[str]]:
        """What the tool has answered, and what is to be known of it besides.

        Raises `MemoryFull`, and `Refused` with the code of any other refusal.
        """
        caller = ToolContext(self._user_id, "", "", channel_of(channel), actor="user", link=link)
        result = await self._pipeline.call(caller, tool, arguments)
        if result.code is Code.RESOURCE_EXHAUSTED:
            raise MemoryFull(result.text)
        if result.is_error:
            raise Refused(result.code or Code.INTERNAL, result.text)
        data, end = json.JSONDecoder().raw_decode(result.text)
        return data, result.text[end:].split("\nNote: ")[1:]
