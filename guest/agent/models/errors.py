"""Explains to the user why a model has failed to answer.

Only what a person can act on is shown. A provider's own error text may quote the request or the
key, so it goes to the log (redacted there) and not into the event.
"""

import re
from traceback import walk_tb
from typing import Final

from pydantic_ai import exceptions
from wire.errors import Code
from wire.providers import PROVIDERS
from wire.v1 import gateway_pb2 as pb

from guest.agent.failures import CONFIG, failed
from guest.egress_client import MISSING, refusal_in

_KEY = "runner credentials set --provider {provider}, and ask again"


def from_model(error: Exception, provider: str, model: str) -> pb.TurnFailed | None:
    """The failure to show for `error`; None if neither the model, nor its provider, nor the way to
    it caused it."""
    who = f"provider {provider!r}"
    if (refused := refusal_in(error)) is not None:
        if refused.details == MISSING:
            refused.resolution = _KEY.format(provider=provider)
        return failed(refused.code, f"{who}: {refused.brief}", refused.resolution)
    for kind, code, message, resolution in _KINDS:
        if isinstance(error, kind) or (kind is _TOO_LONG and is_too_long(error)):
            given = {"who": who, "model": model, "provider": provider}
            return failed(code, message.format(**given), resolution.format(**given))
    frames = [frame.f_globals["__name__"] for frame, _ in walk_tb(error.__traceback__)]
    if _MODULES.findall(" ".join(frames))[-1:] not in ([], ["guest"], ["wire"]):
        return failed(Code.UNAVAILABLE, f"{who} gave an answer that cannot be read", _UNREADABLE)
    return None


def is_too_long(error: Exception) -> bool:
    """Whether a provider, or one of several, has refused a request as too long for the model.

    The library knows the words of few servers besides OpenAI; llama.cpp, vLLM, LM Studio, Gemini
    and others say it in their own.
    """
    if isinstance(error, exceptions.FallbackExceptionGroup):
        return any(map(is_too_long, error.exceptions))
    status = getattr(error, "status_code", 400)
    return isinstance(error, _TOO_LONG) or (
        isinstance(error, exceptions.ModelAPIError)
        and (status == 413 or (status in _REFUSED and bool(_TOO_LONG_WORDS.search(str(error)))))
    )


_TOO_LONG: Final = exceptions.ModelContextWindowExceededError
_TOO_LONG_WORDS: Final = re.compile(
    r"\b(context|prompt|input|model) (size|length|window)\b"
    r"|\b(prompt|input|request)\b[^.]{0,40} (too long|longer than|exceeds)\b"
    r"|\b(less than|maximum|too many)\b[^.]{0,40}(?<!output )(?<!completion )\btokens\b"
    r"|\btokens\b[^.]{0,40} must be <",
    re.IGNORECASE,
)
_REFUSED: Final = (400, 422, 500)
_MODULES: Final = re.compile(
    rf"(?<!\S)(guest|wire|(?:pydantic_ai\.models\.)?(?:{'|'.join(PROVIDERS)}))\b"
)
_UNREADABLE: Final = f"ask again; if it persists, correct base_url {CONFIG}; runner logs has more"
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
        f"correct model (or base_url) {CONFIG}",
    ),
    (
        _TOO_LONG,
        Code.RESOURCE_EXHAUSTED,
        "the conversation is too long for model {model!r}",
        f"start a new session, or set context_window to what the model takes {CONFIG}",
    ),
    (
        exceptions.ModelRequestRejectedError,
        Code.FAILED_PRECONDITION,
        "{who} rejected the request",
        f"see runner logs for its answer; correct model or base_url {CONFIG}",
    ),
    (
        exceptions.ModelQuotaExceededError,
        Code.RESOURCE_EXHAUSTED,
        "the account at {who} has no quota left",
        "raise the quota with the provider, or configure another one: provider " + CONFIG,
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
        f"ask again; if it persists, check base_url {CONFIG}",
    ),
    (
        exceptions.ModelConnectionError,
        Code.UNAVAILABLE,
        "the connection to {who} failed or broke off",
        f"check the network and base_url {CONFIG}",
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
        f"ask again; if it persists, choose another model {CONFIG}",
    ),
)
