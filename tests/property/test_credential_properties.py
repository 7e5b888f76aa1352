"""A credential's value leaves at its place alone, its placeholder never, and no value comes in."""

import base64
import gzip
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.egress.rules import PREFIX, new_placeholder
from wire.v1 import egress_pb2

from egress.credentials.bodies import Incoming, MisplacedError, Outgoing, UnreadableError
from egress.credentials.credentials import Credentials, RequestHead
from egress.credentials.redaction import Redaction, Values, forms_of
from tests.support.examples import examples

VALUE = "ghp_Zk3/vQ+9x~Jw==7&Xq"
PLACES = {"bearer": "bearer", "basic": "basic", "own": "header:X-Key", "asked": "query:key"}
MESSAGES = {
    name: egress_pb2.EgressCredential(
        name=name,
        placeholder=new_placeholder(name),
        value=f"{VALUE}{name}",
        hosts=["api.example.org", "git.example.org:8443"],
        methods=["GET", "POST"],
        place=place,
    )
    for name, place in PLACES.items()
}
CREDENTIALS = Credentials.of(MESSAGES.values())
VALUES = CREDENTIALS.hidden("api.example.org", 443)
HEAD = RequestHead(
    "https", "api.example.org", 443, "GET", "/repos?page=2&q=a%20b", (("Accept", "*/*"),)
)


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def with_header(head: RequestHead, name: str, value: str) -> RequestHead:
    return replace(head, headers=(*head.headers, (name, value)))


def in_query(head: RequestHead, name: str, value: str) -> RequestHead:
    return replace(head, target=f"{head.target}&{name}={value}")


PUT: dict[str, Callable[[RequestHead, str], RequestHead]] = {
    "bearer": lambda head, text: with_header(head, "Authorization", f"Bearer {text}"),
    "token": lambda head, text: with_header(head, "authorization", f"token {text}"),
    "basic, password": lambda head, text: with_header(head, "Authorization", basic("me", text)),
    "basic, user": lambda head, text: with_header(head, "Authorization", basic(text, "x")),
    "own": lambda head, text: with_header(head, "x-key", text),
    "asked": lambda head, text: in_query(head, "key", text),
    "asked, escaped": lambda head, text: in_query(head, "%6bey", text.replace("-", "%2d")),
    "another header": lambda head, text: with_header(head, "X-Other", f"a {text}"),
    "a header's name": lambda head, text: with_header(head, text, "1"),
    "cookie": lambda head, text: with_header(head, "Cookie", f"a=1; b={text.upper()}"),
    "path": lambda head, text: replace(head, target=f"/a/{text}/b"),
    "another parameter": lambda head, text: in_query(head, "other", text),
    "a parameter's name": lambda head, text: in_query(head, text, "1"),
    "more in the parameter": lambda head, text: in_query(head, "key", f"{text}x"),
}
RIGHT = {
    "bearer": {"bearer", "token"},
    "basic": {"basic, password", "basic, user"},
    "own": {"own"},
    "asked": {"asked", "asked, escaped"},
}


def text_of(head: RequestHead) -> str:
    return "\n".join((head.target, *(f"{name}: {value}" for name, value in head.headers)))


def shown(head: RequestHead, value: str) -> bool:
    return any(form.decode() in text_of(head) for form in forms_of(value))


def escaped(text: str, which: list[bool], depth: int) -> str:
    """`text` with some letters percent-encoded, `depth` times over."""
    percent = "%" + "25" * (depth - 1)
    return "".join(
        f"{percent}{ord(letter):02{'x' if index % 2 else 'X'}}" if chosen else letter
        for index, (letter, chosen) in enumerate(zip(text, which, strict=False))
    )


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces, done = [], 0
    for size in sizes:
        pieces.append(data[done : done + size])
        done += size
    return [*pieces, data[done:]]


sizes = st.lists(st.integers(0, 40), max_size=30)


@given(
    st.sampled_from(sorted(PLACES)),
    st.sampled_from(sorted(PUT)),
    st.sampled_from(["api.example.org", "git.example.org", "example.org", "evil.example"]),
    st.sampled_from([443, 80, 8443]),
    st.sampled_from(["https", "http"]),
    st.sampled_from(["GET", "POST", "DELETE"]),
)
@examples(200)
def test_a_value_leaves_at_its_place_alone_and_a_placeholder_never(
    name: str, where: str, host: str, port: int, scheme: str, method: str
) -> None:
    message = MESSAGES[name]
    head = PUT[where](
        replace(HEAD, scheme=scheme, host=host, port=port, method=method), message.placeholder
    )
    fits = (
        where in RIGHT[name]
        and (host, port) in {("api.example.org", 443), ("git.example.org", 8443)}
        and scheme == "https"
        and method != "DELETE"
    )
    if not fits:
        with pytest.raises(MisplacedError) as refused:
            CREDENTIALS.fill(head)
        assert PREFIX not in str(refused.value).lower()
        assert message.value not in str(refused.value)
        return
    filled = CREDENTIALS.fill(head)
    assert shown(filled, message.value)
    assert PREFIX not in text_of(filled).lower()
    back = PUT[where](replace(head, target=HEAD.target, headers=HEAD.headers), message.value)
    if "asked" not in where:
        assert set(filled.headers) == {*back.headers, ("Accept-Encoding", "identity")}
        assert filled.target == HEAD.target
    else:
        assert parse_qsl(filled.target)[-1] == ("key", message.value)


