"""One turn: takes the user's message, emits events, and stores everything as it happens.

pydantic-ai handles the conversation with the model, its streaming and tool calls. This module
guarantees: the user's message is durable before the model is asked; every answer and tool result is
durable before anything that follows from it; budgets and cancellation may end a turn at any point
and leave a history that the next turn can use; a turn ends in exactly one outcome, with a receipt
for each change of memory.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pydantic_ai
from pydantic_ai import Agent, ModelAPIError, UsageLimitExceeded, UsageLimits
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.exceptions import FallbackExceptionGroup
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.usage import RunUsage
from wire.errors import Code, WireError
from wire.providers import OFFLINE
from wire.settings import AgentSettings
from wire.v1 import gateway_pb2 as pb

from guest import watch
from guest.agent import failures, history, incomplete
from guest.agent.answers import ReadAnswers
from guest.agent.deferred import FoundTools
from guest.agent.events import by_turn, incomplete_in, sources_in
from guest.agent.incomplete import ASKED_TO_GO_ON, GO_ON, Incomplete
from guest.agent.meter import Bill, Meter, countable
from guest.agent.models import errors
from guest.agent.models.models import Choice, Models
from guest.agent.models.providers import request_settings
from guest.agent.prompt.builder import (
    ContextBuilder,
    Prepared,
    announced,
    attached,
    before,
    from_client,
)
from guest.agent.prompt.fitting import FitToWindow
from guest.agent.prompt.summary import Rolled
from guest.agent.reading import Reading
from guest.agent.receipts.ledger import to_message
from guest.agent.receipts.second_chance import STEPS_MAX
from guest.agent.recorder import Run
from guest.agent.refused import LeaveOutPictures, LeaveOutRefused, Refused, TellPlainly
from guest.agent.structured_output import HoldToForm
from guest.agent.toolset import ClientToolset, PipelineToolset, search_of_provider
from guest.agent.turn import AskClient, Emit, Outcome, TurnRequest
from guest.agent.waiting import AwaitServer
from guest.errors import BudgetError, GuestError
from guest.memory.memory import Memory
from guest.memory.models import Event, Receipt, SessionNotFound
from guest.projects.changes import Changes
from guest.tools.base import Approve
from guest.tools.clock import Clock
from guest.tools.pipeline import ToolPipeline
from guest.tools.shell.background import BackgroundCommands

log = logging.getLogger(__name__)

_KEEP_TIMEOUT_S = 2.0
_EMPTY_ANSWERS = 1
TASK = "[A task from the agent, not the user's words]"


@dataclass(repr=False, eq=False)
class TurnLoop:
    """Runs any number of turns, also at once, with prompts made from `memory`; keeps of them only
    what providers refuse. `end` is called with a turn's id at its end, and says what is told. Turns
    are told how commands in the `background` have ended."""

    models: Models
    memory: Memory
    pipeline: ToolPipeline
    settings: AgentSettings
    context_tokens: int
    redact: Callable[[str], str]
    end: Callable[[str], Awaitable[list[str]]] | None = None
    changes: Changes | None = None
    background: BackgroundCommands | None = None

    def __post_init__(self) -> None:
        pydantic_ai.BANNER_ENABLED = False  # it would land among the JSON lines of the log
        self._store = self.memory.conversations
        self._receipts = self.memory.receipts
        self._state = self.memory.state_of
        self._context = ContextBuilder(
            memory=self.memory,
            pipeline=self.pipeline,
            settings=self.settings,
            model=lambda: self.models.choose().model,
            context_tokens=self.context_tokens,
            redact=partial(self.pipeline.shown, self.memory.user_id),
        )
        self.stop_summaries = self._context.stop_summaries
        self.summarised = self._context.summarised
        self._requests = request_settings(self.settings)
        self._meter = Meter(self.memory.usage, self.settings)
        self._refused_tools: Refused = set()
        self._blind: dict[str, str] = {}
        self._plain: set[str] = set()
        self._opening = set[str]()
        self._agent: Agent[Run, str] = Agent(
            name="oxydra",
            deps_type=Run,
            toolsets=[PipelineToolset()],
            capabilities=[NativeTool(search_of_provider)],
            retries={"tools": self.settings.max_steps, "output": _EMPTY_ANSWERS},
        )

    async def run(
        self,
        request: TurnRequest,
        emit: Emit,
        approve: Approve | None = None,
        ask_client: AskClient | None = None,
    ) -> Outcome:
        """Run one turn to its outcome. The caller allows only one turn at a time per session.

        A cancelled turn fails with CANCELLED, after everything said and changed so far is stored.

        Raises:
            GuestError: Before anything is written: ALREADY_EXISTS if the session has seen the turn
                id, PERMISSION_DENIED if the context belongs to another user than the conversations,
                FAILED_PRECONDITION if there is nothing to try again, and the errors of
                `Models.choose` for the model that the request asks for.
        """
        context = request.context
        if context.user_id != self._store.user_id:
            raise GuestError(Code.PERMISSION_DENIED, "user context of another user")
        context = replace(context, time_zone=context.time_zone or self.settings.time_zone)
        request = replace(request, context=context)
        choice = self.models.choose(request.model)
        if not self.settings.images:
            self._blind[choice.label] = "images = false in the [agent] section of runner.toml"
        why = self._blind.get(choice.label)
        if choice.provider == OFFLINE:
            why = ""  # it says so itself
        if why is not None:
            seen = [
                replace(e, image=None, unseen=why) if e.image else e for e in request.attachments
            ]
            request = replace(request, attachments=tuple(seen))
        session = context.session_id
        latest = await self._context.summary_of(session)
        events = await history.recent(
            self._store, session, self.settings.history_turns, latest.through
        )
        if any(event.turn_id == context.turn_id for event in events):
            raise GuestError(
                Code.ALREADY_EXISTS,
                f"turn {context.turn_id!r} exists already",
                resolution="choose a new turn_id, or leave it empty",
            )
        if request.retry:
            request, events = _again(request, events)
        if self.background is not None:
            endings = await self.background.to_tell(session, context.turn_id, events)
            request = replace(request, endings=tuple(endings))
        await self._store.append(
            session,
            turn_id=context.turn_id,
            role="user",
            text=ASKED_TO_GO_ON if request.text == GO_ON else told(request),
            payload=history.to_payload(
                history.user_message(
                    request.text,
                    before(request),
                    attached(request),
                    announced(request),
                    attachments=[each.path for each in request.attachments],
                    origin=request.origin,
                    sources=request.sources,
                    late=request.late,
                )
            ),
            title=history.title_of(self.redact(request.text)),
        )
        pipeline = request.allowed(self.pipeline)
        run = Run(
            request,
            self._store,
            FoundTools(session, self._state, pipeline.tools),
            pipeline,
            self.redact,
            emit,
            approve,
            clock=Clock(self.settings.turn_timeout_s),
            bill=self._meter.bill(context, request.account),
            ask_client=ask_client,
            earlier=events,
        )
        outcome: Outcome
        try:
            await run.notify_if_unstored()
            for ending in request.endings:
                await run.notice(ending.text)
            for each in request.attachments:
                if each.unseen:
                    await run.not_shown(each.path, each.unseen)
            outcome = await self._to_outcome(run, choice, events, latest)
            if getattr(outcome, "code", "") != Code.NOT_FOUND:
                await run.save_by_itself()
        except asyncio.CancelledError:
            outcome = failures.cancelled()
        finally:
            await self._finish(run)
            if self.end is not None:
                for line in await self.end(context.turn):
                    await run.notice(line)
            files = None
            if self.changes is not None:
                ids = (context.session_id, context.turn_id)
                files = await self.changes.ended(context.turn, *ids)
        ended = outcome.so_far if isinstance(outcome, pb.TurnIncomplete) else outcome
        for receipt in await self._settled(run):
            words = run.ledger.words_of(receipt)
            ended.receipts.append(to_message(receipt, context.turn_id, words))
        if files is not None:
            ended.files.CopyFrom(files)
        return outcome

    async def answer_untraced(self, request: TurnRequest, emit: Emit) -> Outcome:
        """Answer a text alone, with one request to the model and without tools, session and memory.
        Nothing of it is kept but what it took.

        Raises `GuestError` as `run` does for the model that the request asks for.
        """
        choice = self.models.choose(request.model)
        bill = self._meter.bill(request.context)
        agent: Agent[None, str] = Agent(name="oxydra", retries={"output": _EMPTY_ANSWERS})
        reading, said = Reading((), opened=choice.label in self._opening), ""
        try:
            async with (
                asyncio.timeout(self.settings.turn_timeout_s),
                agent.run_stream(
                    request.text,
                    model=choice.model,
                    model_settings=self._requests,
                    instructions=from_client(request.client.instructions) or None,
                    capabilities=[bill.counting("answer")],
                ) as stream,
            ):
                async for text in stream.stream_text(delta=True, debounce_by=None):
                    shown = reading.add(text)
                    if reading.unopened:
                        self._opening.add(choice.label)
                        said, reading.unopened = "", False
                    said += shown
                    if shown:
                        await emit(pb.TextDelta(text=shown))
                    if len(said) > incomplete.TEXT_MAX_CHARS:
                        break
            if rest := reading.finish():
                said += rest
                await emit(pb.TextDelta(text=rest))
            response, usage = stream.response, stream.usage  # as they were counted
            done = _completed(said, usage, usage.requests, choice.answered_by(response), bill)
            reason = incomplete.reason_of(response, choice.provider)
            if len(said) > incomplete.TEXT_MAX_CHARS:
                reason = "length"
            if reason:
                return incomplete.outcome(reason, choice.provider, choice.name, done)
            return done
        except asyncio.CancelledError:
            return failures.cancelled()
        except TimeoutError:
            return failures.out_of_time(self.settings)
        except Exception as error:
            return self._explain(error, choice)

    async def _to_outcome(
        self, run: Run, choice: Choice, events: Sequence[Event], latest: Rolled
    ) -> Outcome:
        clock = run.clock
        try:
            async with clock:
                with run.request.context.pause.stopping(clock):
                    prepared = await self._context.build(run.request, events, latest, run.notice)
                    run.shown(prepared.material, prepared.vouched, prepared.found)
                    outcome = await self._converse(run, choice, prepared)
                    self.models.uses[choice.provider].answered()
                    return outcome
        except TimeoutError as error:
            if clock.expired:
                return failures.out_of_time(self.settings)
            return self._explain(error, choice)
        except UsageLimitExceeded:
            return failures.out_of_steps(self.settings)
        except Incomplete as error:
            return await self._cut(run, choice, error.reason)
        except Exception as error:
            failed = self._explain(error, choice)
            broke_off = isinstance(error, ModelAPIError) and run.unrecorded
            return await self._cut(run, choice, "cut_short") if broke_off else failed

    async def _cut(self, run: Run, choice: Choice, reason: incomplete.Reason) -> Outcome:
        """The end of a turn with an incomplete answer, which is stored."""
        run.cut = reason
        await run.record_cut_off()
        log.warning("an answer is incomplete: %s", reason)
        return incomplete.outcome(reason, choice.provider, choice.name, self._done(run, choice))

    def _done(self, run: Run, choice: Choice) -> pb.TurnCompleted:
        model = run.answered_by or choice.label
        return _completed(run.answer, run.usage, run.steps, model, run.bill)

    async def _converse(self, run: Run, choice: Choice, prepared: Prepared) -> Outcome:
        asked = run.request.text
        context = run.request.context
        condense = partial(
            self._context.condensed,
            context,
            tell=run.notice,
            capabilities=[run.bill.counting("summary")],
        )
        fitting = FitToWindow(
            *(prepared, asked, self.models.windows.configured, condense),
            windows=self.models.windows,
            model=choice.label,
            window_known=self._meter.prices.window(choice.model),
            notice=run.notice,
        )
        run.sent = lambda: fitting.sent
        run.keep_beside = partial(self._context.keep_beside, context.session_id, context.turn_id)
        messages, run.usage = await self._ask(
            run, choice, prepared, fitting, asked, prepared.messages
        )
        await run.save_by_itself()
        may_ask = self.settings.second_chance and not run.request.sources
        if may_ask and (facts := run.second_chance()):
            run.ask_once_more()
            try:
                _, run.usage = await self._ask(
                    run, choice, prepared, fitting, facts, messages, again=True
                )
            except BudgetError as error:  # the model has answered: the turn has not failed
                log.info("the model is not asked once more: %s", error.brief)
            except (Incomplete, WireError, SessionNotFound, TimeoutError):
                raise
            except Exception as error:  # the model has answered: the turn has not failed
                log.info("asking once more brought nothing: %s", errors.named(error))
        turns = len(by_turn(prepared.events)) + 1
        if (sent := fitting.sent) and not run.request.account.is_limited:
            tokens, window = sent.history + sent.turn, (sent.window, sent.fixed)
            if self._context.fill(turns, tokens, *window):
                counting = self._meter.bill(context).counting("summary")
                self._context.summarise(context, *window, [counting])
        return self._done(run, choice)

    async def _ask(
        self,
        run: Run,
        choice: Choice,
        prepared: Prepared,
        fitting: FitToWindow,
        prompt: str,
        messages: Sequence[ModelMessage],
        *,
        again: bool = False,
    ) -> tuple[list[ModelMessage], RunUsage]:
        """Ask the model until it has answered; returns the conversation since then, and the usage.

        If it is asked `again`, it has a few steps, and none of the client's tools.
        """
        most = self.settings.max_steps
        limits = UsageLimits(request_limit=min(most, run.steps + STEPS_MAX) if again else most)
        rules = prepared.sections.rules
        reader = ReadAnswers(run, run.pipeline, rules, choice.label, self._opening)
        async with self._agent.iter(
            prompt,
            model=choice.model,
            model_settings=self._requests,
            message_history=messages,
            instructions=prepared.instructions,
            deps=run,
            toolsets=[ClientToolset(() if again else run.request.client.tools)],
            usage=run.usage,
            capabilities=[
                run.tools,
                AwaitServer(choice.label, run.notice),
                HoldToForm(lambda: run.form, choice.provider, run.drop_unrecorded),
                fitting,
                run.bill.counting("answer"),
                TellPlainly(choice.label, self._plain),
                LeaveOutRefused(
                    choice.label, run.pipeline.tools(), self._refused_tools, run.notice
                ),
                LeaveOutPictures(choice.label, self._blind, run.no_picture_is_shown),
                reader,
            ],
            usage_limits=limits,
        ) as conversation:
            async for node in conversation:
                if Agent.is_model_request_node(node):
                    before = replace(conversation.usage)
                    with watch.step("model", model=choice.label) as step:
                        async with (
                            run.first_token(self.settings.turn_timeout_s) as begun,
                            node.stream(conversation.ctx) as stream,
                        ):
                            await run.answers_with(stream.response.metadata or ())
                            reading = reader.begin()
                            await run.stream_answer(stream, reading, begun=begun)
                        step.counts |= _tokens(before, conversation.usage)
                    run.steps, run.usage = conversation.usage.requests, conversation.usage
                elif Agent.is_call_tools_node(node):
                    await self._report_fallback(run, choice, node.model_response)
                    if reason := incomplete.reason_of(node.model_response, choice.provider):
                        raise Incomplete(reason)
                    await run.record_answer(node.model_response)
                    async with node.stream(conversation.ctx) as calls:
                        await run.watch_calls(calls)
        return conversation.all_messages(), conversation.usage

    async def _report_fallback(self, run: Run, choice: Choice, response: ModelResponse) -> None:
        """Tell once whenever another model of the chain answers than the one before."""
        answered_by = choice.answered_by(response)
        if response.failed_attempts and answered_by != (run.answered_by or choice.label):
            failed = ", ".join(each.model_name for each in response.failed_attempts)
            log.warning("a fallback answers: %s, because of %s", answered_by, failed)
            await run.notice(f"{answered_by} answers, because {choice.label} has failed")
        run.answered_by = answered_by

    def _explain(self, error: Exception, choice: Choice) -> pb.TurnFailed:
        if isinstance(error, WireError):
            log.error("turn failed: %s", error)
            return failures.from_wire_error(error)
        if isinstance(error, SessionNotFound):
            return failures.forgotten()
        first = error.exceptions[0] if isinstance(error, FallbackExceptionGroup) else error
        explained = errors.from_model(
            first,
            choice.provider,
            choice.name,
            self.settings.base_url if choice.provider == self.settings.provider else "",
            self.redact,
        )
        if explained is not None:
            self.models.uses[choice.provider].failed(explained.message)
            log.error("turn failed: %s: %s", explained.message, errors.named(first))
            return explained
        log.error("turn failed unexpectedly", exc_info=error)
        return failures.failed(
            Code.INTERNAL, "internal error", "runner logs has the details; ask again"
        )

    async def _settled(self, run: Run) -> list[Receipt]:
        """The turn's receipts, stored as far as no change has stored them."""
        receipts, context = run.ledger.all(), run.request.context
        if not receipts:
            return []
        settling = self._receipts.settle(context.session_id, context.turn_id, receipts)
        try:
            return await asyncio.wait_for(settling, _KEEP_TIMEOUT_S)
        except (WireError, TimeoutError) as error:
            log.warning("the receipts of a turn could not all be stored: %s", error)
            return receipts

    async def _finish(self, run: Run) -> None:
        """Store the text of an incomplete answer and finish changes, even while being cancelled.
        What takes too long continues after the turn."""
        keeping = asyncio.ensure_future(run.record_cut_off())
        try:
            await asyncio.wait_for(asyncio.shield(keeping), _KEEP_TIMEOUT_S)
        except (WireError, TimeoutError) as error:
            log.error("the turn's work was not stored in time: %s", error)


