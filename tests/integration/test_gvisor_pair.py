"""A user's pair on gVisor's kernel: the main job, what `status` says of the kernel, and what is
refused there."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from wire.boundary import CHECKS, KERNEL_OF_GVISOR
from wire.network_probe import WAYS
from wire.transport import open_channel
from wire.v1 import gateway_pb2_grpc

from runner.testing import UserPair
from tests.support.guests.background import server_outlives_its_turn_and_ends_with_its_guest
from tests.support.guests.engine import engine_objects
from tests.support.scratch import SCRATCH
from tests.support.tools.tool_guests import Tools, server

pytestmark = [pytest.mark.runsc, pytest.mark.xdist_group("gvisor_pair")]
RUNSC = {"runtime": "runsc"}


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="oxg-") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def pair(root: Path) -> Iterator[UserPair]:
    mcp = {"servers": {"apart": server(isolated=True, shared="downloads")}}
    with UserPair(root=root, tier="micro_vm", container=RUNSC, mcp=mcp) as pair:
        yield pair


def test_a_turn_that_remembers(pair: UserPair) -> None:
    assert pair.turn("remember that tea is at five").tools == [("memory_save", True)]
    assert "tea is at five" in pair.turn("what do you know about tea?").text


def test_a_note_is_embedded_by_the_embedder_beside_it(pair: UserPair) -> None:
    """The embedder runs on the host's kernel; its socket crosses into gVisor's."""
    assert not pair.call_tool("memory_save", {"content": "the bicycle is red"}).is_error
    found = pair.call_tool("memory_search", {"query": "bicycle"})
    assert "the bicycle is red" in found.text
    assert "keyword only" not in found.text
    assert pair.status().memory.passages_embedded


def test_a_command(pair: UserPair) -> None:
    turn = pair.turn("run id -u; cat /proc/cmdline; echo done > /shared/made.txt")
    assert turn.tools == [("shell_exec", True)]
    assert "-gvisor" in turn.text
    assert (pair.workspace.path / "shared" / "made.txt").read_text() == "done\n"


def test_a_file_of_the_file_tools(pair: UserPair) -> None:
    """gVisor has no openat2: the tools go through each directory themselves."""
    (pair.workspace.path / "shared/way").symlink_to("/.oxydra")
    assert not pair.call_tool("file_write", {"path": "/shared/b.txt", "content": "x"}).is_error
    assert pair.call_tool("file_read", {"path": "/shared/way/memory.db"}).is_error


def test_the_kernel_is_told_by_what_was_found(pair: UserPair) -> None:
    status = pair.status()
    assert status.kernel == KERNEL_OF_GVISOR
    assert status.boundary.passed
    assert [check.name for check in status.boundary.checks] == [
        *CHECKS,
        *(f"agent: {way}" for way in WAYS),
    ]
    deadline = time.monotonic() + 60  # the server's own guest may still be tested
    while [path for path in pair.workspace.path.rglob(".oxydra-*") if path.is_file()]:
        assert time.monotonic() < deadline
        time.sleep(0.1)


async def test_an_mcp_server_in_a_guest_of_its_own(pair: UserPair) -> None:
    async with open_channel(pair.gateway()) as channel:
        tools = Tools(cast(Any, pair), gateway_pb2_grpc.GatewayStub(channel))
        said = await tools.run(
            "apart", "cat /proc/cmdline; ls -d /shared/* /cache; touch /shared/downloads/seen"
        )
    assert "-gvisor" in said
    assert "/cache" in said
    assert said.splitlines()[-2:] == ["/cache", "/shared/downloads"]
    assert (pair.workspace.path / "shared/downloads/seen").exists()
    assert "tool-apart" in {each.role for each in pair.status().guests}


def test_a_server_in_the_background(pair: UserPair) -> None:
    server_outlives_its_turn_and_ends_with_its_guest(pair)


def test_a_provider_is_reached_by_egress_beside_the_sandboxes(root: Path) -> None:
    agent = {
        "provider": "openai",
        "model": "m",
        "base_url": "http://127.0.0.1:9/v1",
        "api_key_env": "",
    }
    with UserPair("bob", root=root, tier="micro_vm", container=RUNSC, agent=agent) as reached:
        states = {guest.role: guest.state for guest in reached.status().guests}
        assert states["egress"] == "ready"
    assert not [name for name in engine_objects(root) if "bob" in name]
