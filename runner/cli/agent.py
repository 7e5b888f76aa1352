"""Connections of commands to a user's running host and agent, and the sessions and notes whose
ids, or the beginnings of them, were typed."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

import typer
from wire.errors import Code, WireError
from wire.limits import ID_PATTERN
from wire.v1 import gateway_pb2
from wire.zones import own_name

from runner.cli.options import Options
from runner.cli.output import clip, one_line
from runner.client.access import AccessFile
from runner.client.following import Connect
from runner.client.gateway import GatewayClient
from runner.config.models import Config
from runner.config.tiers import installed
from runner.errors import HostError
from runner.host.control import ControlClient, connect_control
from runner.host.runtime import LastStart
from runner.tiers.drivers import tier_of
from runner.workspace.mounts import Role

CHANNEL: Final = "cli"
"""The channel that conversations and notes record."""

SESSIONS_LISTED_MAX: Final = 1000
NOTES_LISTED_MAX: Final = 10_000
_SHORT_CHARS: Final = 13
_NAMED_MAX: Final = 5
_TEXT_CELLS: Final = 40

_T = TypeVar("_T")


async def connect_if_running(config: Config, user_id: str) -> ControlClient | None:
    """Connect to the user's host; None if none runs. Raises `HostError` in a replica that waits,
    where that says nothing: another one runs the hosts."""
    try:
        control = await connect_control(config, user_id)
    except HostError:  # on a volume of several nodes its lock can be seen, and it cannot be reached
        await tier_of(config).require_active(config)
        raise
    if control is None:
        await tier_of(config).require_active(config)
    return control


async def host_runs(config: Config, user_id: str) -> bool:
    """Whether a host runs for the user. Raises what `connect_if_running` raises."""
    if (control := await connect_if_running(config, user_id)) is None:
        return False
    await control.close()
    return True


async def connect_host(config: Config, user_id: str, *, resolution: str) -> ControlClient:
    """Connect to the user's host. Raises `HostError` if none runs.

    Connect again for each question: a restarted host has another token.
    """
    if (control := await connect_if_running(config, user_id)) is None:
        raise HostError(
            Code.FAILED_PRECONDITION,
            f"no runner runs for user {user_id}",
            details="only a running agent opens a memory and answers",
            resolution=resolution,
        )
    return control


async def connect_agent(config: Config, user_id: str, *, resolution: str) -> GatewayClient:
    """Connect to the user's agent.

    Raises `WireError` if it does not run; UNAVAILABLE only if waiting can help.
    """
    async with await connect_host(config, user_id, resolution=resolution) as control:
        try:
            agent = await control.gateway()
        except WireError as error:
            for guest in (await control.status()).guests:
                if guest.role == Role.AGENT and guest.state == "failed":
                    raise HostError(
                        Code.FAILED_PRECONDITION,
                        f"the agent cannot start: {guest.reason}",
                        resolution="runner logs, then: runner restart",
                    ) from error
            raise
    return await GatewayClient.open(agent, channel_name=CHANNEL)


def connecting(options: Options, config: Config | None = None, resolution: str = "") -> Connect:
    """How to connect to the agent of the user that the command line names, or that an access file
    opens, which is read now: it may be a pipe.

    `config` are settings that were loaded before; `resolution` is the fix where no host runs.
    """
    if options.connect is not None:
        return partial(AccessFile.read(options.connect).connect, channel_name=CHANNEL)
    config = config or options.load()
    fix = resolution or start_command(options, config)
    return partial(connect_agent, config, options.user_id, resolution=fix)


async def connect(options: Options) -> GatewayClient:
    """Connect to that agent once."""
    return await connecting(options)()


@asynccontextmanager
async def lasting_agent(options: Options, channel: str) -> AsyncIterator[GatewayClient]:
    """The same agent for as long as a program uses it, also after it was started again."""
    from runner.access.callers import Caller, Callers

    if options.connect is not None:
        opened = AccessFile.read(options.connect).open_channel()
        async with GatewayClient(opened, channel, own_name(os.environ)) as agent:
            yield agent
        return
    async with Callers.locate(options.load()) as callers:
        caller = Caller.at_terminal(options.user_id, channel)
        yield GatewayClient(callers.agent(caller), channel)


def ask_agent(options: Options, question: Callable[[GatewayClient], Awaitable[_T]]) -> _T:
    """The running agent's answer to `question`, over its own connection."""

    async def answer() -> _T:
        async with await connect(options) as agent:
            return await question(agent)

    return asyncio.run(answer())


def set_time(options: Options, question: Callable[[GatewayClient], Awaitable[_T]]) -> _T:
    """The same for a question that sets a time: where the agent ends before it, that is said."""

    async def answer(agent: GatewayClient) -> _T:
        found = await question(agent)
        if passing := agent.hello.passing:
            typer.echo(f"note: {one_line(options.mended(passing))}", err=True)
        return found

    return ask_agent(options, answer)


def ask_host(options: Options, question: Callable[[ControlClient], Awaitable[_T]]) -> _T:
    """The running host's answer to `question`, over its own connection."""

    async def answer() -> _T:
        config = options.load()
        resolution = start_command(options, config)
        async with await connect_host(config, options.user_id, resolution=resolution) as host:
            return await question(host)

    return asyncio.run(answer())


