"""Taking over the shell guest: its first process, its helpers, and who answers at its socket."""
# ruff: noqa: E501 - scripts for bash and Python

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from wire.errors import Code, WireError
from wire.identity import Party, Peer
from wire.transport import open_channel
from wire.v1 import gateway_pb2, gateway_pb2_grpc, shell_pb2

from runner.workspace.mounts import Role
from tests.support import parties
from tests.support.attempts import attempt, rows
from tests.support.boundary.two_hosts import (
    Attempt,
    TwoHosts,
    UserHost,
    bash,
    denied,
    judged,
    python,
)
from tests.support.guests.shell_backends import OverGrpc

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.stopped_in("process")]

PROVEN = "mutual TLS: a token goes to nobody who has not proven to be the shell"

FIRST_PROCESS = [
    Attempt(
        "every signal but SIGTERM, to the daemon and to each of its threads",
        python("""
            tids = [int(name) for name in refused(os.listdir, "/proc/1/task")[0] or ()]
            for number in range(1, 65):
                if number == 15: continue
                syscall(62, 1, number)
                for tid in {1, *tids}:
                    syscall(200, tid, number)
                    syscall(234, 1, tid, number)
        """),
        stopped_by="the daemon is its guest's first process: the kernel gives it only signals it handles",
    ),
    Attempt(
        "a queued signal to the daemon, one by descriptor, and one for input and output",
        python("""
            import fcntl
            at = refused(os.pidfd_open, 1)[0]
            for number in (2, 9, 19, 29, 34):
                if at is not None: syscall(424, at, number, 0, 0)
                syscall(129, 1, number, struct.pack("iii", number, 0, -1) + bytes(116))
            one, other = socket.socketpair()
            fcntl.fcntl(one, fcntl.F_SETOWN, 1)
            fcntl.fcntl(one, 10, 9)
            fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC)
            other.send(b"x")
        """),
        stopped_by="the daemon is its guest's first process: the kernel gives it only signals it handles",
    ),
    Attempt(
        "tracing, reading and writing the daemon, its descriptors",
        python("""
            for request in (16, 0x4206):
                if call("ptrace", request, 1, None, None) == 0: won("ptrace", request)
            first = refused(os.pidfd_open, 1)[0]
            if first is not None and syscall(438, first, 0, 0) >= 0: won("pidfd_getfd")
            buffer = ctypes.create_string_buffer(8)
            local = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
            for name in ("process_vm_readv", "process_vm_writev"):
                if call(name, 1, local, 1, local, 1, 0) > 0: won(name)
            for name in ("mem", "environ", "maps", "syscall", "stack", "auxv"):
                at = refused(os.open, f"/proc/1/{name}", os.O_RDONLY)[0]
                if at is not None and refused(os.read, at, 1)[0]: won(name)
            if first is not None and syscall(440, first, local, 1, 21, 0) > 0: won("process_madvise")
            if syscall(256, 1, 8, ctypes.byref(ctypes.c_ulong(1)), ctypes.byref(ctypes.c_ulong(1))) > 0: won("migrate_pages")
        """),
        stopped_by="the daemon has concealed itself: it is not dumpable, so its /proc is root's",
        in_gvisor={"maps|auxv": "addresses of the zygote, which is the first process there"},
    ),
    Attempt(
        "the daemon's limits, processors, priority and turn at the disk",
        python("""
            tids = [int(name) for name in refused(os.listdir, "/proc/1/task")[0] or ()]
            two, mask = struct.pack("QQ", 3, 3), struct.pack("Q", 1)
            idle = struct.pack("IIQiIQQQ", 48, 5, 0, 0, 0, 0, 0, 0)
            for pid in {1, *tids, *(pid for pid in pids() if not mine(pid))}:
                for limit in range(16):
                    if syscall(302, pid, limit, two, 0) == 0: won("prlimit", pid, limit)
                if syscall(203, pid, 8, mask) == 0: won("affinity", pid)
                if syscall(141, 0, pid, 19) == 0: won("nice", pid)
                if syscall(141, 1, pid, 19) == 0: won("nice of the group", pid)
                if syscall(144, pid, 5, struct.pack("i", 0)) == 0: won("scheduler", pid)
                if syscall(142, pid, struct.pack("i", 0)) == 0: won("parameters", pid)
                if syscall(314, pid, idle, 0) == 0: won("attributes", pid)
                if syscall(251, 1, pid, 3 << 13) == 0: won("ionice", pid)
                if syscall(141 | 0x40000000, 0, pid, 19) == 0: won("nice by x32", pid)
            for user in (0, os.getuid()):
                if syscall(141, 2, user, 19) == 0: won("nice of the user")
                if syscall(251, 3, user, 3 << 13) == 0: won("ionice of the user")
            if int80(97, 0, 1, 19) == 0: won("nice by int 80")
            if int80(340, 1, 7, low(two)) == 0: won("prlimit by int 80")
            if int80(241, 1, 8, low(mask)) == 0: won("affinity by int 80")
        """),
        stopped_by="the daemon's filter: a command changes these for itself only",
    ),
    Attempt(
        "the daemon's files in /proc, with the score for which it is killed when memory runs out",
        python("""
            names = ("oom_score_adj", "oom_adj", "autogroup", "clear_refs", "coredump_filter", "sched", "comm",
                "timerslack_ns", "setgroups", "uid_map", "gid_map", "projid_map", "loginuid", "attr/current")
            tids = refused(os.listdir, "/proc/1/task")[0] or ()
            for place in ("/proc/1", *(f"/proc/1/task/{tid}" for tid in tids)):
                for name in names:
                    for value in (b"1", b"15", b"999"):
                        at = refused(os.open, f"{place}/{name}", os.O_WRONLY)[0]
                        if at is not None and refused(os.write, at, value)[1] is None: won(place, name)
        """),
        stopped_by="the daemon is not dumpable, and such files are covered where the runner is root",
    ),
]


