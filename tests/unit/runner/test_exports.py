"""Files of an export: how they are cut into requests, and what shows that one is not whole."""

import hashlib
import io
import json
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest
from wire.v1 import gateway_pb2

from runner.client import exports
from runner.client.exports import Imported, read_export, write_export


class Agent:
    """Takes every line but those that say "bad"."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []

    async def import_memory(self, lines: bytes, *, dry_run: bool) -> gateway_pb2.ImportMemoryReply:
        assert not dry_run
        self.requests.append(lines)
        reply = gateway_pb2.ImportMemoryReply()
        for number, line in enumerate(lines.splitlines(), 1):
            if b"bad" in line:
                reply.problems.add(line=number, problem="is bad")
            elif number > 1 and b'"end"' not in line:
                reply.created += 1
        return reply


class Exporting:
    """Exports some parts of which two leave something out."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def export_memory(self) -> AsyncGenerator[gateway_pb2.ExportMemoryReply, None]:
        lines = self.content.splitlines(keepends=True)
        yield gateway_pb2.ExportMemoryReply(lines=lines[0], left_out=["event 1 of s1: so long"])
        yield gateway_pb2.ExportMemoryReply(lines=b"".join(lines[1:]), left_out=["s2: so long"])


HEADER = b'{"kind":"header"}\n'


def whole(*lines: bytes) -> bytes:
    end = {
        "kind": "end",
        "lines": len(lines),
        "counts": {},
        "sha256": hashlib.sha256(b"".join(lines)).hexdigest(),
    }
    return HEADER + b"".join(lines) + json.dumps(end).encode() + b"\n"


async def imported(content: bytes) -> tuple[Agent, Imported, list[int]]:
    agent, report, progress = Agent(), Imported(), list[int]()
    file = io.BytesIO(content)
    await read_export(cast(Any, agent), file, report, progress.append, dry_run=False)
    return agent, report, progress


async def test_every_request_begins_with_the_header_and_holds_whole_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exports, "EXPORT_PART_BYTES", 200)
    lines = [
        b'{"number":%d,"bad":%d}\n' % (n, n) if n == 17 else b'{"n":%d}\n' % n for n in range(40)
    ]
    lines.insert(20, b'{"long":"' + b"x" * 500 + b'"}\n')
    content = whole(*lines)
    agent, report, progress = await imported(content)
    assert len(agent.requests) > 3
    sent = agent.requests
    assert all(each.startswith(HEADER) for each in sent)
    assert all(len(each) <= 200 or each.count(b"\n") == 2 for each in sent)
    assert HEADER + b"".join(each.removeprefix(HEADER) for each in sent) == content
    assert (report.created, report.problems) == (40, [(19, "is bad")])
    assert progress == sorted(progress)
    assert progress[-1] == len(content)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (HEADER + b'{"n":1}\n', "the end line is missing"),
        (HEADER, "the end line is missing"),
        (whole(b'{"n":1}\n')[:-20], "the end line is missing"),
        (whole(b'{"n":1}\n').replace(b'"n":1', b'"n":2'), "lines of the file were changed"),
        (whole(b'{"n":1}\n').replace(HEADER, HEADER * 2), "1 lines were exported, and 2 are in"),
        (
            whole(b'{"n":1}\n', b'{"n":2}\n').replace(b'{"n":1}\n', b""),
            "2 lines were exp",
        ),
    ],
)
async def test_a_file_that_is_not_whole_is_noticed(content: bytes, problem: str) -> None:
    _, report, _ = await imported(content)
    assert len(report.problems) == 1
    assert problem in report.problems[0][1]


async def test_blank_lines_and_a_missing_last_line_break_do_no_harm() -> None:
    _, report, _ = await imported(b"\n" + whole(b'{"n":1}\n')[:-1] + b"\n\n  \n")
    assert report == Imported(created=1)
    _, report, _ = await imported(whole(b'{"n":1}\n')[:-1])
    assert report == Imported(created=1)


async def test_a_line_that_is_too_long_is_named_and_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exports, "EXPORT_LINE_MAX_BYTES", 300)
    content = whole(b'{"n":1}\n', b"x" * 1000 + b"\n", b'{"n":3}\n')
    agent, report, _ = await imported(content)
    assert report.created == 2
    assert report.problems[0] == (3, "is longer than 300 bytes")
    assert b"xxx" not in b"".join(agent.requests)


async def test_what_an_export_leaves_out_is_told() -> None:
    written = bytearray()
    agent = cast(Any, Exporting(whole(b'{"n":1}\n')))
    exported = await write_export(agent, written.extend, lambda done, total: None)
    assert exported.left_out == ["event 1 of s1: so long", "s2: so long"]
    assert bytes(written) == whole(b'{"n":1}\n')
