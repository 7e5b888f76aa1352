"""Explains to the user why a model has failed to answer: one sentence of ours, what the provider
itself says, and the fix.

Words of a provider may quote the request or the key. They are redacted, on one line, bounded, and
marked as the provider's.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from traceback import walk_tb
from typing import Final

from pydantic_ai import exceptions
from wire.errors import Code
from wire.providers import PROVIDERS
from wire.settings import plain_address
from wire.text import refusal_words, shortened, visible
from wire.v1 import gateway_pb2 as pb

from guest.agent.failures import CONFIG, failed
from guest.egress_client import MISSING, refusal_in

WORDS_MAX: Final = 500
"""How many characters of a provider's words are shown."""
_READ_MAX: Final = 20_000
_CHAIN_MAX: Final = 10
_MARKUP: Final = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)

_NAMED_KEY: Final = re.compile(r"(\b(?:key|token)\b[^:\n]{0,40}:\s*)(?!//)\S{8,}", re.IGNORECASE)
"""A key that a provider quotes. Egress has taken out the one that it knows."""


def from_model(
    error: Exception,
    provider: str,
    model: str,
    base_url: str = "",
    redact: Callable[[str], str] = str,
) -> pb.TurnFailed | None:
    """The failure to show for `error`; None if neither the model, nor its provider, nor the way to
    it caused it.

    Args:
        base_url: The provider's address, where it is not its own.
        redact: Takes secrets out of what the provider says.
    """
    keyed = PROVIDERS.get(provider)
    local = base_url or (keyed.url if keyed and not keyed.needs_key else "")
    who = f"provider {provider!r}" + (f" at {plain_address(local)}" if local else "")
    get = f"ollama pull {shlex.quote(model)}; or " if provider == "ollama" else ""
    given = {"who": who, "model": model, "provider": provider, "get": get}
    if (refused := refusal_in(error)) is not None:
        if refused.details == MISSING:
            refused.resolution = _KEY.format(**given)
        elif local and refused.details in _ON_THE_WAY:
            refused.resolution = f"{_REACH}; runner egress log has more"
        return failed(refused.code, f"{who}: {refused.brief}", refused.resolution)
    words, why = _words(error), _cause(error)
    for kind in _KINDS:
        if kind.fits(error, words or why):
            said = _NAMED_KEY.sub(r"\1[redacted]", redact(words))
            said = shortened(" ".join(visible(said).split()), WORDS_MAX)
            return failed(
                kind.code,
                kind.message.format(**given),
                kind.resolution.format(**given),
                f'the provider says: "{said}"' if said else why,
            )
    frames = [frame.f_globals["__name__"] for frame, _ in walk_tb(error.__traceback__)]
    if _MODULES.findall(" ".join(frames))[-1:] not in ([], ["guest"], ["wire"]):
        return failed(Code.UNAVAILABLE, f"{who} gave an answer that cannot be read", _UNREADABLE)
    return None


def named(error: BaseException) -> str:
    """What an error is, for logs: without a provider's words, which may quote what was said."""
    status = getattr(error, "status_code", None)
    return type(error).__name__ + (f", status {status}" if status else "")


def is_too_long(error: Exception) -> bool:
    """Whether a provider, or one of several, has refused a request as too long for the model.

    The library knows the words of few servers besides OpenAI; llama.cpp, vLLM, LM Studio, Gemini
    and others say it in their own.
    """
    if isinstance(error, exceptions.FallbackExceptionGroup):
        return any(map(is_too_long, error.exceptions))
    status = getattr(error, "status_code", 400)
    return isinstance(error, exceptions.ModelContextWindowExceededError) or (
        isinstance(error, exceptions.ModelAPIError)
        and (status == 413 or (status in _REFUSED and _has(_TOO_LONG_WORDS, str(error))))
    )


def limits_in(error: Exception) -> tuple[int, int]:
    """The model's window and the size of the request that is too long for it, as the provider says
    them; 0 for what it does not say."""
    if isinstance(error, exceptions.FallbackExceptionGroup):
        return max(map(limits_in, error.exceptions))
    words = _words(error).replace(",", "")[:_READ_MAX]
    found = _WINDOW_WORDS.search(words)
    window = int(next(filter(None, found.groups()))) if found else 0
    sizes = [int(each) for each in _FIGURE.findall(words)]
    return window, max((each for each in sizes if each > window), default=0) if window else 0


