"""Office documents: prose is translated, its form is kept, and everything else keeps its bytes."""

from __future__ import annotations

import itertools
import random
import re
import zipfile
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

import docx
import pptx
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from docx.shared import Pt, RGBColor
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from pptx.util import Inches

from heedful.errors import DocumentError
from heedful.text.documents import OFFICE_FORMATS, format_of, office_package, office_xml, translate_document
from heedful.text.documents.document import MarkedText
from tests.text.documents.documents import Change, capitals, copied, shuffled, turned_round

W = nsdecls("w")


def changed(data: bytes, format: str, change: Change) -> bytes:
    found = translate_document(data, format, lambda texts: ([change(text) for text in texts], "de"))
    assert isinstance(found, bytes)
    return found


def texts_of(data: bytes, format: str) -> list[str]:
    seen: list[str] = []

    def look(texts: Sequence[MarkedText]) -> tuple[Sequence[MarkedText], None]:
        seen.extend(text.text for text in texts)
        return texts, None

    translate_document(data, format, look)
    return seen


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def packed(files: dict[str, bytes | str], stored: Sequence[str] = ("mimetype",)) -> bytes:
    output = BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content, zipfile.ZIP_STORED if name in stored else None)
    return output.getvalue()


def saved(document: Any) -> bytes:
    output = BytesIO()
    document.save(output)
    return output.getvalue()


def picture() -> BytesIO:
    output = BytesIO()
    Image.new("RGB", (4, 3), "red").save(output, "PNG")
    output.seek(0)
    return output


def with_body(*paragraphs: str) -> bytes:
    """A document with the contents of paragraphs, as XML."""
    document = docx.Document()
    for inner in paragraphs:
        document.element.body.insert(len(document.element.body) - 1, parse_xml(f"<w:p {W}>{inner}</w:p>"))
    return saved(document)


def runs_of(data: bytes, number: int = 0) -> list[tuple[str, bool]]:
    """The text of each run of a paragraph, and whether it is bold."""
    return [(run.text, bool(run.bold)) for run in docx.Document(BytesIO(data)).paragraphs[number].runs]


def word_document() -> bytes:
    document = docx.Document()
    document.add_heading("The first heading", 1)
    paragraph = document.add_paragraph("Some words are ")
    paragraph.add_run("very bold").bold = True
    paragraph.add_run(" and others are ")
    red = paragraph.add_run("red and large")
    red.font.color.rgb, red.font.size = RGBColor(255, 0, 0), Pt(20)
    paragraph.add_run(".")
    document.add_paragraph("A first item", style="List Bullet")
    document.add_picture(picture())
    table = document.add_table(2, 2)
    for row, words in enumerate((("Name", "Price"), ("Small box", "12.50"))):
        for column, word in enumerate(words):
            table.cell(row, column).text = word
    document.sections[0].header.paragraphs[0].text = "The header line"
    document.sections[0].footer.paragraphs[0].text = "Page of the footer"
    return saved(document)


def slides() -> bytes:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "The title of it"
    frame = slide.placeholders[1].text_frame
    frame.text = "A first point"
    paragraph = frame.add_paragraph()
    paragraph.add_run().text = "See "
    link = paragraph.add_run()
    link.text, link.hyperlink.address = "our page", "https://example.org/"
    paragraph.add_run().text = " today."
    slide.shapes.add_table(1, 2, Inches(1), Inches(1), Inches(3), Inches(1)).table.cell(0, 0).text = "In the table"
    slide.shapes.add_textbox(0, 0, Inches(2), Inches(1)).text_frame.text = "One line.\vTwo lines."
    slide.shapes.add_picture(picture(), 0, 0)
    slide.notes_slide.notes_text_frame.text = "What the speaker says"
    return saved(presentation)


ODT_NAMES = " ".join(
    f'xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{path}:1.0"'
    for prefix, path in (
        ("office", "office"),
        ("style", "style"),
        ("text", "text"),
        ("table", "table"),
        ("draw", "drawing"),
        ("fo", "xsl-fo-compatible"),
        ("svg", "svg-compatible"),
    )
)
ODT_NAMES += ' xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:officeooo="http://openoffice.org/2009/office"'
ODT_STYLES = "".join(
    f'<style:style style:name="{name}" style:family="text"><style:text-properties {looks}/></style:style>'
    for name, looks in (
        ("T1", 'officeooo:rsid="001a"'),
        ("T2", 'fo:font-weight="bold"'),
        ("T3", 'fo:font-weight="bold" officeooo:rsid="2b"'),
    )
)
MANIFEST = 'xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"'


