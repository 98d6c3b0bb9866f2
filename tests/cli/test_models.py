"""Models by name, `models`, and what `translate` does when neither model nor languages are named."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

import heedful
from heedful.cli.language_prompt import ask_target_language, skip_untranslatable
from heedful.decoding.files.chunked_files import ChunkSizes
from heedful.errors import ConfigError, TextError
from heedful.model_dir import registry
from heedful.model_dir.files import shard_bytes
from tests.cli.program import COMMAND, ENVIRONMENT, Corpus, Inside, run
from tests.untrained_models import save_three_languages

LINES = [
    "Good morning, Tom.",
    "Guten Morgen, Tom.",
    "早上好，汤姆。",
    "How are you?",
    "Wie geht es dir?",
    "你好吗？",
] * 20
SHORT = ("--max-length", "3")


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained compact model of three languages."""
    folder = tmp_path_factory.mktemp("several")
    save_three_languages(folder, LINES, vocab_size=320)
    return folder / "en-de-zh"


@pytest.fixture
def bundled(several: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package's model directory, which contains this model; no user models, and an empty working directory."""
    monkeypatch.setattr(registry, "BUNDLED", tmp_path / "package/bundled")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("HEEDFUL_MODELS", raising=False)
    shutil.copytree(several, tmp_path / "package/bundled/en-de-zh")
    return tmp_path / "package/bundled"


def test_path_takes_priority_over_name(
    bundled: Path, several: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert registry.find_model("en-de-zh") == bundled / "en-de-zh" and registry.find_model(several) == several
    own = tmp_path / "data/heedful/models"
    shutil.copytree(several, own / "en-de-zh")
    shutil.copytree(several, own / "mine")
    assert registry.find_model("en-de-zh") == own / "en-de-zh"
    shutil.copytree(several, tmp_path / "listed/en-de-zh")
    monkeypatch.setenv("HEEDFUL_MODELS", f"{tmp_path}/nowhere{os.pathsep}{tmp_path}/listed{os.pathsep}")
    assert registry.find_model("en-de-zh") == tmp_path / "listed/en-de-zh"
    (own / "no-model").mkdir()
    assert [model.name for model in registry.installed_models()] == ["en-de-zh", "mine"]
    shutil.copytree(several, tmp_path / "mine")
    assert registry.find_model("mine") == Path("mine")
    (tmp_path / "en-de-zh").write_text("a file of this name is no model directory, and hides none")
    assert registry.find_model("en-de-zh") == tmp_path / "listed/en-de-zh"
    (tmp_path / "a-file").touch()
    assert registry.find_model("a-file") == Path("a-file")
    for wrong in ("no-model", "mine2", "listed/en-de", "..x"):
        with pytest.raises(ConfigError, match="there is no such model directory"):
            registry.find_model(wrong)
    with pytest.raises(ConfigError, match=r"did you mean 'mine'.*installed are en-de-zh, mine .*listed"):
        registry.find_model("mine2")


def test_default_model(bundled: Path, several: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert registry.default_model() == bundled / "en-de-zh" == registry.bundled_model()
    shutil.copytree(several, bundled / "another")
    assert registry.default_models() == [bundled / "another", bundled / "en-de-zh"]
    assert registry.bundled_model() == bundled / "en-de-zh"
    (bundled / "en-de-zh").rename(bundled / "third")
    assert registry.bundled_model() == bundled / "third"
    shutil.copytree(several, tmp_path / "data/heedful/models/mine")
    monkeypatch.setenv("HEEDFUL_MODEL", "mine")
    assert registry.default_model() == tmp_path / "data/heedful/models/mine"
    monkeypatch.setenv("HEEDFUL_MODEL", "mein")
    with pytest.raises(ConfigError, match=r"did you mean 'mine'.*HEEDFUL_MODEL"):
        heedful.Translator.load()
    monkeypatch.delenv("HEEDFUL_MODEL")
    shutil.rmtree(bundled)
    shutil.copytree(several, tmp_path / "model")
    for load in (registry.default_model, heedful.Translator.load):
        with pytest.raises(ConfigError, match=r"no model is named, and none came with heedful; give -m"):
            load()


def test_model_in_working_directory_needs_name(
    bundled: Path, inside: Inside, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(model, tmp_path / "model")
    bundled = inside("translate", "-m", "en-de-zh", "--to", "de", *SHORT, "Good morning.")
    assert inside("translate", "--to", "de", *SHORT, "Good morning.").out == bundled.out
    assert "Three languages" in inside("info").out and "Digits reversed" in inside("info", "model").out
    assert inside("models").out.count("(default)") == 1
    monkeypatch.setenv("HEEDFUL_MODEL", "model")
    assert "Digits reversed" in inside("info").out
    assert inside("translate", *SHORT, "1 2 3").out == inside("translate", "-m", "model", *SHORT, "1 2 3").out
    monkeypatch.delenv("HEEDFUL_MODEL")
    inside("shortlist", "--source", "a", "--target", "b").refused("no model is named", "-m DIRECTORY", "shortlist")
    inside("paper", "parse", "It works.").refused("no model is named", "-m DIRECTORY", "parse")


def test_models_lists_installed_models(bundled: Path, inside: Inside, model: Path, tmp_path: Path) -> None:
    own = tmp_path / "data/heedful/models"
    shutil.copytree(model, own / "digits")
    (own / "broken").mkdir()
    (own / "broken/checksums.json").write_text("{}")
    listed = inside("models")
    assert listed.code == 0
    for words in ("en-de-zh  (default)", "en → de, de → en, en → zh, zh → en", "compact", "digits"):
        assert words in listed.out
    assert "BLEU" in listed.out and "cannot be used" in listed.out
    listing = json.loads(inside("models", "--json").out)
    by_name = {one["name"]: one for one in listing["models"]}
    assert by_name["en-de-zh"]["is_default"] and by_name["en-de-zh"]["came_with_heedful"]
    assert by_name["digits"]["kind"] == "full" and by_name["digits"]["scores"]
    assert "damaged" in by_name["broken"]["problem"] and str(bundled) in listing["folders"]
    (own / "digits/native-int8.bin").write_bytes(bytes(1000))  # files that an engine caches are not part of the model
    (own / "digits/notes.txt").write_text("mine")
    again = json.loads(inside("models", "--json").out)["models"]
    files = [*json.loads(inside("info", "digits", "--json").out)["files"], "checksums.json"]
    size = sum((own / "digits" / name).stat().st_size for name in files)
    assert [one["bytes"] for one in again if one["name"] == "digits"] == [by_name["digits"]["bytes"]] == [size]
    shutil.rmtree(own)
    shutil.rmtree(bundled)
    assert "No models are installed. Searched:" in inside("models").out


def test_verbs_accept_model_names(bundled: Path, inside: Inside, model: Path, corpus: Corpus, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "data/heedful/models/digits")
    assert "Digits reversed" in inside("info", "digits").out
    assert "Three languages" in inside("info").out
    files = ["-s", corpus.test_source, "-t", corpus.test_target]
    assert inside("evaluate", "-m", "digits", *files).code == 0
    assert inside("export", "--to", "compact", "-m", "digits", "-o", "small").code == 0
    expected = inside("translate", "-m", "digits", "1 2 3")
    assert expected.code == 0 and inside("translate", "-m", "small", "1 2 3").out == expected.out
    inside("average", "digits", "nothing", "-o", "mean").refused("nothing", "heedful models")
    inside("translate", "-m", "digit", "1").refused("did you mean 'digits'")


def test_detection_per_line_keeps_order(bundled: Path, inside: Inside) -> None:
    plain = [*SHORT, "--decoding.checks=false"]  # the model is untrained: empty translations would print warnings
    texts = ["Guten Morgen", "早上好", "", "42", "Wie geht es dir?"]
    whole = "".join(f"{text}\n" for text in texts).encode()
    result = inside("translate", "--json", *plain, given=whole)
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert [line["source"] for line in lines] == texts and "warning" not in result.error
    assert [line.get("source_language") for line in lines] == ["de", "zh", None, None, "de"]
    assert {line["target_language"] for line in lines} == {"en"} and lines[0]["language_confidence"] > 0.9
    apart = [inside("translate", *plain, text).out for text in texts if text]
    assert "".join(apart) == "".join(f"{line['text']}\n" for line in lines if line["source"])
    assert inside("translate", *plain, "--to", "en", given=whole).out == inside("translate", *plain, given=whole).out


def test_ambiguous_target_is_an_error(bundled: Path, inside: Inside) -> None:
    inside("translate", "Guten Morgen", "Good morning").refused("text 2", "'en'", "de, zh", "--to")
    inside("translate", "日本語です").refused("looks like ja", "en, de, zh", "--from")
    assert inside("translate", *SHORT, "--from", "zh", "日本語です").code == 0
    inside("translate", "--from", "fr", "日本語です").refused("'fr'")
    inside("translate", "--to", "fr", "Hello").refused("'fr'", "de, en, zh")
    to_german = json.loads(inside("translate", *SHORT, "--to", "de", "--json", "Good morning").out)
    assert (to_german["source_language"], to_german["target_language"]) == ("en", "de")
    inside("evaluate", "-s", __file__, "-t", __file__).refused("name the language of the references", "--to")


def test_text_already_in_target_language_warns(bundled: Path, inside: Inside) -> None:
    ended = inside("translate", *SHORT, "--to", "de", given=b"Guten Tag\nGood day\nDanke sehr\nBis bald\n")
    assert ended.code == 0 and ended.out.count("\n") == 4
    assert ended.error.splitlines() == [
        "warning: line 1 seems to be in 'de' already; it is translated all the same.",
        "warning: 2 more lines like that (seems to be in 'de' already).",
    ]


def test_file_of_mixed_languages(bundled: Path, inside: Inside, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed.txt"
    mixed.write_text("Guten Morgen\n早上好\n\nWie geht es dir?\n" * 10, encoding="utf-8")
    expected = inside("translate", *SHORT, given=mixed.read_bytes()).out
    for workers in (1, 2):
        output = tmp_path / f"out{workers}"
        ended = inside("translate", *SHORT, "-i", mixed, "-o", output, "--workers", workers, "--chunk-lines", 7)
        assert ended.code == 0
        assert output.read_text(encoding="utf-8") == expected
    warned = inside("translate", *SHORT, "-i", mixed, "-o", "de", "--to", "de", "--workers", 2, "--chunk-lines", 7)
    assert "warning: line 1 seems" in warned.error and "19 more lines" in warned.error
    mixed.write_text("Guten Morgen\nGood morning\n")
    inside("translate", "-i", mixed, "-o", "out").refused("'en'", "--to", f"{mixed}:2 is in")
    english = "This is a rather long sentence, and everything in it shows clearly that it was written in English."
    mixed.write_text("Guten Morgen\n" * 8 + f"{english}\n" * 2)
    flags = ["translate", *SHORT, "-i", mixed, "-o", "kept", "--chunk-lines", 4]
    for workers in (1, 2):
        ended = inside(*flags, "--workers", workers)
        ended.refused(f"{mixed}:9 is in", "8 lines before", "kept.partial", "--from, --to", "--overwrite")
    inside(*flags, "--to", "zh").refused("--overwrite")
    assert inside(*flags, "--to", "zh", "--overwrite").code == 0


def test_pipe_error_names_line(bundled: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line number counts from the start of the input, not of the chunk."""
    monkeypatch.setattr("heedful.cli.translate.CHUNK_SIZES", ChunkSizes(4))
    english = b"This is a rather long sentence, and everything in it shows clearly that it was written in English.\n"
    ended = inside("translate", *SHORT, given=b"Guten Morgen\n" * 10 + english * 2)
    ended.refused("heedful: line 11 is in 'en'", "--to")
    assert ended.out.count("\n") == 8  # the chunks before it
    ended = inside("translate", *SHORT, *["Guten Morgen"] * 5, english.decode())
    ended.refused("heedful: text 6 is in 'en'")


@pytest.mark.skipif(os.name != "posix", reason="needs a terminal")
def test_prompt_asks_once_per_source_language(several: Path, tmp_path: Path) -> None:
    import pty

    ours, theirs = pty.openpty()
    command = [*COMMAND, "translate", "-m", str(several), "--json", *SHORT, "Good morning", "Guten Tag", "How are you?"]
    try:
        os.write(ours, b"fr\nzh\n")
        done = subprocess.run(
            command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, env=ENVIRONMENT, timeout=60, check=True
        )
        asked = os.read(ours, 10_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert asked.count("Translate en into which language? (de, zh)") == 2  # the first answer is not one of the choices
    targets = [json.loads(line)["target_language"] for line in done.stdout.decode().splitlines()]
    assert targets == ["zh", "en", "zh"]


@pytest.mark.parametrize("answer", ["zh", " ZH ", "Chinese", "中文"])
def test_prompt_accepts_language_name(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"Klingon\n{answer}\n"))
    assert ask_target_language("en", ("de", "zh-Hans" if answer == "Chinese" else "zh")).startswith("zh")


def test_typed_line_error_does_not_stop(several: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    translator = heedful.Translator.load(several)
    translate = skip_untranslatable(partial(translator.translate, max_length=3))
    first, refused, last = translate(["Guten Morgen", "Привет", "早上好"])
    assert [first.text, last.text] == [one.text for one in translate(["Guten Morgen", "早上好"])] and refused.text == ""
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and said[0].startswith("heedful: this line looks like ru, but this model knows en, de, zh")


def test_python_and_command_line_have_same_defaults(bundled: Path) -> None:
    translator = heedful.Translator.load()
    found = translator.translate(["Guten Morgen", "Good morning"], target_language={"en": "zh"}, max_length=3)
    assert [(one.source_language, one.target_language) for one in found] == [("de", "en"), ("en", "zh")]
    with pytest.raises(heedful.HeedfulError, match="text 2 is in 'en'"):
        translator.translate(["Guten Morgen", "Good morning"])
    streamed = list(translator.translate_lines(["Guten Morgen\n"], source_language="de", max_length=3))
    assert [one.text for one in streamed] == [found[0].text]
    english = "This is a rather long sentence, and everything in it shows clearly that it was written in English.\n"
    lines = translator.translate_lines(["Guten Morgen\n"] * 5 + [english], chunk_size=4, max_length=3)
    with pytest.raises(TextError, match="line 6 is in 'en'") as raised:
        list(lines)
    assert raised.value.number == 6  # counted from the start of the input


def test_listing_and_naming_models_needs_no_torch(several: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from heedful.cli import run; "
        f"sys.exit(run(['translate', '-m', {str(several)!r}, 'Guten Morgen']) or run(['models']))"
    )
    pytest.importorskip("heedful.native")
    from heedful.native import available

    if not available():
        pytest.skip(available().reason)
    done = subprocess.run([*COMMAND[:1], "-c", code], env=ENVIRONMENT, capture_output=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert run("translate", "-m", several, "Guten Morgen").out in done.stdout.decode()


def test_unknown_user_in_model_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEEDFUL_MODELS", "~no-such-user/models")
    assert registry.model_folders()[0] == Path("~no-such-user/models")
    assert shard_bytes(float("inf")) is None and shard_bytes(0.5) == 500_000


def test_shortlist_merges_target_languages(bundled: Path, inside: Inside, tmp_path: Path) -> None:
    from heedful.model_dir.shortlist import read_shortlist

    for code, texts in (("en", LINES[0::3]), ("de", LINES[1::3]), ("zh", LINES[2::3])):
        (tmp_path / f"text.{code}").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    inside("shortlist", "-m", "en-de-zh", "-s", tmp_path / "text.en", "-t", tmp_path / "text.de").refused(
        "is part of heedful", "heedful export --to compact -m en-de-zh -o my-en-de-zh"
    )
    assert inside("export", "--to", "compact", "-m", "en-de-zh", "-o", tmp_path / "mine").code == 0
    learn = ["shortlist", "--force", "-m", tmp_path / "mine", "-s", tmp_path / "text.en", "-t"]
    first, second = inside(*learn, tmp_path / "text.de"), inside(*learn, tmp_path / "text.zh")
    assert first.code == second.code == 0
    assert "Kept the" not in first.error and "Kept the existing entries for de." in second.error
    found = read_shortlist(tmp_path / "mine")
    assert found is not None
    assert found.settings == {"per_token": 100, "frequent": 1000, "pairs": 80, "pairs_de": 40, "pairs_zh": 40}
    assert "Kept the existing entries for zh." in inside(*learn, tmp_path / "text.de").error
    again = read_shortlist(tmp_path / "mine")
    assert again is not None and again.settings == found.settings
    assert (again.targets.tolist(), again.starts.tolist()) == (found.targets.tolist(), found.starts.tolist())
    assert inside("info", tmp_path / "mine", "--verify").code == 0
    assert inside("translate", "-m", tmp_path / "mine", *SHORT, "--to", "de", "Good morning").code == 0
