"""4,000 inputs over all targets, and every input of the corpus."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import fuzzing
from tests.fuzz.catalogue import CATALOGUE
from tests.fuzz.material import Target
from tests.support.examples import SEED

INPUTS = 4_000
NAMES = [target.name for target in CATALOGUE]
_ROW = re.compile(r"^\| (\w+) \| ([\d,]+) \|", re.MULTILINE)


@pytest.mark.fuzzer
@pytest.mark.timeout(1200)
def test_no_input_finds_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`make fuzz` tries more, and what it finds becomes a part of the corpus."""
    arguments = ("--inputs", str(INPUTS), "--seed", str(SEED), "--found", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *arguments],
        cwd=fuzzing.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    with capsys.disabled():
        print(f"\n{done.stdout}")
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    tried = {name: int(count.replace(",", "")) for name, count in _ROW.findall(done.stdout)}
    assert list(tried) == NAMES
    assert sum(tried.values()) >= INPUTS


@pytest.mark.parametrize("target", CATALOGUE, ids=NAMES)
def test_every_input_of_the_corpus_is_borne(target: Target) -> None:
    corpus = sorted((fuzzing.CORPUS / target.name).iterdir())
    assert len(corpus) >= 10
    fuzzing.replay(target, corpus)


@pytest.mark.parametrize("target", CATALOGUE, ids=NAMES)
def test_seeds_are_in_the_corpus(target: Target) -> None:
    """After a change of a target: `make fuzz ARGS=--seeds`."""
    folder = fuzzing.CORPUS / target.name
    for name, data in target.seeds().items():
        assert (folder / name).read_bytes() == data, name


def test_the_corpus_is_small() -> None:
    sizes = [path.stat().st_size for path in fuzzing.CORPUS.rglob("*") if path.is_file()]
    assert sum(sizes) < 2**20
