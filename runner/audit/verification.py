"""Checks an audit log from its first to its last byte."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner.audit.chain import GENESIS, Head, opened
from runner.audit.log import MISSING, Place

_FINDINGS_MAX: Final = 100
AGAIN_S: Final = 0.2


@dataclass(frozen=True)
class Report:
    """What a verification found. `findings` are sentences; none: nothing was changed since it was
    written, as far as the log itself can tell."""

    user_id: str
    first: int
    last: int
    hash: str
    findings: tuple[str, ...]


def verify(place: Place, *, known: tuple[int, str] | None = None) -> Report:
    """Check every byte of a log. A host may write to it meanwhile.

    Args:
        place: Where it lies.
        known: The number and the hash of a line, as `runner audit head` printed them before. Then a
            log that was written anew as a whole is found, too.

    Raises `WorkspaceError` if the directories are not ours, `OSError` if they cannot be read.
    """
    place.check()
    report = _verified(place, known)
    if report.findings:
        time.sleep(AGAIN_S)  # a line may have been in the middle of being written
        report = _verified(place, known)
    return report


def _verified(place: Place, known: tuple[int, str] | None) -> Report:
    findings = [MISSING] if place.is_missing else []
    files, before = place.files(), Head()
    try:
        before = Head.read(place.head)
    except FileNotFoundError:
        findings += ["the log has no head"] if files or known else []
    except ValueError as error:
        findings.append(f"the head is damaged: {error}")
    wanted = [(before.last, before.hash, "the head says")]
    if known is not None:
        wanted.append((*known, "you know"))
        if not before.first <= known[0] <= before.last:
            findings.append(f"line {known[0]}, which you know, is not in the log any more")
    number, previous = before.first - 1, before.before
    for name, line in _lines(files, findings):
        try:
            link = opened(line)
        except ValueError as error:
            findings.append(f"{name}: the line after {number} is damaged: {error}")
            number, previous = number + 1, ""
            continue
        if link.number != number + 1:
            findings.append(f"{name}: line {link.number} follows line {number}")
        elif previous and link.previous != previous:
            findings.append(f"{name}: line {link.number} does not follow from the one before")
        number, previous = link.number, link.hash
        for at, digest, whose in wanted:
            if number == at and link.hash != digest:
                findings.append(f"{name}: line {number} is another one than {whose}")
        if link.entry.get("user") != place.user_id:
            findings.append(f"{name}: line {number} is of another user's log")
        if wrong := link.entry.get("wrong"):
            findings.append(f"at {link.entry.get('time')} the host found that {wrong}")
    if number < before.last:
        findings.append(f"the log ends with line {number}, and its head says {before.last}")
    if number > _last_of(place, before.last):
        findings.append(f"line {number} was added after the end that the head says")
    shown = findings[:_FINDINGS_MAX]
    return Report(place.user_id, before.first, number, previous or GENESIS, tuple(shown))


def _lines(files: list[Path], findings: list[str]) -> Iterator[tuple[str, bytes]]:
    """Every line with the name of its file, whether whole or not."""
    for path in files:
        with path.open("rb") as file:
            for index, line in enumerate(file):
                if index == 0 and not line.startswith(b'{"n":%d,' % int(path.stem)):
                    findings.append(f"{path.name} begins with another line than its name says")
                yield path.name, line


def _last_of(place: Place, otherwise: int) -> int:
    try:
        return Head.read(place.head).last
    except (FileNotFoundError, ValueError):
        return otherwise
