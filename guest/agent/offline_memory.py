"""The built-in model's memory commands: remember, recall, correct, forget."""

import re
from typing import Any

from guest.agent.offline_steps import Call, Say, Step, answer, call_once, failure
from guest.agent.offline_view import (
    Focus,
    Outcome,
    View,
    content_words,
    found_and_related,
    hits_of,
    surely_about,
)

_SHOWN_CHARS = 1200
_RELATED_MAX = 3
_NOTHING_TO_CORRECT = (
    "I do not know which note you mean. Ask what I know about it first, or say: "
    "update NOTE-ID: the new text"
)
_POLITE = re.compile(
    r"(?:no\s+)?(?:thanks?|thank\s+you|never\s*mind|problem|worries)\b.*", re.I | re.S
)


def remember(view: View, match: re.Match[str]) -> Step:
    text = match["text"]
    outcome = call_once(view, "memory_save", content=text)
    if isinstance(outcome, Call):
        return outcome
    note_id = _field(outcome, "note_id")
    if not outcome.ok or not note_id:
        return failure("I could not save that", outcome)
    message = _field(outcome, "message")
    if not message.startswith("Stored"):
        return answer(message, outcome)
    similar = outcome.data.get("similar") or []
    known = message.partition("]")[2]
    lines = [f"Saved: {_shown(text)} [id: {note_id}]{known}"]
    if similar:
        lines += ["Similar notes:", *(_line(hit) for hit in similar if isinstance(hit, dict))]
    return answer("\n".join(lines), outcome)


def recall(view: View, match: re.Match[str]) -> Step:
    topic = _topic(match["topic"])
    outcome = _search(view, topic)
    if isinstance(outcome, Call):
        return outcome
    if not outcome.ok or outcome.data is None:
        return failure("I could not search the notes", outcome)
    found, related = found_and_related(hits_of(outcome), topic)
    related = related[:_RELATED_MAX]
    about = _mirrored(topic)
    if found:
        said = f"This is what I know about {about}:\n" + "\n".join(map(_line, found))
        if related:
            said += "\nPossibly related:\n" + "\n".join(map(_line, related))
    elif related and content_words(topic):
        said = (
            f"I know nothing about {about} in these words. Possibly related, found by meaning "
            "only:\n" + "\n".join(map(_line, related))
        )
    elif related:
        said = "These notes may be related:\n" + "\n".join(map(_line, related))
    else:
        said = f"I know nothing about {about}."
    return answer(said, outcome)


def correct(view: View, match: re.Match[str]) -> Step:
    if view.focus is None:
        return Say(_NOTHING_TO_CORRECT)
    return _change(view, view.focus, match["text"] or match["text2"])


def contradict(view: View, match: re.Match[str]) -> Step | None:
    """ "no, …" corrects only what the turn before was about, and never a polite no."""
    if view.focus is None or not view.focus.fresh or _POLITE.fullmatch(match["text"]):
        return None
    return _change(view, view.focus, match["text"])


def update(view: View, match: re.Match[str]) -> Step:
    return _write(view, match["note_id"], match["text"])


def forget_note(view: View, match: re.Match[str]) -> Step:
    return _delete(view, match["note_id"], "")


def forget_that(view: View, _: re.Match[str]) -> Step:
    if view.focus is None:
        return Say("I do not know which note you mean. Say: forget NOTE-ID, or forget TOPIC")
    return _delete(view, view.focus.note_id, view.focus.text)


def forget_topic(view: View, match: re.Match[str]) -> Step:
    topic = _topic(match["topic"])
    outcome = _search(view, topic)
    if isinstance(outcome, Call):
        return outcome
    if not outcome.ok or outcome.data is None:
        return failure("I deleted nothing, because I could not search the notes", outcome)
    hits = hits_of(outcome)
    matching = surely_about(hits, topic)
    named_so = [hit for hit in matching if _is_about(hit, topic)]
    clear = named_so if len(named_so) == 1 else matching
    if len(clear) == 1:
        return _delete(view, str(clear[0].get("note_id", "")), str(clear[0].get("text", "")))
    candidates = clear or hits
    if not candidates:
        return answer(f"I know nothing about {_mirrored(topic)}; I deleted nothing.", outcome)
    lines = "\n".join(map(_line, candidates))
    why = "Several notes match" if clear else "No note matches for certain"
    return answer(f"{why}; I deleted nothing. Say forget NOTE-ID for one of:\n{lines}", outcome)


def _change(view: View, focus: Focus, text: str) -> Step:
    return _write(view, focus.note_id, _keeping_subject(text, focus.topic))


def _write(view: View, note_id: str, text: str) -> Step:
    outcome = call_once(view, "memory_update", note_id=note_id, content=text)
    if isinstance(outcome, Call):
        return outcome
    if not outcome.ok or not _field(outcome, "note_id"):
        return failure("I changed nothing", outcome)
    return answer(f"Updated: {_shown(text)} [id: {_field(outcome, 'note_id')}]", outcome)


def _delete(view: View, note_id: str, text: str) -> Step:
    outcome = call_once(view, "memory_delete", note_id=note_id)
    if isinstance(outcome, Call):
        return outcome
    if not outcome.ok:
        return failure("I deleted nothing", outcome)
    what = f"Deleted: {_shown(text)} [id: {note_id}]" if text else f"Deleted [id: {note_id}]"
    return answer(what, outcome)


def _search(view: View, topic: str) -> Call | Outcome:
    """Search, and once more for the best note alone where the results were cut short."""
    searches = [outcome for outcome in view.outcomes if outcome.tool == "memory_search"]
    if not searches:
        return Call("memory_search", {"query": topic})
    if len(searches) == 1 and searches[0].ok and searches[0].data is None:
        return Call("memory_search", {"query": topic, "top_k": 1})
    return searches[-1]


def _keeping_subject(text: str, topic: str) -> str:
    """`text` as the user said it, led by `topic` where it would otherwise lose its subject."""
    wanted = content_words(topic)
    if not wanted or wanted & content_words(text):
        return text
    return f"{topic}: {text}"


def _is_about(hit: dict[str, Any], topic: str) -> bool:
    head = re.split(r"\s(?:is|are|was|were)\s|[=:]", str(hit.get("text", "")), maxsplit=1)[0]
    return content_words(head) == content_words(topic)


def _topic(text: str) -> str:
    return text.strip().rstrip("?.! ").strip() or text.strip()


def _mirrored(topic: str) -> str:
    """The user's "my …" as the answer says it."""
    mirrored = re.sub(r"\bmy\b", "your", topic, flags=re.IGNORECASE)
    return "you" if mirrored.casefold() in ("me", "myself") else mirrored


def _line(hit: dict[str, Any]) -> str:
    note_id = hit.get("note_id") or hit.get("id") or "none"
    return f"- {_shown(str(hit.get('text', '')))} [id: {note_id}]"


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}… ({len(text)} characters)"


def _field(outcome: Outcome, name: str) -> str:
    value = outcome.data.get(name) if isinstance(outcome.data, dict) else None
    return value if isinstance(value, str) else ""
