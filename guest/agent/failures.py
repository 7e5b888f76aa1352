"""Explains to the user why a turn failed; for the errors of models, `guest.agent.models.errors`."""

from typing import Final

from wire.errors import Code, WireError
from wire.settings import AgentSettings
from wire.v1 import gateway_pb2 as pb

CONFIG: Final = "in [agent]: runner config edit, then: runner restart"

INTERRUPTED: Final = "interrupted"
"""The code of a turn whose agent stopped in the middle."""

GO_ON: Final = "ask it to go on"
"""The fix of an incomplete answer; surfaces that have a command for it name that."""


def failed(
    code: str | Code, message: str, resolution: str = "", details: str = ""
) -> pb.TurnFailed:
    return pb.TurnFailed(code=str(code), message=message, resolution=resolution, details=details)


def from_wire_error(error: WireError) -> pb.TurnFailed:
    return failed(error.code, error.brief, error.resolution)


def cancelled() -> pb.TurnFailed:
    return failed(Code.CANCELLED, "the turn was cancelled")


def interrupted() -> pb.TurnFailed:
    return failed(
        INTERRUPTED,
        "the agent stopped in the middle of this turn, which has no answer",
        "what it had saved by then is kept; send it again if you still want it",
    )


def forgotten() -> pb.TurnFailed:
    return failed(Code.NOT_FOUND, "the session was forgotten meanwhile", "go on in another session")


def out_of_time(settings: AgentSettings) -> pb.TurnFailed:
    return failed(
        Code.TIMEOUT,
        f"the turn took longer than {settings.turn_timeout_s:g} seconds",
        f"ask for less at once, or raise turn_timeout_s {CONFIG}",
    )


def out_of_steps(settings: AgentSettings) -> pb.TurnFailed:
    return failed(
        Code.RESOURCE_EXHAUSTED,
        f"the turn used all {settings.max_steps} of its model requests",
        f"ask for less at once, or raise max_steps {CONFIG}",
    )
