"""What another account of the machine reaches of runners that are root, and of the guests of two
users beside them."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from wire.identity import Party

from runner.host.authority import Authority
from tests.support.accounts import reach
from tests.support.accounts.machine import visit_here
from tests.support.attempts import tries
from tests.support.boundary.two_hosts import TwoHosts

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="session")]

WHO = "another account, of a runner that is root"
ENGINES = tuple(map(Path, ("/run/docker", "/run/containerd", "/var/lib/docker/containers")))


async def processes(place: TwoHosts) -> list[int]:
    """The runner, which is this process, and all of the guests'."""
    guests = [psutil.Process(pid) for _, pid in (await place.guests()).values() if pid]
    below = [child.pid for guest in guests for child in guest.children(recursive=True)]
    return [psutil.Process().pid, *(guest.pid for guest in guests), *below]


async def tried(attempts: Sequence[reach.Attempt], pass_fds: Sequence[int] = ()) -> list[str]:
    return await asyncio.to_thread(visit_here, attempts, pass_fds)


def kept(place: TwoHosts) -> Iterator[Path]:
    """Everything that the runner and its guests keep on disk."""
    for top in (place.root / "ws", place.root / "rt"):
        yield top
        yield from (path for path, _ in reach.everything(top))


@tries(reach.by(WHO, *reach.OF_DIRECTORIES, *reach.OF_FILES, *reach.OF_SOCKETS))
async def test_no_other_account_reaches_a_file(place: TwoHosts) -> None:
    found = list(kept(place))
    attempts = reach.of_places((str(path), path.lstat()) for path in found)
    assert len(attempts) > 200
    assert reach.not_refused(attempts, await tried(attempts)) == []


@tries(reach.by(WHO, *reach.OF_PROCESSES, *reach.OF_PROC))
async def test_no_other_account_reaches_a_process(place: TwoHosts) -> None:
    pids = await processes(place)
    attempts = reach.of_processes(pids)
    assert len(pids) >= 5
    assert reach.not_refused(attempts, await tried(attempts)) == []
    told = await tried([{"do": "files_of", "pid": pid} for pid in pids])
    assert reach.told_of_processes(told, place.secrets) == []


@pytest.mark.attempt(
    f"{WHO}: a port of TCP or UDP, or an abstract socket of a guest",
    stopped_by="everything listens on Unix sockets that are files",
)
async def test_no_guest_listens_on_a_port_or_without_a_file(place: TwoHosts) -> None:
    _, *guests = await processes(place)
    assert reach.listeners(guests) == set()


@tries(reach.by(WHO, *reach.OF_SERVERS))
async def test_a_server_says_nothing_to_who_has_no_identity_of_its_runner(place: TwoHosts) -> None:
    sockets = [path for path in kept(place) if path.is_socket()]
    assert len(sockets) == 10, sockets
    connections = [reach.connected(path) for path in sockets for _ in range(3)]
    try:
        attempts = reach.of_servers(connections, Authority.new().issue(Party.CLI).to_pem())
        told = await tried(attempts, [each.fileno() for each in connections])
        assert reach.not_refused(attempts, told) == []
    finally:
        for each in connections:
            each.close()


@pytest.mark.not_in("process")
@pytest.mark.attempt(
    f"{WHO}: the engine's files, sockets and pipes of a guest",
    stopped_by="the engine's directories are root's",
)
async def test_no_other_account_reaches_what_the_engine_keeps_of_guests(place: TwoHosts) -> None:
    """Among it are the pipes through which a guest gets its envelope."""
    names = await containers(place)
    assert names
    found = [
        (str(path), seen)
        for top in ENGINES
        if top.is_dir()
        for path, seen in reach.everything(top)
        if any(name in str(path) for name in names)
    ]
    attempts = reach.of_places(found)
    assert reach.not_refused(attempts, await tried(attempts)) == []


async def containers(place: TwoHosts) -> list[str]:
    """How the engine calls the guests' containers."""
    found = []
    for _, pid in (await place.guests()).values():
        for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if pid else ():
            name = line.rpartition("/")[2].removeprefix("docker-").removesuffix(".scope")
            found += [name] if len(name) == 64 else []
    return found
