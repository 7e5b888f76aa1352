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
from tests.support.images import gif, jpeg, png, webp

PNG = png()
CONTENTS = {
    "one.txt": PNG,  # by its content, not by its name
    "two.jpeg": jpeg(),
    "three.gif": gif(),
    "four.webp": webp(),
    "fake.png": b"<script>alert(1)</script>",
    "large.png": PNG + bytes(IMAGE_MAX_BYTES),
    "wide.png": png(12_000, 9),
    "cut.png": PNG[:-6],
    "phone.heic": b"\0\0\0\x18ftypheic" + bytes(20),
}
UNSEEN = {
    "large.png": f"it has {len(CONTENTS['large.png']):,} bytes, and an image may have",
    "wide.png": "it has 12,000 × 9 pixels, and a side may have 8,000; make it smaller",
    "cut.png": "it is damaged: its end is missing, or its size; save it again",
    "phone.heic": "models take PNG, JPEG, GIF and WebP, and this is HEIC; convert it, as with:",
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
        twice = [*paths, paths[0]]
        events = await alice.say("s", "what is this?", attachments=twice)
        assert events[-1].completed.text == "I see", events[-1]
        images, text = shown_in(requests[0])
        kinds = [image.media_type for image in images]
        known = ["image/png", "image/jpeg", "image/gif", "image/webp"]
        assert kinds == (known if sees else [])
        if sees:
            assert images[0].data == PNG
        assert "/shared/fake.png (file_read reads it; not shown)" in text
        assert "/shared/large.png (image/png; " in text
        notices = [event.notice.text for event in events if event.HasField("notice")]
        unseen = (
            UNSEEN if sees else {**dict.fromkeys(list(CONTENTS)[:4], "images = false"), **UNSEEN}
        )
        told = [f"/shared/{name} is not shown to the model: {why}" for name, why in unseen.items()]
        for notice, beginning in zip(notices, told, strict=True):
            assert notice.startswith(beginning)
            assert f"not shown: {notice.partition('model: ')[2]})" in text
        assert ("/shared/one.txt (image/png; shown)" in text) is sees
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
        assert "You attached /shared/one.png (image/png; not shown)" in said
        assert "\nSay read PATH for the text of one.\n" in said
        assert "/skills" in said
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
        request = pb.StartTurnRequest(session_id="s", text="look", attachments=[path])
        refused = await refusal(alice.stub.StartTurn(request))
        assert refused.code is code
        assert refused.brief.startswith("bad attachments: ") == (code is Code.INVALID_ARGUMENT)
        many = pb.StartTurnRequest(session_id="s", text="look", attachments=["/shared/a"] * 17)
        assert "maximum of 16" in (await refusal(alice.stub.StartTurn(many))).brief
        history = await alice.stub.GetSession(pb.GetSessionRequest(session_id="s"))
        assert not history.events
