"""The program that fetches one page for a person, and ends: `URL`; or asks a search: `URL QUERY`.

It asks as commands do, by egress' rules, and obeys robots.txt. Before it parses an answer it gives
up what that could misuse. To standard output goes a line of JSON, then the text or the picture.
"""

import json
import os
import sys
import urllib.request
from email.message import Message
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urljoin, urlsplit, urlunsplit
from urllib.robotparser import RobotFileParser

from reader.documents import UnreadableError
from reader.read import confine

NAME: Final = "Oxydra"
_HEADERS: Final = {
    "User-Agent": f"{NAME} (an assistant; fetches single pages that its user asks for)",
    "Accept-Encoding": "identity",
}
_BODY_MAX: Final = 8 * 1024 * 1024
_REDIRECTS_MAX: Final = 5
_SAFE: Final = "%/:?#[]@!$&'()*+,;=~"

Answer = tuple[str, int, Message, bytes]
"""Of which address in the end, the status, the headers and the body."""


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Each address is looked at before it is asked."""


_OPENER: Final = urllib.request.build_opener(_Stay)


def ask(url: str, *, robots: bool = False) -> Answer:
    """Ask, and follow redirects; with `robots` only where robots.txt allows it. Raises
    `UnreadableError`."""
    for _ in range(_REDIRECTS_MAX + 1):
        url = _plain(url)
        if robots:
            _obey_robots(url)
        request = urllib.request.Request(url, headers=_HEADERS)  # noqa: S310 - looked at
        try:
            try:
                answer = _OPENER.open(request)
            except HTTPError as error:
                answer = error
            with answer:
                status, headers, body = answer.status, answer.headers, answer.read(_BODY_MAX + 1)
        except (OSError, HTTPException) as error:
            why = f"{error}; [egress.shell] says what may leave"
            raise UnreadableError(f"the host cannot be reached: {why}") from None
        if len(body) > _BODY_MAX:
            raise UnreadableError(f"it has more than {_BODY_MAX >> 20} MiB")
        if status not in (301, 302, 303, 307, 308) or not headers.get("location"):
            return url, status, headers, body
        url = urljoin(url, headers["location"])
    raise UnreadableError(f"it redirects more than {_REDIRECTS_MAX} times")


def _plain(url: str) -> str:
    """An address as servers get it. Raises `UnreadableError` for what is none."""
    try:
        scheme, place, path, query, _ = urlsplit(url)
        place = place.encode("idna").decode()
    except ValueError:
        place = ""
    if not place or "@" in place or scheme not in ("http", "https"):
        raise UnreadableError("only http:// and https:// are asked, without a password")
    return urlunsplit((scheme, place, quote(path or "/", _SAFE), quote(query, _SAFE), ""))


def _obey_robots(url: str) -> None:
    """Raises `UnreadableError` if programs shall not ask for an address, and if the server fails to
    say so. One that has no robots.txt does not mind."""
    _, status, _, body = ask(urljoin(url, "/robots.txt"))
    rules = RobotFileParser()
    rules.parse(body.decode(errors="replace").splitlines() if status == 200 else ())
    if status >= 500 or not rules.can_fetch(NAME, url):
        raise UnreadableError(f"its robots.txt asks programs not to read it (status {status})")


def _page(answer: Answer) -> tuple[dict[str, Any], bytes]:
    """What a page is, and its text. Raises `UnreadableError`, and whatever parsers raise."""
    url, status, headers, body = answer
    if status != 200:
        raise UnreadableError(f"the server answers with status {status}")
    kind, charset = headers.get_content_type(), headers.get_content_charset()
    words = body.decode(charset, errors="replace") if charset else body
    if kind in ("text/html", "application/xhtml+xml"):
        import trafilatura

        options: Any = {"include_links": True, "with_metadata": True, "favor_recall": True}
        text = trafilatura.extract(words, url, output_format="markdown", **options)
        if not (text := text or trafilatura.html2txt(words)):
            raise UnreadableError("the page has no text: it may make itself by JavaScript")
        body = text.encode(errors="replace")
    elif not kind.startswith("image/"):
        if b"\0" in body[:8192]:
            raise UnreadableError(f"it is {kind}, which is not read here")
        body = words.encode(errors="replace") if isinstance(words, str) else words
    return {"url": url, "kind": kind}, body


def _results(answer: Answer) -> tuple[dict[str, Any], bytes]:
    """What a search of SearXNG has found. Raises `UnreadableError`."""
    try:
        found = json.loads(answer[3])["results"][:10]
        names = {"title": "title", "url": "url", "text": "content"}
        rows = [{name: str(each[key]) for name, key in names.items()} for each in found]
    except (ValueError, KeyError, TypeError, RecursionError):
        why = f"the server answers no search in JSON (status {answer[1]}): see its search.formats"
        raise UnreadableError(why) from None
    return {"results": rows}, b""


def main() -> None:
    """Fetch what the arguments name. What is a document goes to the reader of those."""
    url, *query = sys.argv[1:]
    body, told = b"", dict[str, Any]()
    try:
        asked = urlencode({"q": query[0], "format": "json"}) if query else ""
        answer = ask(f"{url.rstrip('/')}/search?{asked}" if query else url, robots=not query)
        if not query and answer[3].startswith((b"%PDF-", b"PK\x03\x04")):
            file = os.memfd_create("document", 0)
            with os.fdopen(file, "wb", closefd=False) as document:
                document.write(answer[3])
            named = ("reader.read", f"/proc/self/fd/{file}", "1", "0")
            reading = (sys.executable, "-I", "-B", "-m", *named)
            os.execv(reading[0], reading)  # noqa: S606 - our own
        confine()
        told, body = _results(answer) if query else _page(answer)
    except Exception as error:  # parsers raise anything
        known = isinstance(error, UnreadableError | ImportError)
        told = {"error": str(error) if known else f"it is damaged: {type(error).__name__}"}
    sys.stdout.buffer.write(json.dumps(told).encode() + b"\n" + body[:_BODY_MAX])


if __name__ == "__main__":
    main()
