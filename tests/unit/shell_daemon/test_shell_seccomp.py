"""The filter of system calls, its steps followed as the kernel does it."""

import struct
from itertools import product

import pytest
from wire.errors import Code, WireError
from wire.kernel import seccomp as kernel

from shell_daemon.processes import pool, seccomp

ALLOWED, REFUSED, ABSENT = 0x7FFF0000, 0x00050001, 0x00050026
EACH = [
    (machine, name, kernel.ABIS[name])
    for machine, names in seccomp.MACHINES.items()
    for name in names
]
EVERY_ABI = pytest.mark.parametrize(("machine", "name", "abi"), EACH, ids=lambda one: str(one))
SET_UID, LEASE, VSOCK = 0o4755, 1024, 40
SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
NAMESPACES = (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)


def answer(machine: str, abi: int, number: int, *arguments: int, hiding: bool = True) -> int:
    """What becomes of one call."""
    steps = list(struct.iter_unpack("=HBBI", seccomp.program(machine, hiding=hiding)))
    words = [number, abi, 0, 0]
    for argument in (*arguments, *[0] * (6 - len(arguments))):
        words += [argument & 0xFFFFFFFF, argument >> 32]
    at, value = 0, 0
    while True:
        code, if_true, if_false, operand = steps[at]
        at += 1
        match code:
            case 0x20:
                value = words[operand // 4]
            case 0x05:
                at += operand
            case 0x15:
                at += if_true if value == operand else if_false
            case 0x35:
                at += if_true if value >= operand else if_false
            case 0x45:
                at += if_true if value & operand else if_false
            case 0x06:
                return int(operand)


WITH_ARGUMENTS = [
    *((call, (1, 9), REFUSED) for call in SIGNALS),
    *((call, (2, 9), ALLOWED) for call in SIGNALS),
    ("kill", (2**32 - 1, 15), ALLOWED),
    ("prlimit64", (0, 7), ALLOWED),
    ("prlimit64", (1, 7), REFUSED),
    ("sched_setparam", (1,), REFUSED),
    ("sched_setscheduler", (1,), REFUSED),
    ("sched_setaffinity", (1,), REFUSED),
    ("sched_setaffinity", (0,), ALLOWED),
    ("sched_setattr", (1,), REFUSED),
    ("setpriority", (0, 0, 5), ALLOWED),
    ("setpriority", (0, 1, 5), REFUSED),
    ("setpriority", (1, 0, 5), REFUSED),
    ("ioprio_set", (1, 0), ALLOWED),
    ("ioprio_set", (1, 1), REFUSED),
    ("ioprio_set", (2, 0), REFUSED),
    ("chmod", (0, 0o755), ALLOWED),
    ("chmod", (0, SET_UID), REFUSED),
    ("fchmod", (3, SET_UID), REFUSED),
    ("creat", (0, SET_UID), REFUSED),
    ("mknod", (0, SET_UID), REFUSED),
    ("fchmodat", (3, 0, SET_UID), REFUSED),
    ("fchmodat2", (3, 0, 0o2755), REFUSED),
    ("mknodat", (3, 0, SET_UID), REFUSED),
    *(("mknodat", (3, 0, kind | 0o600), ALLOWED) for kind in (0o010000, 0o100000, 0o140000)),
    *(("mknodat", (3, 0, kind | 0o600), REFUSED) for kind in (0o020000, 0o060000)),
    ("mknod", (0, 0o060600), REFUSED),
    ("open", (0, 0, SET_UID), ALLOWED),
    ("open", (0, 0o100, SET_UID), REFUSED),
    ("open", (0, 0o100, 0o644), ALLOWED),
    ("openat", (3, 0, 0, SET_UID), ALLOWED),
    ("openat", (3, 0, 0o20200000, SET_UID), REFUSED),
    ("openat2", (), ABSENT),
    ("io_uring_setup", (), ABSENT),
    ("fcntl", (3, LEASE, 1), REFUSED),
    ("fcntl", (3, 1), ALLOWED),
    ("fcntl64", (3, LEASE), REFUSED),
    ("socket", (VSOCK, 1), REFUSED),
    ("socket", (1, 1), ALLOWED),
    ("socketcall", (1,), REFUSED),
    ("socketcall", (8,), ALLOWED),
    ("clone", (0x003D0F00,), ALLOWED),
    ("clone", (17,), ALLOWED),
    *(("clone", (flag | 17,), REFUSED) for flag in NAMESPACES),
    ("clone3", (), ABSENT),
    ("unshare", (0x600,), ALLOWED),
    *(("unshare", (flag,), REFUSED) for flag in (*NAMESPACES, 0x80)),
    ("setns", (3, 0), REFUSED),
    ("add_key", (), REFUSED),
    ("request_key", (), REFUSED),
    ("keyctl", (11,), REFUSED),
]


@EVERY_ABI
def test_what_becomes_of_each_call(machine: str, name: str, abi: int) -> None:
    assert {each for each, _, _ in WITH_ARGUMENTS} == seccomp.CALLS.keys()
    for call, arguments, wanted in WITH_ARGUMENTS:
        number = getattr(seccomp.CALLS[call], name)
        if number is not None:
            assert answer(machine, abi, number, *arguments) == wanted, (call, arguments)


@EVERY_ABI
def test_all_other_calls_are_allowed(machine: str, name: str, abi: int) -> None:
    known = {getattr(call, name) for call in seccomp.CALLS.values()}
    others = set(range(500)) - known
    assert {answer(machine, abi, number, 1, 1, 1, 1) for number in others} == {ALLOWED}


@EVERY_ABI
def test_memory_can_be_held_unseen_only_where_a_control_group_counts_it(
    machine: str, name: str, abi: int
) -> None:
    for call in seccomp.HIDING.values():
        number = getattr(call, name)
        assert answer(machine, abi, number) == ALLOWED
        assert answer(machine, abi, number, hiding=False) == ABSENT
    keys = getattr(seccomp.CALLS["keyctl"], name)
    assert answer(machine, abi, keys, hiding=False) == REFUSED


def test_calls_of_the_x32_abi_are_refused() -> None:
    abi = kernel.ABIS["x86_64"]
    for number in (0, 1, 250, 500):
        assert answer("x86_64", abi, 0x40000000 | number) == REFUSED


@pytest.mark.parametrize("machine", seccomp.MACHINES)
def test_programs_of_an_unknown_abi_are_refused_every_call(machine: str) -> None:
    strangers = {0xC00000F3, 0x40000008, 0xC0000015, 0} | {abi for _, _, abi in EACH}
    strangers -= {kernel.ABIS[name] for name in seccomp.MACHINES[machine]}
    assert {answer(machine, *each) for each in product(strangers, range(450))} == {REFUSED}


def test_on_a_machine_without_a_filter_no_command_is_run() -> None:
    for machine in seccomp.MACHINES:
        pool.check_machine(machine)
    with pytest.raises(WireError, match="no commands are run on riscv64 machines") as raised:
        pool.check_machine("riscv64")
    assert raised.value.code is Code.FAILED_PRECONDITION
    assert "x86_64 and aarch64" in raised.value.details
