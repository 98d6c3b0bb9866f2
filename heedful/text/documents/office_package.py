"""Office documents (.docx, .odt, .pptx): archives of XML files and images.

Only the XML files with text are read and written; all other members keep their bytes, names, order and dates. Nothing
is extracted to the disk, and the size of what is read is bounded.
"""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO

from heedful.errors import DocumentError
from heedful.text.documents.document import Document, MarkedText
from heedful.text.documents.office_xml import Element, decode_xml, parse_xml

MAX_MEMBERS = 10_000
MAX_UNPACKED_BYTES = 400_000_000
"""All members of an archive together."""
MAX_XML_BYTES = 40_000_000
"""All XML files with text together: about ten thousand pages."""

_OLD_OFFICE = bytes.fromhex("d0cf11e0a1b11ae1")
"""How old binary documents begin, and documents with a password."""
_CONTENT_TYPES = "[Content_Types].xml"
_WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml."
_SLIDES = "application/vnd.openxmlformats-officedocument.presentationml."
_DRAWING = re.compile(
    r"application/vnd\.(?:openxmlformats-officedocument\.drawingml\.(?:chart|diagramData)"
    r"|ms-office\.drawingml\.diagramDrawing)\+xml"
)
_WORD_PARTS = re.compile(re.escape(_WORD) + r"(?:document\.main|template\.main|header|footer|footnotes|endnotes)\+xml")
_SLIDE_PARTS = re.compile(re.escape(_SLIDES) + r"(?:slide|notesSlide)\+xml")
_MAIN = {"docx": _WORD + "document.main+xml", "pptx": _SLIDES + "presentation.main+xml"}
_ODT = "application/vnd.oasis.opendocument.text"
_NAMES = {
    "docx": "a Word document (.docx)",
    "pptx": "a PowerPoint presentation (.pptx)",
    "odt": "an OpenDocument text (.odt)",
}

Read = Callable[[str, Element], Document]


@dataclass(frozen=True)
class _Member:
    """An XML file with text."""

    document: Document
    encoding: str
    bom: bytes


