"""The contract only grows, and the generated code is what the sources say."""

import json
from pathlib import Path

import contract_snapshot
import generate_proto
import pytest
import settings_snapshot

ROOT = Path(__file__).resolve().parents[2]


def test_nothing_frozen_is_gone_or_changed() -> None:
    frozen = json.loads(contract_snapshot.SNAPSHOT.read_text())
    assert contract_snapshot.broken_promises(frozen, contract_snapshot.current()) == []


def test_everything_present_is_frozen() -> None:
    frozen = json.loads(contract_snapshot.SNAPSHOT.read_text())
    new = set(contract_snapshot.current()) - set(frozen)
    assert not new, "freeze additions with: .venv/bin/python tools/contract_snapshot.py"


def test_the_schema_of_settings_is_the_frozen_one() -> None:
    frozen = json.loads(settings_snapshot.SNAPSHOT.read_text())
    assert settings_snapshot.current() == frozen, (
        "after a change that was decided: .venv/bin/python tools/settings_snapshot.py"
    )


@pytest.mark.parametrize(
    ("now", "broken"),
    [
        ({"a.B.c": "single type9 = 1"}, 0),
        ({"a.B.c": "single type9 = 1", "a.B.d": "single type9 = 2"}, 0),
        ({"a.B.c": "single type9 = 2"}, 1),
        ({"a.B.c": "repeated type9 = 1"}, 1),
        ({}, 1),
    ],
)
def test_only_additions_pass(now: dict[str, str], broken: int) -> None:
    frozen = {"a.B.c": "single type9 = 1"}
    assert len(contract_snapshot.broken_promises(frozen, now)) == broken


def test_generated_code_is_fresh(tmp_path: Path) -> None:
    generate_proto.generate(tmp_path)
    generated = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.py*")}
    assert len(generated) >= 24
    for path in sorted(generated):
        assert (ROOT / "proto" / path).read_text() == (tmp_path / path).read_text(), (
            f"proto/{path} is stale: run `make proto`"
        )
