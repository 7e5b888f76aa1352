"""The audit log: what a crash leaves is mended honestly, what grew old goes, room is kept."""

import errno
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from wire.errors import Code

from runner.audit import log as audit_log
from runner.audit.calls import Calls
from runner.audit.log import AuditLog, Head, LogLocation
from runner.audit.reading import verify
from runner.errors import HostError, WorkspaceError


@pytest.fixture
def place(tmp_path: Path) -> LogLocation:
    return LogLocation(tmp_path / "w", "alice")


def opened(place: LogLocation, keep_days: int = 365) -> AuditLog:
    log = AuditLog(place, keep_days)
    assert log.open() == ""
    return log


def begin(log: AuditLog, call: str = "call-1", tool: str = "memory_save") -> int:
    return log.note("begin", call=call, tool=tool)


def end(log: AuditLog, number: int, call: str = "call-1") -> None:
    log.note("end", begin=number, call=call, outcome="ok", duration_ms=3, notes=["note-1"])


def entries(place: LogLocation) -> list[str]:
    return [
        line.split(b'"event":"')[1].split(b'"')[0].decode()
        for path in place.files()
        for line in path.read_bytes().splitlines()
    ]


@pytest.mark.parametrize("gone", ["files and head", "directory", "all directories", "lines"])
def test_a_log_that_is_gone_as_a_whole_is_told_as_missing(place: LogLocation, gone: str) -> None:
    assert verify(place).findings == ()  # none has begun
    opened(place).close()
    if gone == "files and head":
        for path in place.directory.iterdir():
            path.unlink()
    elif gone == "lines":  # and the head is that of a log in which nothing has been written yet
        place.files()[0].write_bytes(b"")
        place.head.write_bytes(Head().encoded())
    else:
        shutil.rmtree(place.directory if gone == "directory" else place.directory.parent)
    assert verify(place).findings == (audit_log.MISSING,)
    again = AuditLog(place, 365)
    assert again.open() == audit_log.MISSING
    again.close()
    assert audit_log.MISSING in " ".join(verify(place).findings)  # the next log says so, too


def test_it_is_private_and_goes_on_across_hosts(place: LogLocation) -> None:
    log = opened(place)
    end(log, begin(log))
    log.close()
    log = opened(place)
    end(log, begin(log))
    log.close()
    assert verify(place).findings == ()
    assert entries(place) == ["opened", "begin", "end", "closed"] * 2
    assert place.directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in place.directory.iterdir()} == {0o600}


def test_what_a_killed_host_left_open_is_closed_as_interrupted(place: LogLocation) -> None:
    log = opened(place)
    end(log, begin(log, "call-1"), "call-1")
    begin(log, "call-2")
    opened(place).close()  # the first one was killed: it never closed
    assert verify(place).findings == ()
    calls = Calls(place).list().calls
    assert [(call.call_id, call.outcome) for call in calls] == [
        ("call-2", "interrupted"),
        ("call-1", "ok"),
    ]
    assert calls[1].notes == ("note-1",)


def test_a_line_that_a_crash_cut_off_is_removed_and_that_is_said(place: LogLocation) -> None:
    log = opened(place)
    begin(log)
    with place.files()[-1].open("ab") as file:
        file.write(b'{"n":3,"prev":"00')
    assert any("damaged" in finding for finding in verify(place).findings)
    opened(place).close()
    assert verify(place).findings == ()
    assert b'"torn_bytes":17' in place.files()[-1].read_bytes()


def test_a_line_that_the_head_had_missed_is_taken_in(place: LogLocation) -> None:
    log = opened(place)
    before = place.head.read_bytes()
    begin(log)
    place.head.write_bytes(before)
    assert any("added after the end" in finding for finding in verify(place).findings)
    opened(place).close()
    assert verify(place).findings == ()


@pytest.mark.parametrize("what", ["end", "last line", "head", "file", "everything but the head"])
def test_what_no_crash_can_have_done_is_told_by_each_verification(
    place: LogLocation, what: str
) -> None:
    log = opened(place)
    for number in range(5):
        begin(log, f"call-{number}")
    log.close()
    path = place.files()[-1]
    content = path.read_bytes()
    match what:
        case "end":
            path.write_bytes(b"".join(content.splitlines(keepends=True)[:-2]))
        case "last line":
            path.write_bytes(content[:-20] + b"0" * 19 + b"\n")
        case "head":
            place.head.unlink()
        case "file":
            path.write_bytes(b"")
        case _:
            path.unlink()
    log = AuditLog(place, 365)
    assert log.open() != ""
    number = begin(log, "call-after")
    end(log, number, "call-after")
    log.close()
    findings = verify(place).findings
    assert any("the host found that" in finding for finding in findings)
    assert Calls(place).list(limit=1).calls[0].call_id == "call-after"


def test_a_full_file_is_followed_by_another_and_old_ones_go(
    place: LogLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "ROTATE_BYTES", 2_000)
    log = opened(place, keep_days=30)
    for number in range(40):
        end(log, begin(log, f"call-{number}"), f"call-{number}")
    files = place.files()
    assert len(files) > 4
    assert verify(place).findings == ()
    for path in files[:2]:
        os.utime(path, (time.time() - 31 * 86_400,) * 2)
    log.close()
    opened(place, keep_days=30).close()
    assert place.files()[0] == files[2]
    assert Head.read(place.head).first == int(files[2].stem)
    assert verify(place).findings == ()
    assert "dropped" in entries(place)


def test_a_full_disk_refuses_and_leaves_nothing_of_the_line(
    place: LogLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(place)
    real = os.write

    def full(fd: int, content: bytes) -> int:
        if len(content) > 10:
            return real(fd, content[:10])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(HostError) as raised:
            begin(log)
    assert raised.value.code is Code.UNAVAILABLE
    assert "No space left" in raised.value.details
    assert str(place.directory) in raised.value.resolution
    end(log, begin(log))
    log.close()
    assert verify(place).findings == ()


def test_room_for_lines_is_set_aside(place: LogLocation) -> None:
    log = opened(place)
    found = place.files()[-1].stat()
    assert found.st_blocks * 512 >= 256 * 1024 > found.st_size
    log.close()


def test_the_kernel_has_a_line_before_a_kill(place: LogLocation) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from runner.audit.log import AuditLog, LogLocation\n"
        "log = AuditLog(LogLocation(Path(sys.argv[1]), 'alice'), 365); log.open()\n"
        "[log.note('begin', call=f'call-{n}', tool='shell_exec') for n in range(50)]\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(place.root)], timeout=60)
    assert done.returncode < 0
    assert verify(place).findings == ()
    opened(place).close()
    assert {call.outcome for call in Calls(place).list(limit=100).calls} == {"interrupted"}
    assert len(Calls(place).list(limit=100).calls) == 50


def test_another_accounts_directory_is_refused(place: LogLocation, tmp_path: Path) -> None:
    place.root.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (place.root / ".audit").symlink_to(tmp_path / "elsewhere")
    log = AuditLog(place, 365)
    with pytest.raises(WorkspaceError, match="cannot use"):
        log.open()
