"""Finds and ends a whole process tree.

A process can change its session, group and environment (`setsid`, `nohup`, a double fork), but
not its ancestry, so trees are found by parent ids. A parent that exits would break the chain;
therefore each tree is below a child subreaper (see `supervisor`), which adopts such orphans.

Two limits: a set-uid program cannot be signalled (the sandbox's no-new-privileges rules that
out), and a process in uninterruptible sleep dies only when it wakes.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Iterable

_FREEZE_PASSES = 50
_DEAD = (b"Z", b"X")


def descendants(root: int, spare: Collection[int] = ()) -> set[int]:
    """The living processes below `root`, except those in `spare` and all below them."""
    return set(_groups_below(root, spare))


def terminate(root: int) -> None:
    """Send SIGTERM to everything below `root`, and SIGCONT so that stopped processes get it."""
    below = descendants(root)
    _send(os.kill, below, signal.SIGTERM)
    _send(os.kill, below, signal.SIGCONT)


def kill(root: int, spare: Collection[int] = ()) -> None:
    """Kill everything below `root`, except `spare` and all below it.

    The processes are first stopped, in passes until no new one appears, so that even a tree that
    forks faster than it can be killed ends. Whole process groups are signalled as well: the
    kernel does that atomically with regard to forks. The caller's own group, which holds the
    supervisors, is not signalled; no command can join it, because each runs in its own session.
    """
    frozen: set[int] = set()
    groups: set[int] = set()
    for _ in range(_FREEZE_PASSES):
        below = _groups_below(root, spare)
        fresh = set(below) - frozen
        if not fresh:
            break
        fresh_groups = set(below.values()) - groups - {os.getpgrp()}
        _send(os.killpg, fresh_groups, signal.SIGSTOP)
        _send(os.kill, fresh, signal.SIGSTOP)
        groups |= fresh_groups
        frozen |= fresh
    _send(os.killpg, groups, signal.SIGKILL)
    _send(os.kill, frozen, signal.SIGKILL)


def _send(how: Callable[[int, int], None], targets: Iterable[int], number: signal.Signals) -> None:
    for target in targets:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            how(target, number)


def _groups_below(root: int, spare: Collection[int]) -> dict[int, int]:
    """The processes below `root`, as pid to process group."""
    children: dict[int, list[tuple[int, int]]] = {}
    for pid, parent, group in _processes():
        children.setdefault(parent, []).append((pid, group))
    found: dict[int, int] = {}
    todo = [root]
    while todo:
        for child, group in children.get(todo.pop(), ()):
            if child not in spare and child not in found:
                found[child] = group
                todo.append(child)
    return found


def _processes() -> Iterable[tuple[int, int, int]]:
    """(pid, parent, group) of every living process.

    The name field may contain spaces and parentheses, so fields are counted from its end.
    """
    for name in os.listdir("/proc"):  # noqa: PTH208 - forked processes import little
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                state, parent, group, *_ = file.read().rpartition(b") ")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in _DEAD:
            yield int(name), int(parent), int(group)
