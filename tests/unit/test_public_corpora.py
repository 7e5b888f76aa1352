"""Public corpora are read as they are published, and rankings compared in pairs."""

import json
from pathlib import Path

import pytest

from bench.quality import public
from bench.quality.corpus import Question
from bench.quality.measure import figures_by_kind, interval, of_sessions


def written(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_locomo_is_read_as_a_chat_as_notes_and_as_facts(tmp_path: Path) -> None:
    sample = {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Ben",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ann", "dia_id": "D1:1", "text": "Hi!"},
                {"speaker": "Ben", "dia_id": "D1:2", "text": "See", "blip_caption": "a boat"},
            ],
        },
        "observation": {"session_1_observation": {"Ben": [["Ben has a boat.", ["D1:1", "D1:2"]]]}},
        "qa": [
            {"question": "Who has a boat?", "evidence": ["D1:2; D:1:01"], "category": 4},
            {"question": "Who has a car?", "evidence": [], "category": 1},
            {"question": "Has Ann one?", "evidence": ["D1:1"], "category": 5},
        ],
    }
    forms = public.locomo(written(tmp_path / "locomo.json", [sample]))
    said, noted, facts = (forms[form]["conv-1"] for form in ("conversation", "notes", "facts"))
    assert [(e.name, e.role, e.text) for e in said.entries] == [
        ("1/1", "user", "Ann: Hi!"),
        ("1/2", "assistant", "Ben: See [a boat]"),
    ]
    assert {e.role for e in noted.entries} == {""}
    assert noted.entries[0].text == "Ann (8 May 2023): Hi!"
    assert [(e.name, e.text) for e in facts.entries] == [
        ("1/1 1/2", "Ben has a boat. (8 May 2023)")
    ]
    question = Question("fact", "Who has a boat?", frozenset({"1/1", "1/2"}))
    assert said.questions == noted.questions == facts.questions == [question]


def test_longmemeval_is_read_as_chats_of_their_own(tmp_path: Path) -> None:
    sample = {
        "question_id": "q1",
        "question_type": "multi-session",
        "question": "Which car?",
        "haystack_session_ids": ["late", "early"],
        "haystack_dates": ["2023/05/30 (Tue) 23:40", "2023/05/20 (Sat) 02:21"],
        "haystack_sessions": [
            [{"role": "user", "content": "A red one", "has_answer": True}],
            [{"role": "assistant", "content": "Hello", "has_answer": False}],
        ],
    }
    without = {**sample, "question_id": "q2_abs", "haystack_sessions": [[], []]}
    forms = public.longmemeval(written(tmp_path / "longmemeval.json", [sample, without]))
    assert list(forms["conversation"]) == ["q1"]
    part = forms["conversation"]["q1"]
    assert [(e.name, e.role, e.session) for e in part.entries] == [
        ("early/0", "assistant", "early"),
        ("late/0", "user", "late"),
    ]
    assert part.questions[0].answers == {"late/0"}
    assert part.kinds == ["multi-session"]


def test_what_stands_for_several_answers_counts_for_each() -> None:
    question = Question("fact", "?", frozenset({"1/1", "1/2", "2/5"}))
    results = [(question, ["3/1", "1/1 1/2", "1/9", "2/5"])]
    assert figures_by_kind(results)["all"].recall_5 == 1
    assert figures_by_kind(results)["all"].reciprocal_rank == 0.5
    ((sessions, found),) = of_sessions(results)
    assert set(sessions.answers) == {"1", "2"}
    assert found == ["3", "1", "2"]


def test_an_interval_is_of_the_mean() -> None:
    assert interval([0.1, 0.1, 0.1]) == pytest.approx((0.1, 0.1, 0.1))
    mean, low, high = interval([0.0, 1.0, 0.0, 1.0])
    assert (mean, high - mean) == pytest.approx((0.5, mean - low))
    assert low < 0 < high
