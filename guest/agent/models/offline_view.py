"""What the built-in model knows of a conversation: the user's command, this turn's tool results,
and the note that "that" refers to."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from guest.agent.receipts.second_chance import FROM_THE_RUNTIME
from guest.agent.turn import ATTACHED, TIME

_STOP_WORDS = frozenset(
    """
    a about am an and are be been by can could did do does for from had has have he her hers him
    his how i if in is it its me mine my of on or our ours she should so that the their them
    they this to us was we were what when where which who whom whose why will with would you
    your yours user
    """.split()  # noqa: SIM905 - a list of 70 quoted words is harder to read
)

_TIME = re.compile(rf"{TIME}\w+, (\d{{4}}-\d\d-\d\d) ")

Hits = list[dict[str, Any]]


@dataclass(frozen=True)
class Outcome:
    """One finished tool call. `data` is its JSON result, None if it has none; `notes` are the
    `Note: ` lines after that."""

    tool: str
    arguments: dict[str, Any]
    ok: bool
    text: str
    data: Any
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Focus:
    """The note that the conversation is about. `topic` is the user's name for it. `fresh` means
    that the previous turn saved, found or changed it."""

    note_id: str
    text: str
    topic: str
    fresh: bool = True


@dataclass(frozen=True)
class View:
    """One request to the built-in model. `outcomes` are those of the current turn, in order;
    `focus` is the one at its beginning; `offered` names the tools that may be called, `attached`
    describes the files that came with the command. `today` is the user's day."""

    command: str
    outcomes: tuple[Outcome, ...]
    focus: Focus | None
    offered: frozenset[str]
    attached: tuple[str, ...] = ()
    today: date | None = None


def read(messages: Sequence[ModelMessage], offered: Iterable[str]) -> View:
    """The view of a conversation that pydantic-ai gives to a model."""
    view = View("", (), None, frozenset(offered))
    attached: tuple[str, ...] = ()
    calls: dict[str, ToolCallPart] = {}
    for message in messages:
        if not isinstance(message, ModelRequest):
            calls.update((part.tool_call_id, part) for part in message.tool_calls)
            continue
        for part in message.parts:
            if isinstance(part, UserPromptPart) and not (
                part is not message.parts[-1] and str(part.content).startswith(FROM_THE_RUNTIME)
            ):
                text = part.content if isinstance(part.content, str) else ""
                if time := _TIME.match(text):
                    view = replace(view, today=date.fromisoformat(time[1]))
                    continue
                if text.startswith(ATTACHED):
                    attached = tuple(line.removeprefix("- ") for line in text.splitlines()[1:])
                    continue
                view = replace(view, command=text.strip(), outcomes=(), focus=_refocus(view))
                view, attached = replace(view, attached=attached), ()
            elif isinstance(part, ToolReturnPart):
                outcome = _outcome(part, calls.get(part.tool_call_id))
                view = replace(view, outcomes=(*view.outcomes, outcome))
    return view


def content_words(text: str) -> frozenset[str]:
    """The words of `text` that carry meaning, in lower case and without the endings of plurals
    and genitives."""
    words = re.findall(r"[^\W_]+(?:'\w+)?", text.casefold())
    return frozenset(_singular(word) for word in words if word not in _STOP_WORDS)


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    return re.sub(r"(?<=..)'?s$", "", word)


def found_and_related(hits: Hits, topic: str) -> tuple[Hits, Hits]:
    """Split search results into those about `topic` and merely related ones.

    If some results have every word of the topic, only those are about it; else those that have one;
    else, where a word has another form in them, all found by keyword. A result found by meaning
    alone, or by the words of notes beside it, is only related.
    """
    by_keyword = [hit for hit in hits if _has_a_word(hit)]
    wanted = content_words(topic)
    sharing = [hit for hit in by_keyword if wanted & content_words(str(hit.get("text", "")))]
    known = surely_about(hits, topic) or sharing or by_keyword
    return known, [hit for hit in hits if hit not in known]


def surely_about(hits: Hits, topic: str) -> Hits:
    """The results with every word of `topic`: certain enough to change or delete them."""
    wanted = content_words(topic)
    return [
        hit
        for hit in hits
        if wanted and _has_a_word(hit) and wanted <= content_words(str(hit.get("text", "")))
    ]


def _has_a_word(hit: dict[str, Any]) -> bool:
    return hit.get("matched_by") in ("keyword", "both")


def subject_of(text: str) -> str:
    """What a note is about: the words before its first "is", "are", "was", "=" or ":"."""
    match = re.match(r"\s*(\S.{0,78}?)\s*(?:\s(?:is|are|was|were)\s|[=:])", text, re.IGNORECASE)
    return match[1] if match else ""


def _outcome(part: ToolReturnPart, call: ToolCallPart | None) -> Outcome:
    text = part.content if isinstance(part.content, str) else part.model_response_str()
    data, rest = None, ""
    if part.outcome == "success":
        try:
            data, end = json.JSONDecoder().raw_decode(text)
            rest = text[end:]
        except ValueError:
            data = None
    return Outcome(
        tool=part.tool_name,
        arguments=call.args_as_dict() if call else {},
        ok=part.outcome == "success",
        text=text,
        data=data,
        notes=tuple(line for line in rest.splitlines() if line.startswith("Note: ")),
    )


def _refocus(view: View) -> Focus | None:
    """The note that "that" refers to after the turn in `view`."""
    focus = replace(view.focus, fresh=False) if view.focus else None
    for outcome in view.outcomes:
        if outcome.ok:
            focus = _FOLLOW.get(outcome.tool, _unchanged)(outcome, focus)
    return focus


def _unchanged(_: Outcome, focus: Focus | None) -> Focus | None:
    return focus


def _after_write(outcome: Outcome, focus: Focus | None) -> Focus | None:
    note_id = outcome.data.get("note_id") if isinstance(outcome.data, dict) else None
    if not isinstance(note_id, str) or not note_id:
        return focus
    text = str(outcome.arguments.get("content", ""))
    kept = focus.topic if focus and focus.note_id == note_id else ""
    return Focus(note_id, text, kept or subject_of(text))


def _after_search(outcome: Outcome, _: Focus | None) -> Focus | None:
    topic = str(outcome.arguments.get("query", ""))
    found = surely_about(hits_of(outcome), topic)
    if len(found) != 1:
        return None
    return Focus(str(found[0].get("note_id", "")), str(found[0].get("text", "")), topic)


def _after_delete(outcome: Outcome, focus: Focus | None) -> Focus | None:
    gone = outcome.arguments.get("note_id")
    return None if focus and focus.note_id == gone else focus


_FOLLOW = {
    "memory_save": _after_write,
    "memory_update": _after_write,
    "memory_search": _after_search,
    "memory_delete": _after_delete,
}


def hits_of(outcome: Outcome) -> Hits:
    """The search results in `outcome`; none if it has no list."""
    data = outcome.data
    return [hit for hit in data if isinstance(hit, dict)] if isinstance(data, list) else []
