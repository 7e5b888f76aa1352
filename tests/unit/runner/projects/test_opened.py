"""What a request to open a project asks for, beside those that are known."""

from pathlib import Path
from typing import Any

import pytest
import typer
from wire.errors import Code, WireError
from wire.settings import ProjectSettings

from runner.cli.projects import folders_of, named
from runner.config.models import Config
from runner.host.projects import not_opened, wanted

API, DOCS = Path("/home/alice/api"), Path("/home/alice/docs")


def request(path: Path = API, **fields: Any) -> dict[str, Any]:
    return {"path": str(path), "name": "", "write": False, "hide": (), "lift": (), **fields}


def test_a_directory_has_its_own_name() -> None:
    name, settings = wanted(request(write=True, hide=[".env"]), {}, ())
    assert name == "api"
    assert settings == ProjectSettings(path=API, write=True, hide=(".env",))


def test_another_directory_of_the_same_name_gets_another_one() -> None:
    known = {"api": ProjectSettings(path=Path("/srv/api"))}
    assert wanted(request(), known, ()).name == "api-2"


def test_a_known_directory_keeps_its_name_and_gains_what_it_lacks() -> None:
    known = {"work": ProjectSettings(path=API, hide=(".env",), notes="project")}
    name, settings = wanted(request(write=True, hide=["key.pem"], lift=[".git"]), known, ())
    assert name == "work"
    assert settings == ProjectSettings(
        path=API, write=True, hide=(".env", "key.pem"), lift=(".git",), notes="project"
    )
    assert wanted(request(), {"work": settings}, ()) == ("work", settings)


@pytest.mark.parametrize(("opened", "fix"), [(("api",), "projects close api"), ((), "--name")])
def test_a_name_that_another_directory_has_is_refused(opened: tuple[str, ...], fix: str) -> None:
    with pytest.raises(WireError, match="/projects/api is /home/alice/docs") as refused:
        wanted(request(name="api"), {"api": ProjectSettings(path=DOCS)}, opened)
    assert refused.value.code is Code.ALREADY_EXISTS
    assert fix in refused.value.resolution


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"path": "api"}, "path: "),
        ({"path": "/a\0b"}, "path: "),
        ({"hide": ["../x"]}, "hide: is not a path below the project"),
        ({"lift": ["/x"]}, "lift: is not a path below the project"),
        ({"name": "a b"}, "projects: "),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(WireError) as refused:
        wanted({**request(), **fields}, {}, ())
    assert refused.value.code is Code.INVALID_ARGUMENT
    assert refused.value.brief.startswith(said)
    assert refused.value.details.startswith("accepted: ")


def test_at_most_sixteen_are_open() -> None:
    known = {f"p{n}": ProjectSettings(path=Path(f"/srv/{n}")) for n in range(16)}
    with pytest.raises(WireError, match="projects: "):
        wanted(request(), known, ())


def test_what_is_not_open_is_not_closed() -> None:
    refused = not_opened("other", ["docs"])
    assert (refused.code, refused.details) == (Code.NOT_FOUND, "open are: docs")


def test_folders_of_a_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    folders = folders_of(["link", "docs:ro"], [".env"])
    here, docs = folders
    assert here == ProjectSettings(path=tmp_path / "real", write=True, hide=(".env",))
    assert (docs.path, docs.write) == (tmp_path / "docs", False)
    assert [*named(folders, Config(), "default")] == ["real", "docs"]


def test_what_the_settings_hide_stays_hidden_in_a_host_that_starts() -> None:
    known = {"work": {"path": str(API), "hide": [".env"]}}
    config = Config.model_validate({"workspace": {"projects": known}})
    folders = (ProjectSettings(path=API, write=True, hide=("key.pem",)),)
    both = ProjectSettings(path=API, write=True, hide=(".env", "key.pem"))
    assert named(folders, config, "default") == {"work": both}


def test_what_belongs_to_a_directory_needs_one() -> None:
    with pytest.raises(typer.BadParameter, match="--with"):
        folders_of(None, hide=[".env"])
    with pytest.raises(typer.BadParameter, match="below"):
        folders_of(["."], hide=["../x"])
