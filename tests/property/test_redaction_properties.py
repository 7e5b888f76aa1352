"""A planted secret never comes through, in whatever form and wherever it stands."""

import asyncio
import json
import string
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from guest.errors import ToolError
from guest.tools.base import Arguments, Excerpt, Safety, Tool, ToolContext, ToolOutput
from guest.tools.files import file_tools
from guest.tools.files.roots import Roots
from guest.tools.output import HostPaths, Reader, Renderer
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.placeholders import Placeholders
from guest.tools.redaction.scrubber import REDACTED, Scrubber
from tests.support.examples import examples
from tests.support.tools.pipelines import cut_out
from tests.support.tools.secret_forms import FORMS, LETTERS, pieces

ALICE = ToolContext("alice", "session-1", "turn-1", "test")
MAX_BYTES = 1024
secrets = st.text(LETTERS, min_size=12, max_size=60).map(lambda text: f'{text}+/%"é7')
around = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=f"{LETTERS}\0"), max_size=400
)


forms = st.sampled_from(sorted(FORMS))


def assert_hidden(shown: str, written: str, form: str) -> None:
    leaked = [piece for piece in pieces(written, form) if piece in shown]
    assert not leaked


@given(secrets, forms, around, around)
def test_a_known_secret_is_hidden_in_any_text(
    secret: str, form: str, before: str, after: str
) -> None:
    written = FORMS[form](secret)
    assert_hidden(Scrubber([secret]).scrub(before + written + after), written, form)


@given(
    st.text(string.ascii_letters + string.digits, min_size=40, max_size=60),
    st.sampled_from(["plain", "hex", "base64", "base64, shifted by 1", "base64, in lines"]),
    around,
    st.integers(0, 200),
)
def test_of_a_secret_over_passages_no_piece_is_shown(
    secret: str, form: str, beside: str, first: int
) -> None:
    """Each passage is seen without those beside it."""
    written = "".join(FORMS[form](secret).split())
    for passage in (written[:first] + f"\n{beside}", f"{beside}\n" + written[first:]):
        shown = Scrubber([secret]).scrub(passage)
        leaked = [
            written[at : at + 22]
            for at in range(2, len(written) - 23)
            if written[at : at + 22] in shown
        ]
        assert not leaked


@given(secrets, forms, around, around, st.data())
def test_a_cut_through_a_secret_hides_what_is_left_of_it(
    secret: str, form: str, before: str, after: str, data: st.DataObject
) -> None:
    written = FORMS[form](secret)
    whole = before + written + after
    first = data.draw(st.integers(0, len(whole)))
    last = data.draw(st.integers(first, len(whole)))
    excerpt = Excerpt(whole[first:last], whole[:first], whole[last:])
    assert_hidden(cut_out(Scrubber([secret]), excerpt), written, form)


@given(st.lists(secrets, min_size=2, max_size=4), st.integers(1, 8))
def test_secrets_that_overlap_are_hidden_whole(known: list[str], shared: int) -> None:
    """The end of each is the beginning of the next."""
    chained, written = [known[0]], known[0]
    for secret in known[1:]:
        chained.append(chained[-1][-shared:] + secret)
        written += secret
    shown = Scrubber(chained).scrub(f"<{written}>")
    assert shown == f"<{REDACTED}>"


@given(around)
def test_text_without_secrets_is_not_touched_by_known_ones(text: str) -> None:
    assert Scrubber(["QZXJVKWqzxjvkw+/"]).scrub(text) == Scrubber().scrub(text)


@given(secrets, forms, around)
def test_redaction_is_stable(secret: str, form: str, before: str) -> None:
    scrub = Scrubber([secret]).scrub
    once = scrub(before + FORMS[form](secret))
    assert scrub(once) == once


