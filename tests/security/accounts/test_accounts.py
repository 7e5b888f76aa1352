"""Two accounts of one machine: mallory tries everything there is of alice, whose agent runs.

What there is to try is found on the machine, so that a new file, socket, port or process is tried
too. What mallory may have is listed here, and is all that she gets.
"""

import json
import re
import stat
from pathlib import Path

import pytest
from wire.identity import Party

from runner.host.authority import Authority
from tests.support.accounts import reach
from tests.support.accounts.home import ENVIRONMENT, NOTE, Home, alice_runs
from tests.support.accounts.machine import ALICE, EVERYBODYS, MALLORY, Machine
from tests.support.accounts.reach import Attempt
from tests.support.accounts.visitor import GOT
from tests.support.attempts import tries

pytestmark = [
    pytest.mark.root,
    pytest.mark.bubblewrap,
    pytest.mark.tier("process"),
    pytest.mark.xdist_group("two-accounts"),
]
WHO = "another account"

OF_EVERYBODY = {
    ("names", str(ALICE.home)): "a home that its owner has left open to be looked into",
    ("lock", str(ALICE.home)): "the same",
    ("watch", str(ALICE.home)): "the same",
}
"""All that mallory gets of what is alice's."""

NAMES_FOR_EVERYBODY = (
    r"(tmp)?[a-z0-9_]{8}",  # Python's own
    r"etilqs_[A-Za-z0-9]{15,}",  # SQLite's
    r"alice\.(jsonl|backup)",  # where alice asked for it
    r"\.[0-9a-f]{16}\.partial",  # a file that is not finished
)
"""All names that are made where everybody may make files. None can be known before but those that
alice chose, and these are never opened: a finished file gets the name."""

SERVERS = 6


def places(machine: Machine) -> list[tuple[str, Path]]:
    """All that belongs to alice, as it is called inside and outside."""
    roots = [*EVERYBODYS, "/home", "/run/user"]
    outside = machine.outside("/")
    return [
        ("/" + str(path.relative_to(outside)), path)
        for root in roots
        for path, found in reach.everything(machine.outside(root))
        if found.st_uid == ALICE.uid
    ]


def got(home: Home, attempts: list[Attempt], pass_fds: tuple[int, ...] = ()) -> list[str]:
    """What mallory gets of these attempts beyond what she may have."""
    tried = [each for each in attempts if (each["do"], each.get("at")) not in OF_EVERYBODY]
    return reach.not_refused(tried, home.machine.visit(MALLORY, tried, pass_fds))


def secrets_of(machine: Machine) -> dict[str, str]:
    """All that alice's programs keep to themselves, by what it is."""
    found = {"the note": NOTE}
    found |= {name: ENVIRONMENT[name] for name in ("PROVIDER_KEY", "MEMORY_KEY")}
    for inside, path in places(machine):
        if path.suffix in (".token", ".pem") or path.name == "token":
            text = path.read_text()
            found[inside] = text.splitlines()[1] if "PRIVATE KEY" in text else text.strip()
    assert len(found) >= 6, found.keys()
    return found


@tries(reach.by(WHO, *reach.OF_DIRECTORIES, *reach.OF_FILES, *reach.OF_SOCKETS))
def test_no_other_account_reaches_a_file(home: Home) -> None:
    """Each file, directory and socket that alice's commands have made, wherever that is: in the
    home, the runtime directory, /tmp, shared memory."""
    found = places(home.machine)
    kinds = {stat.S_IFMT(path.lstat().st_mode) for _, path in found}
    assert {stat.S_IFDIR, stat.S_IFREG, stat.S_IFSOCK} <= kinds
    attempts = reach.of_places((inside, path.lstat()) for inside, path in found)
    assert len(attempts) > 200
    assert got(home, attempts) == []


@pytest.mark.attempt(
    f"{WHO}: finding a file or directory open that was made with a umask of 0",
    stopped_by="the commands set a umask of their own, and make directories with their modes",
)
def test_everything_is_closed_whatever_the_umask(home: Home) -> None:
    """With a umask that closes nothing, alice's programs close what they make themselves."""
    open_to_others = [
        f"{inside} {path.lstat().st_mode & 0o7777:04o}"
        for inside, path in places(home.machine)
        if path.lstat().st_mode & 0o077 and not path.is_symlink()
    ]
    assert open_to_others == [f"{ALICE.home} 0755"]


@tries(reach.by(WHO, *reach.OF_PROCESSES))
def test_no_other_account_reaches_a_process(home: Home) -> None:
    pids = list(home.machine.processes(ALICE))
    assert len(pids) >= SERVERS
    assert got(home, reach.of_processes(pids)) == []


@tries(reach.by(WHO, *reach.OF_PROC))
def test_what_is_shown_of_processes_holds_no_secret(home: Home) -> None:
    pids = list(home.machine.processes(ALICE))
    told = home.machine.visit(MALLORY, [{"do": "files_of", "pid": pid} for pid in pids])
    secrets = secrets_of(home.machine)
    assert reach.told_of_processes(told, secrets) == []


@pytest.mark.attempt(
    f"{WHO}: a port of TCP or UDP, or an abstract socket",
    stopped_by="everything listens on Unix sockets that are files",
)
def test_nobody_listens_on_a_port_or_without_a_file(home: Home) -> None:
    assert reach.listeners(each.pid for each in home.machine.processes(ALICE).values()) == set()


