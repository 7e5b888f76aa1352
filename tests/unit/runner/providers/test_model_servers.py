"""Which servers of models are found, and what is known of their models."""

import itertools
import os
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from wire.errors import Code
from wire.providers import PROVIDERS

from runner.errors import ConfigError, HostError
from runner.providers import servers
from runner.providers.servers import Model, Server, addresses, best, local_servers, server_at
from tests.support.servers import model_servers as fake
from tests.support.servers.model_servers import GB, Route, always, serving, studio_model, tag

CLOUD = "https://ollama.com:443"


async def found(*programs: Mapping[str, Route], environ: dict[str, str] | None = None) -> Any:
    """What is found where these run."""
    with ExitStack() as stack:
        ports = [stack.enter_context(serving(routes)).port for routes in programs]
        return await local_servers(environ or {}, ports, 20)


async def test_each_program_says_what_its_models_can() -> None:
    ollama = fake.ollama(
        tag("qwen3:4b", "completion", "tools", size=2.6, loaded=True),
        tag("gemma3:4b", "completion", "vision", size=3.3),
        tag("nomic-embed-text", "embedding", size=0.3),
        tag("gpt-oss:120b-cloud", "completion", "tools", at=CLOUD),
        tag("of-an-old-version"),
    )
    studio = fake.lm_studio(
        studio_model("qwen/qwen3-8b", size=5, loaded=True),
        studio_model("gemma-2", tools=False),
        {"type": "embedding", "key": "nomic", "size_bytes": 1, "loaded_instances": []},
    )
    servers = await found(
        ollama,
        studio,
        fake.llama_cpp("phi", tools=False),
        fake.vllm("mistral", auto_tools=True),
    )
    assert [(each.provider, each.program, each.models) for each in servers] == [
        (
            "ollama",
            "Ollama 0.32.1",
            (
                Model("qwen3:4b", tools=True, loaded=True, size_bytes=int(2.6 * GB)),
                Model("gemma3:4b", tools=False, size_bytes=int(3.3 * GB)),
                Model("nomic-embed-text", tools=False, size_bytes=int(0.3 * GB), chats=False),
                Model("gpt-oss:120b-cloud", tools=True, size_bytes=GB, runs_at="ollama.com"),
                Model("of-an-old-version", size_bytes=GB),
            ),
        ),
        (
            "lmstudio",
            "LM Studio",
            (
                Model("qwen/qwen3-8b", tools=True, loaded=True, size_bytes=5 * GB),
                Model("gemma-2", tools=False, size_bytes=GB),
                Model("nomic", size_bytes=1, chats=False),
            ),
        ),
        ("compatible", "llama.cpp", (Model("phi", tools=False, loaded=True),)),
        ("compatible", "vLLM", (Model("mistral", loaded=True),)),
    ]
    assert all(each.is_local and each.base_url.endswith("/v1") for each in servers)


async def test_what_serves_no_models_is_asked_once_and_left_alone() -> None:
    with serving({"*": always("<html>It works</html>")}) as page, serving({}) as nothing:
        closed = 1
        assert await local_servers({}, [page.port, nothing.port, closed], 20) == []
    assert page.asked == nothing.asked == ["GET /v1/models"]


async def test_nonsense_is_no_model() -> None:
    nonsense = {"data": [{"id": 5}, 7, {"name": "x" * 2000}, {"id": "m", "owned_by": ["vllm"]}]}
    nonsense["data"] += [{"id": "m\x1b[2J"}, {"id": "m\u202e"}]  # commands of a terminal
    odd = {"models": "no", "version": {}, "capabilities": 3}
    weird = {"GET /v1/models": always(nonsense), "*": always(odd)}
    [server] = await found(weird)
    assert server.models == (Model("m"),)


async def test_models_come_without_details_where_those_take_too_long() -> None:
    released = threading.Event()

    def show(_: object) -> Any:
        released.wait(60)
        return 200, {}

    with serving({**fake.ollama(tag("m")), "POST /api/show": show}) as server:
        [one] = await local_servers({}, [server.port], 0.5)
        released.set()
    assert one.models == (Model("m", size_bytes=GB),)