CREDENTIALS = st.sampled_from(
    [
        *("AKIA" + "ABCD1234" * 2, "ghp_" + "a1B2" * 9, "sk-proj-" + "0123456789abcdef"),
        *("password=hunter2", 'api_key: "s3cr3t value"', "postgres://user:hunter2@host/db"),
        *("Authorization: Bearer 0123456789abcdef", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx.c2lnb"),
        "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n-----END PRIVATE KEY-----",
        *("[redacted]", "[redacted:0123456789ab]", "[redacted:"),
    ]
)


@given(st.lists(st.one_of(CREDENTIALS, around), max_size=5).map("".join))
def test_what_a_model_writes_again_as_it_stands_is_the_text(text: str) -> None:
    scrubber = Scrubber()
    found = scrubber.found(text)
    assert all(one.start < one.end <= len(text) for one in found)
    assert all(one.end < other.start for one, other in pairwise(found))
    secrets = Placeholders().of("alice", "session-1")
    shown = Renderer(scrubber, HostPaths({}), 2**20).text(text, Reader(secrets, in_files=True))
    if REDACTED in text:
        return
    try:
        assert secrets.turned_back(shown, "file", scrubber) == text
    except ToolError:
        assert "[redacted:" in text


class _Arguments(Arguments):
    """Only what the tests below hand over."""

    where: int = Field(default=0, ge=0, le=10)


def _pipeline(secret: str, output: Any = None, error: str = "") -> ToolPipeline:
    async def run(_: ToolContext, __: _Arguments) -> ToolOutput:
        if error:
            raise ToolError(error)
        assert isinstance(output, ToolOutput)
        return output

    tool = Tool("probe", "a probe", _Arguments, Safety.READ_ONLY, 5, run)
    return ToolPipeline(
        Registry([tool], {"test": ["probe"]}),
        scrubber=Scrubber([secret]),
        max_output_bytes=MAX_BYTES,
    )


def _call(pipeline: ToolPipeline, arguments: Any = None) -> tuple[str, str]:
    result = asyncio.run(pipeline.call(ALICE, "probe", arguments or {}))
    assert len(result.text.encode()) <= MAX_BYTES
    return result.text, result.summary


@examples(80)
@given(secrets, forms, st.integers(MAX_BYTES - 250, MAX_BYTES + 50), st.sampled_from("xé日😀"))
def test_no_truncation_leaves_half_a_secret(
    secret: str, form: str, length: int, filler: str
) -> None:
    """The secret is planted where the result, an error and a note are cut."""
    written = FORMS[form](secret)
    filled = filler * (length // len(filler.encode())) + written + filler * 400
    texts = [
        *_call(_pipeline(secret, ToolOutput({"text": filled}, summary=filled))),
        *_call(_pipeline(secret, ToolOutput([filled, filled]))),
        *_call(_pipeline(secret, error=filled)),
        *_call(_pipeline(secret, ToolOutput({}, notes=(filled[-700 - len(written) :],)))),
    ]
    # In JSON text the planted form is escaped once more: both must be hidden.
    for text in texts:
        assert_hidden(text, written, form)
        assert_hidden(text, json.dumps(written, ensure_ascii=False)[1:-1], form)


@examples(60)
@given(st.text(string.ascii_letters + string.digits, min_size=20, max_size=40), st.integers(0, 59))
def test_a_bad_argument_is_shown_without_its_secret(secret: str, before: int) -> None:
    """The value seen is shortened: that cut, too, comes after redaction."""
    text, summary = _call(_pipeline(secret), {"where": "." * before + secret})
    for piece in pieces(secret, "plain"):
        assert piece not in text
        assert piece not in summary


@examples(40)
@given(
    secret=st.text(string.ascii_letters + string.digits + "+/", min_size=24, max_size=60),
    before=st.integers(0, 40),
    fill=st.integers(12_150, 12_300),
)
def test_no_range_of_a_file_shows_half_a_secret(
    tmp_path_factory: pytest.TempPathFactory, secret: str, before: int, fill: int
) -> None:
    """Planted where file_read ends a piece, and around what file_search shows."""
    base = tmp_path_factory.mktemp("workspace")
    for name in ("shared", "tmp", "vault"):
        (base / name).mkdir()
    one_line = f"{'.' * fill}{secret}{'.' * 500}\n"
    (base / "shared" / "read").write_text(one_line)
    (base / "shared" / "found").write_text(f"{'.' * before}{secret}{'.' * 70}needle{'.' * 60}\n")
    texts = asyncio.run(_look(base, secret))
    for piece in pieces(secret, "plain"):
        assert not any(piece in text for text in texts)


async def _look(base: Path, secret: str) -> list[str]:
    roots = Roots({name: base / name for name in ("shared", "tmp", "vault")})
    pipeline = ToolPipeline(Registry(file_tools(roots)), scrubber=Scrubber([secret]))
    try:
        read = await pipeline.call(ALICE, "file_read", {"path": "/shared/read"})
        found = await pipeline.call(ALICE, "file_search", {"path": "/shared", "query": "needle"})
    finally:
        roots.close()
    assert not read.is_error
    assert "needle" in found.text
    return [read.text, read.summary, found.text, found.summary]