def _completed(text: str, usage: RunUsage, steps: int, model: str, bill: Bill) -> pb.TurnCompleted:
    return pb.TurnCompleted(
        text=text,
        input_tokens=countable(usage.input_tokens),
        output_tokens=countable(usage.output_tokens),
        steps=steps,
        model=model,
        cached_tokens=bill.cached_tokens,
        cost_usd=bill.cost_usd,
    )


def _tokens(before: RunUsage, after: RunUsage) -> dict[str, int]:
    return {
        "input_tokens": after.input_tokens - before.input_tokens,
        "output_tokens": after.output_tokens - before.output_tokens,
        "cached_tokens": after.cache_read_tokens - before.cache_read_tokens,
    }


def told(request: TurnRequest) -> str:
    """The text of a request as people read it, and as searches find it."""
    return f"{TASK} {request.text}" if request.sources else request.text


def _again(request: TurnRequest, events: list[Event]) -> tuple[TurnRequest, list[Event]]:
    """What a retry asks with, and the events that it goes on from.

    An incomplete answer is gone on with. Otherwise the last question is asked again; if it has led
    to nothing at all, without showing it twice.
    """
    if not events:
        raise GuestError(
            Code.FAILED_PRECONDITION,
            "there is nothing to try again: nothing has been asked in this session",
            resolution="ask something",
        )
    last = by_turn(events)[-1]
    if incomplete_in(last[-1]):
        return replace(request, text=GO_ON), events
    question = next((each for each in last if each.role == "user"), None)
    if question is not None:
        text, sources = history.asked_in(question), sources_in(question)
        request = replace(request, text=text, sources=sources)
    else:
        request = replace(request, text="")
    return request, events[:-1] if len(last) == 1 else events
