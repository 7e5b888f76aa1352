"""All checks together: broken settings, failing checks, what each tier needs."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire.errors import Code
from wire.settings import ContainerSettings, EmbedderSettings

from runner.config.models import Config
from runner.doctor import settings
from runner.doctor.examination import examine
from runner.doctor.finding import Finding, State, check
from runner.errors import ConfigError
from tests.support.scratch import SCRATCH


@pytest.fixture
def root() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="oxd-"))
    yield path
    assert list(path.iterdir()) == []
    shutil.rmtree(path)


def config(root: Path, tier: str = "container") -> Config:
    return Config.model_validate(
        {
            "workspace_root": root / "ws",
            "runtime_dir": root / "rt",
            "tier": tier,
            "embedder": EmbedderSettings(backend="hashing"),
            "container": ContainerSettings(engine=f"unix://{root}/no.sock"),
        }
    )


def named(findings: list[Finding], name: str) -> Finding:
    [found] = [each for each in findings if each.name == name]
    return found


def test_every_check_answers_and_creates_nothing(root: Path) -> None:
    findings = examine(lambda: config(root), "alice", {})
    names = [each.name for each in findings]
    assert names[:2] == ["configuration", "credential"]
    assert {"workspace", "runtime directory", "file system", "disk", "database"} < set(names)
    assert {"embedding model", "user namespaces", "openat2", "bubblewrap", "KVM"} < set(names)
    assert "doctor" not in names
    for each in findings:
        assert each.what
        assert bool(each.fix) is (each.state is not State.OK), each


def test_an_engine_matters_to_the_container_tiers_only(root: Path) -> None:
    found = named(examine(lambda: config(root), "alice", {}), "engine")
    assert found.state is State.PROBLEM
    found = named(examine(lambda: config(root, "process"), "alice", {}), "engine")
    assert found.state is State.OK


def test_a_broken_configuration_is_a_finding_and_the_rest_goes_on(root: Path) -> None:
    def broken() -> Config:
        raise ConfigError(Code.INVALID_ARGUMENT, "bad", details="why", resolution="mend it")

    findings = examine(broken, "alice", {}, fallback=config(root))
    found = named(findings, "configuration")
    assert (found.state, found.what, found.fix) == (State.PROBLEM, "bad (why)", "mend it")
    assert named(findings, "disk").state is not State.PROBLEM


def test_a_bad_user_id_is_a_finding(root: Path) -> None:
    findings = examine(lambda: config(root), "../alice", {})
    assert named(findings, "user").state is State.PROBLEM
    assert named(findings, "workspace").state is State.OK


def test_a_check_that_fails_is_a_finding_and_the_rest_goes_on(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> Finding:
        raise RuntimeError("surprise")

    monkeypatch.setattr(settings, "credential", failing)
    findings = examine(lambda: config(root), "alice", {})
    assert named(findings, "doctor").what == "the check failed: RuntimeError: surprise"
    assert named(findings, "workspace").state is State.OK


def test_a_skill_that_the_agent_does_not_get_is_a_warning() -> None:
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="oxd-") as place:
        root = Path(place)
        (root / "ws/alice/skills/planted").mkdir(parents=True)
        told = named(examine(lambda: config(root), "alice", {}), "skills")
    assert told.state is State.WARNING
    assert told.what.startswith("the agent does not get the skill planted: the skill is refused:")
    assert told.fix == "runner skills add SOURCE, or: runner skills remove NAME"


def test_a_place_that_cannot_be_reached_is_a_problem_with_its_path() -> None:
    found = check("place")(lambda: Path("/dev/null/x").read_text())()
    assert (found.state, found.fix) == (State.PROBLEM, "ls -ld /dev/null/x; make it accessible")


def test_a_runtime_directory_on_another_disk_is_looked_at(root: Path) -> None:
    names = {each.name for each in examine(lambda: config(root), "alice", {})}
    assert "runtime disk" not in names
    elsewhere = config(root).model_copy(update={"runtime_dir": Path("/dev/shm/oxydra-none")})
    names = {each.name for each in examine(lambda: elsewhere, "alice", {})}
    assert "runtime disk" in names
