"""Tiers are found by entry points, and nothing is made up for one that is missing."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from wire.errors import Code

from runner.config import tiers
from runner.config.models import Config
from runner.config.tiers import GROUP, NAMES, installed, tables
from runner.errors import ConfigError, TierError
from runner.tiers.base import Tier
from runner.tiers.drivers import driver_for

_ROOT = Path(__file__).parents[4]
_OWN = """
from runner.tiers.base import Tier
from runner.tiers.process.driver import ProcessDriver
from wire.settings import Section


class Settings(Section):
    speed: int = 1


class OwnTier(Tier):
    name = "own"
    table = Settings

    def driver(self, config):
        print("speed", config.table("own").speed)
        return ProcessDriver()
"""
_START = """
from pathlib import Path
from runner.config.loading import load_settings
from runner.tiers.drivers import driver_for

driver_for(load_settings(Path("runner.toml")).config)
"""


def test_each_entry_point_leads_to_the_tier_of_its_name() -> None:
    content = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    assert set(NAMES) == content["project"]["entry-points"][GROUP].keys()
    for name in NAMES:
        assert isinstance(installed(name), Tier)
        assert installed(name).name == driver_for(Config(), name).capabilities.tier == name


def test_a_tier_of_another_package_is_one_folder_and_its_entry_point(tmp_path: Path) -> None:
    metadata = tmp_path / "own-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\nown = own_tier:OwnTier\n")
    (tmp_path / "own_tier.py").write_text(_OWN)
    (tmp_path / "runner.toml").write_text('tier = "own"\n[own]\nspeed = 3\n')
    done = subprocess.run(
        [sys.executable, "-c", _START],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "speed 3\n"


def test_no_weaker_tier_takes_the_place_of_one_that_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match="there is no nested tier") as refused:
        driver_for(Config(), "nested")
    assert refused.value.details == f"accepted: {', '.join(NAMES)}"
    monkeypatch.setitem(sys.modules, "runner.tiers.kubernetes.driver", None)
    with pytest.raises(TierError, match="needs packages that are not installed") as missing:
        driver_for(Config(), "kubernetes")
    assert "kubernetes" in missing.value.resolution


def test_metadata_older_than_the_code_is_named_with_what_renews_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tiers, "NAMES", ())
    with pytest.raises(ConfigError, match="does not name its tiers") as refused:
        tables()
    assert refused.value.code is Code.FAILED_PRECONDITION
    assert "install" in refused.value.resolution