async def test_ollama_is_found_where_its_variable_says() -> None:
    with serving(fake.ollama(tag("m"))) as server:
        for value in (f"127.0.0.1:{server.port}", f"http://0.0.0.0:{server.port}/"):
            [one] = await local_servers({"OLLAMA_HOST": value}, (), 20)
            assert one.provider == "ollama"
    for elsewhere in ("gpu.example.org:1", "[", "", ":0x1"):
        assert await local_servers({"OLLAMA_HOST": elsewhere}, ()) == []


async def test_a_server_of_another_account_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(fake.ollama(tag("m", "completion", "tools"))) as server:
        assert servers.owner_of_port(server.port) == os.geteuid()
        assert servers.owner_of_port(1) is None
        [own] = await local_servers({}, [server.port], 20)
        monkeypatch.setattr(servers, "owner_of_port", lambda _: 65_123)
        [theirs] = await local_servers({}, [server.port], 20)
        monkeypatch.setattr(servers, "owner_of_port", lambda _: 1)
        [service] = await local_servers({}, [server.port], 20)
    assert (own.account, own.is_foreign) == ("", False)
    assert (theirs.account, theirs.is_foreign) == ("number 65123", True)
    assert (service.account, service.is_foreign) == ("daemon", False)
    assert best([theirs]) is None
    assert best([theirs, service]) == (service, service.models[0])


def test_the_owner_of_a_port_is_read_from_both_tables(tmp_path: Path) -> None:
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
    row = "   0: {}:2CAA 00000000:0000 {} 00000000:00000000 00:00000000 00000000  {}        0 1\n"
    other = row.format("0202A8C0", "0A", 7) + row.format("0100007F", "01", 8)
    (tmp_path / "tcp").write_text(head + other)
    assert servers.owner_of_port(0x2CAA, tmp_path) is None
    (tmp_path / "tcp6").write_text(head + row.format("0" * 32, "0A", 998))
    assert servers.owner_of_port(0x2CAA, tmp_path) == 998


def on(*models: Model, url: str = "http://127.0.0.1:1/v1") -> Server:
    return Server("ollama", "Ollama", url, models)


SMALL, LARGE, HUGE = (
    Model(name, True, size_bytes=n * GB) for name, n in zip("slh", (1, 5, 90), strict=True)
)


@pytest.mark.parametrize(
    ("models", "name"),
    [
        ((SMALL, LARGE, HUGE), "l"),  # the largest that fits
        ((HUGE, Model("two", True, size_bytes=70 * GB)), "two"),  # none fits
        ((Model("no", False, loaded=True, size_bytes=GB), SMALL), "s"),  # tools before loaded
        ((Model("unknown", None, loaded=True), SMALL), "s"),
        ((Model("unknown"), Model("no", False, loaded=True)), "unknown"),
        ((SMALL, Model("loaded", True, loaded=True, size_bytes=90 * GB), LARGE), "loaded"),
        ((Model("away", True, loaded=True, runs_at="ollama.com"), SMALL), "s"),
        ((Model("embed", True, loaded=True, chats=False), SMALL), "s"),
    ],
)
def test_the_best_model_is_the_one_that_can_do_the_work(
    models: tuple[Model, ...], name: str
) -> None:
    chosen = best([on(*models)], memory_bytes=8 * GB)
    assert chosen is not None
    assert chosen[1].name == name


def test_no_model_that_runs_elsewhere_is_the_best() -> None:
    assert best([on(SMALL, url="https://api.example.org/v1")]) is None
    assert best([on(Model("m", True, runs_at="ollama.com"), Model("e", chats=False))]) is None
    assert best([]) is None


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("127.0.0.1:11434", "http://127.0.0.1:11434/v1"),
        ("localhost:1234/", "http://localhost:1234/v1"),
        ("[::1]:8080", "http://[::1]:8080/v1"),
        ("192.168.1.5:8000/v1", "http://192.168.1.5:8000/v1"),
        ("gpu", "http://gpu/v1"),
        ("api.example.org", "https://api.example.org/v1"),
        ("https://api.example.org/openai/v1/", "https://api.example.org/openai/v1"),
        ("https://h/v1/chat/completions", "https://h/v1"),
        ("https://h/api", "https://h/api"),
        ("HTTP://h", "http://h/v1"),
    ],
)
def test_an_address_is_completed(typed: str, first: str) -> None:
    assert addresses(typed, PROVIDERS["compatible"])[0] == first