ENTRIES = "".join(
    f'<manifest:file-entry manifest:full-path="{path}" manifest:media-type="{kind}"/>'
    for path, kind in (
        ("/", "application/vnd.oasis.opendocument.text"),
        ("content.xml", "text/xml"),
        ("styles.xml", "text/xml"),
        ("Pictures/1.png", "image/png"),
    )
)


def odt(body: str, header: str = "", manifest: str = "") -> bytes:
    """A document as LibreOffice writes it."""
    start = '<?xml version="1.0" encoding="UTF-8"?>\n'
    content = f"<office:automatic-styles>{ODT_STYLES}</office:automatic-styles><office:body><office:text>{body}"
    page = f'<style:master-page style:name="Standard"><style:header>{header}</style:header></style:master-page>'
    return packed(
        {
            "mimetype": "application/vnd.oasis.opendocument.text",
            "content.xml": f"{start}<office:document-content {ODT_NAMES}>{content}</office:text></office:body>"
            "</office:document-content>",
            "styles.xml": f"{start}<office:document-styles {ODT_NAMES}><office:master-styles>{page}"
            "</office:master-styles></office:document-styles>",
            "Pictures/1.png": picture().read(),
            "META-INF/manifest.xml": f"<manifest:manifest {MANIFEST}>{ENTRIES}{manifest}</manifest:manifest>",
        }
    )


NOTE = (
    '<text:note text:id="ftn1" text:note-class="footnote"><text:note-citation>1</text:note-citation><text:note-body>'
    "<text:p>{}</text:p></text:note-body></text:note>"
)
ODT_LINES = (
    '<text:sequence-decls/><text:h text:style-name="Heading_20_1" text:outline-level="1">The first '
    '<text:span text:style-name="T1">head</text:span>ing</text:h>',
    '<text:p>Some <text:span text:style-name="T2">very </text:span><text:span text:style-name="T3">bold</text:span>'
    " words"
    + NOTE.format("The words of the note.")
    + ' and <text:a xlink:href="https://example.org/">a link</text:a>.</text:p>',
    "<text:p>Name<text:tab/>Page <text:page-number>7</text:page-number> of it</text:p>",
    "<text:p><draw:frame><draw:text-box><text:p>In a box</text:p></draw:text-box><svg:desc>A red picture</svg:desc>"
    "</draw:frame></text:p>",
    '<text:p text:style-name="Preformatted_20_Text">int main()</text:p>',
    "<table:table><table:table-row><table:table-cell><text:p>In a cell</text:p></table:table-cell></table:table-row>"
    "</table:table>",
    '<text:p>Two<text:s text:c="2"/>spaces &amp; signs &lt; here</text:p><text:p/>',
)
ODT_BODY = "\n".join(ODT_LINES)

DOCUMENTS: dict[str, Callable[[], bytes]] = {
    "docx": word_document,
    "pptx": slides,
    "odt": lambda: odt(ODT_BODY, "<text:p>The header line</text:p>"),
}


def test_endings_select_the_format() -> None:
    for format in OFFICE_FORMATS:
        assert format_of(f"Report.{format.upper()}") == format_of(None, format) == format


@pytest.mark.parametrize("format", DOCUMENTS)
def test_copying_translator_changes_no_member(format: str) -> None:
    data = DOCUMENTS[format]()
    assert members(changed(data, format, copied)) == members(data)


@pytest.mark.parametrize("format", DOCUMENTS)
def test_only_files_with_text_change(format: str) -> None:
    data = DOCUMENTS[format]()
    before, after = members(data), members(changed(data, format, capitals))
    assert list(before) == list(after)
    different = {name for name in before if before[name] != after[name]}
    expected = {
        "docx": {"word/document.xml", "word/header1.xml", "word/footer1.xml"},
        "pptx": {"ppt/slides/slide1.xml", "ppt/notesSlides/notesSlide1.xml"},
        "odt": {"content.xml", "styles.xml"},
    }
    assert different == expected[format]
    with zipfile.ZipFile(BytesIO(changed(data, format, capitals))) as archive:
        infos = {info.filename: (info.date_time, info.compress_type) for info in archive.infolist()}
    with zipfile.ZipFile(BytesIO(data)) as archive:
        assert infos == {info.filename: (info.date_time, info.compress_type) for info in archive.infolist()}