@tries(reach.by(WHO, *reach.OF_SERVERS))
def test_a_server_says_nothing_to_who_has_no_identity_of_its_runner(home: Home) -> None:
    """Even to who has a connection: without TLS, without a certificate, with one of another
    authority and a guessed token."""
    sockets = [path for _, path in places(home.machine) if path.is_socket()]
    assert len(sockets) == SERVERS, sockets
    stranger = Authority.new().issue(Party.CLI).to_pem()
    connections = [reach.connected(path) for path in sockets for _ in range(3)]
    try:
        attempts = reach.of_servers(connections, stranger)
        assert len(attempts) == 3 * SERVERS
        assert got(home, attempts, tuple(each.fileno() for each in connections)) == []
    finally:
        for each in connections:
            each.close()


@pytest.mark.attempt(
    f"{WHO}: System V's shared memory, semaphores and queues, and the kernel's keys",
    stopped_by="there are none",
)
def test_nothing_is_shared_through_the_kernel(home: Home) -> None:
    tables = ["/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg", "/proc/keys"]
    told = home.machine.visit(MALLORY, [{"do": "read", "at": each} for each in tables])
    for table, result in zip(tables, told, strict=True):
        lines = result.removeprefix(f"{GOT}: ").splitlines()
        rows = lines if table == "/proc/keys" else lines[1:]
        assert [row for row in rows if str(ALICE.uid) in row.split()] == [], table


@pytest.mark.attempt(
    f"{WHO}: knowing a name before it is made in /tmp or shared memory",
    stopped_by="such names are random, and made anew or not at all",
)
def test_no_name_that_is_made_among_those_of_everybody_can_be_known_before(home: Home) -> None:
    """What mallory cannot guess, she cannot make first: as a link, a pipe or a directory."""
    assert ("tmp", "alice.jsonl") in home.names
    known = [
        f"{place}/{name}"
        for place, name in home.names
        if not any(re.fullmatch(pattern, name) for pattern in NAMES_FOR_EVERYBODY)
    ]
    assert known == []


_OWN = """
import ctypes, json, os, socket, sys, threading
os.chdir(os.environ["HOME"])
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1))  # who may trace is not asked
os.mkdir("own"); open("own/file", "w").close(); os.mkdir("own/directory")
unix = socket.socket(socket.AF_UNIX); unix.bind("own/socket"); unix.listen()
hidden = socket.socket(socket.AF_UNIX); hidden.bind("\\0own"); hidden.listen()
tcp = socket.create_server(("127.0.0.1", 0))
print(json.dumps({"pid": os.getpid(), "port": tcp.getsockname()[1]}), flush=True)
sys.stdin.read()
"""


def test_each_attempt_succeeds_where_nothing_forbids_it(home: Home) -> None:
    """The same attempts on what is mallory's own: so that a refusal means something."""
    with home.machine.begun(MALLORY, "python3", "-I", "-c", _OWN) as first_line:
        seen = json.loads(first_line)
        own = MALLORY.home / "own"
        found = [
            (str(own / name), home.machine.outside(own / name).lstat())
            for name in ("file", "directory", "socket")
        ]
        attempts = [*reach.of_places(found), *reach.of_processes([seen["pid"]])]
        attempts += [{"do": "connect", "at": "@own"}]
        attempts += [{"do": "dial", "address": "127.0.0.1", "port": seen["port"]}]
        told = home.machine.visit(MALLORY, attempts)
        assert [
            (attempt, result)
            for attempt, result in zip(attempts, told, strict=True)
            if not result.startswith(GOT)
        ] == []
        processes = home.machine.processes(MALLORY).values()
        listening = reach.listeners(each.pid for each in processes)
        assert listening == {"unix @own", f"tcp 0100007F:{seen['port']:04X}"}


@pytest.mark.attempt(
    f"{WHO}: links, pipes and directories under names that a start might use",
    stopped_by="nothing is kept where all may make names",
)
def test_what_another_account_made_first_is_not_used(home: Home) -> None:
    """Before alice began, mallory had made all names in the places of everybody that anybody could
    think of: as links to a file and a directory of hers, and as pipes."""
    look = "find /tmp/caught -size +0; find /tmp/mine -mindepth 1"
    caught = home.machine.run(MALLORY, "/bin/sh", "-c", look)
    assert (caught.returncode, caught.stdout) == (0, "")


@pytest.mark.attempt(
    f"{WHO}: filling /tmp and shared memory before a start",
    stopped_by="temporary files lie elsewhere where there is no room",
)
def test_no_other_account_keeps_an_agent_from_starting(home: Home) -> None:
    """Mallory has filled every place that all may write in."""
    filled = home.machine.run(MALLORY, "/bin/sh", "-c", FILL, "sh", *EVERYBODYS)
    assert filled.returncode == 0, filled.stderr
    alice_runs(home.machine, "--user", "second", "start", "--detach", OXYDRA_SHELL__ENABLED="false")
    alice_runs(home.machine, "memory", "export", "whole.jsonl")
    assert NOTE in home.machine.outside(ALICE.home / "whole.jsonl").read_text()


FILL = """
for place; do dd if=/dev/zero of="$place/full" bs=1M status=none 2>/dev/null; done
for place; do ! (echo more > "$place/more") 2>/dev/null || exit 1; done
"""