def test_the_path_is_that_of_the_provider() -> None:
    assert addresses("x.openai.azure.com", PROVIDERS["azure"])[0].endswith("/openai/v1")
    assert addresses("", PROVIDERS["groq"]) == ["https://api.groq.com/openai/v1"]
    assert addresses("http://h", PROVIDERS["anthropic"]) == ["http://h"]


def test_a_key_goes_in_the_clear_only_to_this_machine_or_where_that_was_typed() -> None:
    row = PROVIDERS["compatible"]
    for host in ("api.example.org", "10.0.0.3:8000", "gpu"):
        assert all(url.startswith("https://") for url in addresses(host, row, with_key=True))
    assert addresses("127.0.0.1:1", row, with_key=True)[0] == "http://127.0.0.1:1/v1"
    assert addresses("http://gpu", row, with_key=True) == ["http://gpu/v1", "http://gpu"]


@pytest.mark.parametrize(
    "typed", ["ftp://h", "h h", "http://", "h:port", "me:secret@h", "/v1", "", "h\u202e"]
)
def test_what_is_no_address_is_refused(typed: str) -> None:
    with pytest.raises(HostError) as refused:
        addresses(typed, PROVIDERS["compatible"])
    assert refused.value.code is Code.INVALID_ARGUMENT
    assert "127.0.0.1:11434" in refused.value.resolution
    assert "secret" not in str(refused.value)


async def test_an_address_without_scheme_and_path_is_tried_with_them() -> None:
    with serving(fake.ollama(tag("m", "completion", "tools"))) as server:
        one = await server_at(f"127.0.0.1:{server.port}")
        assert (one.provider, one.base_url) == ("ollama", f"http://127.0.0.1:{server.port}/v1")
        assert one.models[0].tools
    with serving({"GET /models": always({"data": [{"id": "m"}]})}) as bare:
        plain = await server_at(f"http://127.0.0.1:{bare.port}")
        assert plain.base_url == f"http://127.0.0.1:{bare.port}"
        assert plain.models == (Model("m"),)


async def test_a_refusal_is_told_in_the_servers_words_without_the_key() -> None:
    key = "sk-secret-0123456789"
    words = {"error": {"message": f"Incorrect API key provided:\n{key}\x1b[2J", "code": "x"}}
    with serving({"*": always(words, 401)}) as server:
        with pytest.raises(HostError) as refused:
            await server_at(f"http://127.0.0.1:{server.port}", key, "groq")
        assert server.headers[0]["authorization"] == f"Bearer {key}"
    error = refused.value
    assert (error.code, error.brief) == (
        Code.FAILED_PRECONDITION,
        "provider 'groq' refused the API key",
    )
    assert "Incorrect API key provided: [redacted]\\x1b[2J" in error.details
    assert key not in str(error)


@pytest.mark.parametrize("key", ["sk-secret-0123\nX: y", "sk-secret-0123Ä"])
async def test_what_is_no_key_is_sent_nowhere_and_not_shown(key: str) -> None:
    with serving({}) as server:
        with pytest.raises(ConfigError, match="not a key") as refused:
            await server_at(f"http://127.0.0.1:{server.port}", key)
        assert not server.asked
    assert "secret" not in str(refused.value)


async def test_an_answer_that_never_ends_is_not_waited_for() -> None:
    drip = itertools.takewhile(lambda _: not over.wait(0.02), itertools.repeat(" ", 500))
    over = threading.Event()
    with serving({"*": lambda _: (200, drip)}) as server:
        with pytest.raises(HostError) as refused:
            await server_at(f"http://127.0.0.1:{server.port}/v1", within_s=0.2)
        over.set()
    assert (refused.value.code, refused.value.details) == (Code.UNAVAILABLE, "no answer in time")


