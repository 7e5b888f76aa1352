"""For any text: no user id and no database path leads where it must not."""

import contextlib
import json
import os
import re
import string
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wire.boundary import BoundarySpec
from wire.errors import WireError
from wire.logs import find_startup_failure

from runner.cli.operation.logs import json_line
from runner.config.models import Config
from runner.config.user_id import check_user_id
from runner.errors import ConfigError, WorkspaceError
from runner.host.runtime import Runtime
from runner.logs import printable, readable
from runner.workspace.database_file import resolve_db_path
from runner.workspace.workspace import Workspace
from tests.support.examples import examples
from tests.support.settings import load_config

ROOT = Path("/srv/oxydra")
WORKSPACE = Workspace(ROOT, "alice")
HIDDEN = ("shared", "tmp", "cache", "vault", "skills", "ipc", "logs")

names = st.one_of(
    st.sampled_from(["..", ".", "", "~", "alice", "bob", ".oxydra", "m.db", *HIDDEN]),
    st.text(max_size=12),
    st.text(string.ascii_lowercase + string.digits + "_-", max_size=40),
)
paths = st.builds(
    lambda lead, parts: (lead + "/".join(parts)).replace("\0", ""),  # refused by the settings
    st.sampled_from(["", "/", "./", f"{ROOT}/", f"{ROOT}/alice/", f"{ROOT}/bob/"]),
    st.lists(names, min_size=1, max_size=6),
).filter(bool)


@given(names)
def test_a_user_id_is_one_plain_name_or_refused(user_id: str) -> None:
    try:
        workspace = Workspace.locate(Config(workspace_root=ROOT), user_id)
    except WorkspaceError:
        assert not re.fullmatch("[a-z0-9][a-z0-9_-]{0,31}", user_id)
        return
    assert workspace.path.parent == ROOT
    assert workspace.path.name == user_id == check_user_id(user_id)
    assert os.path.normpath(workspace.path) == str(workspace.path)
    assert user_id.isascii()
    assert user_id == user_id.lower()
    assert 1 <= len(user_id) <= 32


@given(st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=32))
def test_users_never_share_a_directory(user_id: str) -> None:
    config = load_config(environ={"OXYDRA_RUNTIME_DIR": "/r", "OXYDRA_WORKSPACE_ROOT": "/w"})
    other = user_id[:-1] + ("b" if user_id[-1] == "a" else "a")
    assert Runtime.locate(config, user_id).directory != Runtime.locate(config, other).directory
    assert Workspace(ROOT, user_id).path != Workspace(ROOT, other).path


@given(paths)
def test_no_database_path_leads_to_a_guest_or_to_another_user(setting: str) -> None:
    try:
        path = resolve_db_path(setting, WORKSPACE, mounted_only=True)
    except ConfigError:
        return
    inside = path.relative_to(WORKSPACE.path)
    assert ".." not in inside.parts
    assert inside.parts
    assert inside.parts[0] not in HIDDEN


@given(paths)
@example("a" * 300)
@example("a/" * 3000)
def test_an_absolute_path_leads_to_no_workspace_but_ones_own(setting: str) -> None:
    try:
        path = resolve_db_path(setting, WORKSPACE, mounted_only=False)
    except ConfigError:
        return
    if path.is_relative_to(ROOT):
        assert path.is_relative_to(WORKSPACE.path)
        assert path.relative_to(WORKSPACE.path).parts[0] not in HIDDEN


@examples(30)
@given(name=st.text(string.ascii_uppercase + "_", min_size=1, max_size=20), value=names)
def test_no_unknown_variable_passes(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown setting OXYDRA_X{name}[; ]"):
        load_config(environ={f"OXYDRA_X{name}": value})


LOG_VALUES = st.one_of(
    st.integers(), st.text(), st.lists(st.text(), max_size=2), st.dictionaries(st.text(), st.text())
)
LOG_LINES = st.dictionaries(
    st.sampled_from(["time", "level", "logger", "message", "event", "error", "traceback", "turn"]),
    st.one_of(st.just("startup_failed"), LOG_VALUES),
).map(json.dumps)


@given(st.one_of(st.text(), LOG_LINES))
@example('{"a":' * 1000)
@example("[" * 1500)
@example('{"time": ' + "9" * 1000 + "}")
def test_any_line_of_a_log_can_be_shown(line: str) -> None:
    """And nothing in it commands the terminal."""
    for shown in (printable(line), readable(line)):
        assert all(character.isprintable() or character in "\n\t" for character in shown)
    assert json_line(line).isprintable()
    assert isinstance(json.loads(json_line(line)), dict)
    assert isinstance(find_startup_failure(line), WireError | None)
    with contextlib.suppress(ValueError):
        spec = BoundarySpec.from_json(line.encode())
        assert BoundarySpec.from_json(spec.to_json()) == spec
