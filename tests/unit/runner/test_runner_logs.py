"""Log files: opened safely, rotated, read back, shown without obeying them."""

import itertools
import logging
import os
import time
from pathlib import Path

import pytest

from runner import logs
from runner.errors import WorkspaceError
from runner.logs import host_log


def append(path: Path, text: str) -> None:
    with os.fdopen(logs.open_for_append(path, path.parent), "a") as file:
        file.write(text)


def test_a_log_is_private_and_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "guest.log"
    append(path, "one\n")
    assert logs.next_offset(path, path.parent) == logs.size(path, path.parent) == 4
    append(path, "two\n")
    assert path.read_text() == "one\ntwo\n"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_what_is_no_file_is_neither_written_nor_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "guest.log"
    victim = tmp_path / "victim"
    victim.write_text("precious")
    if kind == "link":
        path.symlink_to(victim)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    for use in (logs.open_for_append, lambda where, home: logs.tail(where, home, 5)):
        with pytest.raises(WorkspaceError, match="cannot use the log"):
            use(path, tmp_path)
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("older", ["guest.log.1", "guest.log.2", "guest.log.3"])
def test_a_directory_in_the_place_of_an_older_log_is_moved_aside_and_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    older: str,
) -> None:
    monkeypatch.setattr(logs, "ROTATE_BYTES", 10)
    (tmp_path / older / "x").mkdir(parents=True)
    path = tmp_path / "guest.log"
    for number in range(4):
        append(path, f"number {number} .....\n")
    assert sorted(found.name for found in tmp_path.iterdir() if found.is_file()) == [
        "guest.log",
        "guest.log.1",
        "guest.log.2",
        "guest.log.3",
    ]
    (aside,) = tmp_path.glob("*.aside-*")
    assert str(aside) in caplog.text


def test_a_log_is_not_reached_over_a_link_in_the_way(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    (elsewhere / "guest.log").write_text("precious")
    (home / "logs").symlink_to(elsewhere)
    path = home / "logs" / "guest.log"
    with pytest.raises(WorkspaceError, match="cannot use the log"):
        logs.open_for_append(path, home)
    with pytest.raises(WorkspaceError, match="cannot use the log"):
        logs.tail(path, home, 5)
    assert (elsewhere / "guest.log").read_text() == "precious"


def test_a_large_log_is_rotated_and_three_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "ROTATE_BYTES", 10)
    path = tmp_path / "guest.log"
    for number in range(6):
        offset = logs.next_offset(path, path.parent)
        append(path, f"number {number} .....\n")
        assert logs.read_from(path, path.parent, offset) == f"number {number} .....\n"
    assert sorted(found.name for found in tmp_path.iterdir()) == [
        "guest.log",
        "guest.log.1",
        "guest.log.2",
        "guest.log.3",
    ]
    assert "number 5" in path.read_text()
    assert "number 2" in (tmp_path / "guest.log.3").read_text()


def test_reading_from_an_offset_gives_what_came_after(tmp_path: Path) -> None:
    path = tmp_path / "guest.log"
    assert logs.read_from(path, path.parent, 0) == ""
    append(path, "old\nnew\n")
    assert logs.read_from(path, path.parent, 4) == "new\n"
    assert logs.read_from(path, path.parent, 999) == ""
    assert logs.read_from(path, path.parent, 0, limit=2) == "w\n"


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100_000])
def test_the_tail_has_as_many_lines_as_asked_for(tmp_path: Path, count: int) -> None:
    path = tmp_path / "guest.log"
    assert logs.tail(path, path.parent, count) == ([], 0)
    lines = [f"line {number} " + "x" * 100 for number in range(3000)]
    append(path, "\n".join(lines) + "\n")
    expected = lines[-count:] if count else []
    assert logs.tail(path, path.parent, count) == (expected, path.stat().st_size)


def test_following_goes_on_through_rotation_and_truncation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "guest.log"

    def rotate() -> None:
        path.rename(tmp_path / "guest.log.1")
        append(path, "three\n")

    def truncate() -> None:
        path.write_text("")
        append(path, "4\n")

    steps = iter([lambda: append(path, "one\ntw"), lambda: append(path, "o\n"), rotate, truncate])
    monkeypatch.setattr(time, "sleep", lambda _: next(steps)())
    read = itertools.islice(logs.follow(path, path.parent, 0), 4)
    assert list(read) == ["one", "two", "three", "4"]


def test_a_line_is_readable_and_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    line = (
        '{"time": "2026-01-02T03:04:05.678+00:00", "level": "info", "logger": "guest.x",'
        ' "message": "hi \\u001b[31mred", "role": "agent", "user": "a", "turn": "t1",'
        ' "duration_ms": 3, "traceback": "line 1\\nline 2"}'
    )
    assert logs.readable(line) == (
        "2026-01-02T04:04:05 CET info    guest.x: hi \\x1b[31mred turn=t1 duration_ms=3\n"
        "line 1\nline 2"
    )
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("line", ["plain", "{", "[]", '"x"', '{"message": 1}', "null"])
def test_other_lines_are_shown_as_they_are(line: str) -> None:
    assert logs.readable(line) == line


def test_the_hosts_log_ends_with_the_host(tmp_path: Path) -> None:
    path = tmp_path / "host.log"
    logger = logging.getLogger("runner.test")
    before = logging.getLogger("runner").level
    with host_log(path, "alice", "info"):
        logger.info("seen")
        logger.debug("too fine")
    logger.warning("too late")
    assert logging.getLogger("runner").level == before
    text = path.read_text()
    assert "seen" in text
    assert '"user": "alice"' in text
    assert "too" not in text
