"""The pipeline that runs every tool call of the model, MCP and the CLI."""

import asyncio
import difflib
import json
import logging
import re
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from wire.errors import Code, WireError
from wire.limits import ID_PATTERN, TOOL_OUTPUT_MAX_BYTES
from wire.settings import Approval
from wire.tools import FAMILIES, MEMORY_TOOLS

from guest import watch
from guest.errors import GuestError, ToolError
from guest.memory.models import READ
from guest.projects.rules import ProjectRules
from guest.tools.arguments import check
from guest.tools.base import (
    Approve,
    Arguments,
    Offer,
    Safety,
    Tool,
    ToolContext,
    ToolOutput,
    ToolResult,
)
from guest.tools.clock import Clock
from guest.tools.command_policy import CommandPolicy
from guest.tools.files.exchange import with_pictures
from guest.tools.files.roots import VirtualPaths
from guest.tools.grants import Grants, offers
from guest.tools.output import HostPaths, Reader, Renderer, first_words
from guest.tools.redaction.placeholders import Placeholders, refuse_placeholders
from guest.tools.redaction.scrubber import Scrubber
from guest.watch import CallReporter, Recording


class Registry:
    """The tools of a guest: its own in the given order, which never change, and then the `foreign`
    ones that there are at the moment. A foreign tool with the name of an own one does not exist.

    Raises `ValueError` if two own tools have the same name, or if one is in no family of
    `families`: it could not be switched on or off.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        families: Mapping[str, Collection[str]] = FAMILIES,
        foreign: Callable[[], Mapping[str, Tool]] = dict,
    ) -> None:
        self._foreign = foreign
        self._tools: Final[dict[str, Tool]] = {}
        self.known: Final = frozenset(name for names in families.values() for name in names)
        for tool in tools:
            if tool.name in self._tools:
                raise ValueError(f"two tools have the same name: {tool.name}")
            if tool.name not in self.known:
                raise ValueError(f"{tool.name} belongs to no family of tools; see wire.tools")
            self._tools[tool.name] = tool

    def all(self) -> tuple[Tool, ...]:
        foreign = (tool for name, tool in self._foreign().items() if name not in self._tools)
        return (*self._tools.values(), *foreign)

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name) or self._foreign().get(name)


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Gate:
    """The operator's permissions for tools, and what a conversation and a turn may use of them.

    PRIVILEGED calls always pass with `auto`, never with `deny`, and with `ask` only after a
    person's yes; no answer, or a failure while asking, means no. A tool may have an approval of its
    own. Where `reading`, only READ_ONLY calls pass. `names` are the tools of a profile, `given`
    those of a turn (None: all), `memory` is whether it may change memory.
    """

    disabled: frozenset[str]
    approval: Approval
    reading: bool = False
    names: frozenset[str] | None = None
    given: frozenset[str] | None = None
    memory: bool = True

    def refusal(self, tool: Tool) -> str:
        """Why `tool` is not offered to a model, and no call of it passes; empty if it is."""
        changes = tool.safety is not Safety.READ_ONLY
        if tool.name in self.disabled:
            return "is switched off by the operator"
        if self.names is not None and tool.name not in self.names:
            return "is not among the tools of the profile for small models"
        if self.given is not None and tool.name not in self.given:
            has = ", ".join(sorted(self.given)) or "no tools"
            return f"is not given to this work: it has {has}"
        if changes and not self.memory and tool.name in MEMORY_TOOLS:
            return "is not given to this work: it only reads memory"
        if changes and self.reading:
            return "could change something, and this conversation only reads"
        if tool.safety is Safety.PRIVILEGED and (tool.approval or self.approval) == "deny":
            return "is not permitted by the operator"
        return ""

    def asks(self, tool: Tool) -> bool:
        """Whether a person is asked before the tool runs."""
        return tool.safety is Safety.PRIVILEGED and (tool.approval or self.approval) == "ask"

    async def admit(
        self,
        context: ToolContext,
        tool: Tool,
        arguments_json: str,
        approve: Approve | None,
        *,
        must_ask: bool,
    ) -> None:
        """Return if the call may run; otherwise raise `ToolError` with the reason."""
        if why := self.refusal(tool):
            raise ToolError(f"{tool.name} {why}")
        if not must_ask:
            return
        if approve is None:
            raise ToolError(f"{tool.name} needs approval, and nobody is here to give it")
        try:
            approved = await approve(context, tool, arguments_json)
        except ToolError:
            raise
        except (Exception, asyncio.CancelledError) as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            log.error("asking for approval failed: %s", type(error).__name__)
            raise ToolError(f"{tool.name} was not approved: asking failed") from None
        if approved is not True:
            raise ToolError(f"{tool.name} was not approved by the user")


def check_paths(tool: Tool, arguments: Arguments, paths: VirtualPaths) -> bool:
    """Reject virtual paths outside the roots, changes in a read-only root and, for commands,
    paths that the shell guest does not have. Returns whether commands can read what is read."""
    in_shell = bool(tool.command)
    for argument in tool.paths:
        given = getattr(arguments, argument.field)
        if paths.above_projects(given) and not (argument.writes or argument.for_commands):
            continue
        location = paths.parse(given)
        if argument.for_commands and not location.root.in_shell:
            raise ToolError(f"commands see only {paths.in_shell}, not {location.given}")
        if argument.writes and not location.root.writable:
            raise ToolError(f"{location.root.path} is read-only: {location.given}")
        in_shell |= location.root.in_shell
    return in_shell


OUTPUT_MIN_BYTES: Final = 512
_ID: Final = re.compile(ID_PATTERN, re.ASCII)


class ToolPipeline:
    """All tools of a guest behind one entry point. Safe for concurrent calls.

    Tools in `disabled` are neither listed nor callable. `witness` is told of every call; one that
    may change something runs only when its beginning is recorded.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        scrubber: Scrubber,
        disabled: Collection[str] = (),
        approval: Approval = "auto",
        max_output_bytes: int = TOOL_OUTPUT_MAX_BYTES,
        host_paths: HostPaths | None = None,
        commands: CommandPolicy | None = None,
        witness: CallReporter | None = None,
        paths: VirtualPaths | None = None,
        rules: ProjectRules | None = None,
        grants: Grants | None = None,
    ) -> None:
        self.paths = paths or VirtualPaths()
        self.rules = rules
        self._witness = witness or CallReporter(required=False)
        self._registry = registry
        if unknown := set(disabled) - registry.known:
            log.warning("tools.disabled names no tool: %s", ", ".join(sorted(unknown)))
        self._gate = Gate(frozenset(disabled), approval)
        self._commands = commands or CommandPolicy()
        self.grants = grants or Grants()
        self.grants.restrict(lambda grant: self._permits(grant.command))
        self._scrubber = scrubber
        self._placeholders = Placeholders()
        self._render = Renderer(
            scrubber, host_paths or HostPaths({}), max(max_output_bytes, OUTPUT_MIN_BYTES)
        )

    def reading(self) -> "ToolPipeline":
        """The same without what may change something, and with secrets of its own."""
        view = self._behind(reading=True)
        view._placeholders = Placeholders()
        return view

    def only(self, names: Collection[str]) -> "ToolPipeline":
        """The same for these tools alone."""
        return self._behind(names=frozenset(names))

    def within(self, names: Collection[str] | None, *, memory: bool) -> "ToolPipeline":
        """The same for one turn: `names` are the tools that it may use (None: all), `memory` is
        whether it may change memory."""
        return self._behind(given=None if names is None else frozenset(names), memory=memory)

    def _behind(self, **gate: Any) -> "ToolPipeline":
        view = copy(self)
        view._gate = replace(self._gate, **gate)
        return view

    def asks(self, name: str) -> bool:
        """Whether a person is asked before every call of a tool that is there."""
        tool = self._registry.get(name)
        return tool is not None and self._gate.asks(tool)

    def offer(self, command: str, project: str) -> Offer:
        """What allows this command in a project, and nothing else. Raises `ToolError` where nothing
        can: the policy refuses it, or it does not say all that it does."""
        tool, reader = self._look_up("shell_exec"), self._reader(ToolContext("", "", "", ""))
        shown = partial(self._render.text, reader=reader)
        checked = check(tool, {"command": command}, shown, None, self.paths.of_session(project))
        self._commands.check(command)
        found = [each for each in offers(tool, checked, shown) if each.text.startswith("`")]
        if not found:
            raise ToolError(
                f"{command!r:.80} cannot be allowed: only one short plain command can, without "
                "operators, variables, patterns, or a program that runs another"
            )
        return found[0]

    def tools(self) -> list[Tool]:
        return [tool for tool in self._registry.all() if not self._gate.refusal(tool)]

    def shown(self, user_id: str, session_id: str, text: str) -> str:
        """`text` of memory for the model of a session: with virtual paths, and with placeholders
        for secrets."""
        return self._render.text(text, Reader(self._placeholders.of(user_id, session_id)))

    def forget(self, user_id: str, session_id: str) -> None:
        """Forget the secrets that a session was shown."""
        self._placeholders.forget(user_id, session_id)

    async def call(
        self,
        ctx: ToolContext,
        name: str,
        arguments: str | Mapping[str, object],
        approve: Approve | None = None,
    ) -> ToolResult:
        """Run one call and return its result.

        What the model can correct is a result with `is_error`. Raises `WireError`, already logged,
        if an operator must act.
        """
        tool = self._registry.get(name)
        record = self._recording(ctx, tool)
        told = {"tool": tool.name if tool else "unknown", "safety": tool.safety if tool else ""}
        if name in MEMORY_TOOLS:
            told["kind"] = next(kind for kind, tools in FAMILIES.items() if name in tools)
        with watch.step("tool", self._witness.spans, **told, **_where(ctx)) as step:
            try:
                result = await self._called(ctx, tool, name, arguments, approve, record)
                if result.receipts:
                    step.words["note_id"] = result.receipts[0].note_id
                return result
            finally:
                step.words["outcome"] = record.outcome

    async def _called(
        self,
        ctx: ToolContext,
        tool: Tool | None,
        name: str,
        arguments: str | Mapping[str, object],
        approve: Approve | None,
        record: Recording,
    ) -> ToolResult:
        began = time.monotonic()
        outcome, output = "failed", None
        read: list[str] = []
        READ.set(read)
        try:
            output, in_files = await self._run(ctx, name, arguments, approve, record)
            output = with_pictures(output)
            reader = self._reader(ctx, in_files=in_files)
            rendered = self._render.output(output, reader, tool.output_bytes if tool else 0)
            if output.when_shown is not None:
                await output.when_shown(rendered.items)
            outcome = "ok"
        except ToolError as error:
            outcome = "refused"
            text = self._render.error(error, self._reader(ctx))
            summary = self._render.line(str(error))
            material = tuple(map(self._render.line, error.material))
            summary = f"{summary}; {record.granted}" if record.granted else summary
            return ToolResult(text, True, summary, _ms(began), material, error.code, tuple(read))
        except WireError as error:
            log.error("%s: %s", name, self._render.text(str(error)), extra=_who(ctx, name))
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except Exception as error:
            frames = traceback.format_tb(error.__traceback__)
            found = {"type": type(error).__name__, "frames": frames}
            log.error("%s failed unexpectedly", name, extra=_who(ctx, name) | {"error": found})
            raise GuestError(
                Code.INTERNAL,
                f"{name} failed unexpectedly",
                details=type(error).__name__,
                resolution="runner logs has the frames",
            ) from None
        finally:
            self._log_call(ctx, tool, began, outcome, record, output)
        summary = self._render.line(output.summary or "done")
        summary = f"{summary}; {record.granted}" if record.granted else summary
        material = tuple(map(self._render.line, output.material))
        return ToolResult(
            *(rendered.text, False, summary, _ms(began), material),
            receipts=output.receipts,
            local=tuple(read),
            printed=self._render.printed(output),
            vouched=output.vouched,
            data_json=rendered.data_json,
            found=output.found,
            words=tuple(first_words(self._render.text(text)) for text in output.words),
            pictures=output.pictures,
        )

    async def _run(
        self,
        ctx: ToolContext,
        name: str,
        arguments: str | Mapping[str, object],
        approve: Approve | None,
        record: Recording,
    ) -> tuple[ToolOutput, bool]:
        """The output, and whether commands can read what was read for it."""
        if not ctx.user_id:
            raise ToolError("user context is not available")
        tool = self._look_up(name)
        shown = partial(self._render.text, reader=self._reader(ctx))
        remarks: list[str] | None = None if ctx.reply is None else []
        checked = check(tool, arguments, shown, remarks, self.paths.of_session(ctx.project))
        await record.begin(self._audit_subject(tool, checked))
        asked = await tool.asks(ctx, checked) if tool.asks and ctx.reply is not None else {}
        offered = () if asked or not self._gate.asks(tool) else self._offers(ctx, tool, checked)
        if grant := self.grants.allowing(ctx, offered):
            record.granted = grant.told(ctx.time_zone)
        must_ask = bool(asked) or (self._gate.asks(tool) and grant is None)
        record.asked = must_ask and approve is not None
        question = self._named(asked) if any(asked.values()) else self._question(checked)
        asking = replace(ctx, offers=offered if ctx.session_id else ())
        await self._gate.admit(asking, tool, question, approve, must_ask=must_ask)
        in_files = check_paths(tool, checked, self.paths)
        if tool.command:
            self._commands.check(getattr(checked, tool.command))
        complete = self._with_secrets(ctx, tool, checked)
        output = await self._within_time(tool, ctx, complete)
        if self.rules is not None:
            given = [getattr(checked, path.field) for path in tool.paths]
            nearer = self.rules.nearer(ctx.project, ctx.session_id, given)
            remarks = [*(remarks or ()), *await asyncio.to_thread(list, nearer)]
        output = replace(output, notes=(*output.notes, *(remarks or ())))
        return output, in_files

    def _offers(self, ctx: ToolContext, tool: Tool, checked: Arguments) -> tuple[Offer, ...]:
        """What a person can allow besides this call, of what the policy permits."""
        found = offers(tool, checked, partial(self._render.text, reader=self._reader(ctx)))
        return tuple(each for each in found if self._permits(each.command))

    def _permits(self, command: str) -> bool:
        try:
            self._commands.check(command)
        except ToolError:
            return not command
        return True

    def _with_secrets(self, ctx: ToolContext, tool: Tool, checked: Arguments) -> Arguments:
        """The arguments with the secrets in place of their placeholders, where they are stored.

        Raises `ToolError` where that is not possible, and for a placeholder in any other argument
        of a tool that is not READ_ONLY.
        """
        if tool.safety is Safety.READ_ONLY:
            return checked
        given = checked.model_dump(exclude_unset=True)
        complete = {
            field: self._with_secret(ctx, tool, field, value) for field, value in given.items()
        }
        if complete == given:
            return checked
        return check(tool, complete, partial(self._render.text, reader=self._reader(ctx)))

    def _with_secret(self, ctx: ToolContext, tool: Tool, field: str, value: Any) -> Any:
        if isinstance(value, list):
            return [self._with_secret(ctx, tool, field, item) for item in value]
        if isinstance(value, dict):
            return {key: self._with_secret(ctx, tool, field, item) for key, item in value.items()}
        if not isinstance(value, str):
            return value
        stored = tool.stored
        if stored is None or field not in (*stored.fields, *stored.sought):
            refuse_placeholders(value, f"{field} of {tool.name}")
            return value
        secrets = self._placeholders.of(ctx.user_id, ctx.session_id)
        is_stored = field in stored.fields
        return secrets.turned_back(value, stored.into, self._scrubber, stored=is_stored)

    def _reader(self, ctx: ToolContext, *, in_files: bool = False) -> Reader:
        return Reader(self._placeholders.of(ctx.user_id, ctx.session_id), in_files)

    async def _within_time(self, tool: Tool, ctx: ToolContext, checked: Arguments) -> ToolOutput:
        seconds = tool.timeout_of(checked) if tool.timeout_of else tool.timeout
        clock = Clock(seconds)
        try:
            async with clock:
                with ctx.pause.stopping(clock):
                    return await tool.run(ctx, checked)
        except TimeoutError:
            if not clock.expired:
                raise
        message = f"{tool.name} took longer than {seconds:g} s and was stopped"
        if tool.safety is not Safety.READ_ONLY:
            message += "; it may or may not have taken effect: check before trying again"
        raise ToolError(message, Code.TIMEOUT)

    def _look_up(self, name: str) -> Tool:
        if (tool := self._registry.get(name)) is not None:
            return tool
        offered = [tool.name for tool in self.tools()]
        similar = difflib.get_close_matches(name, offered, n=2) or offered
        shown = self._render.line(name)
        raise ToolError(f"there is no tool {shown!r}; there is {', '.join(similar) or 'none'}")

    def _named(self, asked: Mapping[str, str]) -> str:
        """What a person is asked of, by its first words."""
        shown = {name: first_words(self._render.question(text)) for name, text in asked.items()}
        return json.dumps(shown, ensure_ascii=False)

    def _question(self, checked: Arguments) -> str:
        given = checked.model_dump(mode="json")
        empty = {name for name, value in given.items() if value is None or value is False}
        for name in empty - checked.model_fields_set:
            del given[name]
        return self._render.question(json.dumps(given, ensure_ascii=False))

    def _recording(self, ctx: ToolContext, tool: Tool | None) -> Recording:
        return self._witness.recording(
            tool=tool.name if tool else "unknown",
            safety=tool.safety if tool else "",
            session_id=ctx.session_id,
            turn_id=ctx.turn_id,
            channel=ctx.channel,
            actor=ctx.actor,
            must_be_recorded=tool is not None and tool.safety is not Safety.READ_ONLY,
        )

    def _audit_subject(self, tool: Tool, checked: Arguments) -> str:
        """The command, the path or the note's id of a call, on one line without secrets. Of other
        arguments nothing is told: they may be the text of a note."""
        if tool.command:
            command = self._render.text(getattr(checked, tool.command)).strip()
            return self._render.line(command.replace("\n", " ⏎ "))
        fields = (*(path.field for path in tool.paths), "note_id", "memory_id")
        values = (str(getattr(checked, field, "")) for field in fields)
        fit = (each for each in values if each.startswith("/") or _ID.fullmatch(each))
        return self._render.line(next(fit, ""))

    def _log_call(
        self,
        ctx: ToolContext,
        tool: Tool | None,
        began: float,
        outcome: str,
        record: Recording,
        output: ToolOutput | None,
    ) -> None:
        """Record and log one call: caller, tool, duration and outcome; never the content."""
        changed = [each.note_id for each in output.receipts if each.note_id] if output else []
        record.end(outcome, _ms(began), changed)
        count = output.count if output else None
        level = tool.log_level if tool and outcome == "ok" else logging.INFO
        name = tool.name if tool else "unknown"
        extra = _who(ctx, name) | {"duration_ms": _ms(began), "outcome": outcome}
        if count is not None:
            extra["count"] = count
        if changed:
            extra["note_id"] = changed[0]
        log.log(level, "tool call", extra=extra)


def _who(ctx: ToolContext, name: str) -> dict[str, object]:
    return {"tool": name, "session": ctx.session_id, "turn": ctx.turn_id}


def _where(ctx: ToolContext) -> dict[str, str]:
    return {"session": ctx.session_id, "turn": ctx.turn_id, "channel": ctx.channel}


def _ms(began: float) -> int:
    return round((time.monotonic() - began) * 1000)