def test_word_document_keeps_its_form() -> None:
    data = word_document()
    assert texts_of(data, "docx") == [
        "The first heading",
        "Some words are very bold and others are red and large.",
        "A first item",
        "Name",
        "Price",
        "Small box",
        "Page of the footer",
        "The header line",
    ]
    found = docx.Document(BytesIO(changed(data, "docx", capitals)))
    before = docx.Document(BytesIO(data))
    assert [p.text for p in found.paragraphs] == [p.text.upper() for p in before.paragraphs]
    assert [p.style.name for p in found.paragraphs] == [p.style.name for p in before.paragraphs]
    runs = [(r.text, r.bold, r.font.size, r.font.color.rgb) for r in found.paragraphs[1].runs]
    assert runs == [(r.text.upper(), r.bold, r.font.size, r.font.color.rgb) for r in before.paragraphs[1].runs]
    assert [cell.text for row in found.tables[0].rows for cell in row.cells] == ["NAME", "PRICE", "SMALL BOX", "12.50"]
    assert found.sections[0].header.paragraphs[0].text == "THE HEADER LINE"
    assert len(found.inline_shapes) == 1


def test_slides_keep_their_form() -> None:
    data = slides()
    assert set(texts_of(data, "pptx")) >= {"The title of it", "See our page today.", "One line.", "Two lines."}
    slide = pptx.Presentation(BytesIO(changed(data, "pptx", capitals))).slides[0]
    assert slide.shapes.title.text == "THE TITLE OF IT"
    runs = slide.placeholders[1].text_frame.paragraphs[1].runs
    assert [(r.text, r.hyperlink.address) for r in runs] == [
        ("SEE ", None),
        ("OUR PAGE", "https://example.org/"),
        (" TODAY.", None),
    ]
    shapes = list(slide.shapes)
    assert shapes[2].table.cell(0, 0).text == "IN THE TABLE"
    assert shapes[3].text_frame.text == "ONE LINE.\vTWO LINES."
    assert slide.notes_slide.notes_text_frame.text == "WHAT THE SPEAKER SAYS"


ODT_CAPITALS = (
    '<text:sequence-decls/><text:h text:style-name="Heading_20_1" text:outline-level="1">THE FIRST HEADING</text:h>',
    '<text:p>SOME <text:span text:style-name="T2">VERY BOLD</text:span> WORDS'
    + NOTE.format("THE WORDS OF THE NOTE.")
    + ' AND <text:a xlink:href="https://example.org/">A LINK</text:a>.</text:p>',
    "<text:p>NAME<text:tab/>PAGE <text:page-number>7</text:page-number> OF IT</text:p>",
    "<text:p><draw:frame><draw:text-box><text:p>IN A BOX</text:p></draw:text-box><svg:desc>A RED PICTURE</svg:desc>"
    "</draw:frame></text:p>",
    ODT_LINES[4],
    ODT_LINES[5].replace("In a cell", "IN A CELL"),
    '<text:p>TWO<text:s text:c="2"/>SPACES &amp; SIGNS &lt; HERE</text:p><text:p/>',
)


def test_opendocument_keeps_its_form() -> None:
    data = DOCUMENTS["odt"]()
    assert texts_of(data, "odt") == [
        "The first heading",
        "The words of the note.",
        "Some very bold words and a link.",
        "Name",
        "Page `7` of it",
        "In a box",
        "A red picture",
        "In a cell",
        "Two  spaces & signs < here",
        "The header line",
    ]
    files = members(changed(data, "odt", capitals))
    assert members(data)["content.xml"].decode().replace(ODT_BODY, "") in (
        files["content.xml"].decode().replace("\n".join(ODT_CAPITALS), "")
    )
    assert b"<style:header><text:p>THE HEADER LINE</text:p></style:header>" in files["styles.xml"]


def test_formats_follow_their_words() -> None:
    data = with_body(
        '<w:r><w:t xml:space="preserve">Read the </w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>whole</w:t></w:r>'
        '<w:r><w:t xml:space="preserve"> guide first</w:t></w:r>'
    )
    assert runs_of(changed(data, "docx", turned_round)) == [
        ("FIRST GUIDE ", False),
        ("WHOLE", True),
        (" THE READ", False),
    ]


