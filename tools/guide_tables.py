"""What the guide has from the code: commands, settings, extras, images, probes, errors, presets,
directories, metrics.

`python tools/guide_tables.py` rewrites `docs/guide/commands.md` and the tables between marks in
other pages. In tables of settings it rewrites the key, the default and what is
accepted, in the order of the code, and keeps the last column: what a setting means is written
there by hand. A test refuses pages that differ.
"""

import json
import re
import time
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import man_page
import typer
from prometheus_client.parser import text_string_to_metric_families
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.core import TyperGroup
from wire.boundary import CHECKS
from wire.egress.rules import PRESETS
from wire.errors import Code
from wire.network_probe import WAYS
from wire.settings import (
    EgressCredentialSettings,
    McpServerSettings,
    TelemetrySettings,
    _accepted,
)
from wire.v1 import gateway_pb2

from guest.memory.transfer import format as transfer
from runner.access.exchange import STATUS_OF
from runner.cli.app import app
from runner.cli.chat.commands import COMMANDS as SLASH
from runner.cli.output import HIT, as_json
from runner.config.models import Config
from runner.images.naming import USUAL_ROLES, ImageRole
from runner.telemetry import Telemetry
from runner.tools.drafts import facts, presets
from runner.workspace.mounts import MOUNTS, Access, Role
from shell_daemon.probe.report import PROBES

ROOT = Path(__file__).resolve().parent.parent
GUIDE = ROOT / "docs" / "guide"
SETTINGS = "| key | default | accepted | meaning |\n|---|---|---|---|\n"
_MADE = "<!-- made by tools/guide_tables.py: {} -->"
_ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| (.*) \| ([^|]*) \|$", re.MULTILINE)
_TABLE = re.compile(re.escape(SETTINGS) + r"((?:\|.*\n)*)")
_LINE = re.compile(r"^\| `([\w-]+)` \|(?:.*\|)? ([^|]*) \|$", re.MULTILINE)
_SECTION = re.compile(r"^#+ (?:The top level|`\[([\w.]+)\]`)", re.MULTILINE)
_FORMAT: dict[str, type[BaseModel]] = {
    "header": transfer.Header,
    "note": transfer.NoteLine,
    "history": transfer.HistoryLine,
    "session": transfer.SessionLine,
    "event": transfer.EventLine,
    "end": transfer.End,
    "current": transfer.NoteContent,
    "version": transfer.Version,
    "origin": transfer.Origin,
    "state": transfer.State,
    "counts": transfer.Counts,
}
"""The kinds of lines of an export, and what is in them."""
_GUESTS = (Role.AGENT, Role.SHELL, Role.EGRESS, Role.SHELL_EGRESS)
_FREE = {"workspace_root": "your data directory", "runtime_dir": '`"auto"`'}
"""Defaults that depend on the machine."""


def pages() -> dict[Path, str]:
    """Each page with the tables as they must be."""
    read = {name: (GUIDE / f"{name}.md").read_text() for name in ("mcp-servers", "egress")}
    marked = [
        *(GUIDE / f"{name}.md" for name in ("reference", "chat", "memory-for-integrators")),
        *(GUIDE / f"{name}.md" for name in ("moving", "tiers", "observability", "add-tools")),
    ]
    return {
        GUIDE / "commands.md": _commands(),
        **{page: _marked(page.read_text()) for page in marked},
        GUIDE / "configuration.md": _configuration((GUIDE / "configuration.md").read_text()),
        GUIDE / "mcp-servers.md": settings_of(read["mcp-servers"], McpServerSettings),
        GUIDE / "egress.md": settings_of(read["egress"], EgressCredentialSettings),
    }


def _configuration(page: str) -> str:
    """Every section of the configuration file."""
    heads = list(_SECTION.finditer(page))
    ends = [head.start() for head in heads[1:]] + [len(page)]
    made = page[: heads[0].start()]
    for head, end in zip(heads, ends, strict=True):
        model: Any = Config
        for name in (head[1] or "").split("."):
            model = model.model_fields[name].annotation if name else model
        made += settings_of(page[head.start() : end], model)
    return made


def settings_of(text: str, model: type[BaseModel]) -> str:
    """`text` with the rows of its first table of settings made anew.

    Raises `SystemExit` for a setting without a row.
    """
    table = _TABLE.search(text)
    if table is None:
        return text
    words = {key: meaning for key, _, _, meaning in _ROW.findall(table[1])}
    rows = ""
    for key, field in model.model_fields.items():
        if _is_section(field) or key == "users":
            continue
        if not words.get(key, "").strip():
            raise SystemExit(f"docs/guide: add a row for `{key}` that says what it means")
        rows += f"| `{key}` | {_default(key, field)} | {_values(field)} | {words[key]} |\n"
    return text[: table.start(1)] + rows + text[table.end(1) :]


