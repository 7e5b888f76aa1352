"""Files in and out of the shared directory: whole, as they are, and only there."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from wire.errors import Code, WireError
from wire.v1 import gateway_pb2 as pb

from guest.errors import ToolError
from guest.tools.files.exchange import PART_BYTES, UPLOADS_MAX, SharedFiles
from guest.tools.files.roots import Roots
from tests.support.attempts import attempt
from tests.support.gateway.gateways import Client, open_gateways, refusal

OUTSIDE = "the path guards of the file tools"
SECRET = "what lies outside"


async def put(client: Client, path: str, *pieces: bytes, **fields: Any) -> pb.WriteFileReply:
    upload_id, offset = "", 0
    for piece in pieces:
        request = pb.WriteFileRequest(path=path, upload_id=upload_id, offset=offset, data=piece)
        reply = await client.stub.WriteFile(request)
        upload_id, offset = reply.upload_id, reply.received
    return await client.stub.WriteFile(
        pb.WriteFileRequest(path=path, upload_id=upload_id, offset=offset, last=True, **fields)
    )


async def got(client: Client, path: str, offset: int = 0) -> bytes:
    request = pb.ReadFileRequest(path=path, offset=offset)
    return b"".join([part.data async for part in client.stub.ReadFile(request)])


async def test_a_file_goes_in_and_out_in_pieces() -> None:
    content = os.urandom(2 * PART_BYTES + 100)
    async with open_gateways() as gateways:
        alice = await gateways.serve("alice")
        shared = gateways.path / "shared"
        begun = await alice.stub.WriteFile(
            pb.WriteFileRequest(path="/shared/photos/one.bin", data=content[:1000])
        )
        assert not (shared / "photos/one.bin").exists()
        rest = pb.WriteFileRequest(
            upload_id=begun.upload_id, offset=1000, data=content[1000:], last=True
        )
        written = await alice.stub.WriteFile(rest)
        assert (written.file.path, written.file.bytes) == ("/shared/photos/one.bin", len(content))
        assert (shared / "photos/one.bin").read_bytes() == content
        assert stat.S_IMODE((shared / "photos/one.bin").stat().st_mode) == 0o644
        assert await got(alice, "/shared/photos/one.bin") == content
        assert await got(alice, "/shared/photos/one.bin", 5000) == content[5000:]
        listed = (await alice.stub.ListFiles(pb.ListFilesRequest())).files
        assert [(each.name, each.kind) for each in listed] == [("photos", "directory")]
        (one,) = (await alice.stub.ListFiles(pb.ListFilesRequest(path="/shared/photos"))).files
        assert (one.name, one.path, one.kind) == ("one.bin", "/shared/photos/one.bin", "file")
        await alice.stub.DeleteFile(pb.DeleteFileRequest(path=one.path))
        gone = await refusal(alice.stub.ReadFile(pb.ReadFileRequest(path=one.path)))
        assert gone.code is Code.NOT_FOUND


async def test_a_bug_in_what_serves_files_is_no_mistake_of_the_caller(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("of nothing that was asked")

    monkeypatch.setattr(SharedFiles, "list", fails)
    async with open_gateways() as gateways:
        alice = await gateways.serve("alice")
        failed = await refusal(alice.stub.ListFiles(pb.ListFilesRequest()))
    assert failed.code is Code.INTERNAL
    assert "of nothing that was asked" in caplog.text


async def test_what_is_there_is_replaced_only_where_that_is_asked_for() -> None:
    async with open_gateways() as gateways:
        alice = await gateways.serve("alice")
        place = gateways.path / "shared/plan.md"
        place.write_text("the old one")
        piece = pb.WriteFileRequest(path="/shared/plan.md", data=b"the new one", last=True)
        refused = await refusal(alice.stub.WriteFile(piece))
        assert refused.code is Code.ALREADY_EXISTS
        assert place.read_text() == "the old one"
        await put(alice, "/shared/plan.md", b"the new one", overwrite=True)
        assert place.read_text() == "the new one"


async def test_uploads_are_bounded_and_leave_nothing_behind() -> None:
    async with open_gateways() as gateways:
        alice = await gateways.serve("alice")
        shared = gateways.path / "shared"
        large = await refusal(alice.stub.WriteFile(_first("/shared/large", bytes(2**20 + 1))))
        assert (large.code, "upload_max_mb" in large.brief) == (Code.RESOURCE_EXHAUSTED, True)
        assert list(shared.iterdir()) == []
        for number in range(UPLOADS_MAX):
            await alice.stub.WriteFile(_first(f"/shared/{number}"))
        full = await refusal(alice.stub.WriteFile(_first("/shared/more")))
        assert full.code is Code.RESOURCE_EXHAUSTED
        unknown = pb.WriteFileRequest(upload_id="upload-1", data=b"x")
        assert (await refusal(alice.stub.WriteFile(unknown))).code is Code.NOT_FOUND
        await gateways.services["alice"].close()
        assert list(shared.iterdir()) == []


def _first(path: str, data: bytes = b"x") -> pb.WriteFileRequest:
    return pb.WriteFileRequest(path=path, data=data)


@pytest.mark.parametrize(
    ("path", "prepare"),
    [
        attempt("reading and writing files outside of /shared", "/tmp/a", "", stopped_by=OUTSIDE),
        attempt("a file of the vault", "/vault/a", "", stopped_by=OUTSIDE),
        attempt("a path that climbs out", "/shared/../tmp/a", "", stopped_by=OUTSIDE),
        attempt("a path of the host", "/etc/passwd", "", stopped_by=OUTSIDE),
        attempt("a link out of the directory", "/shared/link", "link", stopped_by=OUTSIDE),
        attempt("a directory that is a link out", "/shared/dir/a", "dir", stopped_by=OUTSIDE),
        attempt("a pipe that nobody writes to", "/shared/pipe", "pipe", stopped_by=OUTSIDE),
        attempt("a hard link to the memory", "/shared/hard", "hard", stopped_by=OUTSIDE),
        attempt("a name with a line break", "/shared/a\nb", "", stopped_by=OUTSIDE),
        attempt("a directory in the place of a file", "/shared/sub", "sub", stopped_by=OUTSIDE),
    ],
)
def test_no_file_outside_is_read_written_or_removed(
    tmp_path: Path, path: str, prepare: str
) -> None:
    for name in ("shared", "tmp", "vault", ".oxydra"):
        (tmp_path / name).mkdir()
    outside = [tmp_path / "tmp/a", tmp_path / "vault/a", tmp_path / ".oxydra/memory.db"]
    for file in outside:
        file.write_text(SECRET)
    shared = tmp_path / "shared"
    {
        "link": lambda: (shared / "link").symlink_to("../tmp/a"),
        "dir": lambda: (shared / "dir").symlink_to("../tmp"),
        "pipe": lambda: os.mkfifo(shared / "pipe"),
        "hard": lambda: os.link(outside[-1], shared / "hard"),
        "sub": lambda: (shared / "sub").mkdir(),
        "": lambda: None,
    }[prepare]()
    directories = {name: tmp_path / name for name in ("shared", "tmp", "vault")}
    roots = Roots(directories, [tmp_path / ".oxydra"])
    files = SharedFiles(roots, 2**20)
    with pytest.raises(ToolError) as raised:
        list(files.read(path))
    assert SECRET not in str(raised.value)
    with pytest.raises(ToolError):
        files.begin(path)
    files.close()
    assert [file.read_text() for file in outside] == [SECRET] * 3
    assert not list(shared.glob("*.partial"))
    roots.close()


@pytest.mark.attempt("links that come while a file arrives", stopped_by=OUTSIDE)
def test_what_changes_while_a_file_arrives_leads_nowhere_else(tmp_path: Path) -> None:
    for name in ("shared/sub", "tmp", "vault"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "tmp/a").write_text(SECRET)
    shared = tmp_path / "shared"
    roots = Roots({name: tmp_path / name for name in ("shared", "tmp", "vault")})
    files = SharedFiles(roots, 2**20)
    upload_id = files.begin("/shared/sub/a")
    files.add(upload_id, 0, b"arrived")
    (shared / "sub").rename(shared / "moved")
    (shared / "sub").symlink_to("../tmp")
    (shared / "moved/a").symlink_to("../../tmp/a")
    with pytest.raises(ToolError):
        files.finish(upload_id, overwrite=True)
    (shared / "moved/a").unlink()
    files.finish(upload_id, overwrite=False)
    assert (shared / "moved/a").read_text() == "arrived"
    assert (tmp_path / "tmp/a").read_text() == SECRET
    files.close()
    roots.close()


@pytest.mark.attempt("markup and controls in the name of a file", stopped_by="visible names")
async def test_a_hostile_name_is_only_a_name() -> None:
    names = ["<img src=x onerror=alert(1)>.png", "a\nb", "\x1b[2J", "caf\udce9"]
    async with open_gateways() as gateways:
        alice = await gateways.serve("alice")
        for name in names:
            (gateways.path / "shared" / name).touch()
        os.utime(gateways.path / "shared" / names[0], (2**40, 2**40))
        listed = (await alice.stub.ListFiles(pb.ListFilesRequest())).files
        shown = {each.name: each.path for each in listed}
        assert shown == {
            names[0]: f"/shared/{names[0]}",
            "a\\nb": "",
            "\\x1b[2J": "",
            "caf\\xe9": "",
        }


async def test_a_full_disk_is_told_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise ToolError("the disk is full", Code.RESOURCE_EXHAUSTED)

    async with open_gateways() as gateways:
        alice = await gateways.serve("alice")
        monkeypatch.setattr(Roots, "require_room", full)
        error: WireError = await refusal(alice.stub.WriteFile(_first("/shared/a")))
        assert error.code is Code.RESOURCE_EXHAUSTED
        assert list((gateways.path / "shared").iterdir()) == []
