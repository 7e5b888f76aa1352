"""Public corpora of other people's conversations, from files that each one downloads for itself.

LoCoMo (`locomo10.json`) is ten long conversations of two people; LongMemEval
(`longmemeval_s.json`, `longmemeval_oracle.json`) is five hundred questions with some sessions of a
chat each. Both name the turns that answer a question. They are not in this repository: LoCoMo may
not be used commercially.

A turn has no date in its text, as in a chat; a note or a fact, which stands for itself, has it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from bench.quality.corpus import Entry, Part, Question

Scopes = dict[str, dict[str, Part]]
"""What is measured together: by the form in which it is in memory, then by whose memory it is."""

_TURN: Final = re.compile(r"D:?(\d+):(\d+)")
_KINDS: Final = {1: "several", 2: "date", 3: "open", 4: "fact"}
"""Of LoCoMo's questions. The fifth kind has no answer, so it is left out."""
_PAUSE: Final = timedelta(seconds=1)


def locomo(path: Path) -> Scopes:
    """The conversations of a file, as turns of a chat, as notes, and as the facts that the file
    gives for each session."""
    forms: Scopes = {"conversation": {}, "notes": {}, "facts": {}}
    for sample in json.loads(path.read_text(encoding="utf-8")):
        turns, facts = list(_turns(sample["conversation"])), list(_facts(sample))
        questions = list(_questions(sample["qa"], {turn.name for turn in turns}))
        noted = [_noted(turn) for turn in turns]
        for form, entries in (("conversation", turns), ("notes", noted), ("facts", facts)):
            forms[form][sample["sample_id"]] = Part(entries, questions)
    return forms


def _turns(conversation: Mapping[str, Any]) -> Iterator[Entry]:
    for session, began, turns in _sessions(conversation):
        for place, turn in enumerate(turns):
            role = "user" if turn["speaker"] == conversation["speaker_a"] else "assistant"
            picture = f" [{turn['blip_caption']}]" if turn.get("blip_caption") else ""
            text = f"{turn['speaker']}: {turn['text']}{picture}"
            (name,) = _names(turn["dia_id"])
            yield Entry(name, began + place * _PAUSE, text, role, session)


def _noted(turn: Entry) -> Entry:
    speaker, _, said = turn.text.partition(": ")
    return replace(turn, role="", text=f"{speaker} ({_day(turn.written)}): {said}")


def _day(moment: datetime) -> str:
    return f"{moment.day} {moment:%B %Y}"


def _facts(sample: Mapping[str, Any]) -> Iterator[Entry]:
    for session, began, _ in _sessions(sample["conversation"]):
        by_speaker = sample["observation"].get(f"{session}_observation", {})
        facts = [fact for facts in by_speaker.values() for fact in facts]
        for place, (text, turns) in enumerate(facts):
            moment, dated = began + place * _PAUSE, f"{text} ({_day(began)})"
            yield Entry(" ".join(_names(turns)), moment, dated, "", session)


def _sessions(conversation: Mapping[str, Any]) -> Iterator[tuple[str, datetime, list[Any]]]:
    for name, turns in conversation.items():
        if re.fullmatch(r"session_\d+", name):
            yield name, _moment(conversation[f"{name}_date_time"], "%I:%M %p on %d %B, %Y"), turns


def _questions(asked: list[Any], turns: set[str]) -> Iterator[Question]:
    for question in asked:
        answers = frozenset(_names(question["evidence"])) & turns
        if question["category"] in _KINDS and answers:
            yield Question(_KINDS[question["category"]], question["question"], answers)


def _names(turns: str | list[str]) -> list[str]:
    return [f"{int(session)}/{int(turn)}" for session, turn in _TURN.findall(str(turns))]


def longmemeval(path: Path) -> Scopes:
    """Each question of a file with its own sessions, as a chat; without those that have no
    answer."""
    asked: dict[str, Part] = {}
    for sample in json.loads(path.read_text(encoding="utf-8")):
        sessions = zip(
            sample["haystack_session_ids"],
            sample["haystack_dates"],
            sample["haystack_sessions"],
            strict=True,
        )
        entries: list[Entry] = []
        answers: set[str] = set()
        for number, (session, date, turns) in enumerate(sessions):
            began = _moment(date, "%Y/%m/%d (%a) %H:%M").replace(microsecond=number)
            for place, turn in enumerate(turns):
                name = f"{session}/{place}"
                moment = began + place * _PAUSE
                entries.append(Entry(name, moment, turn["content"], turn["role"], session))
                if turn.get("has_answer"):
                    answers.add(name)
        if answers:
            question = Question(sample["question_type"], sample["question"], frozenset(answers))
            in_order = sorted(entries, key=lambda entry: entry.written)
            asked[sample["question_id"]] = Part(in_order, [question])
    return {"conversation": asked}


def _moment(written: str, form: str) -> datetime:
    return datetime.strptime(f"{written} +0000", f"{form} %z")
