"""Fuzz `heedful translate` with random Unicode: one output line per input line, no broken characters.

    python .ci/unicode_fuzz.py                      the 20,000 lines of CI
    python .ci/unicode_fuzz.py --lines 1000000      before a release
    python .ci/unicode_fuzz.py --minutes 25         as many as fit

Nine of ten lines go to small models with random weights, which put out bytes and tokens in any order; the others to
the bundled model. Files of lines are drawn from a fixed seed and translated one by one. Of every line: its translation
is valid UTF-8, has U+FFFD or control characters only if the line has them, and can be seen if the line can be seen.
Files that are not UTF-8 must be refused with exit code 2 and the number of the line. The first finding ends the run
with exit code 1.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from heedful.decoding.text_splitting import is_visible  # noqa: E402

LINES_PER_FILE = 20_000
BUNDLED_SHARE = 10  # one line in ten
WORDS = (
    "the sun is warm Haus und Hof ein Vogel singt 我们 很 好 12 3.5 1,000 <b> </i> https://a.b/c {name} ``` $x$ "
    "e\u0301 ﬁ ½ ... ' \" % €5 a@b.de </s> <unk> <pad> <0xE2> <0x98> ▁ \\ud83d \\u0000 &amp; %s {} {0} \ufffd"
).split()
RANGES = (
    (0x00, 0x0A), (0x0B, 0x20), (0x20, 0x7F), (0x7F, 0x100), (0x100, 0x250), (0x300, 0x370), (0x370, 0x530),
    (0x590, 0x700), (0x900, 0xE80), (0x1100, 0x1200), (0x200B, 0x2010), (0x2028, 0x2030), (0x2060, 0x2070),
    (0x2000, 0x2800), (0x3040, 0x3100), (0x4E00, 0xA000), (0xA000, 0xD7A4), (0xE000, 0xF900), (0xFB1D, 0xFE00),
    (0xFE00, 0xFE10), (0xFE10, 0x10000), (0x10300, 0x10400), (0x1D400, 0x1D800), (0x1F1E6, 0x1F200),
    (0x1F300, 0x1FB00), (0x20000, 0x30000), (0xE0000, 0xE0200), (0xF0000, 0x110000),
)  # fmt: skip
EMOJI = "😀👩👨👧🏽🏳🌈❤🧑🚀✊👍🏿1#*"
NOT_UTF8 = (
    b"\xff\xfea\x00", b"\x80", b"caf\xe9", b"\xc0\x80", b"\xed\xa0\xbd\xed\xb8\x80", b"\xed\xbf\xbf",
    b"\xf4\x90\x80\x80", b"\xe2\x98", b"\xf0\x9f\x98", b"\xf8\x88\x80\x80\x80",
)  # fmt: skip
"""UTF-16, Latin-1, overlong and cut-off sequences, surrogates, and numbers beyond Unicode."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=None, help="number of lines; without --minutes 20,000")
    parser.add_argument("--minutes", type=float, default=None, help="begin no further file after this time")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    wanted = chosen.lines or (20_000 if chosen.minutes is None else sys.maxsize)
    end = time.monotonic() + (chosen.minutes * 60 if chosen.minutes is not None else float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(fuzz(Path(folder), wanted, end, chosen.seed))


def fuzz(folder: Path, wanted: int, end: float, seed: int) -> int:
    """Translate files until the line or time limit. Return the exit code."""
    models = [save_random_model(folder / f"model{number}", seed=number) for number in range(2)]
    begin, num_lines, num_bundled = time.monotonic(), 0, 0
    problem = refuses_other_encodings(folder, models[0])
    while problem is None and num_lines < wanted and (num_lines == 0 or time.monotonic() < end):
        number = num_lines // LINES_PER_FILE
        lines = random_lines(min(LINES_PER_FILE, wanted - num_lines), seed=seed * 100_000 + number)
        share = len(lines) // BUNDLED_SHARE
        beam = ["--method", "greedy"] if number % 2 == 0 else ["--beam-size", "2"]
        target = ("de", "zh")[number // 2 % 2]
        problem = check(folder, lines[share:], ["-m", str(models[number % 2]), *beam]) or check(
            folder, lines[:share], ["--from", "en", "--to", target, *beam]
        )
        num_lines, num_bundled = num_lines + len(lines), num_bundled + share
        sys.stderr.write(f"\r{num_lines:,} lines, {time.monotonic() - begin:,.0f} s")
    sys.stderr.write("\n")
    if problem is not None:
        sys.stdout.write(f"{problem}\n")
        return 1
    sys.stdout.write(f"{num_lines:,} lines, {num_bundled:,} of them with the bundled model: nothing found\n")
    return 0


def random_lines(count: int, *, seed: int) -> list[str]:
    """Lines of words, characters of every kind, and sequences of them; the same for the same seed."""
    drawn = random.Random(seed)
    makers: list[Callable[[random.Random], str]] = [
        lambda r: r.choice(WORDS), lambda r: r.choice(WORDS), _characters, _characters, _any_character, _emoji, _marks,
    ]  # fmt: skip
    lines = []
    for _ in range(count):
        parts = [drawn.choice(makers)(drawn) for _ in range(drawn.randint(0, 4))]
        if drawn.random() < 0.003:
            parts.append(_long_cluster(drawn))
        line = drawn.choice(["", " ", " ", "\t", "\u200f", "\u3000"]).join(parts)
        if drawn.random() < 0.1:
            line = unicodedata.normalize(drawn.choice(["NFC", "NFD", "NFKC", "NFKD"]), line)
        lines.append(line)
    return lines


def _characters(drawn: random.Random) -> str:
    first, end = drawn.choice(RANGES)
    return "".join(chr(drawn.randrange(first, end)) for _ in range(drawn.randint(1, 4)))


def _any_character(drawn: random.Random) -> str:
    code = drawn.randrange(0xB, 0x110000 - 0x800)
    return chr(code if code < 0xD800 else code + 0x800)  # no surrogates, which no UTF-8 holds


def _emoji(drawn: random.Random) -> str:
    return drawn.choice(["\u200d", "\ufe0f", "\u20e3", ""]).join(drawn.choices(EMOJI, k=drawn.randint(1, 6)))


def _marks(drawn: random.Random) -> str:
    """Combining marks, with nothing before them or after one letter; or text from right to left with its controls."""
    kind = drawn.randrange(3)
    if kind == 2:
        words = drawn.choice(["שלום עולם", "مرحبا بالعالم", "ܫܠܡܐ"])
        return (
            drawn.choice("\u202a\u202b\u202d\u202e\u2066\u2067\u2068") + words + drawn.choice(["\u202c", "\u2069", ""])
        )
    marks = "".join(chr(drawn.randrange(0x300, 0x370)) for _ in range(drawn.randint(1, 9)))
    return drawn.choice("aקक각") + marks if kind else marks


def _long_cluster(drawn: random.Random) -> str:
    """One user-perceived character that is longer than a model's inputs."""
    unit = drawn.choice(["\u0301", "\ufe0f", "\u200d😀", "🏽", "\u0338\u0327", "\U000e0061"])
    return drawn.choice(["a", "😀", "", "ש"]) + unit * drawn.randint(20, 400)


def save_random_model(path: Path, *, seed: int) -> Path:
    """A model from English into German whose weights are random, and whose tokens are mostly bytes."""
    import torch

    from heedful.build_model import build_model
    from heedful.config import Config, CorpusConfig, DataConfig, DecodingConfig, ModelConfig, TokenizerConfig
    from heedful.model_dir import save_model
    from heedful.text.tokenizer import train_tokenizer

    lines = [
        "the sun is warm and the wind is cold",
        "ein Vogel singt im Garten",
        "我们很好",
        "é è ½ ñ привет שלום 😀",
    ] * 9
    tokenizer = train_tokenizer([(line, line) for line in lines], TokenizerConfig(vocab_size=330 + 20 * seed))
    size = tokenizer.target_vocab_size
    config = ModelConfig(
        source_vocab_size=size, target_vocab_size=size, d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1,
        num_decoder_layers=1, max_length=96, tying="none",
    )  # fmt: skip
    torch.manual_seed(seed)
    model = build_model(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    corpus = CorpusConfig("a", "b", source_language="en", target_language="de")
    decoding = DecodingConfig(max_extra_length=4)
    settings = Config(model=config, data=DataConfig(train=(corpus,)), decoding=decoding)
    save_model(path, weights=model, config=settings, tokenizer=tokenizer)
    return path


def heedful(arguments: Iterable[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "heedful", "translate", "--engine", "native", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)


def check(folder: Path, lines: list[str], flags: list[str]) -> str | None:
    """Translate a file of these lines. Return a description of the first error, or None."""
    source, target = folder / "in.txt", folder / "out.txt"
    source.write_bytes("".join(f"{line}\n" for line in lines).encode())
    target.unlink(missing_ok=True)
    done = heedful([*flags, "-i", str(source), "-o", str(target)])
    if done.returncode != 0:
        return f"exit code {done.returncode} with {flags}: {done.stderr[-2000:]}"
    try:
        found = target.read_bytes().decode().split("\n")
    except UnicodeDecodeError as error:
        return f"the output of {flags} is not UTF-8: {error}"
    if found.pop() != "" or len(found) != len(lines):
        return f"{len(lines)} lines became {len(found)} with {flags}"
    for line, text in zip(lines, found, strict=True):
        if problem := compare(line, text):
            return f"{problem} with {flags}: {line!a} became {text!a}"
    return None


def compare(line: str, text: str) -> str | None:
    """Describe the error of a translation, or None."""
    new = set(text) - set(line)
    if "\ufffd" in new:
        return "U+FFFD appeared"
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in new):
        return "a control character appeared"
    if is_visible(line) and not is_visible(text):
        return "visible characters became an empty line"
    return None


def refuses_other_encodings(folder: Path, model: Path) -> str | None:
    """A file with one line that is not UTF-8 is refused, and the message has the number of the line."""
    path = folder / "other.txt"
    for number, line in enumerate(NOT_UTF8, start=1):
        path.write_bytes(b"the sun\n" * (number - 1) + line + b"\nthe wind\n")
        done = heedful(["-m", str(model), "-i", str(path)])
        if done.returncode != 2 or f"{path}:{number}: " not in done.stderr or "Traceback" in done.stderr:
            return f"{line!r} in line {number}: exit code {done.returncode}, {done.stderr[-2000:]}"
        if done.stdout.count("\n") != number - 1:
            return f"{line!r} in line {number}: the lines before it did not come out"
    return None


if __name__ == "__main__":
    main()
