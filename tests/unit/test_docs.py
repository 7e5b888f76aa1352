"""What the documentation points at exists: tests, links, settings and their defaults."""

import ast
import json
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest
from pydantic import BaseModel
from typer import Context
from typer.core import TyperGroup
from typer.main import get_command
from wire.settings import EgressCredentialSettings, McpServerSettings, UserSettings

from runner.cli.app import app
from runner.cli.options import VALUED
from runner.config.models import Config
from runner.images.bootstrap import BASE_NAME
from runner.images.naming import ImageRole, image_name
from tests.support.settings import load_config

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
CONFIGURATION = ROOT / "docs" / "guide" / "configuration.md"
THREAT_MODEL = ROOT / "docs" / "threat-model.md"

_ROOM = re.compile(r"`((?:guest|runner|shell_daemon|proto|docs|tests|tools)/[\w/.<>]*)`")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_TEST = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+))?")
_COMMAND = re.compile(r"(?:^|[`$] ?)runner ((?:[^`\n#|;&<>(…])+)", re.MULTILINE)
_SETTING = re.compile(r"`\[([\w.<>]+)\] (\w+)`")
_SECTION = re.compile(r"^#+ (?:The top level|`\[([\w.]+)\]`)", re.MULTILINE)
_ROW = re.compile(r"^\| `(\w+)` \| `?(.*?)`? \|", re.MULTILINE)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text())