def start_command(options: Options, config: Config) -> str:
    """The command that starts the user's host in the tier in use; see `tier_in_use`."""
    tier = tier_in_use(options, config)
    if installed(tier).insecure:
        return options.command("start", "--detach", insecure=True)
    named = ["--tier", tier] if options.tier or tier != config.tier else []
    return options.command(*named, "start", "--detach")


def tier_in_use(options: Options, config: Config) -> str:
    """The tier that the command line names, else the one that was used last."""
    return options.asked_tier or LastStart.tier_of(config, options.user_id)


def as_used_last(options: Options) -> Options:
    """The options as if they named the tier in use."""
    tier = tier_in_use(options, options.load())
    if installed(tier).insecure:
        return replace(options, insecure=True, tier=None)
    return replace(options, tier=tier)


def short_id(note_id: str) -> str:
    """The beginning of an id, as tables show it. Nearly always unique; refused if it is not."""
    return one_line(note_id[:_SHORT_CHARS] if note_id.startswith("note-") else note_id)


async def find_session(
    agent: GatewayClient, given: str, *, listed_max: int = SESSIONS_LISTED_MAX
) -> str:
    """The id of the session that `given` names: in full, by its beginning, or by its title.

    `session-` may be left out, and so may all of a title but a part that no other has. If there are
    `listed_max` sessions or more, only a whole id works. Raises `WireError` if no session matches,
    or several do.
    """
    listed = await agent.list_sessions(listed_max, include_archived=True)
    if len(listed) == listed_max or any(session.session_id == given for session in listed):
        return given
    words = " ".join(given.casefold().split())
    titles = {each.session_id: " ".join(each.title.casefold().split()) for each in listed}
    found = (
        [each for each in listed if _begins(each.session_id, "session-", given)]
        or [each for each in listed if words and titles[each.session_id] == words]
        or [each for each in listed if words and words in titles[each.session_id]]
    )

    def described(session: gateway_pb2.Session) -> str:
        title = f" ({clip(one_line(session.title), _TEXT_CELLS)})" if session.title else ""
        return f"{one_line(session.session_id)}{title}"

    return _only(found, given, "session", described, "runner sessions list --all").session_id


async def session_to_use(agent: GatewayClient, given: str | None, *, last: bool) -> str:
    """The id of the session in which a conversation goes on; empty for a new one.

    That is the `last` one, or the one that `given` names, which is begun if there is none: with
    `given` as its id, or else as its title. Raises `WireError` if several match.
    """
    if last:
        listed = await agent.list_sessions(1)
        if not listed:
            raise WireError(
                Code.NOT_FOUND, "there is no session to go on with", resolution="leave out --last"
            )
        return listed[0].session_id
    if not given:
        return ""
    try:
        return await find_session(agent, given)
    except WireError as error:
        if error.code is not Code.NOT_FOUND:
            raise
    is_id = re.fullmatch(ID_PATTERN, given) is not None
    made = await agent.create_session(given if is_id else "", "" if is_id else given)
    return made.session_id


async def find_note(
    agent: GatewayClient, given: str, *, listed_max: int = NOTES_LISTED_MAX
) -> gateway_pb2.Note:
    """The note, also a superseded one, whose id `given` names in full or by its beginning.

    `note-` may be left out. If there are more than `listed_max` notes, only a whole id works.
    Raises `WireError` if no note matches, or several do.
    """
    try:
        return await agent.get_note(given)
    except WireError as error:
        if error.code not in (Code.NOT_FOUND, Code.INVALID_ARGUMENT):
            raise
    found, count = [], 0
    request = gateway_pb2.ListNotesRequest(include_superseded=True)
    async with aclosing(agent.notes(request)) as notes:
        async for note in notes:
            count += 1
            if count > listed_max:
                raise WireError(
                    Code.INVALID_ARGUMENT,
                    f"note not found: {given}",
                    details=f"of more than {listed_max:,} notes only a whole id is found",
                    resolution="runner memory search WORDS --json shows whole ids",
                )
            if _begins(note.note_id, "note-", given):
                found.append(note)

    def described(note: gateway_pb2.Note) -> str:
        return f"{one_line(note.note_id)} ({clip(one_line(note.text), _TEXT_CELLS)})"

    return _only(found, given, "note", described, "runner memory list --all --superseded")


async def find_grant(agent: GatewayClient, given: str) -> gateway_pb2.Grant:
    """What a person has allowed, by its id or its beginning. Raises `WireError` as `find_note`."""
    found = [each for each in await agent.list_grants() if _begins(each.grant_id, "grant-", given)]
    return _only(
        found, given, "approval", lambda each: one_line(each.text), "runner approvals list"
    )


def _begins(identifier: str, prefix: str, given: str) -> bool:
    return bool(given) and identifier.startswith((given, prefix + given))


def _only(
    found: Sequence[_T], given: str, noun: str, describe: Callable[[_T], str], list_command: str
) -> _T:
    if len(found) == 1:
        return found[0]
    if not found:
        also = ", and no title has it" if noun == "session" else ""
        raise WireError(
            Code.NOT_FOUND,
            f"{noun} not found: {given}",
            details=f"no id begins like this{also}",
            resolution=list_command,
        )
    described = [describe(each) for each in found[:_NAMED_MAX]]
    if more := len(found) - len(described):
        described.append(f"and {more:,} more")
    raise WireError(
        Code.INVALID_ARGUMENT,
        f"{given} can mean {len(found)} {noun}s",
        details=", ".join(described),
        resolution="give more of it",
    )
