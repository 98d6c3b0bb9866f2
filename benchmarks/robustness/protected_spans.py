"""How many protected spans are kept in generated sentences, in four directions, and the effect on plain text.

    python benchmarks/robustness/protected_spans.py heedful/bundled/en-de-zh --sentences 10000 --write 2026-11-18

Sentences are generated from the templates in `protected_spans.tsv`, whose slots are filled at random from a fixed seed
(URLs, e-mail addresses, paths, placeholders, tags, entities, code, emoji, hashtags, mentions, base64, hashes, times),
and from prose with slots at random positions. A span is kept if the translation has it exactly as often as the
source, byte for byte. Measured with and without protection. `--data`: a folder with FLORES and newstest files, whose
BLEU is then reported both ways, and how many translations of lines without spans differ.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import random
import re
import string
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.common.run_metadata import public, run_metadata
from heedful import Translator
from heedful.decoding.span_masking import MASK_FORMATS
from heedful.evaluation.score import score
from heedful.search_types import DecodeRequest, DecodeResult
from heedful.text.protected_spans import find_spans

RESULTS = Path(__file__).resolve().parents[1] / "results"
TEXTS = Path(__file__).resolve().with_suffix(".tsv")
"""Language, template or prose, text; slots are kinds of spans, {tag} … {/tag} a pair around words."""
DIRECTIONS = (("en", "de"), ("de", "en"), ("en", "zh"), ("zh", "en"))
TESTS = {
    ("en", "de"): (
        ("newstest2014.en-de.en", "newstest2014.en-de.de"),
        ("flores200-devtest.en", "flores200-devtest.de"),
    ),
    ("de", "en"): (
        ("newstest2014.en-de.de", "newstest2014.en-de.en"),
        ("flores200-devtest.de", "flores200-devtest.en"),
    ),
    ("en", "zh"): (("flores200-devtest.en", "flores200-devtest.zh"),),
    ("zh", "en"): (
        ("newstest2017.zh-en.zh", "newstest2017.zh-en.en"),
        ("flores200-devtest.zh", "flores200-devtest.en"),
    ),
}
WORDS = "anna report data index user order invoice main test image backup config setup list mail page item shop".split()
ENDINGS = "txt md py json yaml csv pdf png html log docx zip tar.gz ini".split()
EMOJI = ("😀 😂 🎉 🚀 👍 👍🏽 🙏🏿 ❤️ ☕ ✅ ⚠️ 👨‍👩‍👧‍👦 👩🏽‍💻 🏳️‍🌈 🇩🇪 🇨🇳 🇺🇳 1️⃣ #️⃣ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ✌🏻 ☀️ 🐈‍⬛ ❤️‍🔥 🧑‍🚀 🥐 ⭐ ➡️ ™️").split()
TAGS = (
    ("<b>", "</b>"),
    ("<i>", "</i>"),
    ("<em>", "</em>"),
    ('<span class="x">', "</span>"),
    ('<a href="/help">', "</a>"),
)

ANYWHERE = "url email path placeholder code emoji hashtag mention hash base64 time address".split()


class Spans:
    """Random spans of every kind, reproducible from the seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tag = ("", "")

    def word(self) -> str:
        return self.random.choice(WORDS)

    def text(self, characters: str, length: int) -> str:
        return "".join(self.random.choice(characters) for _ in range(length))

    def url(self) -> str:
        host = f"{self.word()}-{self.word()}.{self.random.choice(('com', 'de', 'org', 'cn', 'co.uk', 'io'))}"
        path = "/".join(self.word() for _ in range(self.random.randint(0, 3)))
        query = self.random.choice(
            ("", "", f"?id={self.random.randint(1, 999)}", f"?q={self.word()}&lang=en", "#top", "_(x)")
        )
        start = self.random.choice(("https://", "https://", "https://www.", "http://", "www.", "ftp://"))
        return f"{start}{host}" + (f"/{path}{query}" if path else self.random.choice(("", "/")))

    def email(self) -> str:
        name = self.random.choice(
            (self.word(), f"{self.word()}.{self.word()}", f"{self.word()}+{self.word()}_{self.random.randint(1, 99)}")
        )
        host = self.random.choice(("beispiel", "example", self.word()))
        return f"{name}@{host}.{self.random.choice(('de', 'com', 'co.uk', 'cn'))}"

    def path(self) -> str:
        name = f"{self.word()}.{self.random.choice(ENDINGS)}"
        return self.random.choice(
            (
                f"/etc/{self.word()}/{name}",
                f"/home/{self.word()}/{self.word()}",
                f"~/{self.word()}/{name}",
                f"./{name}",
                f"../{self.word()}/{name}",
                f"src/{self.word()}/{name}",
                f"C:\\Users\\{self.word()}\\{name}",
                f"\\\\server\\{self.word()}\\{name}",
                name,
            )
        )

    def placeholder(self) -> str:
        word = self.word()
        named = (
            f"{{{word}}}",
            f"%({word})s",
            f"${{{word}}}",
            f"{{{{{word}}}}}",
            f"{{{{ {word} }}}}",
            f"{{{word}:.2f}}",
        )
        other = (
            f"%{word.upper()}%",
            f"<{word}>",
            f"${word.upper()}",
            "{0}",
            "{1}",
            "{}",
            "%s",
            "%d",
            "%1$s",
            "%.2f",
            "%@",
        )
        return self.random.choice(named + other)

    def entity(self) -> str:
        return self.random.choice(
            ("&amp;", "&nbsp;&amp;&nbsp;", "&#38;", " &amp; ", " &#x26; ", "&ndash;", " &mdash; ")
        )

    def code(self) -> str:
        word = self.word()
        return self.random.choice(
            (f"`{word}`", f"`pip install {word}`", f"`{word}(x, y)`", f"``{word} ` x``", f"`{word}['a']`")
        )

    def emoji(self) -> str:
        return "".join(self.random.choice(EMOJI) for _ in range(self.random.choice((1, 1, 1, 2))))

    def hashtag(self) -> str:
        name = self.word().title() + self.word().title()
        return f"#{self.random.choice((name, self.word() + '2026', 'Größe', '北京', 'AI'))}"

    def mention(self) -> str:
        return f"@{self.word()}{self.random.choice(('', '_' + self.word(), str(self.random.randint(1, 99))))}"

    def hash(self) -> str:
        seed = str(self.random.random()).encode()
        digest = hashlib.sha256(seed).hexdigest()
        uuid = f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
        return self.random.choice(
            (f"a{digest[:6]}1", f"{digest[:38]}f0", digest[:62] + "a1", uuid, f"sha256:{digest}", f"0x{digest[:8]}")
        )

    def base64(self) -> str:
        return base64.b64encode(self.text(string.printable[:94], self.random.randint(25, 55)).encode()).decode()

    def time(self) -> str:
        number = self.random.randint
        clock = f"{number(0, 23):02}:{number(0, 59):02}:{number(0, 59):02}"
        return self.random.choice(
            (
                f"{clock},{number(0, 999):03}",
                f"{clock}.{number(0, 999):03}",
                clock,
                f"2026-{number(1, 12):02}-11T{clock}Z",
            )
        )

    def address(self) -> str:
        return ".".join(str(self.random.randint(1, 254)) for _ in range(4)) + self.random.choice(("", ":8080"))

    def html(self) -> str:
        return self.random.choice(("<br>", "<br/>", "<br />", "</p><p>", "<!-- end -->"))

    def fill(self, template: str) -> tuple[str, list[tuple[str, str]]]:
        """A sentence of a template, and its spans with their kinds."""
        spans: list[tuple[str, str]] = []

        def one(match: re.Match[str]) -> str:
            kind = match.group(1)
            if kind == "tag":
                self.tag = self.random.choice(TAGS)
            found = {"tag": self.tag[0], "/tag": self.tag[1]}.get(kind) or getattr(self, kind.strip("/"))()
            spans.append((kind.strip("/"), found.strip()))
            return str(found)

        text = re.sub(r"\{(/?[a-z0-9]+)\}", one, template)
        spans += [("html", tag) for tag in re.findall(r"</?p>", template)]
        return text, spans

    def scattered(self, text: str, language: str) -> str:
        """A template with one to four slots at random positions of a text: between words, or between any characters."""
        parts = list(text) if language == "zh" else text.split(" ")
        for _ in range(self.random.randint(1, 4)):
            space = self.random.choice((" ", "")) if language == "zh" else ""
            kind = self.random.choice(ANYWHERE)
            space = " " if kind == "hashtag" else space  # otherwise the next word would be part of it
            slot = f"{space}{{{kind}}}{space}"
            parts.insert(self.random.randint(0, len(parts)), slot)
        return ("" if language == "zh" else " ").join(parts).strip().replace("}{", "} {")


