"""`runner ask`: one question, its answer, and an exit code."""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Final, TextIO

import typer
from wire.errors import Code, WireError
from wire.limits import TURN_TEXT_MAX_CHARS
from wire.v1 import gateway_pb2

from runner.cli.agent import connecting, session_to_use
from runner.cli.chat.answer import ModelText
from runner.cli.chat.calls import (
    answered,
    call_line,
    choices,
    files_line,
    question,
    receipt_line,
)
from runner.cli.chat.conversation import GOES_ON, INTERRUPT
from runner.cli.chat.hosting import (
    Streams,
    standard_streams,
    until_signalled,
    with_host,
)
from runner.cli.chat.screen import UNCHANGED, say
from runner.cli.files import decoded
from runner.cli.options import Options
from runner.cli.output import (
    discard,
    event_as_json,
    failure_lines,
    json_line,
    neutralise,
    one_line,
)
from runner.cli.projects import Folders, opened_first
from runner.client.attachments import attach
from runner.client.following import Connection, followed, started
from runner.client.gateway import new_turn_id
from runner.client.turn import TurnSoFar
from runner.config.models import Config

_TOOL_CELLS: Final = 200
_GO_ON: Final = 'runner ask --last "go on"'


async def ask(
    options: Options,
    config: Config | None,
    question: str,
    *,
    session: str | None = None,
    last: bool = False,
    model: str = "",
    as_json: bool = False,
    folders: Folders = (),
    files: Sequence[Path] = (),
) -> int:
    """Ask one question, with what a pipe brings as its context: the agent of `config`, or without
    one the agent that the access file opens. Returns the exit code.

    0: the turn completed. 1: it failed, broke off or was cancelled. 128 plus its number: a signal
    ended it. Raises `WireError` if the question is too long or no agent can be reached.
    """
    streams = standard_streams()
    text = _with_context(question, streams.stdin)
    reach = connecting(options, config, resolution="ask again")

    async def turn(agent_stays: bool) -> int:
        project = await opened_first(folders, config, options.user_id, partial(say, streams.stderr))
        async with Connection(reach, first=await reach()) as connection:
            agent = connection.client
            await agent.resolve_model(model)  # before a session is made for one that is not there
            session_id = await session_to_use(agent, session, last=last)
            attached = [await attach(agent, each) for each in files]
            if project or not session_id:
                made = await agent.create_session(session_id, project=project)
                session_id = made.session_id
            show = _Answer(streams, options.mended).show
            if as_json:
                show = partial(_print_json, streams.stdout)
            request = gateway_pb2.StartTurnRequest(
                session_id=session_id,
                text=text,
                turn_id=new_turn_id(),
                model=model,
                attachments=attached,
            )
            try:
                return await _shown(request, connection, show, streams)
            except asyncio.CancelledError as error:
                if INTERRUPT in error.args:
                    await connection.client.cancel_turn(request.turn_id)
                elif agent_stays:
                    told = GOES_ON.format(session=one_line(session_id))
                    say(streams.stderr, options.mended(told))
                raise

    try:
        return await until_signalled(with_host(config, options, turn, streams.stderr, folders))
    except BrokenPipeError:  # the reader of the answer is gone
        discard(streams.stdout)
        return 0


class _Answer:
    """The answer on standard output, everything else on standard error."""

    def __init__(self, streams: Streams, mended: Callable[[str], str]) -> None:
        self._streams = streams
        self._mended = mended
        self._model_text = ModelText()
        self._turn = TurnSoFar()
        self._written = ""

    def show(self, event: gateway_pb2.TurnEvent) -> None:
        call = self._turn.add(event)
        if event.HasField("text"):
            self._write(event.text.text)
        elif event.HasField("notice"):
            self._end_line()
            self._tell(one_line(event.notice.text))
        elif event.HasField("tool_finished") and call is not None:
            self._end_line()
            self._tell(call_line(call, _TOOL_CELLS))
        elif event.HasField("failed"):
            self._end_line()
            failed = event.failed
            fix = self._mended(failed.resolution)
            self._tell(failure_lines(failed.message, fix, failed.details))
            self._tell_receipts()
        elif event.HasField("incomplete"):
            self._end_line()
            ended = event.incomplete
            fix = ended.resolution if ended.reason in ("filtered", "repeated") else _GO_ON
            self._tell(failure_lines(ended.message, self._mended(fix)))
            self._tell_receipts()
        elif event.HasField("completed"):
            if not self._written:
                self._write(event.completed.text)
            self._end_line()
            self._tell_receipts()

    def _write(self, text: str) -> None:
        if self._streams.stdout.isatty():  # where receipts stand beside it
            text = self._model_text.marked(text)
        self._streams.stdout.write(neutralise(text))
        self._streams.stdout.flush()
        self._written = text or self._written

    def _end_line(self) -> None:
        if self._written and not self._written.endswith("\n"):
            self._write("\n")

    def _tell_receipts(self) -> None:
        if self._turn.files is not None and (line := files_line(self._turn.files)):
            self._tell(line)
        for line in [receipt_line(receipt) for receipt in self._turn.receipts] or [UNCHANGED]:
            self._tell(line)

    def _tell(self, line: str) -> None:
        say(self._streams.stderr, line)


def _print_json(stdout: TextIO, event: gateway_pb2.TurnEvent) -> None:
    stdout.write(json_line(event_as_json(event)) + "\n")
    stdout.flush()


async def _shown(
    request: gateway_pb2.StartTurnRequest,
    connection: Connection,
    show: Callable[[gateway_pb2.TurnEvent], None],
    streams: Streams,
) -> int:
    done = False
    agent = await started(connection.client, request, connection.open)
    async with aclosing(followed(agent, request.turn_id, connection.open)) as events:
        async for event in events:
            show(event)
            done = event.HasField("completed")
            if event.HasField("approval"):
                answer = await _answer_of(event.approval, streams)
                await connection.client.decide(event.approval.approval_id, answer)
    return 0 if done else 1


async def _answer_of(approval: gateway_pb2.ApprovalRequested, streams: Streams) -> int:
    """What the person at the terminal says, as `answered` has it; no if there is none."""
    offers = len(approval.offers)
    say(streams.stderr, question(approval, shutil.get_terminal_size().columns))
    if not (streams.stdin.isatty() and streams.stderr.isatty()):
        say(streams.stderr, "[y/N] no: standard input is not a terminal")
        return 0
    asked = partial(typer.prompt, default="n", show_default=False, err=True)
    try:
        typed = await asyncio.to_thread(asked, f"allow it? {choices(offers)}")
    except typer.Abort:
        return 0
    return answered(str(typed), offers)


def _with_context(question: str, stdin: TextIO) -> str:
    """The question, and what standard input holds if it is no terminal."""
    most = 4 * TURN_TEXT_MAX_CHARS
    data = b"" if stdin.isatty() else stdin.buffer.read(most + 1)
    piped = b"" if len(data) > most else data
    context = decoded(piped, "standard input", "nothing was sent").strip()
    text = f"{question}\n\n{context}" if context else question
    if len(data) > most or len(text) > TURN_TEXT_MAX_CHARS:
        raise WireError(
            Code.INVALID_ARGUMENT,
            "the question is too long and was not sent",
            details=f"with what the pipe brings, it may have {TURN_TEXT_MAX_CHARS:,} characters",
            resolution="put the text into a file in the workspace's shared/, and ask about that",
        )
    if not question.strip():
        raise WireError(
            Code.INVALID_ARGUMENT, "there is no question", resolution='runner ask "QUESTION"'
        )
    return text
