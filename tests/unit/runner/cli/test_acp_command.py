"""What `runner acp` says of an editor that sends rubbish, and which differences it shows."""

import asyncio
import logging
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import acp
import pytest
from acp._transport import NdjsonTransport
from wire.errors import WireError
from wire.v1 import gateway_pb2 as pb

from runner.acp import EditorAgent
from runner.cli.options import Options
from runner.cli.servers import in_one_line, serve_editor
from runner.client.gateway import GatewayClient
from tests.support.gateway.fake_gateway import FakeGateway, completed, says, tool


async def test_a_message_that_is_no_json_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(b'Gr\xf6\xdfe\n{"a": 1}\n')
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(in_one_line)
    logging.getLogger().addHandler(handler)
    try:
        received = await NdjsonTransport(reader, None).receive()  # type: ignore[arg-type]
    finally:
        logging.getLogger().removeHandler(handler)
    assert received == {"a": 1}
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Error parsing JSON-RPC message: 'utf-8' codec can't decode byte 0xf6")


async def test_without_an_editor_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fstat", lambda _: Path(os.devnull).stat())
    with pytest.raises(WireError, match="no editor has started this"):
        await serve_editor(Options())


async def test_an_editor_is_shown_differences_of_its_folder_alone(gateway: FakeGateway) -> None:
    def change(path: str, **its: Any) -> pb.FileChange:
        return pb.FileChange(path=path, kind="changed", **its)

    changes = [
        change("/projects/open/a.py", by_tool=True),
        change("/projects/open/src/a.py"),
        change("/projects/open/../../etc/passwd"),
        change("/projects/other/b.py"),
        change("/projects/open/x.png", binary=True),
    ]
    files = pb.FileChanges(files=len(changes), changes=changes)
    calls = tool("file_write", "replaced: 3 bytes")
    calls[0].tool_started.told = "a.py"
    gateway.script = says(*calls, completed("done", files=files))
    gateway.changed_files["t1"] = pb.TurnDiffReply(files=files, before="one", after="two")
    shown: list[Any] = []

    async def session_update(_: str, update: Any) -> None:
        shown.extend(
            (update.tool_call_id, part)
            for part in getattr(update, "content", None) or ()
            if getattr(part, "type", "") == "diff"
        )

    async def open_folder(_: str) -> str:
        return "open"

    async with await GatewayClient.open(gateway.peer, channel_name="acp") as client:
        agent = EditorAgent(client, open_folder)
        agent.on_connect(SimpleNamespace(session_update=session_update))
        session = await agent.new_session("/home/alice/open/")
        await agent.prompt(session.session_id, [acp.text_block("go")])
        await agent.close()
    assert [(diff.path, diff.old_text) for _, diff in shown] == [
        ("/home/alice/open/a.py", "one"),
        ("/home/alice/open/src/a.py", "one"),
    ]
    assert [call_id.endswith("src/a.py") for call_id, _ in shown] == [False, True]
