"""Which tests run together, which in every run, and what is counted of them."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import long_run
import pytest
import size

from tests.conftest import parts

pytest_plugins = ["pytester"]


@pytest.fixture
def seen_by(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A directory of this run, for all of its processes."""
    own = tmp_path_factory.getbasetemp()
    place = (own if worker_id == "master" else own.parent) / "seen"
    place.mkdir(exist_ok=True)
    return place


@pytest.mark.xdist_group("seen")
@pytest.mark.parametrize("number", range(4))
def test_a_group_is_not_torn(number: int, seen_by: Path) -> None:
    (seen_by / str(os.getpid())).touch()
    assert [each.name for each in seen_by.iterdir()] == [str(os.getpid())]


def test_parts_are_about_the_same_size_and_hold_each_group_once() -> None:
    found = parts({"big": 50, **{f"file-{number}": 7 for number in range(20)}}, 3)

    assert sorted(name for part in found for name in part) == sorted(
        ["big", *(f"file-{number}" for number in range(20))]
    )
    assert [len(part) for part in found] == [3, 9, 9]
    assert found == parts({"big": 50, **{f"file-{number}": 7 for number in reversed(range(20))}}, 3)


def test_every_run_makes_an_attempt_in_containers_and_where_a_tiers_own_code_stops_it(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest("""
        import pytest
        from tests.support.tiers import every_tier, only_in_long_runs

        @pytest.fixture(params=every_tier("some"))
        def place(request):
            return request.param

        def pytest_collection_modifyitems(items):
            items[:] = [item for item in items if not only_in_long_runs(item)]
    """)
    pytester.makepyfile("""
        import pytest

        def test_of_the_agent(place): ...

        @pytest.mark.stopped_in("process")
        def test_of_bubblewrap(place): ...
    """)
    result = pytester.runpytest(
        "--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio"
    )
    assert [line.partition("::")[2] for line in result.outlines if "::" in line] == [
        "test_of_the_agent[container]",
        "test_of_bubblewrap[process]",
        "test_of_bubblewrap[container]",
    ]


@pytest.mark.parametrize(("workers", "killed"), [("1", 4), ("2", 10)])
def test_a_run_goes_on_when_a_worker_has_died_and_names_what_failed(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: str, killed: int
) -> None:
    """Either nobody else is there and much is left, or another worker, and one test besides what
    the dead one had finished."""
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        monkeypatch.delenv(name)  # this run may be a worker itself
    monkeypatch.setenv("PYTHONPATH", str(size.ROOT))
    pytester.makeconftest("""
        import os
        from pathlib import Path
        from tests.support.workers import WithWorkers

        def pytest_configure(config):
            if not hasattr(config, "workerinput"):
                config.pluginmanager.register(WithWorkers())

        def pytest_collection_finish(session):
            Path(os.environ.get("PYTEST_XDIST_WORKER", "all")).touch()
    """)
    pytester.makepyfile(f"""
        import os, signal, time
        from pathlib import Path
        import pytest

        @pytest.mark.parametrize("number", range(12))
        def test_one(number):
            worker = os.environ["PYTEST_XDIST_WORKER"]
            if worker == "gw0" and number == {killed}:
                os.kill(os.getpid(), signal.SIGKILL)
            while worker == "gw1" and not Path("gw{workers}").exists():
                time.sleep(0.02)
            assert number != 5
    """)
    options = ("-n", workers, "--dist", "loadgroup", "-p", "no:cacheprovider", "-p", "no:asyncio")
    result = pytester.runpytest_subprocess(*options, timeout=45)
    result.assert_outcomes(passed=10, failed=2)
    file = "FAILED test_a_run_goes_on_when_a_worker_has_died_and_names_what_failed.py"
    told = {line for line in result.outlines if line.startswith(file) and line.endswith(")")}
    assert told == {f"{file}::test_one[{killed}] (???)", f"{file}::test_one[5] (call)"}


STARTED: list[str] = []


@pytest.fixture(scope="session")
def place() -> Iterator[str]:
    STARTED.append("started")
    yield "guests"
    STARTED.append("ended")


@pytest.mark.xdist_group("first")
def test_what_a_group_shares_is_there(place: str) -> None:
    assert place == "guests"
    assert STARTED == ["started"]


@pytest.mark.xdist_group("second")
def test_what_a_group_shares_has_ended_after_its_last_test() -> None:
    assert STARTED in ([], ["started", "ended"])  # another process may have had the other group


def test_a_long_run_counts_what_a_report_says() -> None:
    report = """<testsuites><testsuite tests="9" failures="1" errors="2" skipped="3"/>
      <testsuite tests="1" failures="0" errors="0" skipped="0"/></testsuites>"""
    assert long_run.counts(report) == (4, 3, 3)


@pytest.mark.parametrize(("code", "rows"), [(0, 1), (1, 1), (2, 0), (4, 0)])
def test_a_part_that_did_not_run_whole_gets_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, rows: int
) -> None:
    (page := tmp_path / "page.md").touch()
    monkeypatch.setattr(long_run, "PAGE", page)
    monkeypatch.setattr(long_run, "commit", lambda: "abc")
    done: subprocess.CompletedProcess[str] = subprocess.CompletedProcess([], code)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    assert long_run.run("1/6", []) == code
    assert len(page.read_text().splitlines()) == rows


def test_lines_are_counted_without_generated_code_and_the_cluster_apart(tmp_path: Path) -> None:
    for name, text in {
        "runner/a.py": "1\n2\n",
        "runner/tiers/kubernetes/b.py": "1\n",
        "proto/wire/v1/c_pb2.py": "1\n" * 99,
        "guest/d.txt": "1\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    assert size.lines("product", tmp_path) == 2
    assert size.lines("kubernetes", tmp_path) == 1