_FIGURE: Final = re.compile(r"(?<![\w.])\d{3,9}(?![\w.])")
_WINDOW_WORDS: Final = re.compile(
    r"\b(?:context|model)[ _](?:length|size|window|limit)\D{0,30}?(?:\d+ \+ \d+ > )?(\d{3,9})\b"
    r"|(?<!\+ )> (\d{3,9}) maximum"
    r"|\b(\d{3,9}) maximum context length"
    r"|tokens allowed \((\d{3,9})\)"
    r"|must be <= (\d{3,9})",
    re.IGNORECASE,
)
"""How llama.cpp, OpenAI, vLLM, LM Studio; Anthropic; Mistral; Gemini; and TGI say it."""


def is_loading(error: Exception) -> bool:
    """Whether a server has refused a request because it still loads the model."""
    return _is_said(error, (429, 503), _LOADING)


def is_malformed_call(error: Exception) -> bool:
    """Whether a server has failed because it could not read the call that its model wrote."""
    return _is_said(error, (500,), _MALFORMED_CALL)


class EmptyAnswer(exceptions.UnexpectedModelBehavior):
    """A model has answered with nothing, when asked again, too."""

    def __init__(self) -> None:
        super().__init__("an empty answer")


def _is_said(error: Exception, statuses: tuple[int, ...], pattern: str) -> bool:
    is_one = isinstance(error, exceptions.ModelHTTPError) and error.status_code in statuses
    return is_one and _has(pattern, str(error))


def _has(pattern: str, words: str) -> bool:
    return re.search(pattern, words, re.IGNORECASE) is not None


_TOO_LONG_WORDS: Final = (
    r"\b(context|prompt|input|model) (size|length|window)\b"
    r"|\b(prompt|input|request)\b[^.]{0,40} (too long|longer than|exceeds)\b"
    r"|\b(less than|maximum|too many)\b[^.]{0,40}(?<!output )(?<!completion )\btokens\b"
    r"|\btokens\b[^.]{0,40} must be <"
    r"|\bno user query found in messages"  # Ollama has cut it off
)
_REFUSED: Final = (400, 422, 500)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(_CHAIN_MAX):
        if error is None:
            return
        yield error
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        else:
            error = error.__cause__ or error.__context__


def _words(error: Exception) -> str:
    """What the provider itself says; empty if it says nothing."""
    said = (refusal_words(getattr(each, "body", None)) for each in _chain(error))
    return next(filter(None, (_MARKUP.sub(" ", each[:_READ_MAX]).strip() for each in said)), "")


def _cause(error: Exception) -> str:
    """Why a connection has failed, as the system says; empty of other failures."""
    found = ""
    if isinstance(error, exceptions.ModelConnectionError):
        for each in _chain(error):
            if isinstance(each, ConnectionError) and each.errno:
                found = os.strerror(each.errno)
            elif isinstance(each, OSError):
                found = each.strerror or str(each)
    return shortened(" ".join(visible(found).split()), WORDS_MAX)


@dataclass(frozen=True)
class _Kind:
    """A kind of failure, and what a person reads. The first one that fits counts.

    Attributes:
        errors: What the library raises for it.
        words: What the provider must say besides, if anything.
        unlike: What it must not say.
        statuses: The HTTP statuses that it must have, if any.
    """

    message: str
    resolution: str
    code: Code = Code.FAILED_PRECONDITION
    errors: type[Exception] | tuple[type[Exception], ...] = exceptions.ModelAPIError
    words: str = ""
    unlike: str = ""
    statuses: tuple[int, ...] = ()
    too_long: bool = False

    def fits(self, error: Exception, words: str) -> bool:
        if self.too_long:
            return is_too_long(error)
        return (
            isinstance(error, self.errors)
            and (not self.statuses or getattr(error, "status_code", 0) in self.statuses)
            and _has(self.words, words)
            and not (self.unlike and _has(self.unlike, words))
        )


