"""What every test stands on: some need a right or a part that this machine may lack."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

import pytest
from _pytest.fixtures import SubRequest
from hypothesis import HealthCheck, Phase, settings

from tests.support.examples import SEED
from tests.support.kubernetes.control_plane import PROGRAMS
from tests.support.kubernetes.fixtures import cluster, namespace  # noqa: F401 - for all tests
from tests.support.scratch import SCRATCH
from tests.support.servers import llama, sqld
from tests.support.tiers import only_in_long_runs

os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"
"""No test opens the keyring of whoever runs it."""

REQUIRED = frozenset(filter(None, os.environ.get("TESTS_REQUIRE", "").split(",")))


def _is_root() -> str:
    return "" if os.geteuid() == 0 else "this is not root"


@cache
def _has_bubblewrap() -> str:
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed"
    command = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"bubblewrap does not work here: {tried.stderr}"


@cache
def _has_docker() -> str:
    if shutil.which("docker") is None:
        return "no docker command"
    tried = subprocess.run(["docker", "info"], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"no engine answers: {tried.stderr[-300:]}"


@cache
def _has_runtime(name: str, way: str) -> str:
    if lacking := _has_docker():
        return lacking
    command = ["docker", "info", "--format", "{{json .Runtimes}}"]
    listed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return "" if name in listed else f"the engine lists no runtime {name}: {way}"


def _has_sqld() -> str:
    return "" if sqld.BINARY.is_file() else f"no {sqld.BINARY}: tools/get_sqld.sh"


@cache
def _has_kubernetes() -> str:
    if lacking := _has_docker():
        return lacking
    if os.geteuid() != 0:
        return "this is not root"
    for program, package in (("etcd", "etcd-server"), ("kubectl", "kubernetes-client")):
        if shutil.which(program) is None:
            return f"no {program}: apt-get install {package}"
    return "" if (PROGRAMS / "version").is_file() else f"no {PROGRAMS}: tools/get_kubernetes.sh"


def _has_browser() -> str:
    there = shutil.which("chromium-headless-shell")
    return "" if there else "no browser: apt-get install chromium-headless-shell"


def _has_node() -> str:
    places = (Path(__file__).parent / "support" / "node", Path(__file__).parents[1] / "web")
    missing = [place for place in places if not (place / "node_modules").is_dir()]
    return "".join(f"npm ci --prefix {place}; " for place in missing)


def _has_frameworks() -> str:
    there = (Path(sys.prefix) / "clients" / ".ready").is_file()
    return "" if there else "no .venv/clients: tools/get_clients.sh"


def _has_llama() -> str:
    there = (llama.MODELS / "server" / ".ready").is_file()
    return "" if there else f"no {llama.MODELS}: tools/get_models.sh"


def _has_fuzzer() -> str:
    return "" if find_spec("atheris") else "Atheris is not installed: make setup-dev"


_PARTS: dict[str, Callable[[], str]] = {
    "root": _is_root,
    "bubblewrap": _has_bubblewrap,
    "sqld": _has_sqld,
    "docker": _has_docker,
    "kubernetes": _has_kubernetes,
    "runsc": lambda: _has_runtime("runsc", "tools/get_runsc.sh"),
    "runsc_pods": lambda: _has_runtime("runsc-pods", ".ci/run registers it"),
    "fuzzer": _has_fuzzer,
    "llama": _has_llama,
    "node": _has_node,
    "frameworks": _has_frameworks,
    "browser": _has_browser,
}


settings.register_profile(
    "usual",
    database=None,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=(HealthCheck.too_slow,),
)
settings.register_profile(
    "long", settings.get_profile("usual"), max_examples=1000, phases=tuple(Phase)
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long",
        action="store_true",
        help="run the tests marked `long` too, and ten times the examples; shrink what fails",
    )
    parser.addoption("--part", metavar="K/N", help="run the Kth of N parts of about the same size")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the examples and where files lie. In the background of a script Ctrl-C is ignored,
    also by every program that is started here; tests send it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    settings.load_profile("long" if config.getoption("long") else "usual")
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = SEED
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", SCRATCH)
    config.pluginmanager.register(EndWithGroup())
    if config.pluginmanager.has_plugin("xdist") and not hasattr(config, "workerinput"):
        from tests.support.workers import WithWorkers

        config.pluginmanager.register(WithWorkers())


def pytest_report_header(config: pytest.Config) -> str:
    """What to set for the same random choices again."""
    return f"TESTS_SEED={SEED}"


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """A test's own random choices: the same in every run with the same seed."""
    return random.Random(f"{SEED} {request.node.nodeid}")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a test's memory lies."""
    return tmp_path / "memory.db"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without `--long` the tests marked `long` are not part of the run. Groups stay together."""
    for item in filter(only_in_long_runs, items):
        item.add_marker(pytest.mark.long)
    if not config.getoption("long"):
        _keep(config, items, lambda item: item.get_closest_marker("long") is None)
    if part := config.getoption("part"):
        number, count = (int(each) for each in part.split("/"))
        chosen = parts(Counter(map(shared_by, items)), count)[number - 1]
        _keep(config, items, lambda item: shared_by(item) in chosen)
    if config.getoption("loadgroup", False):
        name_groups(items)


def _keep(
    config: pytest.Config, items: list[pytest.Item], wanted: Callable[[pytest.Item], bool]
) -> None:
    config.hook.pytest_deselected(items=[item for item in items if not wanted(item)])
    items[:] = filter(wanted, items)


def shared_by(item: pytest.Item | None) -> str:
    """The tests with this name share what they start: those of an `xdist_group`, or of a file."""
    group = item and item.get_closest_marker("xdist_group")
    return str(group.args[0]) if group else item.nodeid.partition("::")[0] if item else ""


def parts(sizes: Mapping[str, int], count: int) -> list[set[str]]:
    """Distribute names over `count` parts so that the sums of their sizes differ little."""
    found: list[set[str]] = [set() for _ in range(count)]
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        min(found, key=lambda part: sum(sizes[each] for each in part)).add(name)
    return found


def name_groups(items: list[pytest.Item]) -> None:
    """Add each test's `xdist_group` to its id, by which pytest-xdist hands out tests.

    pytest-xdist 3.8 does so in a way that pytest 9.2 takes no notice of: the tests of a group go to
    all workers, and each starts what the group shares.
    """
    for item in items:
        group, known = item.get_closest_marker("xdist_group"), getattr(item, "id", None)
        if group is not None and known is not None:
            setattr(item, "_id", known.parse(f"{item.nodeid}@{group.args[0]}"))  # noqa: B010


class EndWithGroup:
    """Ends what a group shares after its last test, and not with the session.

    A plugin, because pytest asks no conftest.py about fixtures of the session.
    """

    def __init__(self) -> None:
        self._started: list[Callable[[], None]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: SubRequest
    ) -> Generator[None, object, object]:
        """Remember how to end what keeps processes busy: guests in a tier, a control plane."""
        made = yield
        if fixturedef.argname in ("place", "cluster"):
            self._started.append(partial(fixturedef.finish, request))
        return made

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, None, None]:
        """After the last test of a group, end what it has started."""
        yield
        if shared_by(item) != shared_by(nextitem):
            while self._started:
                self._started.pop()()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests are marked with the parts they need; without one they are skipped, and where
    `TESTS_REQUIRE` names it they fail."""
    for part, lacking in _PARTS.items():
        if item.get_closest_marker(part) is None or not (why := lacking()):
            continue
        if part in REQUIRED:
            pytest.fail(f"TESTS_REQUIRE asks for the {part} tests, and {why}")
        pytest.skip(f"needs {part}: {why}")