@cache
def functions_of(path: Path) -> frozenset[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(node.name for node in nodes if isinstance(node, kinds))


@cache
def anchors_of(page: Path) -> frozenset[str]:
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return frozenset(heading.strip().replace(" ", "-") for heading in plain)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target in _LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        assert linked.exists(), f"{name(page)}: {target}"
        if anchor:
            assert anchor in anchors_of(linked), f"{name(page)}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_test_that_is_named_exists(page: Path) -> None:
    for file, function in _TEST.findall(page.read_text()):
        assert (ROOT / file).is_file(), f"{name(page)}: {file}"
        if function:
            assert function in functions_of(ROOT / file), f"{name(page)}: {file}::{function}"


def test_every_claim_of_the_threat_model_names_the_test_that_holds_it() -> None:
    rows = [line for line in THREAT_MODEL.read_text().splitlines() if line.startswith("| ")]
    claims = [row for row in rows if not row.startswith(("| claim", "| --"))]
    assert len(claims) > 15
    for claim in claims:
        assert any(function for _, function in _TEST.findall(claim)), claim


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_file_and_folder_of_the_project_that_is_named_exists(page: Path) -> None:
    for path in _ROOM.findall(page.read_text()):
        place = path.partition("<")[0]
        assert (ROOT / place).exists(), f"{name(page)}: {path}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_table_is_torn(page: Path) -> None:
    """A row after an empty line is the head of a table of its own."""
    lines = prose(page).splitlines()
    for before, line, after in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
        if line.startswith("|") and not before.startswith("|"):
            assert re.match(r"\|\s*:?-", after), f"{name(page)}: {line}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_that_is_named_exists(page: Path) -> None:
    for line in _COMMAND.findall(page.read_text()):
        command, known = get_command(app), {"-h", "--help", "-", "--"}
        words = iter(line.split())
        for word in words:
            known |= {option for each in command.params for option in each.opts}
            option = word.split("=")[0]
            if word.startswith("-"):
                assert option in known, f"{name(page)}: runner {line}"
                if word in VALUED:
                    next(words)
            elif isinstance(command, TyperGroup):
                found = command.get_command(Context(command), word)
                assert found is not None, f"{name(page)}: runner {line}"
                command = found


def asking(group: TyperGroup, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command that asks before it acts."""
    context = Context(group)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        if isinstance(command, TyperGroup):
            yield from asking(command, (*path, word))
        elif command is not None and any("--yes" in each.opts for each in command.params):
            yield " ".join((*path, word))


def test_the_guide_says_of_every_command_that_asks_that_it_does() -> None:
    """And how it is told not to: in the paragraph, or the row of a table, that names it."""
    guide = "\n\n".join(prose(page) for page in (ROOT / "docs" / "guide").glob("*.md"))
    places = [row for part in guide.split("\n\n") for row in re.split(r"\n(?=\|)", part)]
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    commands = list(asking(group))
    assert "memory undo" in commands
    for command in commands:
        told = [each for each in places if f"`runner {command}" in each and "`--yes`" in each]
        assert any(re.search(r"\basks\b", each) for each in told), command


def test_removing_it_leaves_neither_images_nor_configuration_nor_data() -> None:
    text = (ROOT / "docs" / "guide" / "your-data.md").read_text()
    section = text.partition("## Removing it\n")[2]
    pattern = re.search(r"reference=([^']+)'", section)
    assert pattern is not None
    names = [image_name(Config().container.images, role) for role in ImageRole] + [BASE_NAME]
    assert [each for each in names if not fnmatch(each, f"{pattern[1]}:*")] == []
    unit = (ROOT / "deploy" / "systemd" / "oxydra.service").read_text()
    installed = re.findall(r"(?:/etc|/opt)/[\w/.]*?oxydra(?:\.service)?", unit)
    assert [each for each in installed if each not in section] == []
    for place in ("~/.config/oxydra/runner.toml", "workspaces", "runtime directory", "/var/lib"):
        assert place in section


def test_settings_that_are_shown_whole_are_accepted() -> None:
    for file in sorted((ROOT / "deploy").glob("*.toml")):
        load_config(file, environ={})


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_nothing_is_installed_from_an_index_that_does_not_have_it(page: Path) -> None:
    found = re.findall(r"\b(?:pip|uv tool) install[^\n]*?['\" ]oxydra\b", page.read_text())
    assert found == []


def test_the_index_lists_every_design_record() -> None:
    design = ROOT / "docs" / "design"
    records = {page.name for page in design.glob("2*.md")}
    assert set(_LINK.findall((design / "README.md").read_text())) == records


def documented() -> dict[tuple[str, ...], str]:
    """Every documented key with what its table gives as the default."""
    text = CONFIGURATION.read_text()
    headings = list(_SECTION.finditer(text))
    ends = [*(heading.start() for heading in headings[1:]), len(text)]
    found: dict[tuple[str, ...], str] = {}
    for heading, end in zip(headings, ends, strict=True):
        section = tuple(heading[1].split(".")) if heading[1] else ()
        for key, default in _ROW.findall(text[heading.end() : end]):
            found[*section, key] = default
    return found


def settings(model: type[BaseModel]) -> Iterator[tuple[tuple[str, ...], object]]:
    for key, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            for inner, default in settings(field.annotation):
                yield (key, *inner), default
        elif key != "users":
            yield (key,), field.get_default(call_default_factory=True)


def test_every_setting_is_documented_and_every_documented_setting_exists() -> None:
    assert set(documented()) == {key for key, _ in settings(Config)}


def keys_and_defaults(model: type[BaseModel]) -> set[tuple[str, str]]:
    """As tables show them."""
    defaults = {
        key: None if field.is_required() else field.get_default(call_default_factory=True)
        for key, field in model.model_fields.items()
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel))
    }
    return {
        (key, "–" if default is None else json.dumps(default)) for key, default in defaults.items()
    }


def test_the_settings_of_an_mcp_server_are_those_that_are_documented() -> None:
    page = (ROOT / "docs" / "guide" / "mcp-servers.md").read_text()
    assert set(_ROW.findall(page)) == keys_and_defaults(McpServerSettings)


def test_the_settings_of_a_credential_are_those_that_are_documented() -> None:
    page = (ROOT / "docs" / "guide" / "egress.md").read_text()
    _, _, chapter = page.partition("### Settings of a credential\n")
    table, _, _ = chapter.partition("\n#")
    assert set(_ROW.findall(table)) == keys_and_defaults(EgressCredentialSettings)


def test_documented_defaults_are_the_defaults() -> None:
    shown = documented()
    for key, default in settings(Config):
        if key in (("workspace_root",), ("runtime_dir",)):
            continue
        written = "" if default is None else default
        toml = json.dumps(list(written) if isinstance(written, tuple) else written)
        assert shown[key] == toml, key


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_setting_that_prose_mentions_exists(page: Path) -> None:
    general = {".".join(key) for key, _ in settings(Config)}
    personal = {".".join(key) for key, _ in settings(UserSettings)}
    for section, key in _SETTING.findall(page.read_text()):
        user = re.fullmatch(r"users\.[\w<>]+\.(\w+)", section)
        known = f"{user[1]}.{key}" in personal if user else f"{section}.{key}" in general
        assert known, f"{name(page)}: [{section}] {key}"
