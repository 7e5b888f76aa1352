"""The text of documents by their parts: pages, sheets, slides, chapters. The content decides what a
document is. Nothing in it is run, fetched or expanded."""

import email
import email.policy
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from email.message import EmailMessage
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

UNPACKED_MAX_BYTES: Final = 128 * 1024 * 1024
_SIDE_MAX_PIXELS: Final = 4_000
_PACKED: Final = (
    ("word/document.xml", "part", r"word/(document|\w+notes|comments)\.xml"),
    ("ppt/presentation.xml", "slide", r"ppt/slides/slide\d+\.xml"),
    ("META-INF/container.xml", "chapter", r".*\.x?html?"),
    ("content.xml", "part", r"content\.xml"),
)
"""What a format is known by, what its parts are called, and which members these are."""
_LINES: Final = frozenset("p h h1 h2 h3 h4 h5 h6 li div title tr table-row pre dt dd".split())  # noqa: SIM905
_CELLS: Final = frozenset({"tc", "td", "th", "table-cell"})
_SPACES: Final = {"tab": "\t", "s": " ", "br": "\n", "line-break": "\n"}


class UnreadableError(Exception):
    """A document cannot be read; the message is why."""


@dataclass(frozen=True)
class Document:
    """An opened document; `text` gives a part by its number, from 1. A part is called `unit`."""

    text: Callable[[int], str]
    unit: str = "part"
    count: int = 1


def open_document(path: Path) -> Document | None:
    """The document in a file; None for an archive that is none. Raises `UnreadableError`, and
    whatever the parsers raise for a damaged one."""
    with path.open("rb") as file:
        head = file.read(8)
    if head.startswith(b"%PDF-"):
        return _pdf(path)
    if head.startswith(b"PK\x03\x04"):
        return _packed(path)
    if head.startswith(b"\xd0\xcf\x11\xe0"):
        raise UnreadableError("it has an old format or a password; save it as .docx, .xlsx or PDF")
    read = _mail if path.suffix.lower() == ".eml" else _recognised
    return Document(lambda _: read(path.read_bytes()))


class _Text(HTMLParser):
    """The text of HTML, or of Office's XML: paragraphs and table rows as lines. It expands no
    entities of a document's own."""

    def __init__(self, content: bytes, *, office: bool) -> None:
        super().__init__()
        self._office = office
        self._pieces: list[str] = []
        self._inside, self._cells = not office, 0
        self.feed(content.decode(errors="replace"))
        self.close()

    def __str__(self) -> str:
        text = re.sub(r" +\| ", " | ", "".join(self._pieces))
        return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t|]*\n", "\n", text))

    def handle_starttag(self, tag: str, _: object) -> None:
        name = tag.rpartition(":")[2]
        if name == "t" or tag in ("script", "style"):
            self._inside = name == "t"
        self._cells += name in _CELLS
        self._pieces.append(_SPACES.get(name, ""))

    def handle_data(self, data: str) -> None:
        if self._inside:
            self._pieces.append(data)

    def handle_endtag(self, tag: str) -> None:
        name = tag.rpartition(":")[2]
        if name == "t" or tag in ("script", "style"):
            self._inside = not self._office
        self._cells -= name in _CELLS
        if name in _CELLS:
            self._pieces.append(" | ")
        elif name in _LINES:
            self._pieces.append(" " if self._cells > 0 else "\n")


def _packed(path: Path) -> Document | None:
    archive = zipfile.ZipFile(path)
    if sum(each.file_size for each in archive.infolist()) > UNPACKED_MAX_BYTES:
        raise UnreadableError(f"it unpacks to more than {UNPACKED_MAX_BYTES >> 20} MiB")
    names = archive.namelist()
    if "xl/workbook.xml" in names:
        return _sheets(path)
    form = next((each for each in _PACKED if each[0] in names), None)
    if form is None:
        return None
    mark, unit, pattern = form
    parts = [each for each in names if re.fullmatch(pattern, each)]
    if unit == "slide":
        parts.sort(key=lambda each: int("".join(filter(str.isdigit, each))))
    office = mark.startswith(("word", "ppt"))

    def text(number: int) -> str:
        return str(_Text(archive.read(parts[number - 1]), office=office))

    return Document(text, unit, len(parts))


def _sheets(path: Path) -> Document:
    import openpyxl

    file = path.open("rb")  # by its name, openpyxl would judge it
    book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)

    def text(number: int) -> str:
        sheet = book.worksheets[number - 1]
        sheet.reset_dimensions()  # what a file says of its size may be anything
        rows = (
            " | ".join("" if each is None else str(each) for each in row).rstrip(" |")
            for row in sheet.iter_rows(values_only=True)
        )
        return "\n".join((sheet.title, *filter(None, rows)))

    return Document(text, "sheet", len(book.worksheets))


def _mail(content: bytes) -> str:
    message = email.message_from_bytes(content, EmailMessage, policy=email.policy.default)
    told = ("From", "To", "Cc", "Date", "Subject")
    lines = [f"{name}: {message[name]}" for name in told if message[name]]
    if (body := message.get_body(("plain", "html"))) is not None:
        words = str(body.get_content())
        html = body.get_content_subtype() == "html"
        lines += ["", str(_Text(words.encode(), office=False)) if html else words]
    attached = (each.get_filename("without a name") for each in message.iter_attachments())
    return "\n".join((*lines, *(f"[attached: {each}]" for each in attached)))


def _pdf(path: Path) -> Document:
    import pypdfium2
    from pypdfium2.raw import FPDF_PAGEOBJ_IMAGE

    pdf = pypdfium2.PdfDocument(path.open("rb"))

    def text(number: int) -> str:
        page = pdf[number - 1]
        words: str = page.get_textpage().get_text_bounded()
        if words.strip() or not any(page.get_objects([FPDF_PAGEOBJ_IMAGE])):
            return words
        scale = min(200 / 72, _SIDE_MAX_PIXELS / max(*page.get_size(), 1))
        seen = page.render(scale=scale, rev_byteorder=True)
        pixels, row = bytes(seen.buffer), seen.width * seen.n_channels
        rows = (pixels[at : at + row] for at in range(0, seen.height * seen.stride, seen.stride))
        kind = "P5" if seen.n_channels == 1 else "P6"
        return _recognised(f"{kind} {seen.width} {seen.height} 255\n".encode() + b"".join(rows))

    return Document(text, "page", len(pdf))


def _recognised(picture: bytes) -> str:
    """What tesseract reads in a picture, in the languages that it has."""
    if (program := shutil.which("tesseract")) is None:
        raise UnreadableError("text in pictures needs tesseract: apt-get install tesseract-ocr")
    options: Any = {"capture_output": True, "env": {"OMP_THREAD_LIMIT": "1"}, "check": False}
    listed = subprocess.run([program, "--list-langs"], **options).stdout.decode()  # noqa: S603
    languages = "+".join(each for each in listed.splitlines()[1:] if each not in ("osd", "equ"))
    words = [program, "stdin", "stdout", "-l", languages]
    done = subprocess.run(words, input=picture, **options)  # noqa: S603
    if done.returncode:
        raise UnreadableError("tesseract cannot read the picture")
    return str(done.stdout, errors="replace")
