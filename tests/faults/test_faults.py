"""More than 500 faults on both stores: nothing lost, nothing half-made, nothing claimed."""

import random

import pytest

from tests.faults.running import run, table

ROUNDS = 500


@pytest.mark.sqld
def test_no_fault_loses_halves_doubles_or_claims_anything(
    capsys: pytest.CaptureFixture[str], chance: random.Random
) -> None:
    """`make faults` makes thousands; the seed only chooses, the moments are chance."""
    tallies = run(ROUNDS, chance.getrandbits(32))
    with capsys.disabled():
        print(f"\n{table(tallies)}")
    wrong = [f"{fault.name}, {fault.store}: {s}" for fault, t in tallies.items() for s in t.wrong]
    assert wrong == []
    assert sum(tally.rounds for tally in tallies.values()) >= ROUNDS
    for fault, tally in tallies.items():
        assert tally.interrupted > 0 or "killed" not in fault.name or "emb" in fault.name, fault
    assert sum(tally.acknowledged for tally in tallies.values()) > ROUNDS
