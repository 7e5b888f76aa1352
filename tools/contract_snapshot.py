"""The frozen wire contract: what every released peer may rely on.

`python tools/contract_snapshot.py` adds new entries to `tests/contract/wire_v1.json`. It refuses to
drop or change frozen ones: that needs a new generation of the contract (`wire.v2`).
"""

import importlib
import json
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FileDescriptor

ROOT = Path(__file__).resolve().parent.parent
SNAPSHOT = ROOT / "tests" / "contract" / "wire_v1.json"


def current() -> dict[str, str]:
    """Every field, method and enum value of the contract, flat: name to shape."""
    entries: dict[str, str] = {}
    for source in sorted((ROOT / "proto" / "wire" / "v1").glob("*.proto")):
        module: Any = importlib.import_module(f"wire.v1.{source.stem}_pb2")
        entries.update(_file(module.DESCRIPTOR))
    return dict(sorted(entries.items()))


def _file(file: FileDescriptor) -> dict[str, str]:
    entries: dict[str, str] = {}
    for message in file.message_types_by_name.values():
        entries[message.full_name] = "message"
        for field in message.fields:
            kind = field.message_type or field.enum_type
            entries[f"{message.full_name}.{field.name}"] = " ".join(
                [
                    "repeated" if field.is_repeated else "single",
                    kind.full_name if kind else f"type{field.type}",
                    f"= {field.number}",
                    f"oneof {field.containing_oneof.name}" if field.containing_oneof else "",
                ]
            ).strip()
    for enum in file.enum_types_by_name.values():
        for value in enum.values:
            entries[f"{enum.full_name}.{value.name}"] = f"= {value.number}"
    for service in file.services_by_name.values():
        for method in service.methods:
            entries[f"{service.full_name}/{method.name}"] = " ".join(
                [
                    "stream" if method.client_streaming else "one",
                    method.input_type.full_name,
                    "->",
                    "stream" if method.server_streaming else "one",
                    method.output_type.full_name,
                ]
            )
    return entries


def broken_promises(frozen: dict[str, str], now: dict[str, str]) -> list[str]:
    """The frozen entries that the present contract lacks or has changed."""
    return [
        f"{name}: frozen as {shape!r}, now {now.get(name, 'gone')!r}"
        for name, shape in frozen.items()
        if now.get(name) != shape
    ]


def main() -> None:
    now = current()
    frozen = json.loads(SNAPSHOT.read_text()) if SNAPSHOT.exists() else {}
    if broken := broken_promises(frozen, now):
        raise SystemExit("frozen entries cannot change:\n" + "\n".join(broken))
    SNAPSHOT.write_text(json.dumps(now, indent=1) + "\n")
    print(f"{SNAPSHOT.relative_to(ROOT)}: {len(now)} entries, {len(now) - len(frozen)} new")


if __name__ == "__main__":
    main()
