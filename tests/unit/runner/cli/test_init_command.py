"""`runner init`, and the question before a first conversation: what is asked and written."""

import stat
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from wire.errors import Code, WireError
from wire.providers import PROVIDERS

from runner.cli.options import Options
from runner.cli.setup import init as module
from runner.cli.setup import question
from runner.doctor import provider
from runner.doctor.provider import CannotTry
from runner.errors import HostError
from runner.providers import servers
from runner.providers.servers import Server, local_servers
from tests.support.servers import model_servers as fake
from tests.support.servers.model_servers import Route, serving, studio_model, tag
from tests.unit.runner.cli.conftest import RunCommand

OPENAI = ("--provider", "openai", "--model", "m")
KEY = "sk-0123456789abcdef0123"


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The settings with which a model was tried, the key, and what was waited for."""
    seen: list[Any] = []

    def try_provider(settings: Any, _: object, key: str = "", *, until: str) -> float:
        seen.append((settings, key, until))
        return 0.5

    monkeypatch.setattr(provider, "try_provider", try_provider)
    return seen


@pytest.fixture
def file(run_command: RunCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "ANTHROPIC_API_KEY", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OXYDRA_TIER", "process")

    async def nothing_runs(*_: object) -> bool:
        return False

    async def no_engine(*_: object, **__: object) -> None:
        raise HostError(Code.UNAVAILABLE, "there is no engine")

    monkeypatch.setattr(module, "host_runs", nothing_runs)
    monkeypatch.setattr(provider, "run_job", no_engine)
    return tmp_path / "config" / "oxydra" / "runner.toml"


class Here:
    """The servers of this machine, which a test starts."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.ports: list[int] = []

    def runs(self, routes: Mapping[str, Route]) -> str:
        server = self._stack.enter_context(serving(routes))
        self.ports.append(server.port)
        return f"127.0.0.1:{server.port}"

    async def found(self, environ: Mapping[str, str]) -> list[Server]:
        return await local_servers({}, self.ports, 20)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    with ExitStack() as stack:
        made = Here(stack)
        monkeypatch.setattr(question, "local_servers", made.found)
        yield made


