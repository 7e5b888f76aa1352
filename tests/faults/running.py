"""All faults side by side, and the table of what they did."""

import random
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from wire.errors import WireError

from tests.faults.faults import CATALOGUE, Fault, Lane
from tests.faults.ledger import Tally
from tests.faults.stores import opened

_SIDE_BY_SIDE: Final = 4
_COLUMNS: Final = (
    "rounds",
    "interrupted",
    "acknowledged",
    "lost",
    "half_made",
    "false_successes",
    "false_failures",
    "doubles",
    "damaged",
)
_HEAD: Final = (
    "| fault | store | rounds | interrupted | acknowledged | lost | half-made | false successes "
    "| false failures | double | damaged |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)


def run(rounds: int, seed: int, *, only: str = "") -> dict[Fault, Tally]:
    """So many rounds in all of the faults whose name or store holds `only`."""
    faults = [fault for fault in CATALOGUE if only in f"{fault.name} {fault.store}"]
    weights = sum(fault.weight for fault in faults)
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as lanes:
        running = {
            fault: lanes.submit(_run, fault, -(-rounds * fault.weight // weights), f"{seed} {n}")
            for n, fault in enumerate(faults)
        }
        return {fault: lane.result() for fault, lane in running.items()}


def _run(fault: Fault, rounds: int, seed: str) -> Tally:
    with opened(fault.store) as stores:
        lane = Lane(stores, rounds, random.Random(seed))
        try:
            fault.make(lane)
        except (AssertionError, TimeoutError, WireError):
            lane.tally.wrong.append(f"given up: {traceback.format_exc()}")
    return lane.tally


def table(tallies: dict[Fault, Tally]) -> str:
    """A row for each fault, and one for all."""
    rows = [_row(fault.name, fault.store, [tally]) for fault, tally in tallies.items()]
    return "\n".join([_HEAD, *rows, _row("all", "", list(tallies.values()))])


def _row(name: str, store: str, tallies: list[Tally]) -> str:
    figures = (sum(getattr(tally, column) for tally in tallies) for column in _COLUMNS)
    return f"| {name} | {store} | {' | '.join(f'{figure:,}' for figure in figures)} |"
