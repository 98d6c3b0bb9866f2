"""Translation clients from PyPI and npm, unmodified, with a real server: what they return is what the engine says."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deepl
import openai
import pytest
from deep_translator import LibreTranslator
from libretranslatepy import LibreTranslateAPI

from heedful import Translator
from tests.serving.running_server import SENTENCES, RunningServer, running_server

MODEL = "en-de-zh"
CLIENTS = Path(__file__).parent / "clients"
needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not (CLIENTS / "node_modules").is_dir(),
    reason="needs Node.js and `npm ci` in tests/serving/clients",
)
Expected = Callable[..., str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server"), "-m", MODEL, workers=1, threads=1) as running:
        yield running


@pytest.fixture(scope="module")
def url(server: RunningServer) -> str:
    return f"http://127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def expected() -> Expected:
    """What the engine itself translates."""
    translator = Translator.load(MODEL, engine="native")

    def translate(text: str, target: str = "de", source: str = "en") -> str:
        return translator.translate([text], source_language=source, target_language=target)[0].text

    return translate


def test_libretranslatepy(url: str, expected: Expected) -> None:
    client = LibreTranslateAPI(f"{url}/")
    assert client.translate("Good morning.", "en", "zh") == expected("Good morning.", "zh")
    assert client.detect("Guten Morgen, wie geht es Ihnen heute?")[0]["language"] == "de"
    assert {"de", "zh", "zh-Hans"} <= set(client.languages()[0]["targets"])


def test_deep_translator(url: str, expected: Expected) -> None:
    """It sends everything in the query string, and a key although the server needs none."""
    client = LibreTranslator(source="en", target="zh", custom_url=f"{url}/", api_key="any")
    assert client.translate_batch(SENTENCES[:3]) == [expected(text, "zh") for text in SENTENCES[:3]]


def test_deepl_texts_and_languages(url: str, expected: Expected) -> None:
    client = deepl.DeepLClient("any key", server_url=url)
    results = client.translate_text(SENTENCES, source_lang="EN", target_lang="DE")
    assert isinstance(results, list)
    assert [result.text for result in results] == [expected(text) for text in SENTENCES]
    assert [result.billed_characters for result in results] == [len(text) for text in SENTENCES]
    german = client.translate_text("Der Hund schläft im Garten.", target_lang="EN-GB")
    assert isinstance(german, deepl.TextResult)
    assert german.detected_source_lang == "DE"
    assert {"EN", "DE", "ZH"} == {language.code for language in client.get_source_languages()}
    assert {"EN-US", "EN-GB", "DE", "ZH", "ZH-HANS"} == {language.code for language in client.get_target_languages()}
    assert not client.get_usage().any_limit_reached
    with pytest.raises(deepl.DeepLException, match="formality"):
        client.translate_text("Hello", target_lang="DE", formality="more")
    assert client.translate_text("Hello", target_lang="DE", formality="prefer_more")
    with pytest.raises(deepl.DeepLException, match="'FR' is not supported"):
        client.translate_text("Hello", target_lang="FR")


def test_deepl_tags(url: str) -> None:
    """As Weblate calls it: XML, with elements that may not change."""
    client = deepl.DeepLClient("any key", server_url=url)
    kept = '<x id="7">%(name)s &amp; <i>co</i></x>'
    result = client.translate_text(
        f"<p>Open the <b>black</b> window of {kept}.</p><br/>", target_lang="DE", tag_handling="xml", ignore_tags=["x"]
    )
    assert isinstance(result, deepl.TextResult)
    assert kept in result.text
    assert result.text.startswith("<p>") and result.text.endswith(".</p><br/>")
    assert result.text.count("<b>") == result.text.count("</b>") == 1


def test_deepl_documents(url: str, tmp_path: Path, expected: Expected) -> None:
    """A small document is done at the first question; files without a name are text."""
    client = deepl.DeepLClient("any key", server_url=url)
    (tmp_path / "in.txt").write_text("Good morning.\n")
    client.translate_document_from_filepath(tmp_path / "in.txt", tmp_path / "out.txt", target_lang="DE")
    assert (tmp_path / "out.txt").read_text() == f"{expected('Good morning.')}\n"
    (tmp_path / "in.html").write_text("<p title='x'>Good <b>morning</b>.</p>")
    client.translate_document_from_filepath(tmp_path / "in.html", tmp_path / "out.html", target_lang="DE")
    assert (tmp_path / "out.html").read_text().count("<b>") == 1
    handle = client.translate_document_upload(b"Good morning.", target_lang="DE", filename="note")
    status = client.translate_document_get_status(handle)
    assert status.done and status.billed_characters == 13
    written = io.BytesIO()
    client.translate_document_download(handle, written)
    assert written.getvalue().decode() == expected("Good morning.")
    with pytest.raises(deepl.DeepLException, match="Not found"):
        client.translate_document_download(handle, io.BytesIO())


def test_deepl_glossaries(url: str) -> None:
    client = deepl.DeepLClient("any key", server_url=url)
    entries = {"cat": "Katze", "night train": "Nachtzug"}
    made = client.create_glossary("animals", "EN", "DE", entries)
    assert made.ready and made.entry_count == 2
    assert client.get_glossary(made.glossary_id).name == "animals"
    assert client.get_glossary_entries(made) == entries
    assert [glossary.glossary_id for glossary in client.list_glossaries()] == [made.glossary_id]
    client.delete_glossary(made)
    assert client.list_glossaries() == []
    with pytest.raises(deepl.GlossaryNotFoundException):
        client.get_glossary(made.glossary_id)
    assert ("en", "de") in {(pair.source_lang, pair.target_lang) for pair in client.get_glossary_languages()}


def test_deepl_command(url: str, expected: Expected) -> None:
    command = [sys.executable, "-m", "deepl", "--server-url", url, "--auth-key", "any", "text", "--to", "DE"]
    done = subprocess.run([*command, "Good morning."], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"{expected('Good morning.')}\n"


def test_openai(url: str, expected: Expected) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="any")
    assert {"en-de", "de-en", "en-zh", "zh-en", "auto-de"} <= {model.id for model in client.models.list()}
    messages: Any = [{"role": "system", "content": "Translate."}, {"role": "user", "content": "Good morning."}]
    whole = client.chat.completions.create(model="en-de", messages=messages, n=2)
    assert whole.choices[0].message.content == expected("Good morning.")
    assert len(whole.choices) == 2 and whole.usage and whole.usage.completion_tokens > 0
    sentences = ["Good morning.", "How are you?"]
    streamed = client.chat.completions.create(
        model="auto-de",
        messages=[{"role": "user", "content": " ".join(sentences)}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(streamed)
    deltas = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
    assert len(deltas) == 2 and "".join(deltas) == " ".join(map(expected, sentences))
    assert chunks[-1].usage and chunks[-1].usage.total_tokens > 0
    with pytest.raises(openai.NotFoundError, match="no such model"):
        client.chat.completions.create(model="gpt", messages=messages)
    with pytest.raises(openai.BadRequestError, match="from 1 to 6"):
        client.chat.completions.create(model="en-de", messages=messages, n=7)


@needs_node
def test_clients_from_npm(url: str, expected: Expected) -> None:
    done = subprocess.run(
        ["node", "clients.mjs", url], cwd=CLIENTS, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    german = expected("Good morning.")
    node = results["deepl-node"]
    assert node["texts"] == [german, expected("The cat sleeps.")]
    assert node["detected"] == ["en", "en"]
    assert node["billed"] == [13, 15]
    assert node["marked"].startswith("<p>") and node["marked"].count("<b>") == node["marked"].count("</b>") == 1
    assert {"en-GB", "en-US", "de"} <= set(node["targets"])
    assert node["glossary"] == {"entries": {"cat": "Katze"}, "listed": ["terms"], "count": 1}
    assert node["document"] == "done"
    typescript = results["libretranslate-ts"]
    assert typescript["translation"]["translatedText"] == german
    assert german not in typescript["translation"]["alternatives"]
    assert typescript["detected"]["language"] == "de"
    assert "'xx' is not supported" in typescript["refused"]["error"]
    assert results["libretranslate"] == expected("Good morning.", "zh")
    assert results["translate"] == german
