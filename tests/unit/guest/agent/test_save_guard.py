"""A save is claimed only if it happened."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from wire.errors import Code
from wire.v1 import gateway_pb2

from guest.agent.loop import TurnLoop
from guest.agent.settings import AgentSettings
from guest.agent.turn import TurnRequest
from guest.errors import StorageError
from guest.tools.base import Arguments, Safety, Tool, ToolContext, ToolOutput
from tests.unit.guest.agent.context_fakes import builder
from tests.unit.guest.agent.turn_fakes import CONTEXT, FakePipeline, FakeStore, Watcher, tool


class Content(Arguments):
    content: str


def saver(saved: list[str], failure: Exception | None = None) -> Tool:
    async def run(_: ToolContext, arguments: Content) -> ToolOutput:
        if isinstance(failure, StorageError):
            raise failure
        if failure is not None:
            return ToolOutput(failure)
        saved.append(arguments.content)
        return ToolOutput({"note_id": "note-1"}, summary="Stored: [id: note-1]")

    return tool("memory_save", run, Safety.SIDE_EFFECTING, Content)


async def answer(said: str, *replies: Any, tools: list[Tool]) -> tuple[str, FakeStore]:
    waiting = list(replies)

    async def model(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        yield waiting.pop(0)

    store = FakeStore()
    pipeline, settings = FakePipeline(tools), AgentSettings()
    speaker = FunctionModel(stream_function=model)
    loop = TurnLoop(
        model=speaker,
        pipeline=pipeline,
        store=store,
        context=builder(pipeline, speaker, settings),
        settings=settings,
        redact=str,
    )
    watcher = Watcher()
    outcome = await loop.run(TurnRequest(CONTEXT, said), watcher)
    assert isinstance(outcome, gateway_pb2.TurnCompleted)
    assert watcher.text.endswith(outcome.text)
    assert store.texts("assistant")[-1] == outcome.text
    return outcome.text, store


@pytest.mark.parametrize("lie", ["I've saved that.", "Done, it is now stored.", "OK!", "Sure."])
async def test_what_was_asked_to_be_kept_is_kept(lie: str) -> None:
    saved: list[str] = []
    text, _ = await answer("Remember that I like tea", lie, tools=[saver(saved)])
    assert saved == ["I like tea"]
    assert text == f"{lie}\n\n(Saved by the runtime, as you asked: Stored: [id: note-1])"


async def test_a_real_save_needs_no_guard() -> None:
    saved: list[str] = []
    call = {0: DeltaToolCall("memory_save", json.dumps({"content": "User likes tea"}))}
    text, _ = await answer("remember that I like tea", call, "Saved.", tools=[saver(saved)])
    assert (saved, text) == (["User likes tea"], "Saved.")


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (ValueError("the note is too long"), "(Nothing was saved: the note is too long)"),
        (StorageError(Code.RESOURCE_EXHAUSTED, "disk full"), "(Nothing was saved: disk full.)"),
    ],
)
async def test_a_save_that_fails_is_said_to_have_failed(failure: Exception, words: str) -> None:
    text, _ = await answer("remember: x", "I saved it.", tools=[saver([], failure)])
    assert text.endswith(words)


async def test_a_switched_off_save_is_said_to_be_off() -> None:
    text, _ = await answer("remember: x", "I saved it.", tools=[])
    assert text.endswith("(Nothing was saved: memory_save is switched off.)")


@pytest.mark.parametrize(
    "lie",
    ["I have saved your birthday.", "I've just updated the note.", "This is noted: I noted it"],
)
async def test_a_claim_without_a_deed_is_corrected(lie: str) -> None:
    saved: list[str] = []
    text, _ = await answer("My birthday is in May.", lie, tools=[saver(saved)])
    assert saved == []
    assert text.endswith("nothing was saved or changed in this turn: no tool did it.)")


@pytest.mark.parametrize(
    "truth", ["I can save that if you like.", "Your notes say May.", "Saving is off today."]
)
async def test_what_is_no_claim_stands(truth: str) -> None:
    text, _ = await answer("My birthday is in May.", truth, tools=[saver([])])
    assert text == truth


async def test_a_claim_about_another_deed_stands() -> None:
    async def write(_: ToolContext, __: Any) -> str:
        return "ok"

    call = {0: DeltaToolCall("file_write", "{}")}
    tools = [saver([]), tool("file_write", write, Safety.SIDE_EFFECTING)]
    text, _ = await answer("write the list down", call, "I have saved the list.", tools=tools)
    assert text == "I have saved the list."


@pytest.mark.parametrize("said", ["remember when we met?", "do you remember me?", "I remember: no"])
async def test_what_only_sounds_like_a_request_saves_nothing(said: str) -> None:
    saved: list[str] = []
    await answer(said, "Yes.", tools=[saver(saved)])
    assert saved == []
