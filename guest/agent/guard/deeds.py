"""What the calls of a turn really did, and which claims that makes true."""

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from wire.tools import FAMILIES

from guest.agent.guard.claims import Claim, claims_of
from guest.agent.guard.quoting import beginning
from guest.agent.guard.statements import tells_of_a_save
from guest.tools.base import ToolResult

MEMORY_TOOLS: Final = frozenset(
    tool for family in ("memory", "typed_memory", "working_memory") for tool in FAMILIES[family]
)
_LASTING: Final = frozenset({"memory_save", "memory_update", "remember", "write_memory"})
SAVES: Final = _LASTING | {"write_session_handoff", "scratch_note"}
_OVERWRITES: Final = frozenset(
    {"memory_update", "memory_delete", "forget", "write_memory", "scratch_note"}
)
_REMOVES: Final = frozenset({"memory_delete", "forget"})
_LOOKS: Final = frozenset(
    {"memory_search", "memory_context", "recall", "search_memory", "scratch_note"}
)
_READS: Final = frozenset({"file_read", "file_search", "shell_exec"})
_QUOTED_WORDS_MIN: Final = 3
_READ_WORDS_MIN: Final = 5
_LOOKING: Final = re.compile(
    r"\s*(?:(?:ls|cat|head|tail|e?grep|rg|wc|file|stat|du|df|pwd|echo|printf|date|whoami|id|uname"
    r"|which|ps|diff|less|more|cut|tr|jq)\b[^>;&|\n(`]*+(?:[;&|\n]++\s*+|$))+"
)
"""Commands that only look at something, and send nothing into a file."""


@dataclass(frozen=True)
class Call:
    """One call that ended: with what it was made, and what came back."""

    tool: str
    arguments: dict[str, Any]
    result: ToolResult

    @property
    def data(self) -> Any:
        """The result without its `Note:` lines; None where it is no JSON."""
        try:
            return json.JSONDecoder().raw_decode(self.result.text)[0]
        except ValueError:
            return None

    @property
    def place(self) -> str:
        """What it has saved or removed: a note's id, or the scratchpad."""
        if self.tool == "scratch_note":
            return self.tool
        data = self.data if isinstance(self.data, dict) else {}
        known = data | self.arguments
        return str(known.get("note_id") or known.get("memory_id") or "")

    @property
    def saves(self) -> bool:
        mode = self.arguments.get("mode")
        return self.tool in SAVES and not (
            self.tool == "scratch_note" and mode in ("clear", "read")
        )

    @property
    def removes(self) -> bool:
        return self.tool in _REMOVES or (
            self.tool == "scratch_note" and self.arguments.get("mode") == "clear"
        )

    @property
    def changes(self) -> bool:
        """Whether a tool that may change something has done so, as far as can be seen."""
        if self.tool == "scratch_note":
            return self.arguments.get("mode") != "read"
        if self.tool != "shell_exec":
            return True
        failed = isinstance(self.data, dict) and self.data.get("exit_code") != 0
        return not failed and not _LOOKING.fullmatch(str(self.arguments.get("command", "")))


class Deeds:
    """The calls of one turn. `changing` are the tools that may change anything.

    `kept` are the contents that were saved to stay and are still there, by their notes' ids;
    a scratchpad or a handoff is overwritten by the next. `wrote`: something other than
    memory was changed.
    """

    def __init__(self, changing: Collection[str]) -> None:
        self._changing = frozenset(changing)
        self._looked_up = ""
        self._read = ""
        self._done: set[str] = set()
        self._saved: set[str] = set()
        self._remembers = False
        self._failed: list[tuple[int, Call]] = []
        self.calls: list[Call] = []
        self.kept: dict[str, str] = {}
        self.wrote = False

    def saw(self, tool: str, arguments: Any, result: ToolResult, step: int) -> None:
        """Take note of a call that ended in model request `step`."""
        call = Call(tool, _parsed(arguments), result)
        self.calls.append(call)
        if result.is_error:
            if call.saves:
                self._failed.append((step, call))
            return
        if tool in _LOOKS:
            self._looked_up += result.text
            self._remembers |= _found(call.data)
        if tool in _READS:
            self._read += result.text
        if call.saves:
            self._saved.add(call.place)
            if tool in _LASTING:
                self._keep(call)
            self._make_good(step, call)
        if call.removes:
            self._saved.discard(call.place)
            self.kept.pop(call.place, None)
        if tool in self._changing and call.changes:
            if tool in MEMORY_TOOLS:
                self._done.add("update")
                self._done |= {"delete"} if tool in _OVERWRITES else set()
            else:
                self.wrote = True

    def remembered(self) -> None:
        """Memory was shown, so that "already saved" may be true."""
        self._remembers = True

    def is_false(self, sentence: str, *, of_memory: bool) -> bool:
        """Whether `sentence` claims what no call has done. `of_memory`: what does not say
        of what it speaks means memory, and no file."""
        if tells_of_a_save(sentence) and not self._saved:
            return True
        claims = claims_of(sentence)
        if all(self._is_true(claim, of_memory=of_memory) for claim in claims):
            return False
        of_memory |= any(claim.about == "memory" for claim in claims)
        return not self._read_out(sentence, of_memory=of_memory)

    def unmended(self) -> list[str]:
        """What could not be saved and was not saved later, each with the reason."""
        return [
            f"{beginning(str(call.arguments.get('content', '')))}: {call.result.summary}".lstrip(
                ": "
            )
            for _, call in self._failed
        ]

    @property
    def anything(self) -> bool:
        return self.wrote or bool(self._done)

    def _keep(self, call: Call) -> None:
        content = str(call.arguments.get("content", ""))
        if call.arguments.get("mode") == "append":
            content = f"{self.kept.get(call.place, '')}\n{content}"
        self.kept[call.place] = content

    def _is_true(self, claim: Claim, *, of_memory: bool) -> bool:
        if claim.standing and self._remembers:
            return True
        if claim.about == "files":
            return self.wrote
        done = bool(self._saved) if claim.kind == "save" else claim.kind in self._done
        return done or (self.wrote and claim.about == "any" and not of_memory)

    def _read_out(self, sentence: str, *, of_memory: bool) -> bool:
        """Whether `sentence` is what a note says; or, where it is not of memory, a file or
        a command's output."""
        said = sentence.strip(" \n\t-*•.!")
        words, many = json.dumps(said, ensure_ascii=False)[1:-1], len(said.split())
        if many >= _QUOTED_WORDS_MIN and words in self._looked_up:
            return True
        return not of_memory and many >= _READ_WORDS_MIN and words in self._read

    def _make_good(self, step: int, done: Call) -> None:
        """A later answer's save stands for one that failed: the same, or else the first."""
        earlier = [failed for failed in self._failed if failed[0] < step]
        same = [
            failed
            for failed in self._failed
            if failed[1].arguments.get("content") == done.arguments.get("content")
        ]
        for failed in (same or earlier)[:1]:
            self._failed.remove(failed)


def _found(data: Any) -> bool:
    """Whether a look at memory has brought anything."""
    if isinstance(data, dict):
        return any(data.get(name) for name in ("memories", "context", "content"))
    return bool(data)


def _parsed(arguments: Any) -> dict[str, Any]:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return {}
    return arguments if isinstance(arguments, dict) else {}
