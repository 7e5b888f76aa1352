"""Who the users of a machine are, and that no two have a server that holds one."""

from pathlib import Path
from typing import Any

import pytest
from wire.settings import MemorySettings, UserSettings

from runner.config.models import Config
from runner.config.users import check_servers
from runner.errors import ConfigError


def config(tmp_path: Path, url: str, **memory: Any) -> Config:
    settings = MemorySettings(remote_url=url, **{"server_holds_one_user": True, **memory})
    (tmp_path / "bob").mkdir()
    return Config(workspace_root=tmp_path, memory=settings)


@pytest.mark.parametrize(
    "theirs",
    [
        *(None, "https://memory.example.:443/", "libsql://MEMORY.example#bob"),
        "https://memory\u3002example",
    ],
)
@pytest.mark.parametrize("url", ["https://memory.example", "libsql://memory.example"])
def test_a_server_that_holds_one_user_is_not_given_to_two(
    tmp_path: Path, url: str, theirs: str | None
) -> None:
    made = config(tmp_path, url)
    if theirs is not None:
        bobs = UserSettings(memory=MemorySettings(remote_url=theirs))
        made = made.model_copy(update={"users": {"bob": bobs}})
    with pytest.raises(ConfigError, match="users alice and bob have the same") as raised:
        check_servers(made, "alice")
    assert "{user_id}" in raised.value.resolution


def test_servers_of_their_own_may_be(tmp_path: Path) -> None:
    check_servers(config(tmp_path, "https://{user_id}.memory.example"), "alice")


def test_nobody_is_asked_where_nothing_was_said_or_there_is_no_other(tmp_path: Path) -> None:
    made = config(tmp_path, "https://memory.example", server_holds_one_user=False)
    check_servers(made, "alice")
    check_servers(Config(workspace_root=tmp_path), "alice")
    said = MemorySettings(remote_url="https://memory.example", server_holds_one_user=True)
    check_servers(Config(workspace_root=tmp_path / "none", memory=said), "alice")
