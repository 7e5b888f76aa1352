"""Whether a call may run: what the operator switched off, who approves, which paths."""

import asyncio
import logging
from collections.abc import Collection
from typing import Final, Literal, get_args

from guest.errors import ToolError
from guest.tools.base import Approve, Arguments, Safety, Tool, ToolContext
from guest.tools.files.roots import parse

log = logging.getLogger(__name__)

Approval = Literal["auto", "ask", "deny"]
APPROVALS: Final = get_args(Approval)


class Gate:
    """The operator's word on tools. Immutable.

    PRIVILEGED calls pass with `auto`, never with `deny`, and with `ask` only
    after a person said yes; no answer, and a failure while asking, is a no.
    """

    def __init__(self, disabled: Collection[str], approval: Approval) -> None:
        if approval not in APPROVALS:
            raise ValueError(f"approval: {approval!r}; accepted: {', '.join(APPROVALS)}")
        self._disabled = frozenset(disabled)
        self._approval = approval

    def offers(self, tool: Tool) -> bool:
        """Whether a model is told of `tool` at all."""
        denied = tool.safety is Safety.PRIVILEGED and self._approval == "deny"
        return not denied and tool.name not in self._disabled

    async def admit(
        self, context: ToolContext, tool: Tool, arguments_json: str, approve: Approve | None
    ) -> None:
        """Return where the call may run; raises `ToolError` with the reason otherwise."""
        if tool.name in self._disabled:
            raise ToolError(f"{tool.name} is switched off by the operator")
        if tool.safety is not Safety.PRIVILEGED or self._approval == "auto":
            return
        if self._approval == "deny":
            raise ToolError(f"{tool.name} is not permitted by the operator")
        if approve is None:
            raise ToolError(f"{tool.name} needs approval, and nobody is here to give it")
        try:
            approved = await approve(context, tool, arguments_json)
        except (Exception, asyncio.CancelledError) as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            log.error("asking for approval failed: %s", type(error).__name__)
            raise ToolError(f"{tool.name} was not approved: asking failed") from None
        if approved is not True:
            raise ToolError(f"{tool.name} was not approved by the user")


def check_paths(tool: Tool, arguments: Arguments) -> None:
    """Refuse virtual paths outside the roots, changes in a read-only one, and, for
    commands, one that the shell guest does not have."""
    for argument in tool.paths:
        location = parse(getattr(arguments, argument.field))
        if argument.for_commands and not location.root.writable:
            raise ToolError(f"commands see only /shared and /tmp, not {location.given}")
        if argument.writes and not location.root.writable:
            raise ToolError(f"{location.root.path} is read-only: {location.given}")
