"""The directories of file tools, as they are opened."""

import os
from pathlib import Path

import pytest
from wire.errors import Code

from guest.errors import GuestError
from guest.tools.files.roots import Roots

NAMES = ("shared", "tmp", "vault")


@pytest.fixture
def directories(tmp_path: Path) -> dict[str, Path]:
    for name in NAMES:
        (tmp_path / name).mkdir()
    return {name: tmp_path / name for name in NAMES}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("name", NAMES)
def test_a_link_in_the_place_of_a_root_is_refused(directories: dict[str, Path], name: str) -> None:
    elsewhere = directories[name].with_name("elsewhere")
    directories[name].rename(elsewhere)
    directories[name].symlink_to(elsewhere)
    before = descriptors()
    with pytest.raises(GuestError, match="cannot open the workspace directory") as refused:
        Roots(directories)
    assert refused.value.code is Code.FAILED_PRECONDITION
    assert "it is a link" in refused.value.details
    assert descriptors() == before


def test_a_root_that_is_missing_is_told(directories: dict[str, Path]) -> None:
    directories["vault"].rmdir()
    with pytest.raises(GuestError, match=str(directories["vault"])) as refused:
        Roots(directories)
    assert refused.value.details == "No such file or directory"


def test_links_above_a_root_are_the_operators(directories: dict[str, Path]) -> None:
    base = directories["tmp"].parent
    link = base.with_name("link")
    link.symlink_to(base)
    Roots({name: link / name for name in NAMES}).close()
