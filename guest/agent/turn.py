"""The types of one turn, shared by the loop and its callers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Final, Literal

from wire import zones
from wire.v1 import gateway_pb2 as pb

from guest.agent.answer_form import NO_FORM, AnswerForm
from guest.agent.budget import Account
from guest.tools.base import Ending, ToolContext
from guest.tools.pipeline import ToolPipeline

Progress = (
    pb.TurnStarted
    | pb.TextDelta
    | pb.ToolCallStarted
    | pb.ToolCallFinished
    | pb.ApprovalRequested
    | pb.ApprovalDecided
    | pb.ClientCall
    | pb.MemoryReceipt
    | pb.Notice
)
"""What may happen within a turn; the gateway numbers these into `TurnEvent`s."""

Outcome = pb.TurnCompleted | pb.TurnIncomplete | pb.TurnFailed
"""How a turn ends: exactly one, after all progress."""

Emit = Callable[[Progress], Awaitable[None]]
"""Passes progress to whoever watches; never waits for them."""


Redact = Callable[[str, str], str]
"""Called with a session's id and a text: the text as the model of that session may see it, with
placeholders for secrets."""


@dataclass(frozen=True)
class ClientTool:
    """A tool as the client describes it; `schema` is the JSON schema of its arguments."""

    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What the client gave back for a call, and how the model's answer must be from then on."""

    output: str
    is_error: bool = False
    form: AnswerForm = NO_FORM


AskClient = Callable[[pb.ClientCall], Awaitable[Answer | None]]
"""Asks the client to run a call; None if nobody has answered in time."""


@dataclass(frozen=True)
class FromClient:
    """What the client's program adds to a turn, and the user has not said.

    Attributes:
        instructions: For this turn only.
        material: Stands before the user's message and is kept with it.
        form: How the model's answer must be.
    """

    instructions: str = ""
    material: str = ""
    tools: tuple[ClientTool, ...] = ()
    form: AnswerForm = NO_FORM


NOTHING_ADDED: Final = FromClient()


@dataclass(frozen=True)
class Attachment:
    """A file in /shared that the user points to. `image` is what a model is shown of it; None for
    what is no image, or cannot be shown: `unseen` is why."""

    path: str
    media_type: str = ""
    image: bytes | None = field(default=None, repr=False)
    unseen: str = ""


TIME: Final = "The user writes on "
"""How the line begins that stands right before the user's own words."""

ATTACHED: Final = "With this message the user points to these files:"
"""How the prompt begins that names attachments, which are those lines after it with a dash."""

READ_BY: Final = "file_read reads it"
"""What is told there of a document."""


FROM_AGENT: Final = "The agent that works for the user gives this task on "
"""How that line begins where the text is not the user's."""


@dataclass(frozen=True)
class Origin:
    """What has begun a turn that no client asked for; it is recorded with the turn's first event.

    Attributes:
        kind: What sort of work it is.
        session_id: Of the turn that delegated it.
        schedule_id: Of the schedule that it is a run of.
        slot: Which run.
    """

    kind: Literal["delegation", "schedule"]
    session_id: str = ""
    turn_id: str = ""
    schedule_id: str = ""
    slot: str = ""


@dataclass(frozen=True)
class TurnRequest:
    """One message of a user, its session, and the model that it asks for; empty: the configured
    one. `retry` instead of a text: go on with the last answer, or ask the last question again.
    With `untraced` the text alone is answered, and nothing of it is kept. `now` is when it was
    sent.

    A turn that began inside the agent has an `origin`. `tools` are the names of those that it may
    call (None: all), `memory` is whether it may change memory; the pipeline holds both. `account`
    has the limits of its own, and those of the turn that it works for. `sources` name whose words
    the text is, where it is not the user's: it vouches for nothing then. `late` stands before the
    text, and is kept with it. `remark` is what else the model is told with the moment.
    """

    context: ToolContext
    text: str
    model: str = ""
    retry: bool = False
    untraced: bool = False
    client: FromClient = NOTHING_ADDED
    attachments: tuple[Attachment, ...] = ()
    endings: tuple[Ending, ...] = ()
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    origin: Origin | None = None
    tools: frozenset[str] | None = None
    memory: bool = True
    account: Account = field(default_factory=Account, compare=False)
    sources: tuple[str, ...] = ()
    late: tuple[Ending, ...] = ()
    remark: str = ""

    @property
    def own_words(self) -> str:
        """What the user says with it; empty where the text is not the user's."""
        return "" if self.sources else self.text

    def allowed(self, pipeline: ToolPipeline) -> ToolPipeline:
        if self.tools is None and self.memory:
            return pipeline
        return pipeline.within(self.tools, memory=self.memory)

    @property
    def time(self) -> str:
        """What the model is told of the moment; kept with the message, so that later requests begin
        with the same words. It also says whose words follow."""
        begins = FROM_AGENT if self.sources else TIME
        remark = f" ({self.remark})" if self.remark else ""
        return f"{begins}{zones.told(self.now, self.context.time_zone)}{remark}:"

    @property
    def today(self) -> date:
        return self.now.astimezone(zones.zone(self.context.time_zone)).date()