def daemon_of(guest: int) -> psutil.Process:
    """The shell daemon in or below the process `guest` of this host."""
    process = psutil.Process(guest)
    family = [process, *process.children(recursive=True)]
    (daemon,) = [each for each in family if each.name() == "oxydra-shell"]
    return daemon


async def first_process(place: TwoHosts) -> dict[str, Any]:
    """What a command must not be able to change of alice's shell daemon."""
    _, pid = (await place.guests())["alice shell"]
    daemon = daemon_of(pid)
    files = {
        name: Path(f"/proc/{daemon.pid}/{name}").read_text() for name in ("limits", "oom_score_adj")
    }
    inner = Path(f"/proc/{daemon.pid}/status").read_text()
    assert [line.split()[-1] for line in inner.splitlines() if line.startswith("NSpid")] == ["1"]
    return {
        **files,
        "processors": daemon.cpu_affinity(),
        "priority": (daemon.nice(), daemon.ionice()),
        "scheduler": {
            thread.id: Path(f"/proc/{daemon.pid}/task/{thread.id}/stat").read_text().split()[-12]
            for thread in daemon.threads()
        },
    }


@pytest.mark.parametrize("one", rows(FIRST_PROCESS))
async def test_the_first_process_is_out_of_reach(place: TwoHosts, one: Attempt) -> None:
    if place.tier == "micro_vm":
        # The host has none of gVisor's processes. A command's first one is the zygote there, which
        # a signal for input and output may end: like the helpers in all tiers, and with the guest.
        _, text = await place.attempt(one)
        denied(place, text, list(one.in_gvisor))
        await place.settle()
        await place.assert_unharmed()
        return
    before = await first_process(place)
    await judged(place, one)
    after = await first_process(place)
    threads = before["scheduler"].keys() & after["scheduler"].keys()
    for state in (before, after):
        state["scheduler"] = {thread: state["scheduler"][thread] for thread in threads}
    assert after == before
    await place.assert_unharmed()


@pytest.mark.attempt(
    "every process that can be stopped is stopped",
    stopped_by="the daemon wakes its helpers, and the runner makes a guest anew that does not answer",
)
async def test_helpers_that_a_command_has_stopped_go_on(place: TwoHosts) -> None:
    stop = Attempt(
        "all are stopped",
        bash("for p in /proc/[0-9]*; do [ $p = /proc/$$ ] || kill -STOP ${p#/proc/} 2>&1; done"),
        {"timeout_ms": 2000},
    )
    await judged(place, stop)
    await place.assert_unharmed()


