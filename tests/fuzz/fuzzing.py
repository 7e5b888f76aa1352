"""Runs targets under Atheris, Python's libFuzzer, each in a process of its own.

libFuzzer mutates inputs and keeps those that reach code that none before has reached. The product's
modules are instrumented for that while they are imported.
"""

import importlib
import logging
import os
import re
import shutil
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Final, NoReturn

from tests.fuzz.material import OneInput, Target
from tests.support.scratch import SCRATCH

ROOT: Final = Path(__file__).resolve().parents[2]
CORPUS: Final = Path(__file__).parent / "corpus"
FOUND: Final = ROOT / ".fuzz"
"""Where a run keeps what it finds; git does not."""

_PRODUCT: Final = ("guest", "runner", "shell_daemon", "wire")
_CATALOGUE: Final = "tests.fuzz.catalogue"
_SLOW_S: Final = 300
_MEMORY_MB: Final = 4096
_UNITS: Final = re.compile(r"^stat::number_of_executed_units: (\d+)|^#(\d+)\t", re.MULTILINE)
_FAILURES_MAX: Final = 50


@dataclass(frozen=True)
class Failure:
    """An input that fails, in a file, and what is wrong with it."""

    path: Path
    what: str

    @property
    def again(self) -> str:
        """The command that tries this input again."""
        path = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f'make fuzz ARGS="--one {path}"'


@dataclass(frozen=True)
class Outcome:
    """What fuzzing one target came to; `new` inputs were found worth to be kept."""

    name: str
    inputs: int
    seconds: float
    new: int
    failures: list[Failure]


def catalogue() -> Sequence[Target]:
    """All targets. Their modules, and the product's, are imported only here."""
    targets: Sequence[Target] = importlib.import_module(_CATALOGUE).CATALOGUE
    return targets


def replay(target: Target, paths: Sequence[Path]) -> None:
    """Try inputs again; raises what the first that fails raises."""
    with (
        tempfile.TemporaryDirectory(dir=SCRATCH) as scratch,
        target.open(Path(scratch)) as one_input,
    ):
        for path in paths:
            try:
                one_input(path.read_bytes())
            except Exception as error:
                error.add_note(f"the input is {path}")
                raise


def fuzz(inputs: int, seed: int, *, only: str = "", found: Path = FOUND) -> Iterator[Outcome]:
    """Spread `inputs` over the targets whose name holds `only`, by their shares.

    New inputs are kept in `found`/corpus, and tried first the next time; what fails in
    `found`/failures.
    """
    import atheris  # slow, and not for every platform

    with redirect_stderr(StringIO()), atheris.instrument_imports(include=_PRODUCT):
        targets = [target for target in catalogue() if only in target.name]
    shares = sum(target.share for target in targets)
    for target in targets:
        count = -(-inputs * target.share // shares)
        with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
            yield _fuzzed(_Run(target, count, seed, found, Path(scratch)))


@dataclass(frozen=True)
class _Run:
    target: Target
    inputs: int
    seed: int
    found: Path
    scratch: Path

    @property
    def new(self) -> Path:
        return self.found / "corpus" / self.target.name

    @property
    def failures(self) -> Path:
        return self.found / "failures" / self.target.name

    @property
    def log(self) -> Path:
        return self.scratch / "fuzzer.log"

    def options(self) -> Mapping[str, object]:
        return {
            "runs": self.inputs,
            "seed": self.seed % 2**31 + 1,  # 0 would mean any
            "max_len": self.target.longest,
            "timeout": _SLOW_S,
            "report_slow_units": _SLOW_S,
            "rss_limit_mb": _MEMORY_MB,
            "artifact_prefix": f"{self.failures}/",
            "print_final_stats": 1,
        }


def _fuzzed(run: _Run) -> Outcome:
    for directory in (run.new, run.failures, run.scratch / "target"):
        directory.mkdir(parents=True, exist_ok=True)
    known = set(run.new.iterdir())
    before = {path: path.stat().st_mtime_ns for path in run.failures.iterdir()}
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _become_fuzzer(run)
    _, status = os.waitpid(child, 0)
    seconds = time.monotonic() - began
    log = run.log.read_text(errors="replace")
    failed = [
        Failure(path, _what(path))
        for path in sorted(run.failures.iterdir())
        if path.suffix != ".txt" and before.get(path) != path.stat().st_mtime_ns
    ]
    if status and not failed:
        shutil.copy(run.log, run.failures / "ended.log")
        failed.append(Failure(run.failures / "ended.log", f"ended with status {status}"))
    counts = [int(units or number) for units, number in _UNITS.findall(log)]
    new = len(set(run.new.iterdir()) - known)
    return Outcome(run.target.name, max(counts, default=0), seconds, new, failed)


def _what(path: Path) -> str:
    """What is wrong with a failing input; libFuzzer's own findings have it in their name."""
    told = path.with_suffix(".txt")
    return told.read_text().splitlines()[-1] if told.exists() else path.name.partition("-")[0]


def _become_fuzzer(run: _Run) -> NoReturn:
    import atheris

    status = 1
    try:
        with run.log.open("wb") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        logging.disable(logging.CRITICAL)
        with run.target.open(run.scratch / "target") as one_input:
            options = [f"-{name}={value}" for name, value in run.options().items()]
            corpora = [str(run.new), str(CORPUS / run.target.name)]
            atheris.Setup(["fuzz", *options, *corpora], _Finder(one_input, run.failures))
            atheris.Fuzz()  # ends the process
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


@dataclass
class _Finder:
    """Tries inputs and goes on after failures. Of those at one place in the code it keeps one."""

    one_input: OneInput
    failures: Path
    places: set[str] = field(default_factory=set)

    def __call__(self, data: bytes) -> None:
        try:
            self.one_input(data)
        except Exception as error:
            place = _place(error)
            if place in self.places or len(self.places) >= _FAILURES_MAX:
                return
            self.places.add(place)
            path = self.failures / sha256(data).hexdigest()[:16]
            path.with_suffix(".txt").write_text(
                "".join(traceback.format_exception(error)), errors="backslashreplace"
            )
            path.write_bytes(data)


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(str(ROOT))]
    last = (ours or frames)[-1]
    return f"{type(error).__name__} {last.filename}:{last.lineno}"


HEAD: Final = (
    "| target | inputs | inputs/s | new corpus entries | failures |\n|---|---:|---:|---:|---:|"
)


def row(outcome: Outcome) -> str:
    """A row of the table that `HEAD` begins."""
    speed = outcome.inputs / max(outcome.seconds, 0.001)
    figures = (outcome.inputs, round(speed), outcome.new, len(outcome.failures))
    return f"| {outcome.name} | {' | '.join(f'{figure:,}' for figure in figures)} |"
