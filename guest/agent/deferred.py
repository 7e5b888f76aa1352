"""Tools that a request carries only once the model has found them.

A request always carries the core: memory, files, the shell, and `find_tools` where there are
others. What was found is offered behind them, in the order of finding, to the end of the session. A
tool that is called by its name counts as found.
"""

import json
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import ToolDefinition
from wire.tools import CORE

from guest.errors import StorageError
from guest.memory.conversations.sessions import SessionState
from guest.tools.base import Tool

log = logging.getLogger(__name__)

FIND_TOOLS: Final = "find_tools"
OFFERED_MAX: Final = 40
"""How many tools a request carries at most; above, the one that was not used for longest goes."""

_AT_ONCE: Final = 5
_NAMED_MAX: Final = 8
_KEPT_MAX: Final = 200
_STATE: Final = "found_tools"
_WORD: Final = re.compile(r"[^\W_]{3,}")
_ENDING: Final = re.compile(r"(?:ing|ed|es|s|e)$")
_SCHEMA: Final = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "what it should do"}},
    "required": ["query"],
}


def search_tool(tools: Iterable[Tool]) -> list[ToolDefinition]:
    """The tool that finds those beyond the core; none where there are none. It is the same in each
    request, as long as the tools are."""
    names = [each.name for each in tools if each.name not in CORE]
    if not names:
        return []
    named = ", ".join((*names[:_NAMED_MAX], *(["…"] if len(names) > _NAMED_MAX else [])))
    told = f"Finds more tools: {named}. Call what it finds."
    return [
        ToolDefinition(
            name=FIND_TOOLS,
            description=told,
            parameters_json_schema=_SCHEMA,
            sequential=True,
            strict=False,
        )
    ]


class FoundTools(AbstractCapability[Any]):
    """The tools that a session has found; offers them in the requests of one turn.

    Args:
        session_id: The session's.
        state: Where they are kept.
        tools: All tools that the agent has now.
    """

    def __init__(
        self, session_id: str, state: SessionState, tools: Callable[[], Sequence[Tool]]
    ) -> None:
        self._session_id = session_id
        self._state = state
        self._tools = tools
        self._used: dict[str, int] = {}
        self._epoch = 0
        self._is_read = False

    async def prepare_model_request(
        self,
        ctx: RunContext[Any],  # noqa: ARG002 - all is in the request
        request_context: ModelRequestContext,
    ) -> ModelRequestContext:
        await self._read()
        parameters = request_context.model_request_parameters
        deferred = {each.name for each in self._tools()} - CORE
        others = {each.name: each for each in parameters.function_tools if each.name in deferred}
        tools = [each for each in parameters.function_tools if each.name not in deferred]
        found = [name for name in self._used if name in others]
        room = max(0, OFFERED_MAX - len(tools))
        shown = sorted(found, key=self._used.__getitem__, reverse=True)[:room]
        tools += [others[name] for name in found if name in shown]
        request_context.model_request_parameters = replace(parameters, function_tools=tools)
        return request_context

    async def find(self, query: str) -> str:
        """Find the tools for `query`, offer them from now on, and tell of them."""
        wanted = _words(query)
        tools = [each for each in self._tools() if each.name not in CORE]
        scored = [(len(wanted & _words(f"{each.name} {each.description}")), each) for each in tools]
        best = sorted((one for one in scored if one[0]), key=lambda one: -one[0])[:_AT_ONCE]
        if not best:
            return f"No tool fits. There are: {', '.join(each.name for each in tools)}"
        await self.use(*(each.name for _, each in best))
        return json.dumps(
            [{"name": each.name, "description": each.description} for _, each in best],
            ensure_ascii=False,
        )

    async def use(self, *names: str) -> None:
        """Count these tools as used now; those of the core need not be found."""
        known = {each.name for each in self._tools()} - CORE
        if new := [name for name in names if name in known]:
            await self._read()
            latest = max(self._used.values(), default=0)
            self._used |= {name: latest + number for number, name in enumerate(new, 1)}
            while len(self._used) > _KEPT_MAX:
                del self._used[min(self._used, key=self._used.__getitem__)]
            try:
                value = json.dumps(self._used)
                if await self._state.swap(self._session_id, _STATE, value, self._epoch):
                    self._epoch += 1
            except StorageError as error:
                log.warning("the tools that a session has found are not stored: %s", error.brief)

    async def _read(self) -> None:
        if self._is_read:
            return
        self._is_read = True
        try:
            stored = await self._state.read(self._session_id, _STATE)
            value, self._epoch = stored or ("{}", 0)
            read = json.loads(value)
            self._used = {str(name): int(used) for name, used in read.items()}
        except (StorageError, ValueError, AttributeError, TypeError) as error:
            log.warning("the tools that a session has found cannot be read: %s", error)


def _words(text: str) -> set[str]:
    return {_ENDING.sub("", word) for word in _WORD.findall(text.casefold())}
