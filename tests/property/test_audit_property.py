"""Whatever is changed in an audit log from outside, its verification finds it."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.audit import log as audit_log
from runner.audit import reading
from runner.audit.log import AuditLog, LogLocation
from runner.audit.reading import verify

LINES = 12

pytestmark = pytest.mark.usefixtures("_small")


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "ROTATE_BYTES", 900)
    monkeypatch.setattr(reading, "AGAIN_S", 0.0)


def written(root: Path) -> LogLocation:
    place = LogLocation(root, "alice")
    log = AuditLog(place, keep_days=365)
    assert log.open() == ""
    for number in range(LINES):
        log.note("begin", call=f"call-{number}", tool="shell_exec", about='echo ",\\"hash\\":\\""')
    log.close()
    assert len(place.files()) > 2
    assert verify(place).findings == ()
    return place


def found_after(change: Callable[[LogLocation], None]) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        place = written(Path(root))
        change(place)
        assert verify(place).findings, "nothing was found"


once = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@once
@given(st.data())
def test_any_change_of_any_byte_is_found(data: st.DataObject) -> None:
    def change(place: LogLocation) -> None:
        path = data.draw(st.sampled_from([*place.files(), place.head]))
        content = bytearray(path.read_bytes())
        index = data.draw(st.integers(0, len(content) - 1))
        other = data.draw(st.integers(0, 255).filter(lambda value: value != content[index]))
        content[index] = other
        path.write_bytes(content)

    found_after(change)


def test_a_change_of_each_single_byte_is_found(tmp_path: Path) -> None:
    place = LogLocation(tmp_path, "alice")
    log = AuditLog(place, keep_days=365)
    log.open()
    log.note("begin", call="call-1")
    log.close()
    missed = []
    for path in (*place.files(), place.head):
        content = path.read_bytes()
        for index in range(len(content)):
            changed = bytearray(content)
            changed[index] ^= 1
            path.write_bytes(changed)
            if not verify(place).findings:
                missed.append((path.name, index))
        path.write_bytes(content)
    assert missed == []
    assert verify(place).findings == ()


@once
@given(st.data())
def test_lines_removed_doubled_or_moved_are_found(data: st.DataObject) -> None:
    def change(place: LogLocation) -> None:
        path = data.draw(st.sampled_from(place.files()))
        lines = path.read_bytes().splitlines(keepends=True)
        index = data.draw(st.integers(0, len(lines) - 1))
        match data.draw(st.sampled_from(["remove", "double", "swap", "cut", "end"])):
            case "remove":
                del lines[index]
            case "double":
                lines.insert(index, lines[index])
            case "swap" if len(lines) > 1:
                other = (index + 1) % len(lines)
                lines[index], lines[other] = lines[other], lines[index]
            case "cut":
                lines[index] = lines[index][: data.draw(st.integers(0, len(lines[index]) - 1))]
            case _:
                del lines[index:]
        path.write_bytes(b"".join(lines))

    found_after(change)


@once
@given(st.data())
def test_a_whole_file_removed_or_added_is_found(data: st.DataObject) -> None:
    def change(place: LogLocation) -> None:
        files = place.files()
        path = data.draw(st.sampled_from([*files, place.head]))
        if path != place.head and data.draw(st.booleans()):
            other = place.directory / f"{data.draw(st.integers(0, 99)):012d}.jsonl"
            if other not in files:
                other.write_bytes(path.read_bytes())
                return
        path.unlink()

    found_after(change)


@once
@given(st.integers(1, LINES))
def test_a_record_written_anew_is_found_by_a_head_known_from_before(cut: int) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as root, tempfile.TemporaryDirectory() as other:
        place = written(Path(root))
        report = verify(place)
        forged = LogLocation(Path(other), "alice")
        log = AuditLog(forged, keep_days=365)
        log.open()
        for _ in range(LINES + cut):
            log.note("begin", call="call-of-a-forger")
        log.close()
        assert verify(forged).findings == ()
        assert verify(forged, known=(report.last, report.hash)).findings
        assert verify(place, known=(report.last, report.hash)).findings == ()
