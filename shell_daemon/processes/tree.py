"""A process tree, found by parentage and ended whole.

Parentage is the one mark that a process cannot shed: `setsid`, a cleared
environment, a double fork or `nohup` change everything else about it. A parent
that exits would break the chain, so each tree stands below a child subreaper
(see `supervisor`), which inherits such orphans.

Limits, both closed by the sandbox around the daemon: a set-uid program (there
are none under no-new-privileges) cannot be signalled, and a process asleep in
the kernel dies only when it wakes.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Collection, Iterable

_FREEZE_PASSES = 50
_DEAD = (b"Z", b"X")


def descendants(root: int, spare: Collection[int] = ()) -> set[int]:
    """The living processes below `root`, without those in `spare` and all below them."""
    return set(_groups_below(root, spare))


def terminate(root: int) -> None:
    """Ask everything below `root` to end; wake what is stopped so that it can hear."""
    below = descendants(root)
    _send(os.kill, below, signal.SIGTERM)
    _send(os.kill, below, signal.SIGCONT)


def kill(root: int, spare: Collection[int] = ()) -> None:
    """Kill everything below `root` but `spare`.

    First all of it is frozen, pass after pass until nothing new appears, so
    that a tree which forks faster than it can be killed still ends. Whole
    process groups are signalled too: the kernel does that atomically with
    forks, so what flees from pid to pid within its group is caught at once.
    The caller's own group, which holds the supervisors, is left alone: no
    command can join it from the session of its own that it was started in.
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
    """Pid to process group."""
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
    """(pid, parent, group) of every living process. The name field may hold anything,
    spaces and parentheses included, so fields are counted from its end."""
    for name in os.listdir("/proc"):  # noqa: PTH208 - this runs where imports must stay few
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                state, parent, group, *_ = file.read().rpartition(b") ")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in _DEAD:
            yield int(name), int(parent), int(group)
