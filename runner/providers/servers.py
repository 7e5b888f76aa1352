"""Servers of models: which run on this machine, the models of each, and what it says of them.

`local_servers` looks on loopback, `server_at` at one address or at a provider of the table. Both
ask each server what program it is, because Ollama, LM Studio and llama.cpp say more about their
models than the list of OpenAI's API: whether they can call tools, are loaded, and run here at all.
"""

import asyncio
import contextlib
import ipaddress
import os
import pwd
import re
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from urllib.parse import SplitResult, urlsplit

import httpx2
import psutil
from wire.egress.loopback import is_loopback
from wire.errors import Code
from wire.providers import COMPATIBLE, PROVIDERS, Provider
from wire.settings import shown_address
from wire.text import bounded_json, parsed_json, refusal_words, shortened, visible_name

from runner.errors import HostError
from runner.workspace.keys import usable_key

PORTS: Final = (11434, 1234, 8080, 8000, 1337, 5001, 30000, 4891)
"""Where servers of models usually listen: Ollama, LM Studio, llama.cpp, vLLM, Jan, KoboldCpp,
SGLang, GPT4All."""
LOOK_S: Final = 0.5
"""How long all of them together are looked for: whoever does not listen then is not there."""
SPEAK_S: Final = 2.0
"""How long one that listens may take to say what it has."""
ASK_S: Final = 15.0
"""How long the list of one server is waited for."""
SUGGESTED: Final = ("qwen3:4b", "2.6 GB")
"""A model of Ollama's library that calls tools and runs on most machines, and its size."""

_WHOLE: Final = 2
"""How often that long all answers of one server may take together: one that never ends may go on
for ever, byte by byte."""
_ANSWER_MAX_BYTES: Final = 16 * 1024 * 1024
_DETAILS_MAX_BYTES: Final = 1024 * 1024
_VALUES_MAX: Final = 250_000
"""A value of a few bytes takes fifty times as much memory."""
_MODELS_MAX: Final = 2_000
_DETAILED_MAX: Final = 64
"""Of so many models Ollama is asked for details."""
_REFUSAL_MAX_BYTES: Final = 64 * 1024
_WORDS_MAX_CHARS: Final = 300
_SYSTEM_UIDS: Final = 1000
"""Accounts below this are those of services and root."""
_OVERHEAD: Final = 1.2
"""How much more memory a model takes than its file."""
_T = TypeVar("_T")
_NO_CHAT: Final = re.compile(
    r"embed|whisper|tts|dall-e|moderation|transcri|realtime|gpt-image|gpt-audio|sora|rerank", re.I
)
"""Names of models in OpenAI's list that answer no message."""


@dataclass(frozen=True)
class Model:
    """A model that a server has: whether it can call tools (None if the server does not say), is in
    memory already and answers messages, the size of its file (0: not said), and the other host
    where it runs; empty if it runs where the server does."""

    name: str
    tools: bool | None = None
    loaded: bool = False
    size_bytes: int = 0
    runs_at: str = ""
    chats: bool = True

    def fits(self, memory_bytes: int) -> bool:
        """Whether that much memory can hold it."""
        return self.loaded or self.size_bytes * _OVERHEAD <= memory_bytes


@dataclass(frozen=True)
class Server:
    """A server that has answered, or a provider.

    `provider` is its name in the table of providers, `program` what it is, for people: "Ollama
    0.32", "vLLM", or a host. `account` is the other account of this machine that runs it; empty for
    the own one, or if that cannot be seen. With `is_foreign` it is a person's, who can read what is
    sent there.
    """

    provider: str
    program: str
    base_url: str
    models: tuple[Model, ...] = ()
    account: str = ""
    is_foreign: bool = False

    @classmethod
    def at(cls, provider: str, url: str, models: tuple[Model, ...] = ()) -> Self:
        """The one at `url`, whose program is not known."""
        return cls(provider, urlsplit(url).netloc.rpartition("@")[2], url, models)

    @property
    def is_local(self) -> bool:
        """Whether it listens on this machine."""
        return is_loopback(urlsplit(self.base_url).hostname or "")


