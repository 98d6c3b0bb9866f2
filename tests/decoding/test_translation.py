"""Texts of many segments, and long texts translated in portions: bounded memory and the same results."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from heedful.config import Config, DecodingConfig, ModelConfig, TokenizerConfig
from heedful.decoding import translation, translator
from heedful.decoding.span_masking import split_cells, split_into_cells
from heedful.decoding.text_splitting import Segment, SplitRule, certainly_longer
from heedful.decoding.translation import portion_source, split_portions
from heedful.decoding.translator import Translator
from heedful.errors import DecodingError
from heedful.model.transformer import Transformer
from heedful.model_dir import save_model
from heedful.text.tokenizer import train_tokenizer
from tests.cli.program import ENVIRONMENT

SENTENCES = [
    "The cat sat on a mat.",
    "See https://a.b/c, “then” go!",
    "Der Hund lief\n\nin das Haus.",
    "好。行！",
    "Yes.",
]
TEXT = "  " + " ".join(SENTENCES[number % 5] + f" {number}" for number in range(25)) + "\n"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model."""
    tokenizer = train_tokenizer([(text, text[::-1]) for text in SENTENCES * 9], TokenizerConfig(vocab_size=330))
    size = tokenizer.target_vocab_size
    torch.manual_seed(1)
    config = ModelConfig(
        source_vocab_size=size, target_vocab_size=size, d_model=16, d_ff=32, num_heads=2,
        num_encoder_layers=1, num_decoder_layers=1, max_length=64,
    )  # fmt: skip
    place = tmp_path_factory.mktemp("model") / "model"
    decoding = DecodingConfig(max_extra_length=3)
    save_model(place, weights=Transformer(config), config=Config(model=config, decoding=decoding), tokenizer=tokenizer)
    return place


@pytest.fixture(params=["native", "torch"])
def loaded(request: pytest.FixtureRequest, directory: Path) -> Translator:
    return Translator.load(directory, engine=request.param)


@pytest.mark.parametrize("protect", [False, True])
@pytest.mark.parametrize("text", [TEXT, TEXT.strip(), "\u200b " + TEXT])
def test_portions_do_not_change_translations(
    loaded: Translator, monkeypatch: pytest.MonkeyPatch, protect: bool, text: str
) -> None:
    texts = ["the cat", text, "a mat"]
    settings = {
        "align": True,
        "protect": protect,
        "num_best": 2,
        "beam_size": 2,
        "max_length": 5,
        "target_prefix": [None, "cat", None],
    }
    whole = loaded.translate(texts, **settings)
    for module in (translation, translator):
        monkeypatch.setattr(module, "LONG_TEXT", 100)
    found = loaded.translate(texts, **settings)
    assert whole[1].num_sentences > 20
    for expected, one in zip(whole, found, strict=True):
        assert one.to_json("") == expected.to_json("") or one.score == pytest.approx(expected.score)
        names = ["text", "tokens", "source_tokens", "alignment", "finished", "num_sentences"]
        for name in names + ["word_alignment"] * (not protect):  # masks of repeated text can be located in two ways
            assert getattr(one, name) == getattr(expected, name), name
        assert [each.text for each in one.n_best] == [each.text for each in expected.n_best]
        assert (one.source_language, one.warnings) == (expected.source_language, expected.warnings)
    assert found[1].attention is None and whole[1].attention is not None and found[0].attention is not None


def test_error_in_long_text_has_text_number(loaded: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (translation, translator):
        monkeypatch.setattr(module, "LONG_TEXT", 100)
    with pytest.raises(DecodingError, match="text 2 has a target prefix of"):
        loaded.translate(["cat", TEXT], target_prefix=[None, "the cat sat on a mat " * 9])


def test_portions_contain_the_text() -> None:
    rule = SplitRule(split="always", typical_length=10, max_length=20, num_tokens=len)
    for text in (TEXT, "a <b>bold</b> word. " * 3000, "😀 x.y@z.de! " * 2000, "1" * 50_000):
        portions = split_portions(split_cells(split_into_cells(text), rule))
        assert "".join(map(portion_source, portions)) == text
        assert all(len(one) == 1 or sum(len(part.text) for part in one) <= translation.LONG_TEXT for one in portions)
    assert split_portions([Segment("", "a" * 90_000), Segment("", "b")]) == [
        [Segment("", "a" * 90_000)],
        [Segment("", "b")],
    ]


def test_certainly_longer_does_not_tokenize() -> None:
    assert not certainly_longer("a" * 20_000, 1) and certainly_longer("a" * 20_001, 1)
    assert not certainly_longer("a" * 64_000, 1000) and certainly_longer("a" * 64_001, 1000)


def peak_megabytes(model: Path, given: Path, *flags: object) -> tuple[subprocess.CompletedProcess[bytes], float]:
    """Translate in a new process and return its peak memory; `ru_maxrss` would include the peak of the parent."""
    program = (
        "import re, sys; from heedful.cli import run; code = run(sys.argv[1:]);"
        "peak = re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read());"
        "print(int(peak[1]) / 1024, file=sys.stderr); sys.exit(code)"
    )
    command = [sys.executable, "-c", program, "translate", "-m", model, *flags]
    done = subprocess.run(
        [*map(str, command), "-i", str(given)], env=ENVIRONMENT, capture_output=True, timeout=300, check=False
    )
    return done, float(done.stderr.splitlines()[-1])


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sentences", "no space", "never split"])
def test_memory_of_long_lines_is_bounded(directory: Path, tmp_path: Path, kind: str) -> None:
    """Each megabyte of a line takes about 33 megabytes of memory, or 6 if it is copied."""
    unit = {"sentences": "the cat sat on a mat. ", "no space": "thecatsatonamat", "never split": "the cat sat "}[kind]
    flags = ["--method", "greedy", "--engine", "native", *(["--split", "never"] if kind == "never split" else [])]
    peaks = []
    for number, size in enumerate((100_000, 2_000_000)):
        (tmp_path / "in").write_text(unit * (size // len(unit)) + "\nthe cat\n")
        done, peak = peak_megabytes(directory, tmp_path / "in", *flags)
        assert done.returncode == 0 and done.stdout.count(b"\n") == 2, done.stderr
        assert (b"1 line (1): the text is too long" in done.stderr) == (kind == "never split"), number
        peaks.append(peak)
    assert peaks[1] - peaks[0] < (25 if kind == "never split" else 75)


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize("form", ["html", "txt"])
@pytest.mark.parametrize("to_file", [False, True])
def test_gzip_bombs_to_translate(directory: Path, tmp_path: Path, form: str, to_file: bool) -> None:
    """A document, and lines that fit one by one but not together, are refused in bounded memory."""
    path = tmp_path / f"bomb.{form}.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(20):
            file.write(b" " * 10_000_000 + b"\n")
    done, peak = peak_megabytes(directory, path, *(["-o", tmp_path / f"out.{form}"] if to_file else []))
    assert b"Traceback" not in done.stderr and peak < 400
    if form == "html":
        assert done.returncode == 2 and b"a document may have at most 100,000,000 bytes" in done.stderr
    elif to_file:
        assert done.returncode == 2 and b"bomb.txt.gz:4: the 4 lines up to this one" in done.stderr
        assert b"--chunk-lines" in done.stderr
        again, _ = peak_megabytes(directory, path, "-o", tmp_path / "again", "--chunk-lines", 2)
        assert again.returncode == 0 and (tmp_path / "again").read_bytes() == b"\n" * 20
    else:
        assert done.returncode == 0 and done.stdout == b"\n" * 20
