"""A turn as far as it has come: its events, folded. Each surface shows a part of it."""

from dataclasses import dataclass, field

from wire.errors import Code, WireError
from wire.v1 import gateway_pb2 as pb


def error_of(failed: pb.TurnFailed) -> WireError:
    known = {str(code): code for code in Code}
    code = known.get(failed.code, Code.INTERNAL)
    return WireError(code, failed.message, details=failed.details, resolution=failed.resolution)


def files_of(event: pb.TurnEvent) -> pb.FileChanges | None:
    """What the turn that ends with `event` changed in projects."""
    ended = event.failed if event.HasField("failed") else event.completed
    ended = event.incomplete.so_far if event.HasField("incomplete") else ended
    return ended.files if ended.HasField("files") else None


@dataclass
class ToolCall:
    """A call of one of the agent's tools. `index` is that of the event with which it began, or -1
    if that is not known; `finished` names no tool while it runs."""

    index: int
    started: pb.ToolCallStarted
    finished: pb.ToolCallFinished = field(default_factory=pb.ToolCallFinished)


class TurnSoFar:
    """What the events of a turn say until now.

    Attributes:
        session_id: Empty for a turn without a trace.
        notices: What people are told besides the answer.
        receipts: What memory did; once the turn has ended, all of it.
        files: What changed in projects, once the turn has ended; None where nothing could.
        calls: The calls of the agent's tools, in the order in which they began.
        done: What it took, and the whole answer, once there is one or the part of one.
        problem: Why it failed or is incomplete; empty if it did not, or is not.
        expires_at: Until when the client can answer the newest call of its own; empty: none came.
    """

    def __init__(self, session_id: str = "") -> None:
        self.session_id = session_id
        self.notices: list[str] = []
        self.receipts: list[pb.MemoryReceipt] = []
        self.files: pb.FileChanges | None = None
        self.calls: list[ToolCall] = []
        self.done: pb.TurnCompleted | None = None
        self.problem = ""
        self.expires_at = ""
        self._said: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._said)

    @property
    def running(self) -> list[ToolCall]:
        return [call for call in self.calls if not call.finished.tool]

    def add(self, event: pb.TurnEvent) -> ToolCall | None:
        """Take the next event. Returns the call that has begun or finished with it."""
        match event.WhichOneof("event"):
            case "started":
                self.session_id = event.started.session_id or self.session_id
            case "text":
                self._said.append(event.text.text)
            case "notice":
                self.notices.append(event.notice.text)
            case "receipt":
                self.receipts.append(event.receipt)
            case "tool_started":
                self.calls.append(ToolCall(event.index, event.tool_started))
                return self.calls[-1]
            case "tool_finished":
                return self._finish(event.tool_finished)
            case "client_call":
                self.expires_at = event.client_call.expires_at
            case "completed":
                self.done, self.receipts = event.completed, list(event.completed.receipts)
            case "incomplete":
                self.done, self.problem = event.incomplete.so_far, event.incomplete.message
                self.receipts = list(event.incomplete.so_far.receipts)
            case "failed":
                self.problem = event.failed.message
                self.receipts = list(event.failed.receipts)
        self.files = files_of(event) or self.files
        return None

    def _finish(self, finished: pb.ToolCallFinished) -> ToolCall:
        """Some models give several calls the same id: the first one that runs has finished."""
        for call in self.running:
            if call.started.call_id == finished.call_id:
                call.finished = finished
                return call
        return ToolCall(-1, pb.ToolCallStarted(), finished)
