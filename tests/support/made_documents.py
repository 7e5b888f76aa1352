"""Documents of all formats, made here byte by byte: sound ones, damaged ones and hostile ones."""

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from datetime import date
from email.message import EmailMessage
from typing import Final

import openpyxl

WORD: Final = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
DRAWING: Final = "http://schemas.openxmlformats.org/drawingml/2006/main"
SLIDES: Final = "http://schemas.openxmlformats.org/presentationml/2006/main"
LINKS: Final = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE: Final = "http://schemas.openxmlformats.org/package/2006/relationships"
ODF: Final = "urn:oasis:names:tc:opendocument:xmlns"
ENTITIES: Final = '<!DOCTYPE a [<!ENTITY a "{}"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'
OUTSIDE: Final = '<!DOCTYPE a [<!ENTITY a SYSTEM "file:///etc/passwd">]>'


def pdf(pages: Sequence[str], *, extra: str = "") -> bytes:
    """A PDF with these texts on its pages."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        f"<< /Type /Catalog /Pages 2 0 R {extra} >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        drawn = text if text.startswith("q ") else f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET"
        objects += [
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 300] "
            f"/Contents {5 + 2 * number} 0 R /Resources << /Font << /F1 3 0 R >> >> >>",
            f"<< /Length {len(drawn)} >> stream\n{drawn}\nendstream",
        ]
    out, places = io.BytesIO(), []
    out.write(b"%PDF-1.4\n")
    for number, each in enumerate(objects, 1):
        places.append(out.tell())
        out.write(f"{number} 0 obj\n{each}\nendobj\n".encode("latin-1"))
    start = out.tell()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    out.write(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}".encode())
    out.write(f"trailer << /Root 1 0 R /Size {len(objects) + 1} >>\n".encode())
    out.write(f"startxref\n{start}\n%%EOF\n".encode())
    return out.getvalue()


SCAN: Final = "q 200 0 0 200 20 20 cm BI /W 1 /H 1 /CS /G /BPC 8 /F /AHx ID 80> EI Q"
"""A page that is a picture."""


def packed(members: Mapping[str, str | bytes], *, deflated: bool = True) -> bytes:
    """A ZIP archive."""
    file = io.BytesIO()
    kind = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def docx(body: str, *, before: str = "", **more: str | bytes) -> bytes:
    document = f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'
    others = {f"word/{name.replace('_', '.')}": content for name, content in more.items()}
    return packed({"word/document.xml": f"<?xml version='1.0'?>{before}{document}", **others})


def words(text: str) -> str:
    return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"


def pptx(slides: Sequence[str]) -> bytes:
    numbers = [*range(1, len(slides) + 1)]
    ids = "".join(f'<p:sldId id="{n}" r:id="r{n}"/>' for n in numbers)
    show = f'<p:presentation xmlns:p="{SLIDES}" xmlns:r="{LINKS}">{ids}</p:presentation>'
    to = "".join(f'<Relationship Id="r{n}" Target="slides/slide{n}.xml"/>' for n in numbers)
    files = {
        f"ppt/slides/slide{n}.xml": f'<a xmlns:a="{DRAWING}"><a:p><a:t>{text}</a:t></a:p></a>'
        for n, text in zip(numbers, slides, strict=True)
    }
    links = f'<Relationships xmlns="{PACKAGE}">{to}</Relationships>'
    return packed({"ppt/presentation.xml": show, "ppt/_rels/presentation.xml.rels": links, **files})


def xlsx(rows: Sequence[Sequence[object]], *more: str) -> bytes:
    book = openpyxl.Workbook()
    assert book.active is not None
    book.active.title = "Budget"
    for row in rows:
        book.active.append(row)
    for title in more:
        book.create_sheet(title).append([f"of {title}"])
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def odf(kind: str, body: str) -> bytes:
    names = f'xmlns:text="{ODF}:text:1.0" xmlns:table="{ODF}:table:1.0"'
    return packed(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "content.xml": f"<office {names}>{body}</office>",
        }
    )


def epub(chapters: Sequence[str]) -> bytes:
    files = {f"OPS/c {n}.xhtml": text for n, text in enumerate(chapters)}
    items = "".join(f'<item id="i{n}" href="c%20{n}.xhtml"/>' for n in range(len(chapters)))
    spine = "".join(f'<itemref idref="i{n}"/>' for n in range(len(chapters)))
    book = f'<package xmlns="http://www.idpf.org/2007/opf">{items}{spine}</package>'
    container = '<c><rootfile full-path="OPS/book.opf"/></c>'
    return packed(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": container,
            "OPS/book.opf": book,
            **files,
        }
    )


def mail(text: str, *, html: str = "", charset: str = "utf-8", attached: str = "") -> bytes:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "a@example.org", "b@example.org", "Täst"
    message.set_content(text, charset=charset)
    if html:
        message.add_alternative(html, subtype="html")
    if attached:
        message.add_attachment(b"x", maintype="application", subtype="pdf", filename=attached)
    return message.as_bytes()


def png(width: int = 1, height: int = 1) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"\0" * (width + 1) * height)
    chunks = chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


LOCKED: Final = (b"PK\1\2\x14\3\x14\0\0", b"PK\1\2\x14\3\x14\0\1")
"""What stands in an archive before a member without a password, and before one with it."""
TABLE: Final = (
    "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>left</w:t></w:r></w:p></w:tc>"
    "<w:tc><w:p><w:r><w:t>right</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"
)


def sound() -> dict[str, tuple[bytes, str]]:
    """Each with a text that is read in it."""
    odt = "<text:p>an <text:s/>open<text:tab/>text</text:p><text:h>end</text:h>"
    cell = "<table:table-cell><text:p>{}</text:p></table:table-cell>"
    row = f"<table:table-row>{cell.format('one')}{cell.format('two')}</table:table-row>"
    escaped = {f"{n}.pdf": (pdf([f"sheet {n}"] * n), f"sheet {n}") for n in (1, 2, 3, 4)}
    laughs = ENTITIES.format("ha" * 10)
    deep = f"{'<w:p>' * 200_000}<w:t>at the bottom</w:t>"
    return escaped | {
        "entities.docx": (docx("<w:t>&b;</w:t>", before=laughs), "&b;"),
        "outside.docx": (docx("<w:t>&a;</w:t>", before=OUTSIDE), "&a;"),
        "outside.epub": (epub([f"{OUTSIDE}<p>&a;</p>"]), "&a;"),
        "deep.docx": (docx(deep), "at the bottom"),
        "sums.xlsm": (xlsx([["with macros"]]), "with macros"),
        "show.pptm": (pptx(["with macros"]), "with macros"),
        "comment.docx": (docx(words("x"), comments_xml=words("a comment")), "a comment"),
        "pages.pdf": (pdf(["first words", "second words"]), "[page 2 of 2]\nsecond words"),
        "blank.pdf": (pdf(["", "after a blank"]), "after a blank"),
        "many.pdf": (pdf([f"number {n}" for n in range(10_000)]), "[page 10000 of 10000]"),
        "script.pdf": (
            pdf(["calm"], extra="/OpenAction << /S /JavaScript /JS (app.alert(1)) >>"),
            "calm",
        ),
        "launch.pdf": (pdf(["quiet"], extra="/OpenAction << /S /Launch /F (/bin/sh) >>"), "quiet"),
        "scan.pdf": (pdf([SCAN]), "recognised deu+eng P"),
        "scans.pdf": (pdf([SCAN] * 3), "[page 3 of 3]\nrecognised deu+eng P"),
        "photo.png": (png(), "recognised deu+eng \N{REPLACEMENT CHARACTER}PNG"),
        "photo.jpg": (b"\xff\xd8\xff\xe0" + b"x" * 40, "recognised"),
        "letter.docx": (docx(words("Grüße") + TABLE + words("after")), "left | right"),
        "fields.docx": (
            docx("<w:p><w:r><w:instrText>PAGE</w:instrText><w:t>kept</w:t></w:r></w:p>"),
            "kept",
        ),
        "notes.docx": (
            docx(words("body"), footnotes_xml=f'<n xmlns:w="{WORD}">{words("a footnote")}</n>'),
            "a footnote",
        ),
        "macros.docm": (
            docx(words("with macros"), vbaProject_bin=b"\xd0\xcf\x11\xe0AutoOpen"),
            "with macros",
        ),
        "chinese.docx": (docx(words("你好")), "你好"),
        "linked.docx": (docx(f"<w:hyperlink>{words('a link')}</w:hyperlink>"), "a link"),
        "sums.xlsx": (xlsx([["item", "€"], ["rent", 900.5], [date(2026, 1, 2)]]), "rent | 900.5"),
        "sheets.xlsx": (xlsx([["x"]], "Second", "Third"), "[sheet 3 of 3]\nThird\nof Third"),
        "formula.xlsx": (xlsx([["=1+1", "beside"]]), "beside"),
        "web.xlsx": (xlsx([['=WEBSERVICE("http://127.0.0.1:9/")', "no call"]]), "no call"),
        "talk.pptx": (pptx(["opening", "closing"]), "[slide 2 of 2]\nclosing"),
        "one.pptx": (pptx(["alone"]), "alone"),
        "open.odt": (odf("text", odt), "open\ttext"),
        "open.ods": (odf("spreadsheet", row), "one | two"),
        "open.odp": (odf("presentation", "<text:p>shown</text:p>"), "shown"),
        "book.epub": (
            epub(["<p>once upon</p>", "<h1>The&nbsp;end</h1>"]),
            "[chapter 2 of 2]\nThe\xa0end",
        ),
        "script.epub": (epub(["<script>alert(1)</script><p>a tale</p>"]), "a tale"),
        "plain.eml": (mail("dear b"), "Subject: Täst\n\ndear b"),
        "html.eml": (
            mail("", html="<p>dear <b>c</b></p>").replace(b"text/plain", b"text/x-no"),
            "dear c",
        ),
        "gbk.eml": (mail("你好,世界", charset="gb18030"), "你好,世界"),
        "latin.eml": (mail("très bien", charset="latin-1"), "très bien"),
        "files.eml": (mail("see", attached="bill.pdf"), "[attached: bill.pdf]"),
        "old.eml": (b"From: x@example.org\nSubject: bare\n\nonly \xe9 text", "Subject: bare"),
    }


def refused() -> dict[str, tuple[bytes, str]]:
    """Each with the reason why it is not read."""
    zeros = b"\0" * (129 << 20)
    letter = docx(words("whole") * 2_000)
    book = xlsx([["x" * 50] * 20] * 200)
    return {
        "bomb.docx": (packed({"word/document.xml": zeros}), "unpacks to more than 128 MiB"),
        "torn.docx": (letter[: len(letter) // 2], "is damaged; save it again"),
        "torn.xlsx": (book[: len(book) - 400], "is damaged; save it again"),
        "bits.xlsx": (book[:300] + bytes(200) + book[500:], "is damaged; save it again"),
        "empty.xlsx": (packed({"xl/workbook.xml": "<a/>"}), "is damaged; save it again"),
        "torn.pdf": (pdf(["x"])[:300], "is damaged; save it again"),
        "noise.pdf": (b"%PDF-1.7\n" + bytes(range(256)) * 40, "is damaged; save it again"),
        "locked.docx": (
            packed({"word/document.xml": "x"}).replace(*LOCKED),
            "has a password; save it without one",
        ),
        "old.doc": (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
            "has an old format or a password",
        ),
    }
