"""What `runner acp` says on standard error of an editor that sends rubbish."""

import asyncio
import logging
import os
import sys
from pathlib import Path

import pytest
from acp._transport import NdjsonTransport
from wire.errors import WireError

from runner.cli.options import Options
from runner.cli.servers import in_one_line, serve_editor


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