async def local_servers(
    environ: Mapping[str, str], ports: Sequence[int] = PORTS, speak_s: float = SPEAK_S
) -> list[Server]:
    """The servers of models that answer on this machine, in the order of `ports`.

    A port that `OLLAMA_HOST` names comes first. Of a server that answers slowly, in more than
    `speak_s`, there may be models without details. Raises nothing.
    """
    named = _ollama_port(environ)
    wanted = dict.fromkeys([*([named] if named else []), *ports])
    within_s = LOOK_S + speak_s
    deadline = asyncio.get_running_loop().time() + within_s
    timeout = httpx2.Timeout(speak_s, connect=LOOK_S)
    async with httpx2.AsyncClient(timeout=timeout, trust_env=False) as client:
        looking = (_listed(client, f"http://127.0.0.1:{port}/v1", deadline) for port in wanted)
        found = await _answers(looking, within_s * 1.1)
    return [_with_account(each) for each in found if isinstance(each, Server)]


async def server_at(
    address: str = "", key: str = "", provider: str = "", within_s: float = ASK_S
) -> Server:
    """The server at `address`, or the `provider` at its own one, with its models.

    An address may lack the scheme and the path. A key goes over plain HTTP only to this machine, or
    where the address says so. A provider without a list is not asked, and has no models. Without a
    `provider` it is whatever answers at `address`.

    Raises `WireError`: INVALID_ARGUMENT for what is no address or no key, FAILED_PRECONDITION for a
    key that is missing or refused, NOT_FOUND for a server that lists no models, UNAVAILABLE if
    nothing answers. The details are the server's own words, without the key.
    """
    row = PROVIDERS[provider or COMPATIBLE]
    who = f"provider {provider!r}" if provider else "the server"
    tried: list[HostError] = []
    silent = ""
    headers = dict(row.list_headers)
    if key:
        usable_key(key, "what was given as the key", "give the key alone, on one line")
        headers[row.key_header] = row.key_form.format(key)
    urls = addresses(address, row, with_key=bool(key))
    if not row.list_path:
        return Server.at(provider, urls[0])
    for url in urls:
        scheme = urlsplit(url).scheme
        if scheme == silent:
            continue
        local = is_loopback(urlsplit(url).hostname or "")
        async with httpx2.AsyncClient(
            headers=headers, timeout=within_s, trust_env=not local
        ) as client:
            try:
                async with asyncio.timeout(_WHOLE * within_s):
                    deadline = asyncio.get_running_loop().time() + within_s
                    found = await _listed(client, url, deadline, provider)
                return _with_account(found) if local else found
            except httpx2.InvalidURL as error:
                raise _no_address(address, str(error)) from None
            except (httpx2.RequestError, TimeoutError) as error:
                tried.append(
                    HostError(
                        Code.UNAVAILABLE,
                        f"nothing answers at {shown_address(url)}",
                        details=_cause(error),
                        resolution="start that server, or check the address and the network",
                    )
                )
                silent = scheme
            except _Refused as refused:
                tried.append(refused.error(who, url, key))
    telling = (Code.FAILED_PRECONDITION, Code.NOT_FOUND, Code.UNAVAILABLE)
    raise min(tried, key=lambda error: telling.index(error.code))


def addresses(address: str, row: Provider, *, with_key: bool = False) -> list[str]:
    """The addresses that `address` can mean, in the order in which they are tried: with the scheme
    and the path of the provider's API where it lacks them.

    Raises `HostError` INVALID_ARGUMENT if it is none.
    """
    text = address.strip() or row.url
    schemed = re.match(r"https?://", text, re.I) is not None
    if not text:
        raise _no_address(address, "there is none")
    if not schemed and (re.search(r"[\s@]|://", text) or text.startswith("/")):
        raise _no_address(address, "it has another scheme, or characters that no address has")
    try:
        parts = urlsplit(text if schemed else f"//{text}")
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise _no_address(address, str(error)) from None
    if not host or re.search(r"[^A-Za-z0-9._:\-]", host):
        raise _no_address(address, "it names no host")
    path = re.sub(r"(/chat/completions|/models)?/*$", "", parts.path)
    schemes = [parts.scheme] if schemed else _schemes(host, with_key=with_key)
    paths = [path] if path else [row.path, ""]
    if path and not re.search(r"/v\d\w*(/|$)", path):
        paths = [path, path + row.path]
    return [
        SplitResult(scheme, parts.netloc, each, parts.query, "").geturl()
        for scheme in schemes
        for each in dict.fromkeys(paths)
    ]


def ranked(
    servers: Iterable[Server], memory_bytes: int | None = None
) -> list[tuple[Server, Model]]:
    """All models that answer messages, the best first: those on this machine before others, then
    those that call tools, then those that are loaded, then the largest that fits the memory."""
    memory = psutil.virtual_memory().available if memory_bytes is None else memory_bytes

    def rank(found: tuple[Server, Model]) -> tuple[bool, bool, bool, bool, bool, int]:
        model, fits = found[1], found[1].fits(memory)
        size = -model.size_bytes if fits else model.size_bytes
        unsure, cannot = model.tools is None, model.tools is False
        return (not is_own(*found), cannot, unsure, not model.loaded, not fits, size)

    found = [(server, model) for server in servers for model in server.models if model.chats]
    return sorted(found, key=rank)


