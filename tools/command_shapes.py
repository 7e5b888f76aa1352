"""What the commands show of each thing, frozen: the cells of tables, and the keys of `--json`.

`python tools/command_shapes.py` rewrites `tests/contract/commands.json`. Run it only for a change
that was decided: a shape may get new keys and never loses one. Reviewers look at the diff.
"""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, get_type_hints

from google.protobuf.message import Message
from wire.v1 import control_pb2, egress_pb2, gateway_pb2

from runner.audit.calls import Call
from runner.cli import approvals, notices, projects, schedules, skills, turns
from runner.cli.memory import output as memory
from runner.cli.operation import audit, credentials, doctor, egress, status, users
from runner.cli.output import HIT, SHAPES, SIMILAR, Shape, as_json, session_shape
from runner.cli.setup import config, upgrade
from runner.doctor.finding import Finding, State
from runner.egress.log import Request
from runner.workspace.skills import Skill

ROOT: Final = Path(__file__).resolve().parent.parent
SNAPSHOT: Final = ROOT / "tests" / "contract" / "commands.json"

LISTS: Final[dict[str, tuple[Shape[Any], Any]]] = {
    "approvals": (approvals.GRANTS, gateway_pb2.Grant),
    "access keys": (egress.KEYS, egress_pb2.EgressCredential),
    "checks": (doctor.CHECKS, control_pb2.BoundaryCheck),
    "calls": (audit.CALLS, Call),
    "changes": (memory.CHANGES, gateway_pb2.Change),
    "credentials": (credentials.KEYS, control_pb2.Credential),
    "egress counts": (egress.COUNTS, egress_pb2.EgressCount),
    "egress rules": (egress.RULES, egress.PolicyLine),
    "findings": (doctor.FINDINGS, Finding),
    "guests": (status.GUESTS, control_pb2.GuestStatus),
    "hits": (memory.HITS, gateway_pb2.Note),
    "notes": (memory.NOTES, gateway_pb2.Note),
    "notices": (notices.NOTICES, gateway_pb2.StoredNotice),
    "projects": (projects.PROJECTS, control_pb2.OpenedProject),
    "requests": (egress.REQUESTS, Request),
    "schedule runs": (schedules.RUNS, gateway_pb2.ScheduleRun),
    "schedules": (schedules.SCHEDULES, gateway_pb2.Schedule),
    "sessions": (session_shape("session_id"), gateway_pb2.Session),
    "settings": (config.SETTINGS, config.Setting),
    "skills": (skills.SKILLS, Skill),
    "turns": (turns.TURNS, gateway_pb2.Turn),
    "users": (users.USERS, users.User),
    "versions": (upgrade.VERSIONS, upgrade.Installed),
}


def current() -> dict[str, Any]:
    """Each shape of something with a value of its own in every field, and of an empty message."""
    shown: dict[str, Any] = {}
    for name, (shape, kind) in LISTS.items():
        item = _filled(kind)
        cells = dict(zip(shape.columns, map(str, shape.row(item)), strict=True))
        shown[name] = {"columns": cells, "json": shape.as_json(item)}
    for kind in (*SHAPES, gateway_pb2.MemoryStatisticsReply):
        shown[kind.__name__] = {"json": as_json(_filled(kind)), "empty": as_json(kind())}
    for name, keys in (("hit", HIT), ("similar", SIMILAR)):
        note = _filled(gateway_pb2.Note)
        shown[name] = {"json": as_json(note, keys), "empty": as_json(gateway_pb2.Note(), keys)}
    return shown


def _filled(kind: Any) -> Any:
    """A message or an object of a dataclass whose texts are the names of their fields, and whose
    numbers are those of theirs."""
    if not issubclass(kind, Message):
        hints = get_type_hints(kind)
        names = [each.name for each in fields(kind)]
        return kind(**{name: _value(hints[name], name, at) for at, name in enumerate(names, 1)})
    made = kind()
    for field in kind.DESCRIPTOR.fields:
        if field.message_type is not None:
            value: Any = _filled(field.message_type._concrete_class)
        else:
            value = _value(type(field.default_value), field.name, field.number)
        if field.is_repeated:
            value = [value if field.message_type else _value(str, field.name, field.number)]
            getattr(made, field.name).extend(value)
        elif field.message_type is not None:
            getattr(made, field.name).CopyFrom(value)
        else:
            setattr(made, field.name, value)
    return made


def _value(hint: Any, name: str, number: int) -> Any:
    simple = {bool: True, int: number, float: number + 0.5, State: State.WARNING}
    if hint in simple:
        return simple[hint]
    return (name,) if hint == tuple[str, ...] else name


if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps(current(), indent=1) + "\n")
    print(f"{len(current())} shapes frozen in {SNAPSHOT.relative_to(ROOT)}")