def agent(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(file.read_text())["agent"]
    return found


OLLAMA = fake.ollama(
    tag("gemma3:4b", "completion", size=3.3),
    tag("qwen3:4b", "completion", "tools", size=2.6),
    tag("gpt-oss:120b-cloud", "completion", "tools", at="https://ollama.com"),
    tag("nomic-embed-text", "embedding"),
)


def test_a_narrow_terminal_breaks_rows_between_words_and_below_themselves(
    run_command: RunCommand,
    file: Path,
    tried: list[Any],
    here: Here,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here.runs(OLLAMA)
    monkeypatch.setenv("COLUMNS", "60")
    asked = run_command("init", typed="\n").err.partition("written")[0]
    assert max(map(len, asked.replace("Enter takes 1:", "\n").splitlines())) <= 61
    assert "no tools: it can\n" + " " * 26 + "remember nothing" in asked


def test_enter_takes_the_best_local_model(
    run_command: RunCommand, file: Path, tried: list[Any], here: Here
) -> None:
    address = here.runs(OLLAMA)
    done = run_command("init", typed="\n")
    assert done.code == 0, done.err
    assert "1  qwen3:4b            Ollama 0.32.1 · calls tools · 2.6 GB\n" in done.err
    assert "2  gemma3:4b           Ollama 0.32.1 · no tools: it can remember nothing" in done.err
    assert "3  gpt-oss:120b-cloud  Ollama 0.32.1 · calls tools · runs at ollama.com\n" in done.err
    assert "nomic" not in done.err
    url = f"http://{address}/v1"
    assert tomllib.loads(file.read_text()) == {
        "agent": {"provider": "ollama", "model": "qwen3:4b", "base_url": url}
    }
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    [(settings, key, until)] = tried
    assert (settings.model, key, until) == ("qwen3:4b", "", "answer")
    assert run_command("config", "check").code == 0


@pytest.mark.parametrize("typed", ["2\n", "gemma3:4b\n"])
def test_a_number_or_a_name_takes_another_one(
    run_command: RunCommand, file: Path, tried: list[Any], here: Here, typed: str
) -> None:
    here.runs(OLLAMA)
    assert run_command("init", typed=typed).code == 0
    assert agent(file)["model"] == "gemma3:4b"
    assert "(so far: ollama gemma3:4b)" in run_command("init", typed="").err
    assert tried[0][2] == "tool"  # the server does not say that it can


def test_keys_of_the_environment_are_offered_and_enter_takes_none(
    run_command: RunCommand, file: Path, tried: list[Any], here: Here, monkeypatch: Any
) -> None:
    for name in ("GEMINI_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, KEY)
    done = run_command("init", typed="\n")
    assert "No server of models answers here" in done.err
    assert "1  openai  with the key in OPENAI_API_KEY\n" in done.err
    assert "2  google  with the key in GEMINI_API_KEY\n" in done.err
    assert "3  demo" in done.err
    assert KEY not in done.err
    assert agent(file) == {"provider": "offline"}
    assert tried == []


def test_a_key_of_the_environment_is_named_and_not_copied(
    run_command: RunCommand, file: Path, tried: list[Any], here: Here, monkeypatch: Any
) -> None:
    listing = {"data": [{"id": "gpt-5-mini"}, {"id": "gpt-5"}, {"id": "whisper-1"}]}
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving({"GET /v1/models": fake.always(listing)}) as server:
        moved = replace(PROVIDERS["openai"], url=f"http://127.0.0.1:{server.port}/v1")
        monkeypatch.setitem(PROVIDERS, "openai", moved)
        done = run_command("init", typed="1\n\n")
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert "Enter takes gpt-5-mini" in done.err
    assert "whisper" not in done.err
    assert agent(file)["api_key_env"] == "OPENAI_API_KEY"
    assert agent(file)["model"] == "gpt-5-mini"
    assert KEY not in file.read_text()


def test_a_typed_key_is_stored_apart_from_the_settings(
    run_command: RunCommand, file: Path, tried: list[Any], here: Here, monkeypatch: Any
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with serving({"GET /v1/models": fake.always({"data": [{"id": "gpt-5"}]})}) as server:
        moved = replace(PROVIDERS["openai"], url=f"http://127.0.0.1:{server.port}/v1")
        monkeypatch.setitem(PROVIDERS, "openai", moved)
        done = run_command("init", typed=f"{KEY}\n")
    assert done.code == 0, done.err
    assert "a key of openai (not shown)" in done.err
    assert "\x1b[1A\x1b[2K" in done.err
    stored = Path(agent(file)["api_key_file"])
    assert KEY in stored.read_text()
    assert stat.S_IMODE(stored.stat().st_mode) == 0o600
    assert KEY not in file.read_text()
    assert tried[0][1] == KEY
    assert run_command("config", "check").code == 0


def test_an_address_is_completed_and_the_program_behind_it_named(
    run_command: RunCommand, file: Path, tried: list[Any], here: Here
) -> None:
    here.runs({})
    models = (studio_model("a"), studio_model("b", loaded=True))
    with serving(fake.lm_studio(*models)) as server:
        done = run_command("init", typed=f"127.0.0.1:{server.port}\nz\nb\n")
    assert "it has none of that name" in done.err
    assert agent(file) == {
        "provider": "lmstudio",
        "model": "b",
        "base_url": f"http://127.0.0.1:{server.port}/v1",
    }


def test_a_server_that_asks_for_a_key_gets_one_and_it_is_asked_unseen(
    run_command: RunCommand, file: Path, tried: list[Any], here: Here, monkeypatch: Any
) -> None:
    unseen: list[str] = []

    def secret(asked: str) -> str:
        unseen.append(asked)
        return KEY

    monkeypatch.setattr(question, "ask_unseen", secret)

    def listed(_: object) -> fake.Answer:
        known = server.headers[-1].get("authorization") == f"Bearer {KEY}"
        return (200, {"data": [{"id": "m"}]}) if known else (401, {"error": "Unauthorized"})

    with serving({"GET /v1/models": listed}) as server:
        done = run_command("init", typed=f"127.0.0.1:{server.port}\n")
    assert done.code == 0, done.err
    assert unseen == ["the server asks for an API key. Key (it is not shown)"]
    assert "api_key_file" in agent(file)


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("bard\n", "nothing answers at http://bard/v1"),
        ("ftp://x\n", "not an address: 'ftp://x'"),
        ("[x]\n", "not an address: '[x]'"),
        ("9\n", "the numbers are 1 to 1"),
    ],
)
def test_what_cannot_be_used_is_said_and_asked_again(
    run_command: RunCommand, file: Path, tried: list[Any], here: Here, typed: str, told: str
) -> None:
    done = run_command("init", typed=f"{typed}demo\n")
    assert done.code == 0
    assert told in done.err
    assert agent(file) == {"provider": "offline"}


def test_ollama_gets_a_model_that_calls_tools_where_it_has_none(
    run_command: RunCommand, file: Path, tried: list[Any], here: Here
) -> None:
    here.runs(fake.ollama(tag("gemma3:4b", "completion", size=3.3)))
    done = run_command("init", typed="\n")
    assert "has no model that can call tools. Get one (qwen3:4b, 2.6 GB)? [Y/n]" in done.err
    assert agent(file)["model"] == "qwen3:4b"


def test_without_a_model_that_calls_tools_enter_takes_none(
    run_command: RunCommand, file: Path, tried: list[Any], here: Here
) -> None:
    here.runs(fake.ollama(tag("gemma3:4b", "completion", size=3.3), pulls="no space left"))
    done = run_command("init", typed="y\n\n")
    assert "Ollama could not get qwen3:4b" in done.err
    assert "no space left" in done.err
    assert "Enter takes 2" in done.err
    assert agent(file) == {"provider": "offline"}


def test_a_server_of_somebody_else_is_taken_only_after_a_yes(
    run_command: RunCommand, file: Path, tried: list[Any], here: Here, monkeypatch: Any
) -> None:
    here.runs(OLLAMA)
    monkeypatch.setattr(servers, "owner_of_port", lambda _: 65_123)
    done = run_command("init", typed="1\nn\n")
    assert "run by the account number 65123, who can read what you send" in done.err
    assert "Enter takes 4" in done.err
    assert done.code == 1
    typed = run_command("init", typed=f"127.0.0.1:{here.ports[0]}\nn\n")
    assert "The account number 65123 runs this server" in typed.err
    assert typed.code == 1
    assert not file.exists()


def test_flags_answer_without_a_terminal(
    run_command: RunCommand, file: Path, tried: list[Any]
) -> None:
    done = run_command("init", *OPENAI, "--tier", "micro_vm")
    assert done.code == 0, done.err
    content = tomllib.loads(file.read_text())
    assert content["tier"] == "micro_vm"
    assert content["agent"]["api_key_env"] == "OPENAI_API_KEY"
    server = ("--base-url", "http://127.0.0.1:11434/v1")
    assert run_command("init", *OPENAI, *server, "--no-test").code == 0
    assert agent(file) == {"provider": "openai", "model": "m", "base_url": server[1]}
    assert len(tried) == 1
    assert "runner chat" in done.out


def test_the_demo_can_be_named_as_the_menu_names_it(
    run_command: RunCommand, file: Path, tried: list[Any]
) -> None:
    assert run_command("init", "--provider", "demo").code == 0
    assert agent(file) == {"provider": "offline"}


def test_flags_complete_an_address_and_find_out_who_answers(
    run_command: RunCommand, file: Path, tried: list[Any]
) -> None:
    with serving(OLLAMA) as server:
        address = f"127.0.0.1:{server.port}"
        assert run_command("init", "--base-url", address, "--model", "qwen3:4b").code == 0
    assert agent(file)["provider"] == "ollama"
    assert agent(file)["base_url"] == f"http://{address}/v1"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--provider", "bard"], 2, "'demo', 'offline', 'ollama', 'lmstudio', 'openai',"),
        (["--provider", "openai"], 1, "no model was given"),
        ([*OPENAI, "--key-env", "sk-0123"], 2, "the NAME of an environment variable"),
        (["--provider", "openai", "--model", ""], 2, "needs the name of a model"),
        ([*OPENAI, "--base-url", "ftp://x"], 1, "not an address: 'ftp://x'"),
        ([*OPENAI, "--base-url", "http://[x]/v1"], 1, "bad setting agent.base_url"),
        (["--provider", "azure", "--model", "m"], 1, "needs an address"),
    ],
)
def test_a_bad_answer_is_refused_with_what_is_accepted(
    run_command: RunCommand, file: Path, tried: list[Any], words: list[str], code: int, told: str
) -> None:
    done = run_command("init", *words)
    assert (done.code, told in done.err) == (code, True), done.err
    assert not file.exists()
    assert tried == []