@given(
    st.sampled_from(sorted(PUT)),
    st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=34, max_size=57),
    st.lists(st.booleans(), min_size=80, max_size=80),
    st.integers(1, 4),
)
@examples(120)
def test_what_looks_like_a_placeholder_goes_nowhere(
    where: str, rest: str, which: list[bool], depth: int
) -> None:
    """An old one, another user's, or one that is written in another way."""
    text = escaped(PREFIX + rest, which, depth)
    with pytest.raises(MisplacedError):
        CREDENTIALS.fill(PUT[where](HEAD, text))
    with pytest.raises(MisplacedError):
        Credentials().fill(PUT[where](HEAD, text))


@given(st.sampled_from(sorted(PUT)), st.text("abc-0123%…. ", max_size=10))
@examples(100)
def test_what_only_mentions_placeholders_is_none(where: str, rest: str) -> None:
    """As the documentation of this very software does."""
    text = f"{PREFIX}github-{rest}"
    assert CREDENTIALS.fill(PUT[where](HEAD, text))
    assert sent(Outgoing(), [text.encode()]) == (text.encode(), False)


@given(
    st.text("/abc%20?&=;+.~", max_size=60),
    st.lists(
        st.tuples(st.sampled_from(["X-A", "Authorization", "Cookie"]), st.text(max_size=30)),
        max_size=4,
    ),
)
@examples(200)
def test_a_request_without_placeholders_stays_as_it_is(
    target: str, headers: list[tuple[str, str]]
) -> None:
    head = replace(HEAD, host="other.example.org", target=f"/{target}", headers=tuple(headers))
    assert CREDENTIALS.fill(head) == head


def sent(outgoing: Outgoing, pieces: list[bytes]) -> tuple[bytes, bool]:
    """What left, and whether the request was stopped."""
    left = b""
    try:
        for piece in pieces:
            left += outgoing.feed(piece)
        return left + outgoing.end(), False
    except MisplacedError:
        return left, True


WRITTEN: dict[str, Callable[[str], bytes]] = {
    "plain": str.encode,
    "upper case": lambda text: text.upper().encode(),
}


@given(
    st.binary(max_size=300),
    st.binary(max_size=300),
    st.sampled_from([*sorted(WRITTEN), "escaped", "absent"]),
    st.lists(st.booleans(), min_size=80, max_size=80),
    st.sampled_from(["", "identity", "gzip", "X-GZIP", "deflate"]),
    sizes,
)
@examples(200)
def test_a_body_with_a_placeholder_never_leaves_however_it_comes(
    before: bytes, after: bytes, form: str, which: list[bool], encoding: str, sizes: list[int]
) -> None:
    text = MESSAGES["bearer"].placeholder
    if form == "escaped":
        written = escaped(text, which, 2).encode()
    else:
        written = b"" if form == "absent" else WRITTEN[form](text)
    body = before + written + after
    if encoding.lower().endswith("gzip"):
        coded = gzip.compress(body)
    else:
        coded = zlib.compress(body) if encoding == "deflate" else body
    left, stopped = sent(Outgoing(encoding), cut(coded, sizes))
    assert stopped == (form != "absent")
    if stopped:
        assert left != coded
        assert written not in left
        assert coded.startswith(left)
    else:
        assert left == coded


RAW = zlib.compressobj(wbits=-15)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("br", b""),
        ("gzip, br", b""),
        ("gzip", b"plain text"),
        ("gzip", gzip.compress(b"cut off")[:-3]),
        ("deflate", RAW.compress(b"without a header") + RAW.flush()),
        ("gzip", gzip.compress(bytes(300_000_000), 9)),
    ],
    ids=["brotli", "two", "not compressed", "cut off", "raw", "a bomb"],
)
def test_a_body_that_cannot_be_searched_goes_nowhere_and_the_answer_says_how_to_send_it(
    encoding: str, body: bytes
) -> None:
    def send() -> None:
        outgoing = Outgoing(encoding)
        outgoing.feed(body)
        outgoing.end()

    with pytest.raises(MisplacedError, match="placeholder of a credential; send it uncompressed"):
        send()