_KEY: Final = "runner credentials set --provider {provider}, and ask again"
SET_UP: Final = ": runner init; or runner config edit, then: runner restart"
"""How settings in a file are corrected. A fix for settings that are being chosen ends before it."""
_REACH: Final = f"start that server, or correct base_url{SET_UP}"
_ON_THE_WAY: Final = ("unreachable", "cut")
_OTHER_MODEL: Final = f"choose another model{SET_UP}"
_UNREADABLE: Final = f"ask again; if it persists, correct base_url{SET_UP}; runner logs has more"
_LOADING: Final = r"\bloading model|\bmodel\b.{0,200}\b(is|still) (currently )?(being )?load"
_MALFORMED_CALL: Final = (
    r"\b(parsing|parse|invalid|malformed)\b.{0,40}\b(tool|function)[ _-]?calls?\b"
    r"|\b(tool|function)[ _-]?calls?\b.{0,80}\b(pars|unmarshal|invalid|malformed)"
    r"|failed to parse (input at pos|tool call|messages: missing tool)"
)
_MODULES: Final = re.compile(
    rf"(?<!\S)(guest|wire|(?:pydantic_ai\.models\.)?(?:{'|'.join(PROVIDERS)}))\b"
)
_KINDS: Final = (
    _Kind(
        "the server of model {model!r} was started without tool calls",
        "start vLLM with --enable-auto-tool-choice and --tool-call-parser, llama.cpp with --jinja",
        words=r"--enable-auto-tool-choice|--tool-call-parser|requires --jinja",
    ),
    _Kind(
        "model {model!r} cannot call tools, and the agent needs them",
        f"choose a model that can{SET_UP}",
        words=r"not support (the use of )?(tool|function)|\btools? (is|are) not supported"
        r"|(tool|function)[- ](use|calls?|calling|choice)\b.{0,40}\bnot (supported|available)"
        r"|no endpoints found that support tool",
    ),
    _Kind(
        "{who} refused the API key",
        _KEY,
        errors=exceptions.ModelAuthenticationError,
    ),
    _Kind(
        "{who} has no chat API at this address",
        f"correct base_url, which ends in /v1 for most servers{SET_UP}",
        unlike="model|deployment|endpoints",
        statuses=(404, 405),
    ),
    _Kind(
        "{who} knows no model {model!r}",
        f"{{get}}correct model (or base_url){SET_UP}",
        errors=exceptions.ModelNotFoundError,
    ),
    _Kind(
        "{who} knows no model {model!r}",
        f"{{get}}correct model (or base_url){SET_UP}",
        words=r"not a valid model|(unknown|no such|invalid) model"
        r"|\bmodel\b.{0,200}(not found|(does|do) not exist)",
        statuses=(400, 404, 422),
    ),
    _Kind(
        "the conversation is too long for model {model!r}",
        f"start a new session, or set context_window to what the model takes {CONFIG}",
        Code.RESOURCE_EXHAUSTED,
        too_long=True,
    ),
    _Kind(
        "{who} is still loading model {model!r}",
        "wait a little and ask again",
        Code.UNAVAILABLE,
        words=_LOADING,
    ),
    _Kind(
        "model {model!r} wrote a call that {who} cannot read",
        f"ask again; if it persists, {_OTHER_MODEL}",
        Code.UNAVAILABLE,
        words=_MALFORMED_CALL,
        statuses=(0, 500),
    ),
    _Kind(
        "{who} has too little memory for model {model!r}",
        f"close what else uses its memory, or choose a smaller model{SET_UP}",
        Code.RESOURCE_EXHAUSTED,
        words=r"requires more (system |gpu )?memory|out of memory|failed to allocate",
        statuses=(500, 503),
    ),
    _Kind(
        "the account at {who} has no quota left",
        f"raise the quota with the provider, or choose another one{SET_UP}",
        Code.RESOURCE_EXHAUSTED,
        errors=exceptions.ModelQuotaExceededError,
    ),
    _Kind(
        "{who} limits the rate of requests",
        "wait a little and ask again",
        Code.RESOURCE_EXHAUSTED,
        errors=exceptions.ModelRateLimitError,
    ),
    _Kind(
        "{who} rejected the request",
        f"correct model or base_url{SET_UP}",
        errors=exceptions.ModelRequestRejectedError,
    ),
    _Kind(
        "{who} did not answer in time",
        f"ask again; if it persists, check base_url{SET_UP}",
        Code.TIMEOUT,
        errors=exceptions.ModelTimeoutError,
    ),
    _Kind(
        "{who} refuses connections: no server runs at this address",
        _REACH,
        Code.UNAVAILABLE,
        errors=exceptions.ModelConnectionError,
        words="connection refused",
    ),
    _Kind(
        "the connection to {who} failed or broke off",
        f"check the network and base_url{SET_UP}",
        Code.UNAVAILABLE,
        errors=exceptions.ModelConnectionError,
    ),
    _Kind(
        "{who} failed to answer",
        "ask again later; runner logs has more",
        Code.UNAVAILABLE,
    ),
    _Kind(
        "the content filter of {who} stopped the answer",
        "ask in other words",
        errors=exceptions.ContentFilterError,
    ),
    _Kind(
        "model {model!r} gave an answer that cannot be used: there was nothing in it, twice",
        f"ask again; if it persists, {_OTHER_MODEL}",
        Code.UNAVAILABLE,
        errors=EmptyAnswer,
    ),
    _Kind(
        "model {model!r} gave an answer that cannot be used",
        f"ask again; if it persists, {_OTHER_MODEL}",
        Code.UNAVAILABLE,
        errors=exceptions.UnexpectedModelBehavior,
    ),
)