def test_only_its_own_section_of_a_file_changes(
    run_command: RunCommand, file: Path, tried: list[Any], monkeypatch: Any
) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(
        'tier = "container"  # as it was\n[tools]\ndisabled = ["shell"]\n'
        '[agent]\napi_key_env = "OLD"\nprovider = "anthropic"\nmodel = "old"\nmax_steps = 7\n'
    )
    done = run_command("init", "--provider", "ollama", "--model", "m", "--no-test")
    assert done.code == 0, done.err
    assert tomllib.loads(file.read_text()) == {
        "tier": "container",
        "tools": {"disabled": ["shell"]},
        "agent": {"provider": "ollama", "model": "m", "max_steps": 7},
    }
    assert "# as it was" in file.read_text()


def test_the_file_that_is_read_is_the_one_that_changes(
    run_command: RunCommand, file: Path, tried: list[Any], tmp_path: Path
) -> None:
    here = Path("runner.toml")
    here.write_text('[tools]\ndisabled = ["shell"]\n')
    assert run_command("init", *OPENAI).code == 0
    assert not file.exists()
    assert agent(here)["model"] == "m"
    named = tmp_path / "named.toml"
    assert run_command("--config", str(named), "init", *OPENAI).code == 0
    assert agent(named)["model"] == "m"


