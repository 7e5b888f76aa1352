"""Texts with secrets in them, as models, people and logs see them.

A secret of the launch is hidden in every form, also where the text is cut; what is hidden stays
hidden. What a model sees in place of another secret is turned back into exactly that secret.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from wire.limits import TOOL_OUTPUT_MAX_BYTES

from guest.errors import ToolError
from guest.tools.base import Excerpt
from guest.tools.output import HostPaths, Reader, Renderer
from guest.tools.redaction.placeholders import Placeholders
from guest.tools.redaction.scrubber import REDACTED, Scrubber
from tests.fuzz.material import Choices, Target, chosen, stateless
from tests.support.tools.pipelines import cut_out
from tests.support.tools.secret_forms import FORMS, LETTERS, pieces

_TAIL: Final = '+/%"é7'
_FORMS: Final = tuple(sorted(FORMS))
_CREDENTIALS: Final = (
    "AKIA" + "ABCD1234" * 2,
    "ghp_" + "a1B2" * 9,
    "sk-proj-" + "0123456789abcdef",
    "password=hunter2",
    'api_key: "s3cr3t value"',
    "Authorization: Bearer 0123456789abcdef",
    "postgres://user:hunter2@host/db",
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n-----END PRIVATE KEY-----",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "[redacted]",
    "[redacted:0123456789ab]",
    "[redacted:",
)


def _one_input(data: bytes) -> None:
    choices = Choices(data)
    letters = bytes(choices.take(12 + choices.below(48))).ljust(12, b"\0")
    secret = "".join(LETTERS[byte % len(LETTERS)] for byte in letters) + _TAIL
    form = choices.one_of(_FORMS)
    written = FORMS[form](secret)
    before, after = _text(choices), _text(choices)
    scrubber = Scrubber([secret])
    whole = before + written + after
    leaks = {piece for piece in pieces(written, form) if piece not in f"{before} {after}"}
    _hidden(scrubber, whole, leaks)
    _cut(choices, scrubber, whole, leaks)
    _there_and_back(scrubber, before + after)


def _text(choices: Choices) -> str:
    """Text without a letter of the secret, with credentials in it."""
    parts = []
    for _ in range(choices.below(5)):
        parts.append(choices.one_of(_CREDENTIALS) if choices.below(2) else choices.text()[:2000])
    without = "".join(parts).translate({ord(letter): "_" for letter in LETTERS})
    return without.replace("\0", "")


def _hidden(scrubber: Scrubber, text: str, leaks: set[str]) -> None:
    once = scrubber.scrub(text)
    assert not any(piece in once for piece in leaks), "a secret is shown"
    assert scrubber.scrub(once) == once, "what is hidden must stay as it is"
    found = scrubber.found(text)
    assert all(one.start < one.end <= len(text) for one in found)
    assert all(one.end < other.start for one, other in pairwise(found))
    assert REDACTED in scrubber.scrub_known(text)


def _cut(choices: Choices, scrubber: Scrubber, text: str, leaks: set[str]) -> None:
    first = choices.below(len(text) + 1)
    last = first + choices.below(len(text) - first + 1)
    shown = cut_out(scrubber, Excerpt(text[first:last], text[:first], text[last:]))
    assert not any(piece in shown for piece in leaks), "a part of it is shown"


def _there_and_back(scrubber: Scrubber, text: str) -> None:
    """What a model sees of a text, written again as it stands, is the text."""
    renderer = Renderer(scrubber, HostPaths({}), TOOL_OUTPUT_MAX_BYTES)
    secrets = Placeholders().of("alice", "session-1")
    shown = renderer.text(text, Reader(secrets, in_files=True))
    if any(one.known for one in scrubber.found(text)) or REDACTED in text:
        return
    try:
        assert secrets.turned_back(shown, "file", scrubber) == text, "the text is another one"
    except ToolError as refusal:
        assert "[redacted:" in text, refusal


def _seeds() -> Mapping[str, bytes]:
    secret = bytes(range(12))
    forms = {f"form-{number}": chosen(0, secret, number, 0, 0) for number in range(len(_FORMS))}
    credentials = {
        f"credential-{number}": chosen(
            0, secret, 0, 3, 0, "before ", 1, number, 0, " after", 1, 1, number
        )
        for number in range(len(_CREDENTIALS))
    }
    return forms | credentials


TARGET = Target("scrubber", 110, stateless(_one_input), _seeds, longest=1024)