def test_links_notes_and_fields_stay_in_their_sentence() -> None:
    data = with_body(
        '<w:bookmarkStart w:id="1" w:name="here"/><w:r><w:t xml:space="preserve">See </w:t></w:r>'
        '<w:hyperlink w:anchor="x"><w:r><w:rPr><w:u w:val="single"/></w:rPr><w:t>the guide</w:t></w:r></w:hyperlink>'
        '<w:r><w:t xml:space="preserve"> on page </w:t></w:r><w:r><w:fldChar w:fldCharType="begin"/></w:r>'
        '<w:r><w:instrText> PAGEREF x </w:instrText></w:r><w:r><w:fldChar w:fldCharType="separate"/></w:r>'
        '<w:r><w:t>12</w:t></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r>'
        '<w:r><w:t xml:space="preserve"> of it</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r>'
        '<w:r><w:t>.</w:t></w:r><w:bookmarkEnd w:id="1"/>',
        '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText> HYPERLINK "https://example.org" </w:instrText>'
        '</w:r><w:r><w:fldChar w:fldCharType="separate"/></w:r><w:r><w:t>Our old page</w:t></w:r>'
        '<w:r><w:fldChar w:fldCharType="end"/></w:r>',
    )
    assert texts_of(data, "docx") == ["See the guide on page `12` of it.", "Our old page"]
    for change in (capitals, turned_round, shuffled(random.Random(3))):
        xml = members(changed(data, "docx", change))["word/document.xml"].decode()
        for once in (
            "PAGEREF x",
            'w:footnoteReference w:id="2"',
            'w:hyperlink w:anchor="x"',
            'w:name="here"',
            ">12</w:t>",
        ):
            assert xml.count(once) == 1
        fields = re.findall(r'w:fldCharType="(\w+)"', xml)
        assert fields == ["begin", "separate", "end"] * 2
        assert re.search(
            r'separate"/></w:r><w:r><w:t[^>]*>[A-Z ]+</w:t></w:r><w:r><w:fldChar w:fldCharType="end"/>', xml
        )
        docx.Document(BytesIO(changed(data, "docx", change)))


def test_tabs_breaks_and_blanks_separate_texts() -> None:
    data = with_body(
        "<w:r><w:t>Your name</w:t><w:tab/><w:t>First sentence.</w:t><w:br/><w:t>Second one</w:t><w:br/>"
        '<w:t>goes on</w:t><w:br w:type="page"/><w:t>On the next page</w:t></w:r>',
        '<w:r><w:t>Sign here</w:t></w:r><w:r><w:rPr><w:u w:val="single"/></w:rPr>'
        '<w:t xml:space="preserve">      </w:t></w:r>',
    )
    assert texts_of(data, "docx") == [
        "Your name",
        "First sentence.",
        "Second one goes on",
        "On the next page",
        "Sign here",
    ]
    found = docx.Document(BytesIO(changed(data, "docx", capitals))).paragraphs
    assert found[0].text == "YOUR NAME\tFIRST SENTENCE.\nSECOND ONE\nGOES ONON THE NEXT PAGE"
    assert [(run.text, run.underline) for run in found[1].runs] == [("SIGN HERE", None), ("      ", True)]


def test_what_is_no_prose_is_kept() -> None:
    kept = (
        '<w:del w:id="4" w:author="A"><w:r><w:delText>deleted words</w:delText></w:r></w:del>',
        "<w:r><w:rPr><w:vanish/></w:rPr><w:t>hidden words</w:t></w:r>",
        '<w:r><w:rPr><w:rStyle w:val="VerbatimChar"/></w:rPr><w:t>make all</w:t></w:r>',
    )
    data = with_body(
        f'<w:r><w:t xml:space="preserve">Run </w:t></w:r>{kept[2]}<w:r><w:t xml:space="preserve"> to see it</w:t></w:r>'
        f"{kept[0]}{kept[1]}",
        '<w:pPr><w:pStyle w:val="SourceCode"/></w:pPr><w:r><w:t>some code here</w:t></w:r>',
    )
    assert texts_of(data, "docx") == ["Run `make all` to see it"]
    xml = members(changed(data, "docx", capitals))["word/document.xml"].decode()
    assert all(part in xml for part in kept) and "some code here" in xml and ">RUN <" in xml


