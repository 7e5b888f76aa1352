"""Memory tools over a dict, with the result shapes of the tool contracts and
keyword search alone: what the built-in model must get by on."""

import json
import re
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from wire.tools import FAMILIES

from guest.agent.models import offline

Result = tuple[bool, str]


class Notes:
    """`extra_hits` are appended to every search, such as weak semantic neighbours."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.extra_hits: list[dict[str, Any]] = []
        self.broken = ""
        self._count = 0

    def call(self, tool: str, arguments: dict[str, Any]) -> Result:
        if self.broken:
            return False, self.broken
        result: Result = getattr(self, tool)(**arguments)
        return result

    def memory_save(self, content: str) -> Result:
        self._count += 1
        note_id = f"note-{self._count}"
        self.texts[note_id] = content
        message = f"Stored: [id: {note_id}]"
        answer = {"note_id": note_id, "message": message, "searchable": "keyword", "similar": []}
        return True, json.dumps(answer)

    def memory_update(self, note_id: str, content: str) -> Result:
        if note_id not in self.texts:
            return False, f"note not found: {note_id}; call memory_search to find the right one"
        self.texts[note_id] = content
        return True, json.dumps({"note_id": note_id, "version": 2, "message": "Updated"})

    def memory_delete(self, note_id: str) -> Result:
        if self.texts.pop(note_id, None) is None:
            return False, f"note not found: {note_id}; call memory_search to find the right one"
        return True, json.dumps({"note_id": note_id, "message": "Deleted"})

    def memory_search(self, query: str, top_k: int = 5) -> Result:
        wanted = set(re.findall(r"\w+", query.lower())) - {"my", "the", "is", "of", "a"}
        hits = [
            {"note_id": note_id, "text": text, "score": 0.5, "matched_by": "keyword"}
            for note_id, text in self.texts.items()
            if wanted & set(re.findall(r"\w+", text.lower()))
        ]
        note = "\nNote: semantic search is unavailable: the embedder is loading"
        return True, json.dumps((hits + self.extra_hits)[:top_k]) + note

    def file_read(self, path: str) -> Result:
        return False, f"path is outside /shared, /tmp and /vault: {path}"


class Talk:
    """A conversation with the built-in model over `notes`, as the loop would hold it."""

    def __init__(self, notes: Notes, *, no_shell_reason: str = "") -> None:
        self.notes = notes
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._messages: list[ModelMessage] = []
        self._reason = no_shell_reason
        self._offered = (*FAMILIES["memory"], "file_read")

    def say(self, text: str) -> str:
        self._messages.append(ModelRequest(parts=[UserPromptPart(text)]))
        for number in range(6):
            view = offline.view_of(self._messages, self._offered)
            taken = offline.step(view, self._reason)
            if isinstance(taken, TextPart):
                self._messages.append(ModelResponse(parts=[taken]))
                return taken.content
            tool, arguments = taken.tool_name, taken.args_as_dict()
            call = ToolCallPart(tool, arguments, f"call-{len(self._messages)}-{number}")
            self.calls.append((tool, arguments))
            ok, answer = self.notes.call(tool, arguments)
            self._messages += [
                ModelResponse(parts=[call]),
                ModelRequest(
                    parts=[
                        ToolReturnPart(
                            tool,
                            answer,
                            call.tool_call_id,
                            outcome="success" if ok else "failed",
                        )
                    ]
                ),
            ]
        raise AssertionError("the offline model does not come to an end")