class OfficePackage:
    """An office document; its XML files with text are read."""

    def __init__(self, data: bytes, format: str) -> None:
        self.format = format
        if data.startswith(_OLD_OFFICE):
            raise DocumentError(
                f"it has a password, or is an old binary document; save it as {_NAMES[format]} without a password"
            )
        try:
            self.archive = zipfile.ZipFile(BytesIO(data))
            self._check_members()
            self.members = {name: self._member(name, read) for name, read in self._readers()}
        except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, ValueError) as error:
            raise DocumentError(f"it is not {_NAMES[format]}, or damaged: {error}") from None

    @property
    def texts(self) -> list[MarkedText]:
        """The texts to translate, of all files."""
        return [text for member in self.members.values() for text in member.document.texts]

    def write(self, translations: Iterator[MarkedText], language: str | None) -> bytes:
        """The archive with translated texts, given the translations of `texts`."""
        output = BytesIO()
        changed = {
            name: member.bom + member.document.write(translations, language).encode(member.encoding)
            for name, member in self.members.items()
        }
        try:
            with zipfile.ZipFile(output, "w") as written:
                written.comment = self.archive.comment
                for info in self.archive.infolist():
                    content = changed[info.filename] if info.filename in changed else self.archive.read(info)
                    copied = zipfile.ZipInfo(info.filename, info.date_time)
                    copied.compress_type, copied.comment = info.compress_type, info.comment
                    copied.external_attr, copied.create_system = info.external_attr, info.create_system
                    written.writestr(copied, content)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise DocumentError(f"it is damaged: {error}") from None
        return output.getvalue()

    def _check_members(self) -> None:
        """Refuse archives that are too large when unpacked, have a password, or are ambiguous."""
        infos = self.archive.infolist()
        if len(infos) > MAX_MEMBERS:
            raise DocumentError(f"it consists of {len(infos):,} files, more than {MAX_MEMBERS:,}")
        size = sum(info.file_size for info in infos)
        if size > MAX_UNPACKED_BYTES:
            raise DocumentError(f"unpacked it has {size:,} bytes, more than {MAX_UNPACKED_BYTES:,}; split it")
        if len({info.filename for info in infos}) < len(infos):
            raise DocumentError("it has two files of the same name; it is damaged")
        for info in infos:
            if info.flag_bits & 0x1:
                raise DocumentError("it has a password; save it without one")
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise DocumentError(f"{info.filename}: its compression is not that of office documents")

    def _xml(self, name: str) -> tuple[str, str, bytes]:
        """The text of an XML file, its encoding and its byte order mark."""
        return decode_xml(self.archive.read(name), name)

    def _member(self, name: str, read: Read) -> _Member:
        source, encoding, bom = self._xml(name)
        return _Member(read(source, parse_xml(source, name)), encoding, bom)

    def _readers(self) -> list[tuple[str, Read]]:
        """The XML files with text, and the function that reads each."""
        found = self._opendocument() if self.format == "odt" else list(self._open_xml())
        size = sum(self.archive.getinfo(name).file_size for name, _ in found)
        if size > MAX_XML_BYTES:
            raise DocumentError(f"its text has {size:,} bytes of XML, more than {MAX_XML_BYTES:,}; split it")
        return found

    def _opendocument(self) -> list[tuple[str, Read]]:
        from heedful.text.documents.odt_format import read_opendocument

        kind = (
            self.archive.read("mimetype").decode("ascii", "replace") if "mimetype" in self.archive.NameToInfo else _ODT
        )
        if kind.strip() != _ODT:
            raise DocumentError(f"it is not {_NAMES['odt']}: its type is {kind.strip()[:80]!r}")
        if "META-INF/manifest.xml" in self.archive.NameToInfo:
            manifest = parse_xml(self._small_xml("META-INF/manifest.xml"), "META-INF/manifest.xml")
            if any(element.name == "manifest:encryption-data" for element in manifest.walk()):
                raise DocumentError("it has a password; save it without one")
        names = [
            name for name in ("content.xml", "styles.xml") if name == "content.xml" or name in self.archive.NameToInfo
        ]
        for name in names:
            self._require(name)
        return [(name, read_opendocument) for name in names]

    def _open_xml(self) -> Iterator[tuple[str, Read]]:
        from heedful.text.documents.docx_format import read_wordprocessing
        from heedful.text.documents.pptx_format import read_drawing

        types = parse_xml(self._small_xml(_CONTENT_TYPES), _CONTENT_TYPES)
        listed = {
            element.attributes.get("PartName", "").lstrip("/"): element.attributes.get("ContentType", "")
            for element in types.elements
            if element.name.endswith(":Override")
        }
        if any("macroenabled" in kind.lower() for kind in listed.values()):
            raise DocumentError(f"it has macros; save it as {_NAMES[self.format]}, which has none")
        if _MAIN[self.format] not in listed.values():
            raise DocumentError(f"it is not {_NAMES[self.format]}: it has no part of that type")
        for name, kind in listed.items():
            read = read_wordprocessing if _WORD_PARTS.fullmatch(kind) else None
            if _SLIDE_PARTS.fullmatch(kind) or _DRAWING.fullmatch(kind):
                read = read_drawing
            if read is not None:
                self._require(name)
                yield name, read

    def _small_xml(self, name: str) -> str:
        self._require(name)
        if self.archive.getinfo(name).file_size > MAX_XML_BYTES:
            raise DocumentError(f"{name}: it is too large; the file is damaged")
        return self._xml(name)[0]

    def _require(self, name: str) -> None:
        if name not in self.archive.NameToInfo:
            raise DocumentError(f"it is not {_NAMES[self.format]}: it has no {name}")