def test_text_boxes_and_descriptions_inside_a_sentence() -> None:
    names = (
        'xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing" '
        'xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape"'
    )
    box = "<w:txbxContent><w:p><w:r><w:t>Inside the box</w:t></w:r></w:p></w:txbxContent>"
    data = with_body(
        '<w:r><w:t xml:space="preserve">Look at this </w:t></w:r>'
        f'<w:r><w:drawing {names}><wp:inline><wp:docPr id="1" name="Box 1" descr=\'A "red" box\'/>'
        f"<wps:txbx>{box}</wps:txbx></wp:inline></w:drawing></w:r>"
        '<w:r><w:t xml:space="preserve"> and read it</w:t></w:r>'
    )
    assert texts_of(data, "docx") == ['A "red" box', "Inside the box", "Look at this and read it"]
    xml = members(changed(data, "docx", capitals))["word/document.xml"].decode()
    assert 'name="Box 1" descr="A &quot;RED&quot; BOX"' in xml
    assert '<w:t xml:space="preserve">INSIDE THE BOX</w:t>' in xml and ">LOOK AT THIS <" in xml


def test_other_prefixes_and_strict_files() -> None:
    files = members(word_document())
    xml = files["word/document.xml"].decode()
    other = re.sub(r"(</?|\s|xmlns:)w:", r"\1word:", xml).replace("xmlns:w=", "xmlns:word=")
    other = other.replace(
        "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
        "http://purl.oclc.org/ooxml/wordprocessingml/main",
    )
    data = packed({**files, "word/document.xml": other})
    assert texts_of(data, "docx") == texts_of(word_document(), "docx")
    found = members(changed(data, "docx", capitals))["word/document.xml"].decode()
    assert "SOME WORDS ARE " in found and "<w:" not in found
    office_xml.parse_xml(found, "document")


WORDS = st.lists(
    st.sampled_from(["small", "words", "of", "a", "sentence", "Größe", "& <b>", "中文"]), min_size=1, max_size=8
)
FORMATS = ("", "<w:b/>", "<w:i/>", '<w:lang w:val="en-US"/>', '<w:b/><w:lang w:val="de-DE"/>')


@settings(max_examples=150, deadline=None)
@given(
    words=WORDS,
    cuts=st.lists(st.tuples(st.integers(0, 60), st.sampled_from(FORMATS)), max_size=8),
    seed=st.integers(0, 999),
)
def test_random_run_boundaries(words: list[str], cuts: list[tuple[int, str]], seed: int) -> None:
    text = " ".join(["Some", *words])
    places = sorted({0, len(text), *(place for place, _ in cuts if place < len(text))})
    formats = dict(cuts)
    inner = ""
    for start, end in itertools.pairwise(places):
        piece = text[start:end].replace("&", "&amp;").replace("<", "&lt;")
        inner += f'<w:r><w:rPr>{formats.get(start, "")}</w:rPr><w:t xml:space="preserve">{piece}</w:t></w:r>'
        inner += '<w:proofErr w:type="spellEnd"/>'
    data = packed({**SKELETON, "word/document.xml": SKELETON["word/document.xml"].replace("BODY", inner)})
    assert texts_of(data, "docx") == [text]
    bold = "".join(part * is_bold for part, is_bold in runs_of(data))
    upper = runs_of(changed(data, "docx", capitals))
    if len(text.upper()) == len(text):
        assert "".join(part for part, _ in upper) == text.upper()
        assert "".join(part * is_bold for part, is_bold in upper).replace(" ", "") == bold.upper().replace(" ", "")
        assert all(one[1] != other[1] or "<w:i/>" in inner for one, other in itertools.pairwise(upper))
    other = changed(data, "docx", shuffled(random.Random(seed)))
    assert "".join(part for part, _ in runs_of(other))
    docx.Document(BytesIO(other))


def skeleton() -> dict[str, str]:
    types = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    office = "http://schemas.openxmlformats.org"
    return {
        "[Content_Types].xml": f'<Types xmlns="{office}/package/2006/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/word/document.xml" ContentType="{types}"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{office}/package/2006/relationships"><Relationship Id="r" '
        f'Type="{office}/officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/>'
        "</Relationships>",
        "word/document.xml": f"<w:document {W}><w:body><w:p>BODY</w:p></w:body></w:document>",
    }