async def test_of_what_a_server_says_not_more_is_read_than_it_needs() -> None:
    crowd = {"data": [{"id": "m"}, *[{}] * 300_000]}
    with serving({"*": always(crowd)}) as server, pytest.raises(HostError, match="lists no models"):
        await server_at(f"127.0.0.1:{server.port}")
    shown = {"capabilities": ["tools"], "license": "x" * 2**20}
    talks = {**fake.ollama(tag("m", "completion")), "POST /api/show": always(shown)}
    with serving(talks) as server:
        one = await server_at(f"127.0.0.1:{server.port}")
        assert [each.tools for each in one.models] == [None]
        steps = itertools.chain(['{"status": "pulling"}\n'], itertools.repeat("x" * 2**16))
        server.routes["POST /api/pull"] = lambda _: (200, steps)
        assert [each.status async for each in servers.pull(one, "m")] == ["pulling"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("404 page not found", "404 page not found"),
        ({"error": "no such thing"}, "no such thing"),
        ([{"error": {"message": "no such thing", "code": 404}}], "no such thing"),  # Google
        ({"detail": "Not Found"}, "Not Found"),
        ({"detail": [{"msg": "no such thing"}]}, "no such thing"),  # FastAPI
        ({"error": "Not Found", "message": " no such thing"}, "no such thing"),
        ("<html><title>nginx</title><body>x</body>", "nginx"),
    ],
)
async def test_a_server_without_a_list_says_so(body: Any, words: str) -> None:
    with serving({"*": always(body, 404)}) as server, pytest.raises(HostError) as refused:
        await server_at(f"127.0.0.1:{server.port}")
    assert refused.value.code is Code.NOT_FOUND
    assert f"answered 404: {words}" in refused.value.details
    assert "/v1" in refused.value.resolution


async def test_nothing_at_an_address_is_told_with_the_address_and_the_cause() -> None:
    with pytest.raises(HostError) as refused:
        await server_at("http://me:secret@127.0.0.1:1/v1")
    assert refused.value.code is Code.UNAVAILABLE
    assert refused.value.brief == "nothing answers at http://…@127.0.0.1:1/v1"
    assert refused.value.details == "connection refused"


async def test_the_lists_of_other_providers_are_read() -> None:
    routes = {
        "GET /v1beta/models?pageSize=1000": always(
            {
                "models": [
                    {"name": "models/gemini-x", "supportedGenerationMethods": ["generateContent"]},
                    {"name": "models/aqa", "supportedGenerationMethods": ["generateAnswer"]},
                ]
            }
        ),
        "GET /v1/models?limit=1000": always({"data": [{"id": "claude-x", "type": "model"}]}),
        "GET /v1/models": always(
            {
                "data": [
                    {"id": "gpt-x"},
                    {"id": "text-embedding-3-small"},
                    {"id": "or", "supported_parameters": ["tools", "seed"]},
                    {"id": "mi", "capabilities": {"completion_chat": True, "function_calling": 0}},
                ]
            }
        ),
    }
    with serving(routes) as server:
        at = f"http://127.0.0.1:{server.port}"
        google = await server_at(at, "k" * 20, "google")
        assert google.models == (Model("gemini-x"), Model("aqa", chats=False))
        assert server.headers[-1]["x-goog-api-key"] == "k" * 20
        claude = await server_at(at, "k" * 20, "anthropic")
        assert claude.models == (Model("claude-x"),)
        assert server.headers[-1]["anthropic-version"] == "2023-06-01"
        other = await server_at(at, provider="openrouter")
        assert other.models == (
            Model("gpt-x"),
            Model("text-embedding-3-small", chats=False),
            Model("or", tools=True),
            Model("mi", tools=False),
        )
        assert not any("/api/" in each for each in server.asked)


async def test_a_provider_without_a_list_is_not_asked() -> None:
    azure = await server_at("x.openai.azure.com", "k" * 20, "azure")
    assert (azure.base_url, azure.models) == ("https://x.openai.azure.com/openai/v1", ())


async def test_ollama_gets_a_model_and_says_how_far_it_is() -> None:
    with serving(fake.ollama()) as server:
        one = await server_at(f"127.0.0.1:{server.port}")
        steps = [step async for step in servers.pull(one, "qwen3:4b")]
        assert [step.completed for step in steps][1:4] == [
            520_000_000,
            1_820_000_000,
            2_600_000_000,
        ]
        assert steps[-1].status == "success"
        again = await server_at(f"127.0.0.1:{server.port}")
        assert again.models[0].tools
    with serving(fake.ollama(pulls="max retries exceeded: no space left on device")) as server:
        one = await server_at(f"127.0.0.1:{server.port}")
        with pytest.raises(HostError, match="could not get qwen3:4b") as failed:
            [step async for step in servers.pull(one, "qwen3:4b")]
    assert "no space left on device" in failed.value.details