def masked(values: list[str], data: bytes) -> bytes:
    """The model: every byte of every form of a value, wherever it stands in the whole."""
    shown = bytearray(data)
    for form in {form for value in values for form in forms_of(value)}:
        for at in range(len(data)):
            if data.startswith(form, at):
                shown[at : at + len(form)] = b"*" * len(form)
    return bytes(shown)


values = st.lists(st.text('ab/+%"&', min_size=1, max_size=9), min_size=1, max_size=3)


@st.composite
def answers(draw: st.DrawFn) -> tuple[list[str], bytes]:
    secrets = draw(values)
    forms = sorted({form for value in secrets for form in forms_of(value)})
    whole = st.sampled_from(forms)
    part = whole.flatmap(lambda form: st.integers(0, len(form)).map(lambda end: form[:end]))
    noise = st.text('ab/+%"&\\x', max_size=8).map(str.encode)
    return secrets, b"".join(draw(st.lists(st.one_of(whole, part, noise), max_size=12)))


@given(answers(), sizes)
@examples(250)
def test_an_answer_is_redacted_alike_however_it_comes(
    answer: tuple[list[str], bytes], sizes: list[int]
) -> None:
    secrets, data = answer
    stream = Redaction(Values(secrets))
    got = b"".join(map(stream.feed, cut(data, sizes))) + stream.end()
    assert got == masked(secrets, data)


@pytest.mark.parametrize(
    "said",
    [
        VALUE,
        "ghp_Zk3%2FvQ%2B9x~Jw%3D%3D7%26Xq",
        "ghp_Zk3%2fvQ%2b9x~Jw%3d%3d7%26Xq",
        "".join(f"%{byte:02x}" for byte in VALUE.encode()),
        json.dumps(VALUE).replace("/", "\\/"),
        "ghp_Zk3/vQ+9x~Jw==7&amp;Xq",
        VALUE.encode().hex(),
        VALUE.encode().hex().upper(),
        base64.b64encode(VALUE.encode()).decode(),
        base64.urlsafe_b64encode(f"me:{VALUE} ".encode()).decode(),
    ],
)
def test_each_spelling_that_the_guide_names_comes_in_without_the_key(said: str) -> None:
    """docs/guide/egress.md: percent-encoded, escaped for JSON or HTML, hexadecimal, base64."""
    stream = Redaction(Values([VALUE]))
    got = stream.feed(f"<{said}>".encode()) + stream.end()
    assert not {said[at : at + 8] for at in range(4, len(said) - 11)} & set(eights(got.decode()))


def eights(text: str) -> list[str]:
    return [text[at : at + 8] for at in range(len(text) - 7)]


@given(
    st.lists(st.text("abAB01", min_size=8, max_size=8), min_size=2, max_size=2),
    st.lists(st.text('abAB01 -\n"', max_size=12).map(str.encode), max_size=8),
)
@examples(120)
def test_when_an_answer_comes_tells_nothing_about_the_value(
    secrets: list[str], pieces: list[bytes]
) -> None:
    """Else a server that repeats guesses would tell its first letters, one after the other."""
    guessed = [secrets[0][:4].encode(), *pieces]
    one, other = (Redaction(Values([secret])) for secret in secrets)
    for piece in guessed:
        assert len(one.feed(piece)) == len(other.feed(piece))


@given(st.binary(max_size=200), st.sampled_from(["", "gzip", "deflate"]), sizes, st.booleans())
@examples(200)
def test_a_value_never_comes_in_not_even_compressed(
    around: bytes, encoding: str, sizes: list[int], cut_off: bool
) -> None:
    value = MESSAGES["bearer"].value
    body = around + value.encode() + around
    pack: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}
    coded = pack.get(encoding, bytes)(body)
    incoming = Incoming(VALUES, encoding)
    pieces = cut(coded[:-9] if cut_off else coded, sizes)
    got = b"".join(map(incoming.feed, pieces))
    if cut_off and encoding:
        with pytest.raises(UnreadableError):
            incoming.end()
        assert value.encode() not in got
        return
    got += incoming.end()
    assert value.encode() not in got
    if not cut_off:
        assert got == masked([message.value for message in MESSAGES.values()], body)


@given(st.binary(max_size=400).filter(lambda data: len(data) < 2 or data[:1] != b"x"), sizes)
@examples(100)
def test_any_bytes_as_a_compressed_body_are_an_answer_or_unreadable(
    data: bytes, sizes: list[int]
) -> None:
    for encoding in ("gzip", "deflate"):
        incoming = Incoming(VALUES, encoding)
        try:
            for piece in cut(data, sizes):
                incoming.feed(piece)
            incoming.end()
        except UnreadableError:
            pass
