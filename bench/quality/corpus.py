"""The notes, conversations and questions, as they lie in the text files.

A line is `NUMBER text`; in a conversation `NUMBER role text`. A conversation
begins with `## NAME MOMENT`; notes are named after their file. A question is
`? KIND ANSWERS | text`, its answers numbers of the same file or conversation,
or `NAME/NUMBER`.

`notes` and `conversations` are small and have been looked at often. `development` and `test` are
two people's long chats, written without a look at the ranking, that have no turn and no question in
common. Whoever changes the ranking looks at the first alone: a miss in the second that
somebody has seen measures nothing any more.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal, get_args

Half = Literal["development", "test"]
HALVES: Final[tuple[Half, ...]] = get_args(Half)
KINDS: Final = (
    *("keyword", "name", "date", "multi"),
    *("fact", "paraphrase", "context", "time", "advice", "several"),
)
"""Of questions. In `context`, only the turns around the answer tell what it is about; the answers
of `multi` and `several` are several."""
TODAY: Final = datetime(2026, 11, 21, 12, tzinfo=UTC)

_DIRECTORY: Final = Path(__file__).parent
_OLDEST: Final = timedelta(days=700)
_PAUSE: Final = timedelta(minutes=1)


@dataclass(frozen=True)
class Entry:
    """A note, or one turn of a conversation: then it has a `role`. What stands for several answers
    has their names, separated by spaces."""

    name: str
    written: datetime
    text: str
    role: str = ""
    session: str = ""


@dataclass(frozen=True)
class Question:
    """`answers` are names of entries, all of which belong to a full answer."""

    kind: str
    text: str
    answers: frozenset[str]


@dataclass(frozen=True)
class Part:
    """Entries from the oldest to the newest, and what is asked about them."""

    entries: Sequence[Entry]
    questions: Sequence[Question]

    @property
    def kinds(self) -> list[str]:
        return kinds_of(self.questions)

    def as_notes(self) -> "Part":
        """The same where each turn was saved as a note of its session."""
        return Part([replace(entry, role="") for entry in self.entries], self.questions)


def kinds_of(questions: Iterable[Question]) -> list[str]:
    """The kinds of questions, in the order of `KINDS`; then others."""
    found = {question.kind for question in questions}
    return [*(kind for kind in KINDS if kind in found), *sorted(found.difference(KINDS))]


def notes() -> Part:
    """The notes, written in an order that mixes the themes."""
    part = _read("notes")
    shuffled = random.Random(1).sample(part.entries, len(part.entries))
    step = _OLDEST / len(shuffled)
    dated = [
        Entry(entry.name, TODAY - _OLDEST + place * step, entry.text)
        for place, entry in enumerate(shuffled)
    ]
    return Part(dated, part.questions)


def conversations() -> Part:
    """All turns of all conversations, in the order in which they were said."""
    return _in_order("conversations")


def chats(half: Half) -> Part:
    """All turns of a half, in the order in which they were said."""
    return _in_order(half)


def languages(half: Half) -> list[list[str]]:
    """Notes in other languages: of each the language, its text, and a question in its language and
    in English."""
    lines = (_DIRECTORY / "languages" / f"{half}.tsv").read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines]


def with_languages(half: Half) -> Part:
    """The notes, and among them those in other languages, about which alone it is asked."""
    entries, questions = list(notes().entries), []
    for number, (language, text, own, english) in enumerate(languages(half)):
        name = f"{language}/{number}"
        entries.append(Entry(name, TODAY - _OLDEST + number * timedelta(days=3), text))
        questions.append(Question(f"{language} in {language}", own, frozenset({name})))
        questions.append(Question(f"{language} in en", english, frozenset({name})))
    return Part(sorted(entries, key=lambda entry: entry.written), questions)


def _in_order(directory: str) -> Part:
    part = _read(directory)
    return Part(sorted(part.entries, key=lambda entry: entry.written), part.questions)


def _read(directory: str) -> Part:
    """Raises `ValueError` for a file that does not keep to the format."""
    entries: list[Entry] = []
    questions: list[Question] = []
    for path in sorted((_DIRECTORY / directory).glob("*.txt")):
        name, written, session = path.stem, TODAY, ""
        for line in path.read_text(encoding="utf-8").splitlines():
            first, _, rest = line.partition(" ")
            if first == "##":
                name, _, moment = rest.partition(" ")
                written, session = datetime.fromisoformat(moment).replace(tzinfo=UTC), name
            elif first == "?":
                questions.append(_question(name, rest))
            else:
                role, _, said = rest.partition(" ") if session else ("", "", rest)
                moment_said = written + int(first) * _PAUSE
                entries.append(Entry(f"{name}/{int(first)}", moment_said, said, role, session))
    _check(entries, questions)
    return Part(entries, questions)


def _question(name: str, line: str) -> Question:
    labels, _, text = line.partition(" | ")
    kind, *answers = labels.split()
    if kind not in KINDS or not answers or not text:
        raise ValueError(f"{name}: not a question: {line}")
    full = (answer if "/" in answer else f"{name}/{answer}" for answer in answers)
    return Question(kind, text, frozenset(full))


def _check(entries: Sequence[Entry], questions: Sequence[Question]) -> None:
    names = {entry.name for entry in entries}
    problems = [*_repeated(entry.name for entry in entries)]
    problems += [f"{q.text}: {answer}" for q in questions for answer in q.answers - names]
    if problems:
        raise ValueError(f"names given twice, or asked for and not there: {problems}")


def _repeated(names: Iterator[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield name
        seen.add(name)