def best(servers: Iterable[Server], memory_bytes: int | None = None) -> tuple[Server, Model] | None:
    """The first of them that runs on this machine, and on nobody else's account of it."""
    first = next(iter(ranked(servers, memory_bytes)), None)
    return first if first is not None and is_own(*first) else None


def is_own(server: Server, model: Model) -> bool:
    """Whether what is said to a model stays on this machine, and with no other person of it."""
    return server.is_local and not server.is_foreign and not model.runs_at


def _own_words(body: bytes | str, *secrets: str) -> str:
    """What a refusal says, on one line and without the secrets."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else body
    with contextlib.suppress(ValueError):
        text = refusal_words(parsed_json(text)) or text
    if re.match(r"\s*<", text):  # a page for browsers
        text = " ".join(re.findall(r"<title>([^<]*)", text)) or "a page for browsers"
    for secret in filter(None, secrets):
        text = text.replace(secret, "[redacted]")
    return shortened(visible_name(" ".join(text.split())), _WORDS_MAX_CHARS)


@dataclass(frozen=True)
class Pulled:
    """How far a download is: what happens, and bytes of the file that comes; 0 of 0 at first."""

    status: str
    completed: int = 0
    total: int = 0


async def pull(server: Server, name: str) -> AsyncGenerator[Pulled, None]:
    """Let Ollama get a model, and say how far it is.

    Raises `HostError` with Ollama's own words if it cannot.
    """
    timeout = httpx2.Timeout(ASK_S, read=None)
    async with httpx2.AsyncClient(timeout=timeout, trust_env=False) as client:
        try:
            async with client.stream(
                "POST", f"{_root(server.base_url)}/api/pull", json={"model": name, "stream": True}
            ) as answer:
                async for line in _lines(answer):
                    with contextlib.suppress(ValueError):
                        step = parsed_json(line)
                        if isinstance(step, dict) and step.get("error"):
                            raise _not_pulled(name, _own_words(line))
                        sizes = (_number(step, "completed"), _number(step, "total"))
                        yield Pulled(_text(step, "status"), *sizes)
        except httpx2.TransportError as error:
            raise _not_pulled(name, _cause(error)) from None


async def _lines(answer: httpx2.Response) -> AsyncGenerator[bytes, None]:
    """The lines of an answer; of one that is too long only its beginning, and it is the last."""
    rest = b""
    async for piece in answer.aiter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > _REFUSAL_MAX_BYTES:
            break
    yield rest


def _not_pulled(name: str, words: str) -> HostError:
    return HostError(
        Code.UNAVAILABLE,
        f"Ollama could not get {name}",
        details=words,
        resolution=f"ollama pull {name}",
    )


class _Refused(Exception):  # noqa: N818 - an answer
    """A server answered, but not with its models."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status, self.body = status, body[:_REFUSAL_MAX_BYTES]

    def error(self, who: str, url: str, key: str) -> HostError:
        words = _own_words(self.body, key) or "no reason"
        details = f"{shown_address(url)} answered {self.status}: {words}"
        if self.status in (401, 403):
            what = f"{who} refused the API key" if key else f"{who} asks for an API key"
            fix = "give the key of that provider"
            return HostError(Code.FAILED_PRECONDITION, what, details=details, resolution=fix)
        return HostError(
            Code.NOT_FOUND,
            f"{who} lists no models at {shown_address(url)}",
            details=details,
            resolution="check the address: that of OpenAI's API usually ends in /v1",
        )


def _no_address(address: str, why: str) -> HostError:
    shown = "…" if "@" in address else visible_name(address)[:80]
    return HostError(
        Code.INVALID_ARGUMENT,
        f"not an address: {shown!r}",
        details=why,
        resolution="give one as 127.0.0.1:11434 or https://api.example.org/v1",
    )


