"""What a model sees in place of a secret, and the way back into a file or a note.

A model that reads `DB_PASSWORD=hunter22` sees `DB_PASSWORD=[redacted:5f0c2a91b7e4]`, and what it
writes with that placeholder is stored with the password. So a text that is read and written again
loses nothing. A secret of the launch is `[redacted]` and nothing turns it back.

Placeholders belong to one session and live in memory only. What they stand for is stored nowhere
else: after a restart, or in another session, they cannot be turned back, and the write is refused.
"""

import hashlib
import re
import secrets
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final, Literal

from guest.errors import ToolError
from guest.tools.redaction.scrubber import REDACTED, Scrubber

Destination = Literal["file", "note"]

_PLACEHOLDER: Final = re.compile(r"\[redacted:[0-9a-f]{12}\]")
_BEGINS: Final = "[redacted"
_ANY: Final = re.compile(rf"{_PLACEHOLDER.pattern}|{re.escape(REDACTED)}|{re.escape(_BEGINS)}:")
_DISTINCT_CHARS: Final = 12
_SESSION_MAX_CHARS: Final = 1_000_000
_SESSIONS_MAX: Final = 100


def is_placeholder(text: str) -> bool:
    """Whether `text` is the placeholder of a secret of some session, and nothing else."""
    return _PLACEHOLDER.fullmatch(text) is not None


def placeholder_in(text: str) -> str:
    """The first placeholder of a secret of some session in `text`; empty if there is none."""
    found = _PLACEHOLDER.search(text)
    return found[0] if found else ""


@dataclass(frozen=True)
class _Secret:
    """A secret that was shown; `in_files`: where commands can read it, too."""

    text: str
    in_files: bool


class SessionSecrets:
    """The secrets that one session was shown, each with its placeholder.

    The oldest are dropped when they take too much memory.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._secrets: OrderedDict[str, _Secret] = OrderedDict()
        self._chars = 0

    def placeholder(self, secret: str, *, in_files: bool) -> str:
        """What stands for `secret` in this session, always the same.

        Text that only says `[redacted]` has one, too, so that it can be told from a secret.
        """
        if is_placeholder(secret):
            return secret
        digest = hashlib.blake2b(secret.encode(), digest_size=6, key=self._key).hexdigest()
        word = f"[redacted:{digest}]"
        in_files = in_files or secret == REDACTED
        known = self._secrets.pop(word, None)
        if known is None:
            known = _Secret(secret, in_files)
            self._chars += len(secret)
        self._secrets[word] = replace(known, in_files=known.in_files or in_files)
        while self._chars > _SESSION_MAX_CHARS:
            self._chars -= len(self._secrets.popitem(last=False)[1].text)
        return word

    def distinct(self) -> list[str]:
        """The secrets that are no ordinary words, and are hidden wherever they stand."""
        return [
            one.text
            for one in self._secrets.values()
            if len(one.text) >= _DISTINCT_CHARS and not one.text.isalpha()
        ]

    def turned_back(
        self, text: str, into: Destination, scrubber: Scrubber, *, stored: bool = True
    ) -> str:
        """`text` with the secrets in place of their placeholders.

        Args:
            text: What a model wrote for a file or a note.
            into: Where it goes. Into files go only secrets that were read where commands can read
                them: what a note or /vault holds must not reach the shell.
            scrubber: Recognises secrets. One that it would not recognise in its new place would be
                shown to a model the next time.
            stored: Whether the text is stored, and not only looked for.

        Raises:
            ToolError: A placeholder cannot be turned back, or must not be.
        """
        if _BEGINS not in text:
            return text
        pieces: list[str] = []
        spans: list[tuple[int, int, str]] = []
        done = length = 0
        for found in _ANY.finditer(text):
            secret = self._secret(found[0], into)
            between = text[done : found.start()]
            length += len(between)
            pieces += (between, secret)
            if secret != REDACTED:
                spans.append((length, length + len(secret), found[0]))
            length += len(secret)
            done = found.end()
        whole = "".join((*pieces, text[done:]))
        if stored:
            hidden = scrubber.found(whole)
            for start, end, word in spans:
                if not any(one.start <= start and end <= one.end for one in hidden):
                    raise ToolError(
                        f"nothing was changed: {word} would be readable in its new place; write it "
                        "right behind its name, as it stood where it was read, such as password=…"
                    )
        return whole

    def _secret(self, word: str, into: Destination) -> str:
        if word == REDACTED:
            raise ToolError(
                f"nothing was changed: {REDACTED} stands for a secret that is put back nowhere; "
                "leave it out, or change only the parts beside it with file_edit"
            )
        known = self._secrets.get(word)
        if known is None or (known.text != REDACTED and _ANY.search(known.text)):
            raise ToolError(
                f"nothing was changed: {word} stands for a secret that is not known in this "
                "session, or no longer; read the text again, and write what it shows then"
            )
        if into == "file" and not known.in_files:
            raise ToolError(
                f"nothing was changed: {word} is from memory or /vault, and what is written to a "
                "file can be read by commands; ask the user to put it there"
            )
        return known.text


class Placeholders:
    """The secrets of all sessions of a guest, which forgets those that were not used for long."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._sessions: OrderedDict[tuple[str, str], SessionSecrets] = OrderedDict()

    def of(self, user_id: str, session_id: str) -> SessionSecrets:
        name = (user_id, session_id)
        found = self._sessions.pop(name, None)
        if found is None:
            salt = repr(name).encode()
            found = SessionSecrets(hashlib.blake2b(salt, key=self._key, digest_size=32).digest())
        self._sessions[name] = found
        if len(self._sessions) > _SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return found

    def forget(self, user_id: str, session_id: str) -> None:
        self._sessions.pop((user_id, session_id), None)


def refuse_placeholders(text: str, where: str) -> None:
    """Raise `ToolError` if `text`, which goes to `where`, holds a placeholder."""
    if found := _ANY.search(text):
        raise ToolError(
            f"nothing was done: {found[0]} stands for a secret, which {where} does not get; to "
            "change a text that holds it, use file_edit, file_write or a tool of memory"
        )
