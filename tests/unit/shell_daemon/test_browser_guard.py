"""What the browser's guard keeps, and what it takes for a site."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from wire.errors import WireError

from shell_daemon.browser import HELD_MAX, Guard, server_here, site_of
from shell_daemon.program import Programs

SHOP: Final = "http://shop.localhost"


def test_the_guard_holds_no_more_than_it_can() -> None:
    sent: list[tuple[str, Mapping[str, Any]]] = []
    guard = Guard(lambda method, given: sent.append((method, given)))
    for number in range(HELD_MAX + 2):
        request = {
            "method": "POST",
            "url": f"{SHOP}/{number}",
            "postData": "x" * 10_000,
            "headers": {},
        }
        guard.paused({"requestId": str(number), "request": request})
    failed = [given["requestId"] for method, given in sent if method == "Fetch.failRequest"]
    assert failed == ["0", "1"]
    assert len(guard.held) == HELD_MAX
    assert len(guard.news()) < HELD_MAX * 1_000
    assert not guard.news()


@pytest.mark.parametrize(
    "url",
    [
        "data:text/html,x",
        "blob:http://shop.localhost/1",
        "file:///x",
        "http://[",
        "x",
        f"{SHOP}@evil.example",
    ],
)
def test_what_is_of_no_site_cannot_be_allowed(url: str) -> None:
    assert site_of(url) == ""


def test_the_browser_is_a_program_that_servers_may_name() -> None:
    assert Programs().find("", ["oxydra-browser"]).file.endswith("/oxydra-browser")
    with pytest.raises(WireError, match="no such program"):
        Programs().find("", ["oxydra-nobody"])


def test_what_a_command_leaves_among_the_downloads_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """npx runs a package, and programs, of the directory where it starts."""
    for name in ("downloads", "own"):
        package = tmp_path / name / "node_modules/@playwright/mcp"
        package.mkdir(parents=True)
        about = {"name": "@playwright/mcp", "version": "0.0.83", "bin": {"playwright-mcp": "it"}}
        (package / "package.json").write_text(json.dumps(about))
        (package / "it").write_text(f'#!/usr/bin/env sh\necho {name}, in $PWD, "$@"\n')
        (package / "it").chmod(0o755)
        programs = package.parents[1] / ".bin"
        programs.mkdir()
        (programs / "playwright-mcp").symlink_to(package / "it")
    (tmp_path / "downloads/node_modules/.bin/sh").symlink_to(tmp_path / "downloads/stolen")
    (tmp_path / "downloads/stolen").write_text("#!/bin/sh\necho stolen\n")
    (tmp_path / "downloads/stolen").chmod(0o755)
    monkeypatch.chdir(tmp_path / "downloads")
    words = server_here("", "--flag=a b")
    ran = subprocess.run(words, cwd=tmp_path / "own", capture_output=True, text=True, check=False)
    begin, _, flags = ran.stdout.partition(" --")
    assert begin == f"own, in {tmp_path / 'downloads'},", ran.stderr
    assert flags.endswith("--flag=a b\n")
    assert server_here("/a server")[:2] == ("sh", "-c")