def failing(monkeypatch: pytest.MonkeyPatch, error: WireError) -> None:
    def try_provider(*_: object, **__: object) -> float:
        raise error

    monkeypatch.setattr(provider, "try_provider", try_provider)


def test_a_request_that_fails_leaves_no_file_unless_it_is_wanted(
    run_command: RunCommand, file: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.runs(OLLAMA)
    refusal = WireError(Code.FAILED_PRECONDITION, "no tools here", resolution="correct base_url")
    failing(monkeypatch, refusal)
    done = run_command("init", *OPENAI)
    assert done.code == 1
    assert "no tools here" in done.err
    assert "fix: correct base_url; or write the file untested: --no-test" in done.err
    done = run_command("init", typed="1\nn\n")  # another one is asked for, and nobody answers
    assert done.code == 1
    assert done.err.count("How do you want to talk?") == 2
    done = run_command("init", *OPENAI, "--key-env", "K", typed="n\n")
    assert (done.code, "nothing was changed" in done.err) == (1, True)
    assert not file.exists()
    assert run_command("init", typed="1\ny\n").code == 0
    assert agent(file)["model"] == "qwen3:4b"


def test_guests_in_containers_may_have_what_this_installation_lacks(
    run_command: RunCommand, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, CannotTry(Code.FAILED_PRECONDITION, "cannot ask", resolution="pip"))
    assert run_command("init", *OPENAI, "--insecure").code == 1
    assert not file.exists()
    done = run_command("init", *OPENAI, "--tier", "container")
    assert done.code == 0
    assert "not tested: cannot ask (no guest could be asked: there is no engine)" in done.err
    failing(monkeypatch, WireError(Code.UNAVAILABLE, "refused", details="by m"))
    done = run_command("init", *OPENAI, "--tier", "container")
    assert "why: by m; no guest could be asked: there is no engine" in done.err


def test_in_containers_guests_try_the_model_with_the_settings_to_come(
    run_command: RunCommand, file: Path, tried: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[Any] = []

    async def run_job(config: Any, user: str, job: Any, *_: object, keys: Any) -> dict[str, float]:
        jobs.append((config.agent.model, config.tier, user, job.try_model.until, keys))
        return {"took_s": 1.5}

    monkeypatch.setattr(provider, "run_job", run_job)
    done = run_command("init", *OPENAI, "--tier", "container")
    assert "it answered in 1.5 s" in done.err
    assert jobs == [("m", "container", "default", "tool", None)]
    assert tried == []
    assert run_command("init", *OPENAI, "--insecure").code == 0
    assert (len(jobs), len(tried)) == (1, 1)


@pytest.mark.parametrize(
    ("typed", "listed"), [("\n\n", ["{url}"]), ("\nn\n", None)], ids=["yes", "no"]
)
def test_in_containers_a_server_of_this_machine_is_handed_over_after_a_question(
    run_command: RunCommand,
    file: Path,
    here: Here,
    tried: list[Any],
    monkeypatch: Any,
    typed: str,
    listed: Any,
) -> None:
    url = f"http://{here.runs(OLLAMA)}/v1"
    tier = SimpleNamespace(capabilities=SimpleNamespace(host_loopback=True))
    monkeypatch.setattr(module, "driver_for", lambda _: tier)
    done = run_command("init", "--tier", "container", typed=typed)
    assert done.code == 0, done.err
    assert f"Let the agent's egress reach {url} on this machine? Only this address" in done.err
    found = tomllib.loads(file.read_text()).get("egress", {}).get("host_loopback")
    assert found == (listed and [url])
    again = run_command("init", "--tier", "container", typed="\n")
    assert ("Let the agent's egress" in again.err) is not bool(found)


def test_leaving_at_a_question_writes_nothing(
    run_command: RunCommand, file: Path, tried: list[Any], here: Here
) -> None:
    done = run_command("init", typed="")
    assert done.code == 1
    assert "nothing was changed" in done.err
    assert not file.exists()


def test_an_agent_that_runs_takes_the_new_settings(
    run_command: RunCommand, file: Path, tried: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    restarted: list[str] = []

    async def runs(*_: object) -> bool:
        return True

    class Host:
        async def restart(self, role: str) -> None:
            restarted.append(role)

    def ask_host(_: object, question: Any) -> None:
        with pytest.raises(StopIteration):
            question(Host()).send(None)

    monkeypatch.setattr(module, "host_runs", runs)
    monkeypatch.setattr(module, "ask_host", ask_host)
    done = run_command("init", *OPENAI)
    assert "restarting the agent, which runs with the settings before" in done.err
    assert restarted == [""]
    assert "restart --all" not in done.err
    file.write_text("[users.alice]\n[users.bob]\n")
    done = run_command("init", *OPENAI)
    assert "alice, bob run with the settings before, until: runner restart --all" in done.err


def test_a_first_conversation_is_asked_about_once_and_only_on_a_terminal(
    run_command: RunCommand, file: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def ask(so_far: str) -> question.Choice:
        assert so_far == ""
        asked.append(True)
        return question.DEMO

    monkeypatch.setattr(module, "ask", ask)
    options = Options(insecure=True)
    assert not options.nothing_is_chosen()
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert options.nothing_is_chosen()
    module.ask_first(options)
    assert not options.nothing_is_chosen()
    assert asked == [True]
    assert agent(file) == {"provider": "offline"}
    file.unlink()
    monkeypatch.setenv("OXYDRA_AGENT__PROVIDER", "offline")
    assert not options.nothing_is_chosen()