def _is_section(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def _default(key: str, field: FieldInfo) -> str:
    if key in _FREE:
        return _FREE[key]
    value = field.get_default(call_default_factory=True)
    if field.is_required() or (
        value is None and field.annotation is not None and key == "approval"
    ):
        return "–"
    plain = list(value) if isinstance(value, tuple) else "" if value is None else value
    return f"`{json.dumps(plain)}`"


def _values(field: FieldInfo) -> str:
    """What a setting accepts, as messages say it."""
    said = _accepted(field) or ("true or false" if field.annotation is bool else "text")
    said = re.sub(r" \([^)]{40,}\)| to 9223372036854775807", "", said).replace("|", r"\|")
    if said == "true or false":
        return "`true`, `false`"
    if said.startswith("one of "):
        return ", ".join(f"`{each}`" for each in said.removeprefix("one of ").split(", "))
    return said


def _marked(page: str) -> str:
    """The tables between marks that a page has. The last column of extras, images, metrics and the
    agent's probes is kept.

    Raises `SystemExit` for a name without words.
    """
    kept = dict(_LINE.findall(page))
    usual = {role: "always" if role in USUAL_ROLES else "with `--role`" for role in ImageRole}
    known = _words_of_codes()
    made: dict[str, tuple[tuple[str, ...], list[tuple[str, ...]]]] = {
        "extras": (("extra", "for"), [(name, "") for name in _extras()]),
        "images": (
            ("image", "built", "what"),
            [(f"oxydra-{each}", usual[each], "") for each in usual],
        ),
        "shell": (("probe", "what must hold"), [(name, _said(PROBES[name])) for name in CHECKS]),
        "agent": (("probe", "what is tried"), [(name, "") for name in WAYS]),
        "errors": (
            ("code", "HTTP", "meaning"),
            [(code.value, str(STATUS_OF[code]), known[code.name]) for code in Code],
        ),
        "chat": (("command", "what it does"), [(each.usage, each.help) for each in SLASH.values()]),
        "shapes": (("shape", "keys"), _shapes()),
        "format": (("part", "fields"), [(name, _fields(part)) for name, part in _FORMAT.items()]),
        "directories": (("directory", *_GUESTS), _directories()),
        "metrics": (("metric", "by", "what"), [(*each, "") for each in _metrics()]),
        "tools": (("preset", "what", "may reach", "keys", "its tools"), [*_tools()]),
        "presets": (("preset", "hosts"), [(name, ", ".join(PRESETS[name])) for name in PRESETS]),
    }
    for name, (head, rows) in made.items():
        begin, end = _MADE.format(name), _MADE.format(f"end of {name}")
        if begin not in page:
            continue
        before, _, rest = page.partition(begin)
        filled = [(f"`{row[0]}`", *row[1:-1], row[-1] or kept.get(row[0], "")) for row in rows]
        for row in filled:
            if not row[-1]:
                raise SystemExit(f"docs/guide: say in a row of {name} what {row[0]} is")
        page = f"{before}{begin}\n\n{_table(head, filled)}\n{end}{rest.partition(end)[2]}"
    return page


def _tools() -> Iterator[tuple[str, ...]]:
    """What each preset of tools adds."""
    for draft in presets():
        lines = draft.settings.get("mcp", {}).get("servers", {}).values()
        servers = [McpServerSettings.model_validate(_named(each)) for each in lines]
        said = [fact.partition(" ")[2] for each in servers for fact in facts(each)]
        yield (
            draft.name,
            draft.notes[0],
            next((each.removeprefix("reach ") for each in said if each.startswith("reach ")), "–"),
            ", ".join(f"`{key}`" for key in draft.keys) or "–",
            next(
                (each.removeprefix("tools: ") for each in said if each.startswith("tools: ")), "–"
            ),
        )


def _named(table: Any) -> Any:
    """`table` with names in the place of what is asked for."""
    return json.loads(re.sub(r"\$\{([\w-]+)\}", r"\1", json.dumps(table)))


def _fields(part: type[BaseModel]) -> str:
    return ", ".join(f"`{name}`" for name in part.model_fields if name != "kind")


def _shapes() -> list[tuple[str, ...]]:
    """What `--json` writes, by the name that the guide gives it."""
    change = as_json(gateway_pb2.Change())
    shapes = {
        "note": as_json(gateway_pb2.Note()),
        "hit": as_json(gateway_pb2.Note(), HIT),
        "change": change,
        "origin": change["origin"],
        "superseded": as_json(gateway_pb2.Note(superseded=True))["superseded"],
        "session": as_json(gateway_pb2.Session()),
        "event": as_json(gateway_pb2.HistoryEvent()),
        "receipt": as_json(gateway_pb2.MemoryReceipt()),
    }
    return [(name, ", ".join(f"`{key}`" for key in keys)) for name, keys in shapes.items()]


def _directories() -> list[tuple[str, ...]]:
    """Each directory of a workspace: where each guest sees it."""
    found: dict[str, dict[Role, str]] = {}
    for role, mounts in MOUNTS.items():
        for mount in mounts:
            only = "" if mount.access is Access.READ_WRITE else ", read only"
            found.setdefault(mount.directory, {})[role] = f"`{mount.virtual}`{only}"
    return [(name, *(seen.get(each, "–") for each in _GUESTS)) for name, seen in found.items()]


def _metrics() -> Iterator[tuple[str, str]]:
    """The name and the labels of each metric, as Prometheus reads them."""
    telemetry = Telemetry(
        TelemetrySettings(prometheus="127.0.0.1:9464"), "alice", "process", environ={}
    )
    telemetry.restarts = lambda: {"agent": 1}
    now = time.time_ns()
    steps = [
        gateway_pb2.Span(
            name=name,
            trace_id=b"x" * 16,
            span_id=b"x" * 8,
            start_unix_nano=now,
            end_unix_nano=now + 1,
        )
        for name in ("turn", "model", "tool", "memory", "shell")
    ]
    steps[1].counts["input_tokens"] = 1
    telemetry.take(gateway_pb2.SpanBatch(spans=steps, lost=1))
    telemetry.left("shell", "allowed")
    telemetry.moved("shell", 1, 1)
    for family in text_string_to_metric_families(telemetry.exposition()):
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {label for sample in family.samples for label in sample.labels}
        if name.startswith("oxydra_"):
            yield name, ", ".join(f"`{each}`" for each in sorted(labels - {"le", "oxydra_user"}))


def _extras() -> list[str]:
    text = (ROOT / "pyproject.toml").read_text()
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    return [name for name, packages in extras.items() if packages and name != "dev"]


def _words_of_codes() -> dict[str, str]:
    """What a code means where the text below it says so; the page has words for the others."""
    text = (ROOT / "proto" / "wire" / "errors.py").read_text()
    said = re.findall(
        r'^    ([A-Z_]+) = [^\n]*\n(?:    """(.*?)""")?', text, re.MULTILINE | re.DOTALL
    )
    return {name: _cell(words) for name, words in said}


def _said(thing: Any) -> str:
    return _cell((thing.__doc__ or "").split("\n\n")[0])


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _commands() -> str:
    """The page of commands, from their help."""
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    context = typer.Context(root, info_name="runner")
    lines = [
        _COMMANDS_HEAD,
        "## Options of every command\n",
        "They may stand before or behind the command.\n",
    ]
    lines += [_options(root.params, context), "## Commands\n"]
    for path, command, inner in man_page.commands(root, context):
        lines.append(f"### runner {' '.join((*path, *man_page.arguments(command)))}\n")
        lines.append(f"{' '.join((command.help or '').split())}\n")
        if options := _options(command.params, inner):
            lines.append(options)
    lines.append("## Exit codes\n")
    lines.append(_table(("code", "meaning"), man_page.EXIT_CODES.items()))
    lines.append("## Environment\n")
    lines.append(_table(("variable", "meaning"), man_page.ENVIRONMENT.items()))
    return "\n".join(lines).rstrip() + "\n"


_COMMANDS_HEAD = """\
# Commands

`runner` and `oxydra` are one program. `tools/guide_tables.py` makes this page from its help, as
`tools/man_page.py` makes `man runner`. After a clone the program is `.venv/bin/runner`;
`. .venv/bin/activate` puts it on your path.

Through a pipe a table has a row on each line and a tab between cells. Under a service manager use
`start` or `start --all` without `--detach`: SIGTERM is an ordinary end.
"""


def _options(params: list[Any], context: Any) -> str:
    rows = [
        (_cell(f"`{name}`"), _cell(meaning)) for name, meaning in man_page.options(params, context)
    ]
    return _table(("option", "meaning"), rows) if rows else ""


def _cell(text: str) -> str:
    return " ".join(text.replace("|", r"\|").split())


def _written() -> Iterator[str]:
    for path, text in pages().items():
        if path.read_text() != text:
            path.write_text(text)
            yield str(path.relative_to(ROOT))


if __name__ == "__main__":
    print("\n".join(_written()) or "nothing has changed")
