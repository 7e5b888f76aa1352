"""One request to a provider, made by another process."""

import os
import subprocess
from typing import Any

import pytest
from wire.errors import Code, WireError
from wire.logs import EXIT_OPERATOR
from wire.settings import AgentSettings

from runner.doctor import provider
from runner.doctor.provider import CannotTry, try_provider
from runner.errors import TierError

KEY = "sk-test-0123456789abcdef"
SETTINGS = AgentSettings(provider="openai", model="m", api_key_env="MY_KEY")


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """How the process was started, and how it is to end."""
    seen: dict[str, Any] = {"code": 0, "stderr": b""}

    def run(command: object, **given: Any) -> subprocess.CompletedProcess[bytes]:
        seen.update(given, command=command)
        return subprocess.CompletedProcess([], seen["code"], b"", seen["stderr"])

    monkeypatch.setattr(subprocess, "run", run)
    return seen


def test_the_key_goes_over_standard_input_alone(child: dict[str, Any]) -> None:
    assert try_provider(SETTINGS, {**os.environ, "MY_KEY": KEY}) >= 0
    assert KEY.encode() in child["input"]
    assert KEY not in str(child["command"])
    assert KEY not in str(child["env"])


def test_a_key_that_is_not_set_is_named(child: dict[str, Any]) -> None:
    with pytest.raises(WireError, match="MY_KEY is not set"):
        try_provider(SETTINGS, {})
    assert "command" not in child


def test_what_the_agent_said_is_passed_on(child: dict[str, Any]) -> None:
    error = '{"code": "timeout", "brief": "no answer", "details": "", "resolution": "wait"}'
    child["code"] = EXIT_OPERATOR
    child["stderr"] = f'{{"event": "startup_failed", "error": {error}}}\n'.encode()
    with pytest.raises(WireError, match="no answer") as caught:
        try_provider(SETTINGS, {"MY_KEY": KEY})
    assert caught.value.code is Code.TIMEOUT
    child["stderr"] = b"Segmentation fault"
    with pytest.raises(WireError, match="unknown reason"):
        try_provider(SETTINGS, {"MY_KEY": KEY})


def test_an_installation_without_the_agent_says_so(
    child: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_packages(_: object) -> None:
        raise TierError(Code.FAILED_PRECONDITION, "openai is missing", resolution="pip")

    monkeypatch.setattr(provider, "check_packages", check_packages)
    with pytest.raises(CannotTry, match="cannot ask provider 'openai'"):
        try_provider(SETTINGS, {"MY_KEY": KEY})