async def refusal(peer: Peer) -> WireError:
    """What a call to `peer` is answered."""
    async with open_channel(peer) as channel:
        if peer.party is Party.SHELL:
            with pytest.raises(WireError) as raised:
                await OverGrpc(channel).call("Hello", shell_pb2.ShellHelloRequest())
            return raised.value
        stub: Any = gateway_pb2_grpc.GatewayStub(channel)
        with pytest.raises(Exception, match=r".") as refused:
            await stub.Hello(gateway_pb2.HelloRequest())
        return WireError(Code.UNAVAILABLE, str(refused.value))


IMPOSTOR = """
    import ssl, threading
    os.unlink("/ipc/shell.sock")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("/ipc/shell.sock")
    listener.listen()
    open("/shared/there", "w").write("yes")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if {tls}:
        context.load_cert_chain("/shared/impostor.pem")
        context.set_alpn_protocols(["h2"])
    def take(raw):
        while data := raw.recv(65536):
            print(data.hex(), flush=True)
            raw.send(bytes(64))
    while True:
        raw = listener.accept()[0]
        try:
            threading.Thread(target=take, args=[context.wrap_socket(raw, server_side=True) if {tls} else raw]).start()
        except OSError as error:
            print(error, flush=True)
"""


IMPOSTORS = [
    attempt("serving the shell's socket without TLS", False, stopped_by=PROVEN),
    attempt("serving the shell's socket with a certificate of its own", True, stopped_by=PROVEN),
]


@pytest.mark.parametrize("tls", IMPOSTORS)
async def test_who_serves_the_socket_gets_no_token_and_is_ended(place: TwoHosts, tls: bool) -> None:
    shared = place.alice.workspace / "shared"
    own = parties.identity(Party.SHELL)
    (shared / "impostor.pem").write_text(own.certificate + own.key)
    (shared / "impostor.pem").chmod(0o644)
    await place.alice.shell.start(
        "impostor", python(IMPOSTOR.replace("{tls}", str(tls))), timeout_ms=60_000
    )
    seen = asyncio.create_task(place.alice.shell.collect("impostor"))
    await place.alice.shell.appears("there")
    found = await refusal(place.alice.shell_as_agent)
    assert found.code is Code.UNAVAILABLE
    assert "did not prove to be who it must be" in found.brief
    denied(place, await place.tool("shell_exec", command="echo still"))
    await place.shell_again()
    shell = (await place.alice.host.status()).guests[1]
    assert "the shell guest's socket was removed or replaced" in shell.last_end
    try:
        recorded = (await seen).stdout
    except WireError:
        recorded = b""
    denied(
        place,
        recorded.decode()
        + bytes.fromhex(
            "".join(line for line in recorded.decode().split() if len(line) > 40)
        ).decode(errors="replace"),
    )
    for name in ("there", "impostor.pem"):
        (shared / name).unlink()
    await place.assert_unharmed()


def as_party(user: UserHost, party: Party, other: UserHost) -> Peer:
    """A server of `user`, called with the token for it and with the identity of `other`'s agent."""
    sockets = {
        Party.SHELL: user.host.workspace.socket(Role.SHELL),
        Party.AGENT: user.host.workspace.socket(Role.AGENT),
    }
    token = user.secrets[
        "agent's token for the shell" if party is Party.SHELL else "gateway's token"
    ]
    authority = user.shell_as_agent.identity.authority
    identity = replace(other.shell_as_agent.identity, authority=authority)
    return Peer(f"unix:{sockets[party]}", party, token, identity)


OTHERS = "each runner issues certificates of its own, and hears no others"
STOLEN = [
    attempt("calling another user's shell with its stolen token", Party.SHELL, stopped_by=OTHERS),
    attempt("calling another user's gateway with its stolen token", Party.AGENT, stopped_by=OTHERS),
]


@pytest.mark.parametrize("party", STOLEN)
async def test_a_stolen_token_is_no_use_to_another_users_guests(
    place: TwoHosts, party: Party
) -> None:
    found = await refusal(as_party(place.alice, party, place.bob))
    assert found.code is Code.UNAVAILABLE
    await place.assert_unharmed()


@pytest.mark.attempt(
    "calling the gateway with the agent's certificate and the gateway's token",
    stopped_by="each server lists the roles that it serves",
)
async def test_an_agent_may_not_call_a_gateway(place: TwoHosts) -> None:
    found = await refusal(as_party(place.alice, Party.AGENT, place.alice))
    assert "does not serve agent" in found.brief
