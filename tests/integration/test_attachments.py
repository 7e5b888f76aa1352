"""Files that a user attaches to a message: images are shown to the model, others named."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai.messages import BinaryContent, ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from wire.errors import Code
from wire.v1 import gateway_pb2 as pb

from guest.tools.files.exchange import IMAGE_MAX_BYTES
from tests.support.gateway.gateways import open_gateways, refusal

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
CONTENTS = {
    "one.txt": PNG,  # by its content, not by its name
    "two.jpeg": b"\xff\xd8\xff" + bytes(50),
    "three.gif": b"GIF89a" + bytes(5),
    "four.webp": b"RIFF1234WEBP" + bytes(5),
    "fake.png": b"<script>alert(1)</script>",
    "large.png": PNG + bytes(IMAGE_MAX_BYTES),
}


def shown_in(messages: list[ModelMessage]) -> tuple[list[BinaryContent], str]:
    """The images and the user's texts of a request."""
    images, texts = [], []
    for message in messages:
        for part in message.parts if isinstance(message, ModelRequest) else ():
            if isinstance(part, UserPromptPart):
                items = [part.content] if isinstance(part.content, str) else part.content
                images += [each for each in items if isinstance(each, BinaryContent)]
                texts += [each for each in items if isinstance(each, str)]
    return images, "\n".join(texts)


@pytest.mark.parametrize("sees", [True, False])
async def test_images_are_shown_once_and_known_by_their_paths_later(sees: bool) -> None:
    requests: list[list[ModelMessage]] = []

    async def model(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
        requests.append(messages)
        if len(requests) == 1:
            arguments = json.dumps({"content": "The gate's code is 4711"})
            yield {0: DeltaToolCall("memory_save", arguments, tool_call_id="c0")}
        else:
            yield "I see"

    settings: dict[str, Any] = {"provider": "openai", "model": "m", "images": sees}
    stream = FunctionModel(stream_function=model)
    async with open_gateways(with_model=stream, **settings) as gateways:
        for name, content in CONTENTS.items():
            (gateways.path / "shared" / name).write_bytes(content)
        alice = await gateways.serve("alice")
        await alice.session("s")
        paths = [f"/shared/{name}" for name in CONTENTS]
        events = await alice.say("s", "what is this?", attachments=paths)
        assert events[-1].completed.text == "I see", events[-1]
        images, text = shown_in(requests[0])
        kinds = [image.media_type for image in images]
        known = ["image/png", "image/jpeg", "image/gif", "image/webp"]
        assert kinds == (known if sees else [])
        if sees:
            assert images[0].data == PNG
        assert "/shared/fake.png (no image, 25 bytes; not shown)" in text
        assert "/shared/large.png (image/png, 5,242,988 bytes; not shown)" in text
        assert f"/shared/one.txt (image/png, 108 bytes; {'shown' if sees else 'not shown'})" in text
        assert text.endswith("what is this?")
        (note,) = await alice.notes()
        assert note.origin.material is sees, "nobody vouches for what an image says"
        await alice.say("s", "and now?")
        images, text = shown_in(requests[-1])
        assert images == []
        assert "/shared/two.jpeg (image/jpeg" in text
        history = await alice.stub.GetSession(pb.GetSessionRequest(session_id="s"))
        assert [(e.text, list(e.attachments)) for e in history.events if e.role == "user"] == [
            ("what is this?", paths),
            ("and now?", []),
        ]


async def test_the_built_in_model_says_what_it_got() -> None:
    async with open_gateways() as gateways:
        (gateways.path / "shared/one.png").write_bytes(PNG)
        alice = await gateways.serve("alice")
        await alice.session("s")
        events = await alice.say("s", "help", attachments=["/shared/one.png"])
        said = events[-1].completed.text
        assert "You attached /shared/one.png (image/png, 108 bytes; not shown)" in said
        assert "attached" not in (await alice.answer("s", "help"))


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/vault/key.png", Code.INVALID_ARGUMENT),
        ("/shared/../vault/key.png", Code.INVALID_ARGUMENT),
        ("/shared/link.png", Code.INVALID_ARGUMENT),
        ("/shared", Code.INVALID_ARGUMENT),
        ("/shared/none.png", Code.NOT_FOUND),
    ],
)
async def test_nothing_but_a_file_in_shared_is_attached(path: str, code: Code) -> None:
    async with open_gateways() as gateways:
        (gateways.path / "vault/key.png").write_bytes(PNG)
        (gateways.path / "shared/link.png").symlink_to("../vault/key.png")
        alice = await gateways.serve("alice")
        await alice.session("s")
        request = pb.RunTurnRequest(session_id="s", text="look", attachments=[path])
        refused = await refusal(alice.stub.StartTurn(request))
        assert refused.code is code
        assert refused.brief.startswith("bad attachments: ") == (code is Code.INVALID_ARGUMENT)
        many = pb.RunTurnRequest(session_id="s", text="look", attachments=["/shared/a"] * 17)
        assert "maximum of 16" in (await refusal(alice.stub.StartTurn(many))).brief
        history = await alice.stub.GetSession(pb.GetSessionRequest(session_id="s"))
        assert not history.events