def _cause(error: BaseException) -> str:
    """Why a connection failed, in the system's words."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno:
            why = os.strerror(seen.errno) if seen.errno > 0 else seen.strerror
            return str(why).lower()
        if isinstance(seen, TimeoutError | httpx2.TimeoutException):
            return "no answer in time"
        seen = seen.__cause__ or seen.__context__
    return visible_name(str(error)) or type(error).__name__


def _schemes(host: str, *, with_key: bool) -> list[str]:
    if is_loopback(host):
        return ["http", "https"]
    if with_key:
        return ["https"]
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        return ["http", "https"]
    return ["https", "http"] if "." in host else ["http", "https"]


async def _answer(
    client: httpx2.AsyncClient, method: str, url: str, most: int = _ANSWER_MAX_BYTES, **given: Any
) -> Any:
    """What a server answers in JSON of at most so many bytes. Raises `_Refused`, and httpx's
    errors."""
    received = bytearray()  # appending to bytes would copy all of it for each piece
    async with client.stream(method, url, **given) as answer:
        async for piece in answer.aiter_bytes():
            received += piece
            if len(received) > most:
                raise _Refused(answer.status_code, b"an answer without end")
    body = bytes(received)
    if answer.status_code != 200:
        raise _Refused(answer.status_code, body)
    try:
        return bounded_json(body, _VALUES_MAX)
    except ValueError:
        raise _Refused(answer.status_code, body) from None


async def _optional(
    client: httpx2.AsyncClient, method: str, url: str, **given: Any
) -> Mapping[str, Any]:
    """The same if it is a table, or an empty one from a server that has no such address."""
    with contextlib.suppress(_Refused, httpx2.HTTPError):
        answer = await _answer(client, method, url, _DETAILS_MAX_BYTES, **given)
        if isinstance(answer, dict):
            return answer
    return {}


async def _answers(asked: Iterable[Coroutine[Any, Any, Any]], within_s: float) -> list[Any]:
    """What each has answered by then, or an exception."""
    tasks = list(map(asyncio.ensure_future, asked))
    if tasks:
        await asyncio.wait(tasks, timeout=within_s)
    for task in tasks:
        task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def _listed(
    client: httpx2.AsyncClient,
    url: str,
    deadline: float,
    provider: str = "",
) -> Server:
    """The server at `url` with its models, as far as it has said more of them by then."""
    row = PROVIDERS[provider or COMPATIBLE]
    listing = await _answer(client, "GET", f"{url}{row.list_path}")
    items = _items(listing, "data") or _items(listing, "models")
    if not items and not (isinstance(listing, dict) and {"data", "models"} & listing.keys()):
        raise _Refused(200, str(listing)[:_WORDS_MAX_CHARS].encode())
    server = Server.at(provider or COMPATIBLE, url, tuple(_of_list(items)))
    described = provider in _DESCRIBED
    return await _described(client, server, items, deadline) if described else server


_DESCRIBED: Final = ("", COMPATIBLE, "openai", "ollama", "lmstudio")
"""The providers whose servers are asked which program they are."""


async def _described(
    client: httpx2.AsyncClient,
    server: Server,
    items: Sequence[Mapping[str, Any]],
    deadline: float,
) -> Server:
    """`server` with what its program says of its models, as far as it has said it by then."""
    root = _root(server.base_url)
    version, studio, props = await asyncio.gather(
        _optional(client, "GET", f"{root}/api/version"),
        _optional(client, "GET", f"{root}/api/v1/models"),
        _optional(client, "GET", f"{root}/props"),
    )
    if number := _text(version, "version"):
        named = replace(server, provider="ollama", program=f"Ollama {number[:20]}")
        return replace(named, models=await _of_ollama(client, root, deadline))
    if any(_text(each, "key") for each in _items(studio, "models")):
        models = tuple(_of_lm_studio(_items(studio, "models")))
        return replace(server, provider="lmstudio", program="LM Studio", models=models)
    if "default_generation_settings" in props:
        # it drops tools silently where the model's template has no place for them
        tools = _given(_given(props, "chat_template_caps", dict), "supports_tools", bool)
        models = tuple(replace(each, tools=tools, loaded=True) for each in server.models)
        return replace(server, program="llama.cpp", models=models)
    if any(_text(each, "owned_by") == "vllm" for each in items):
        models = tuple(replace(each, loaded=True) for each in server.models)
        return replace(server, program="vLLM", models=models)
    return server


def _of_list(items: Iterable[Mapping[str, Any]]) -> Iterator[Model]:
    """The models of a list by OpenAI's API, or by another provider's."""
    for each in items:
        name = _text(each, "id") or _text(each, "name").removeprefix("models/")
        if not name:
            continue
        can = _given(each, "capabilities", dict) or {}
        tools = chats = None
        if (parameters := _given(each, "supported_parameters", list)) is not None:  # OpenRouter
            tools = "tools" in parameters
        elif "function_calling" in can:  # Mistral
            tools, chats = can["function_calling"] is True, can.get("completion_chat") is True
        elif (methods := _given(each, "supportedGenerationMethods", list)) is not None:  # Google
            chats = "generateContent" in methods
        yield Model(name, tools, chats=_NO_CHAT.search(name) is None and chats is not False)


async def _of_ollama(client: httpx2.AsyncClient, root: str, deadline: float) -> tuple[Model, ...]:
    tags, running = await asyncio.gather(
        _optional(client, "GET", f"{root}/api/tags"),
        _optional(client, "GET", f"{root}/api/ps"),
    )
    items = [each for each in _items(tags, "models") if _text(each, "name")]
    loaded = {_text(each, "name") for each in _items(running, "models")}
    url = f"{root}/api/show"
    asking = (
        _optional(client, "POST", url, json={"model": each["name"]})
        for each in items[:_DETAILED_MAX]
    )
    left = max(0.0, deadline - asyncio.get_running_loop().time())
    shown = await _answers(asking, left)
    return tuple(
        _of_tag(item, details, item["name"] in loaded)
        for item, details in zip_longest(items, shown)
    )


def _of_tag(item: Mapping[str, Any], shown: Any, loaded: bool) -> Model:
    can = _given(shown, "capabilities", list)
    return Model(
        item["name"],
        tools=None if can is None else "tools" in can,
        loaded=loaded,
        size_bytes=_number(item, "size"),
        runs_at=_host_of(_text(item, "remote_host") or _text(shown, "remote_host")),
        chats="completion" in can if can else _NO_CHAT.search(item["name"]) is None,
    )


def _of_lm_studio(items: Iterable[Mapping[str, Any]]) -> Iterator[Model]:
    for each in items:
        can = _given(each, "capabilities", dict)
        yield Model(
            _text(each, "key"),
            tools=None if can is None else can.get("trained_for_tool_use") is True,
            loaded=bool(_items(each, "loaded_instances")),
            size_bytes=_number(each, "size_bytes"),
            chats=_text(each, "type") != "embedding",
        )


def _with_account(server: Server) -> Server:
    """`server` with the account that runs it, if that is another one."""
    uid = owner_of_port(urlsplit(server.base_url).port or 80)
    if uid is None or uid == os.geteuid():
        return server
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = f"number {uid}"
    return replace(server, account=name, is_foreign=uid >= _SYSTEM_UIDS)


def owner_of_port(port: int, tables: Path = Path("/proc/net")) -> int | None:
    """The account that listens on `port` of 127.0.0.1, or of all addresses; None if that cannot be
    seen."""
    wanted = ("0100007F", "00000000", "0" * 32, "0000000000000000FFFF00000100007F")
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError, ValueError):
            for line in (tables / name).read_text().splitlines()[1:]:
                cells = line.split()
                host, _, number = cells[1].partition(":")
                if cells[3] == "0A" and host in wanted and int(number, 16) == port:
                    return int(cells[7])
    return None


def _ollama_port(environ: Mapping[str, str]) -> int | None:
    """The port of this machine that `OLLAMA_HOST` names, as Ollama's own client reads it."""
    value = environ.get("OLLAMA_HOST", "").strip().strip("\"'")
    with contextlib.suppress(ValueError):
        parts = urlsplit(value if "://" in value else f"//{value}")
        if is_loopback(parts.hostname or "localhost"):
            return parts.port
    return None


def _root(url: str) -> str:
    """The address of a server without the path of its API."""
    return re.sub(r"/v\d+$", "", url)


def _host_of(url: str) -> str:
    with contextlib.suppress(ValueError):
        return urlsplit(url if "://" in url else f"//{url}").hostname or ""
    return url


def _given(found: Any, name: str, kind: type[_T]) -> _T | None:
    """The value of `name`, of a server that may say anything; None if it is not of that kind."""
    value = found.get(name) if isinstance(found, dict) else None
    return value if isinstance(value, kind) else None


def _items(found: Any, name: str) -> list[Mapping[str, Any]]:
    """The tables of the list `name`."""
    listed = _given(found, name, list) or []
    return [each for each in listed[:_MODELS_MAX] if isinstance(each, dict)]


def _text(found: Any, name: str) -> str:
    """A short text that can be shown as it is. A name with hidden characters is no name: it may
    command a terminal."""
    text = _given(found, name, str) or ""
    return text if len(text) <= 1000 and text.isprintable() else ""


def _number(found: Any, name: str) -> int:
    return max(0, _given(found, name, int) or 0)
