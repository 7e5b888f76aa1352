"""One request that tries a model: whether it answers, and calls the tool that it is offered."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from wire.settings import AgentSettings

from guest.agent.models.providers import try_model
from guest.errors import GuestError
from tests.support.servers import model_servers as fake
from tests.support.servers.model_servers import Route, serving, tag


async def trial(routes: Mapping[str, Route], until: str = "tool", provider: str = "ollama") -> str:
    """The error of a trial at a server with these routes; empty if it succeeds."""
    with serving(routes) as server:
        settings = AgentSettings(
            provider=provider, model="m", base_url=f"http://127.0.0.1:{server.port}/v1"
        )
        try:
            await try_model(settings, "", until=until)
        except GuestError as error:
            return str(error)
    return ""


def silent(body: dict[str, Any]) -> fake.Answer:
    """A server that drops the tools without a word, as llama.cpp does where a template has none."""
    status, answer = fake.ollama(tag("m"))["POST /api/chat"]({**body, "tools": []})
    assert isinstance(answer, Iterator)
    return status, answer


async def test_a_model_that_calls_the_tool_passes() -> None:
    assert await trial(fake.ollama(tag("m", "completion", "tools"))) == ""


async def test_one_that_answers_without_a_call_does_not_unless_any_answer_will_do() -> None:
    without = {"POST /api/chat": silent}
    assert "'m' answered, but did not call the tool" in await trial(without)
    assert await trial(without, until="answer") == ""


@pytest.mark.parametrize("until", ["tool", "answer"])
async def test_one_without_tools_is_refused_either_way(until: str) -> None:
    refusal = await trial(fake.ollama(tag("m", "completion")), until)
    assert "model 'm' cannot call tools" in refusal
    assert '"registry.ollama.ai/library/m does not support tools"' in refusal
    assert "fix: choose a model that can\n" in f"{refusal}\n"


async def test_vllm_without_its_switch_is_told_how_to_be_started() -> None:
    refusal = await trial(fake.vllm("m", auto_tools=False), "answer", "compatible")
    assert "start vLLM with --enable-auto-tool-choice" in refusal
    assert await trial(fake.vllm("m", auto_tools=True), provider="compatible") == ""
