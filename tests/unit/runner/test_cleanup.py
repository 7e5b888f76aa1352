"""Making the place of a socket free, whatever stands there, and saying what was found."""

import os
import socket
from pathlib import Path
from unittest import mock

import pytest
from wire.errors import Code

from runner.config.models import Config
from runner.errors import TierError
from runner.host.removal import clear_leftovers
from runner.workspace.beneath import clear


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "s"


def test_nothing_there_is_fine(place: Path) -> None:
    clear(place, place.parent)


def test_a_socket_a_file_and_a_pipe_are_removed(place: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place))
    listener.close()
    clear(place, place.parent)
    assert not os.path.lexists(place)
    for make in (os.mkfifo, Path.touch):
        make(place)
        clear(place, place.parent)
        assert not os.path.lexists(place)


def test_a_link_is_removed_and_what_it_means_is_kept(place: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    place.symlink_to(kept)
    clear(place, place.parent)
    assert not os.path.lexists(place)
    assert kept.is_dir()


def test_a_full_directory_is_moved_aside(place: Path, tmp_path: Path) -> None:
    (place / "deep").mkdir(parents=True)
    notice = clear(place, place.parent)
    assert not os.path.lexists(place)
    (aside,) = tmp_path.iterdir()
    assert str(place) in notice
    assert aside.name in notice
    assert aside.name.startswith("s.aside-")
    assert (aside / "deep").is_dir()


def test_a_plain_file_may_stay_where_only_files_may(place: Path, tmp_path: Path) -> None:
    clear(place, place.parent, keep_file=True)
    place.write_text("a log")
    clear(place, place.parent, keep_file=True)
    assert place.read_text() == "a log"
    place.unlink()
    kept = tmp_path / "kept"
    kept.write_text("precious")
    place.symlink_to(kept)
    clear(place, place.parent, keep_file=True)
    assert not os.path.lexists(place)
    assert kept.read_text() == "precious"


async def test_what_was_found_is_logged_also_where_the_start_then_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runtime, driver = mock.Mock(state=tmp_path / "state.json"), mock.Mock()
    runtime.state.write_text("[]")
    driver.clear = mock.AsyncMock(side_effect=TierError(Code.INTERNAL, "it does not end"))
    with pytest.raises(TierError, match="it does not end"):
        await clear_leftovers(runtime, mock.Mock(), driver, Config())
    assert "the state of an earlier runner could not be read" in caplog.text