SKELETON = skeleton()


def nested(depth: int) -> str:
    return SKELETON["word/document.xml"].replace("BODY", "<w:ins>" * depth + "</w:ins>" * depth)


@pytest.mark.parametrize(
    ("data", "format", "words"),
    [
        (b"", "docx", "is not a Word document \\(.docx\\), or damaged"),
        (b"plain text", "odt", "is not an OpenDocument text"),
        (word_document()[:-300], "docx", "damaged"),
        (bytes.fromhex("d0cf11e0a1b11ae1") + bytes(600), "docx", "has a password, or is an old binary document"),
        (slides(), "docx", "no part of that type"),
        (word_document(), "odt", "its type is|has no content.xml"),
        (packed({"a.txt": "a"}), "pptx", r"has no \[Content_Types\].xml"),
        (packed({**SKELETON, "word/document.xml": "<w:document>"}), "docx", "word/document.xml: it is not well-formed"),
        (packed({**SKELETON, "word/document.xml": b"<a>\xff</a>"}), "docx", "word/document.xml: it is not UTF-8"),
        (
            packed({**SKELETON, "word/document.xml": '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'}),
            "docx",
            "document type",
        ),
        (packed({**SKELETON, "word/document.xml": nested(300)}), "docx", "elements inside each other"),
        (
            packed({n: c.replace("document.main", "document.macroEnabled.main") for n, c in SKELETON.items()}),
            "docx",
            "has macros; save it as a Word document",
        ),
        (
            odt("", manifest="<manifest:encryption-data/>"),
            "odt",
            "has a password; save it without one",
        ),
        (packed({**SKELETON, "word/document.xml": f"<a>{'<b/>' * 500_000}</a>"}), "docx", "than 500,000 elements"),
        (packed({**SKELETON, "big": bytes(2**29)}), "docx", "unpacked it has 536,8"),
        (packed({**SKELETON, "word/document.xml": b" " * 50_000_000}), "docx", "bytes of XML"),
        (packed({**SKELETON, **{str(n): "" for n in range(10_001)}}), "docx", "consists of 10,004 files"),
    ],
)
def test_damaged_and_dangerous_files_are_refused(data: bytes, format: str, words: str) -> None:
    with pytest.raises(DocumentError, match=words):
        changed(data, format, copied)


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("<w:ins>", "</w:ins>"),
        ("<w:r><w:p>", "</w:p></w:r>"),
        ("<w:hyperlink><w:r><w:p>", "</w:p></w:r></w:hyperlink>"),
        ("<w:sdt><w:sdtContent>", "</w:sdtContent></w:sdt>"),
    ],
)
def test_deeply_nested_elements_are_read_once(opening: str, closing: str) -> None:
    depth = 90 // opening.count("<")
    inner = opening * depth + "<w:r><w:t>The inner words</w:t></w:r>" + closing * depth
    data = packed({**SKELETON, "word/document.xml": SKELETON["word/document.xml"].replace("BODY", inner)})
    assert texts_of(data, "docx") == ["The inner words"]
    assert b"THE INNER WORDS" in members(changed(data, "docx", capitals))["word/document.xml"]


def test_a_link_around_many_runs_is_split() -> None:
    run = '<w:r><w:t xml:space="preserve">words </w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>here</w:t></w:r>'
    data = with_body(f'<w:hyperlink w:anchor="x">{run * 400}</w:hyperlink>')
    assert len(texts_of(data, "docx")) > 1
    assert members(changed(data, "docx", capitals))["word/document.xml"].count(b"w:hyperlink") == 2


def test_any_damaged_byte_is_an_error_or_harmless() -> None:
    data = word_document()
    draws = random.Random(5)
    for _ in range(150):
        damaged = bytearray(data)
        damaged[draws.randrange(len(data))] ^= 1 << draws.randrange(8)
        try:
            found = changed(bytes(damaged), "docx", capitals)
        except DocumentError:
            continue
        assert members(found)


def test_text_is_not_a_document() -> None:
    with pytest.raises(DocumentError, match="given as bytes"):
        translate_document("text", "docx", lambda texts: (texts, None))
    assert office_package.MAX_XML_BYTES < office_package.MAX_UNPACKED_BYTES
