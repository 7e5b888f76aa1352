"""`make faults`, or `python -m tests.faults`: thousands of faults, and a table of what they did."""

import argparse
import random
import sys

from tests.faults.running import run, table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5000, help="of all faults together")
    parser.add_argument("--only", default="", help="faults whose name or store holds this")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    tallies = run(arguments.rounds, arguments.seed, only=arguments.only)
    print(table(tallies))
    wrong = [f"{fault.name}, {fault.store}: {s}" for fault, t in tallies.items() for s in t.wrong]
    print(*wrong[:100], sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
