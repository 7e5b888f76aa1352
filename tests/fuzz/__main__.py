"""`make fuzz`, or `python -m tests.fuzz`: inputs that nobody has thought of, and a table."""

import argparse
import random
import sys
from pathlib import Path

from tests.fuzz import fuzzing


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=20_000, help="of all targets together")
    parser.add_argument("--only", default="", help="targets whose name holds this")
    parser.add_argument("--seed", type=int, default=random.randrange(2**31))
    parser.add_argument("--found", type=Path, default=fuzzing.FOUND, help="where findings go")
    parser.add_argument("--one", type=Path, help="try this one input, in a folder of its target")
    parser.add_argument("--seeds", action="store_true", help="write the seeds into the corpus")
    arguments = parser.parse_args()
    if arguments.seeds:
        return _write_seeds()
    if arguments.one is not None:
        return _again(arguments.one.absolute())
    print(f"seed {arguments.seed}\n{fuzzing.HEAD}", flush=True)
    failures = []
    for outcome in fuzzing.fuzz(
        arguments.inputs, arguments.seed, only=arguments.only, found=arguments.found.absolute()
    ):
        print(fuzzing.row(outcome), flush=True)
        failures += outcome.failures
    for failure in failures:
        print(f"\n{failure.path}: {failure.what}\n  {failure.again}")
    return 1 if failures else 0


def _again(path: Path) -> int:
    (target,) = (each for each in fuzzing.catalogue() if each.name == path.parent.name)
    fuzzing.replay(target, [path])
    print(f"{path.name}: nothing is wrong with it")
    return 0


def _write_seeds() -> int:
    for target in fuzzing.catalogue():
        folder = fuzzing.CORPUS / target.name
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in target.seeds().items():
            (folder / name).write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
