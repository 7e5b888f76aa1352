"""Explains to the user why a turn failed.

Only what a person can act on is shown. A provider's own error text may quote the request or the
key, so it goes to the log (redacted there) and not into the event.
"""

from typing import Final

from pydantic_ai import exceptions
from wire.errors import Code, WireError
from wire.settings import AgentSettings
from wire.v1 import gateway_pb2 as pb

from guest.door import MISSING, refusal_in

_CONFIG = "in the [agent] section of runner.toml, then: runner restart"
_KEY = "runner credentials set --provider {provider}, and ask again"


INTERRUPTED: Final = "interrupted"
"""The code of a turn whose agent stopped in the middle."""


def failed(code: str | Code, message: str, resolution: str = "") -> pb.TurnFailed:
    return pb.TurnFailed(code=str(code), message=message, resolution=resolution)


def from_wire_error(error: WireError) -> pb.TurnFailed:
    return failed(error.code, error.brief, error.resolution)


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
        f"ask for less at once, or raise turn_timeout_s {_CONFIG}",
    )


def out_of_steps(settings: AgentSettings) -> pb.TurnFailed:
    return failed(
        Code.RESOURCE_EXHAUSTED,
        f"the turn used all {settings.max_steps} of its model requests",
        f"ask for less at once, or raise max_steps {_CONFIG}",
    )


def from_model(error: Exception, provider: str, model: str) -> pb.TurnFailed | None:
    """The failure to show for `error`; None if neither the model, nor its provider, nor the way to
    it caused it."""
    who = f"provider {provider!r}"
    if (refused := refusal_in(error)) is not None:
        if refused.details == MISSING:
            refused.resolution = _KEY.format(provider=provider)
        return failed(refused.code, f"{who}: {refused.brief}", refused.resolution)
    for kind, code, message, resolution in _KINDS:
        if isinstance(error, kind):
            given = {"who": who, "model": model, "provider": provider}
            return failed(code, message.format(**given), resolution.format(**given))
    return None


_KINDS: tuple[tuple[type[Exception], Code, str, str], ...] = (
    (
        exceptions.ModelAuthenticationError,
        Code.FAILED_PRECONDITION,
        "{who} refused the API key",
        _KEY,
    ),
    (
        exceptions.ModelNotFoundError,
        Code.FAILED_PRECONDITION,
        "{who} knows no model {model!r}",
        f"correct model (or base_url) {_CONFIG}",
    ),
    (
        exceptions.ModelContextWindowExceededError,
        Code.RESOURCE_EXHAUSTED,
        "the conversation is too long for model {model!r}",
        f"start a new session, or set context_window to what the model takes {_CONFIG}",
    ),
    (
        exceptions.ModelRequestRejectedError,
        Code.FAILED_PRECONDITION,
        "{who} rejected the request",
        f"see runner logs for its answer; correct model or base_url {_CONFIG}",
    ),
    (
        exceptions.ModelQuotaExceededError,
        Code.RESOURCE_EXHAUSTED,
        "the account at {who} has no quota left",
        "raise the quota with the provider, or configure another one: provider " + _CONFIG,
    ),
    (
        exceptions.ModelRateLimitError,
        Code.RESOURCE_EXHAUSTED,
        "{who} limits the rate of requests",
        "wait a little and ask again",
    ),
    (
        exceptions.ModelTimeoutError,
        Code.TIMEOUT,
        "{who} did not answer in time",
        f"ask again; if it persists, check base_url {_CONFIG}",
    ),
    (
        exceptions.ModelConnectionError,
        Code.UNAVAILABLE,
        "the connection to {who} failed or broke off",
        f"check the network and base_url {_CONFIG}",
    ),
    (
        exceptions.ModelAPIError,
        Code.UNAVAILABLE,
        "{who} failed to answer",
        "ask again later; runner logs has the provider's answer",
    ),
    (
        exceptions.ContentFilterError,
        Code.FAILED_PRECONDITION,
        "the content filter of {who} stopped the answer",
        "ask in other words",
    ),
    (
        exceptions.UnexpectedModelBehavior,
        Code.UNAVAILABLE,
        "model {model!r} gave an answer that cannot be used",
        f"ask again; if it persists, choose another model {_CONFIG}",
    ),
)
