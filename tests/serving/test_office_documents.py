"""Office documents through the server: bytes in, bytes out."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import deepl
import docx

from heedful import Translator
from tests.serving.running_server import running_server


def test_word_document_through_a_client(tmp_path: Path) -> None:
    document = docx.Document()
    document.add_paragraph("Good ").add_run("morning").bold = True
    document.add_paragraph("The cat sleeps.")
    document.save(str(tmp_path / "a.docx"))
    data = (tmp_path / "a.docx").read_bytes()
    expected = Translator.load("en-de-zh").translate_document(data, "docx", target_language="de", source_language="en")
    with running_server(tmp_path, models="en-de-zh") as server:
        client = deepl.DeepLClient("any", server_url=f"http://127.0.0.1:{server.port}")
        client.translate_document_from_filepath(
            tmp_path / "a.docx", tmp_path / "b.docx", source_lang="EN", target_lang="DE"
        )
    assert (tmp_path / "b.docx").read_bytes() == expected
    paragraphs = docx.Document(BytesIO((tmp_path / "b.docx").read_bytes())).paragraphs
    assert paragraphs[0].text != "Good morning" and any(run.bold for run in paragraphs[0].runs)