def sentences(language: str, count: int, seed: int) -> list[tuple[str, list[tuple[str, str]]]]:
    """Generated sentences: in turn one template, two templates, and a text with slots at random positions."""
    spans = Spans(seed)
    rows = [line.split("\t") for line in TEXTS.read_text("utf-8").splitlines()]
    templates, prose = (
        [text.replace("\\t", "\t") for code, kind, text in rows if (code, kind) == (language, wanted)]
        for wanted in ("template", "prose")
    )
    made = []
    for number in range(count):
        first, second = templates[number // 3 % len(templates)], spans.random.choice(templates)
        plain = spans.random.choice(prose)
        made.append((first, f"{first} {second}", spans.scattered(plain, language))[number % 3])
    return [spans.fill(template) for template in made]


class Counting:
    """An engine that counts the sentences with each form of mask, and those whose translation kept all of them."""

    def __init__(self, engine: Any, text_of: Callable[[Sequence[int]], str]) -> None:
        self.engine, self.text_of = engine, text_of
        self.counts: Counter[str] = Counter()
        self.max_length = engine.max_length

    def decode(
        self, requests: Sequence[DecodeRequest], config: Any, *, align: bool, constraint_factory: Any
    ) -> dict[DecodeRequest, DecodeResult]:
        found: dict[DecodeRequest, DecodeResult] = self.engine.decode(
            requests, config, align=align, constraint_factory=constraint_factory
        )
        for number, form in enumerate(MASK_FORMATS):
            masked = [request for request in requests if form.read.search(request.text)]
            self.counts[f"form {number}"] += len(masked)
            for request in masked:
                wanted = Counter(form.read.findall(request.text))
                right = [
                    Counter(form.read.findall(self.text_of(h.tokens[:-1]))) == wanted for h in found[request].hypotheses
                ]
                self.counts[f"form {number} best"] += right[0]
                self.counts[f"form {number} any"] += any(right)
        return found


def is_kept(span: str, source: str, translation: str) -> bool:
    """Whether a translation has a span exactly as often as its source."""
    return translation.count(span) == source.count(span)


def measure(
    translator: Translator, count: int, *, protect: bool
) -> tuple[Counter[str], Counter[str], Counter[str], list[str]]:
    """For all directions: spans by kind, kept spans, sentences by method, and examples of lost spans."""
    total: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    lost: list[str] = []
    for number, (source, target) in enumerate(DIRECTIONS):
        made = sentences(source, count // len(DIRECTIONS), seed=number + 1)
        texts = [text for text, _ in made]
        found = translator.translate(texts, source_language=source, target_language=target, protect=protect)
        for (text, spans), translation in zip(made, found, strict=True):
            fine = [is_kept(span, text, translation.text) for _, span in spans]
            fine.append(translation.text.count("\t") == text.count("\t") and "\ufffd" not in translation.text)
            for (kind, _), right in zip(spans, fine, strict=False):
                total[kind] += 1
                kept[kind] += right
            whole[f"{source}-{target}"] += all(fine)
            if not all(fine):
                lost.append(f"{source}-{target}: {text!r} → {translation.text!r}")
    return total, kept, whole, lost


def quality(translator: Translator, data: Path, count: int) -> list[str]:
    """BLEU on FLORES and newstest with and without protection, and changes of lines without spans.

    `count` lines of each text and all lines with spans; 0: all lines.
    """
    rows = [
        "| text | lines | with spans | other lines that differ | BLEU without | BLEU with |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for (source, target), files in TESTS.items():
        for name, reference in files:
            lines, wanted = ((data / one).read_text("utf-8").splitlines() for one in (name, reference))
            chosen = [index for index, line in enumerate(lines) if not count or index < count or find_spans(line)]
            lines, wanted = [lines[index] for index in chosen], [wanted[index] for index in chosen]
            raw, kept = (
                [
                    one.text
                    for one in translator.translate(
                        lines, source_language=source, target_language=target, protect=protect
                    )
                ]
                for protect in (False, True)
            )
            spans = [bool(find_spans(line)) for line in lines]
            differ = sum(a != b for a, b, has in zip(raw, kept, spans, strict=True) if not has)
            blocks = [
                next(s for s in score(found, wanted, metrics=("bleu",), target_language=target)).value
                for found in (raw, kept)
            ]
            rows.append(
                f"| {name} to {target} | {len(lines):,} | {sum(spans)} | {differ} | {blocks[0]:.2f} | {blocks[1]:.2f} |"
            )
            print(rows[-1], flush=True)
    return rows


def table(plain: tuple[Counter[str], ...], guarded: tuple[Counter[str], ...], count: int) -> list[str]:
    """Spans by kind and sentences by direction, without protection and with it."""
    rows = ["| spans | in the sources | kept without | kept with |", "|---|---:|---:|---:|"]
    for kind, total in sorted(guarded[0].items()):
        rows.append(f"| {kind} | {total:,} | {plain[1][kind]:,} | {guarded[1][kind]:,} |")
    total = sum(guarded[0].values())
    rows.append(f"| all | {total:,} | {sum(plain[1].values()):,} | {sum(guarded[1].values()):,} |")
    rows += ["", "| direction | sentences | all spans kept without | with |", "|---|---:|---:|---:|"]
    for source, target in DIRECTIONS:
        name = f"{source}-{target}"
        rows.append(f"| {name} | {count // len(DIRECTIONS):,} | {plain[2][name]:,} | {guarded[2][name]:,} |")
    return rows


def steps(counts: Counter[str]) -> list[str]:
    """How many masked sentences needed each method."""
    asked, second = counts["form 0"], counts["form 1"]
    best, any_of, saved = counts["form 0 best"], counts["form 0 any"], counts["form 1 any"]
    rows = ["| different masked sentences | number | share |", "|---|---:|---:|"]
    steps = (
        ("all", asked),
        ("best translation has each mask once", best),
        ("another hypothesis has", any_of - best),
        ("with the second form of masks", saved),
        ("in pieces", second - saved),
    )
    return [*rows, *(f"| {name} | {number:,} | {number / max(1, asked):.1%} |" for name, number in steps)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--sentences", type=int, default=10_000)
    parser.add_argument("--engine", default="native")
    parser.add_argument("--data", type=Path, help="folder with FLORES and newstest files, for BLEU")
    parser.add_argument(
        "--lines", type=int, default=0, help="lines of each file, besides all lines with spans; 0: all lines"
    )
    parser.add_argument("--write", metavar="DATE", help="write results/protected_spans_DATE_cpu.md")
    chosen = parser.parse_args()
    translator = Translator.load(chosen.model, engine=chosen.engine)
    plain = measure(translator, chosen.sentences, protect=False)
    engine, counting = translator.engine, Counting(translator.engine, translator.tokenizer.decode)
    translator.engine = counting
    guarded = measure(translator, chosen.sentences, protect=True)
    translator.engine = engine
    rows = [*table(plain[:3], guarded[:3], chosen.sentences), "", *steps(counting.counts)]
    print("\n".join(rows), flush=True)
    if chosen.data:
        rows += ["", *quality(translator, chosen.data, chosen.lines)]
    examples = guarded[3][:20]
    if examples:
        rows += ["", "Not kept with protection:", "", *(f"- {example}" for example in examples)]
    model = public(str(chosen.model))
    head = f"# Protected spans\n\n{run_metadata()}- model: {model}, engine {chosen.engine}\n"
    page = "\n".join([head, *rows, ""])
    print(page)
    if chosen.write:
        (RESULTS / f"protected_spans_{chosen.write}_cpu.md").write_text(page, encoding="utf-8")
    sys.exit(bool(examples))


if __name__ == "__main__":
    main()
