"""Pictures in the results of tools: a model that sees is shown them, in that turn alone."""

import json
from typing import Any

import pytest

from guest.tools.arguments import SchemaArguments
from guest.tools.base import Safety, Tool, ToolContext, ToolOutput
from tests.support.gateway.gateways import open_gateways
from tests.support.images import png
from tests.support.servers import openai_server as wire
from tests.support.servers.openai_server import Reply, openai_server

PNG = png(2, 3)
LOOK = ("call-1", "s_look", "{}")


def looking(*pictures: bytes) -> Tool:
    async def run(_: ToolContext, __: Any) -> ToolOutput:
        return ToolOutput({"content": "seen"}, pictures=pictures)

    schema = SchemaArguments.of({"type": "object", "properties": {}})
    return Tool("s_look", "Looks.", schema, Safety.READ_ONLY, 5.0, run)


async def requests(*replies: Reply, pictures: tuple[bytes, ...] = (PNG,), **more: Any) -> list[str]:
    """What a model was sent in a turn with a call, and in one after it."""
    settings: dict[str, Any] = {"provider": "openai", "model": "m", **more}
    async with openai_server(wire.calls(LOOK), *replies, wire.says("Later.")) as server:
        async with open_gateways(
            base_url=server.base_url, api_key="k", tools=[looking(*pictures)], **settings
        ) as gateways:
            alice = await gateways.serve("alice")
            await alice.session("s")
            for text in ("look", "again?"):
                events = await alice.say("s", text)
                assert events[-1].HasField("completed"), events[-1]
        return [json.dumps(each.body["messages"]) for each in server.requests]


async def test_a_picture_is_shown_in_its_turn_alone() -> None:
    _, shown, later = await requests(wire.says("A picture."))
    assert shown.count('"image_url"') == 2, "the part, and the address in it"
    assert "pictures that follow, in this turn alone: 1" in shown
    assert "image_url" not in later
    assert "in this turn alone: 1" in later


async def test_a_model_that_takes_none_goes_on_without() -> None:
    blind = wire.error("400 Bad Request", "this model does not support image input")
    _, refused, shown, _ = await requests(blind, wire.says("I see none."))
    assert "image_url" in refused
    assert "image_url" not in shown
    assert "Say so." in shown


async def test_a_model_that_is_said_to_be_blind_is_shown_none() -> None:
    _, shown, _ = await requests(wire.says("I see none."), images=False)
    assert "image_url" not in shown
    assert "Say so." in shown


@pytest.mark.parametrize(
    ("pictures", "count", "told"),
    [
        ((PNG[:-6],), 0, "a picture is not shown: it is damaged"),
        ((b"<svg/>",), 0, "a picture is not shown: it is no image"),
        ((PNG,) * 9, 8, "more pictures than one result may have"),
        ((PNG + bytes(3_900_000),) * 3, 2, "more pictures than one result may have"),
    ],
)
async def test_what_no_model_takes_is_told(
    pictures: tuple[bytes, ...], count: int, told: str
) -> None:
    _, shown, _ = await requests(wire.says("So."), pictures=pictures)
    assert shown.count('"image_url": {') == count
    assert told in shown
