"""All results for configs/classical-zh.yaml, classical to modern Chinese, and twenty sample translations.

    python benchmarks/quality/classical_chinese.py classical-zh data --write 2026-11-16

`classical-zh` is what `heedful train configs/classical-zh.yaml -o classical-zh` wrote; `data` holds classical-modern/,
plain or .xz. Every finished measurement is saved in benchmarks/results/classical_DATE_cpu.json: the same command
resumes a stopped run, and repeats measurements of another model or text.

Measures BLEU and chrF2 on valid and test, in int8 and float32, with beam 4 and greedy; the same for the source used as
its own translation, because both languages use the same characters; scores by length; speed. The test set is divided
into ten parts, and the middle line of each is a sample; ten more are famous sentences that are not in the corpus.
docs/classical-zh.md is generated from the JSON file by .ci/classical_page.py.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.common.corpus_files import TestSet, lines_of
from benchmarks.common.cpu_speed import SEARCHES, on_cores, speed
from benchmarks.common.metrics_store import Bench, Results, parser_of, run
from benchmarks.quality.classical_chinese_tables import benchmark_page
from heedful.evaluation.score import score

PARTS = ("samples", "copied", "lengths", "speed", "scores")
FOLDER, LANGUAGES = "classical-modern", ("lzh", "zh")
TEST, VALID = (TestSet(name, f"{FOLDER}/{name}", *LANGUAGES) for name in ("test", "valid"))
LENGTHS = (10, 20, 30, 50)
"""Upper bounds of the length groups, in characters of the source; a last group has no upper bound."""
NUM_LINES = 10
SHORTEST_CLAUSE = 4
NOT_A_CHARACTER = re.compile(r"[^\u3400-\u4dbf\u4e00-\u9fff]")


class Famous(NamedTuple):
    """A famous sentence, its source, and its meaning."""

    text: str
    work: tuple[str, str]
    """In English and Chinese."""
    author: tuple[str, str]
    meaning: str


FAMOUS = [
    Famous(
        "学而时习之，不亦说乎？有朋自远方来，不亦乐乎？",
        ("Analects, 1", "论语·学而"),
        ("disciples of Confucius", "孔子弟子"),
        "To learn and to practise in due time, is that not a pleasure? Friends who come from afar, is that not joy?",
    ),
    Famous(
        "故天将降大任于是人也，必先苦其心志，劳其筋骨，饿其体肤，空乏其身。",
        ("Mencius, 6B", "孟子·告子下"),
        ("Mencius", "孟子"),
        "So when heaven is about to lay a great task on someone, it first embitters his mind, wearies his sinews and "
        "bones, starves his body and leaves him destitute.",
    ),
    Famous(
        "吾生也有涯，而知也无涯。以有涯随无涯，殆已。",
        ("Zhuangzi, 3", "庄子·养生主"),
        ("Zhuang Zhou", "庄周"),
        "My life has a shore, knowledge has none. To follow the shoreless with what has a shore is perilous.",
    ),
    Famous(
        "陈涉太息曰：嗟乎，燕雀安知鸿鹄之志哉！",
        ("Records of the Historian, 48", "史记·陈涉世家"),
        ("Sima Qian", "司马迁"),
        "Chen She sighed deeply and said: Alas, how should swallows and sparrows know what the wild swan wants!",
    ),
    Famous(
        "上善若水。水善利万物而不争，处众人之所恶，故几于道。",
        ("Daodejing, 8", "道德经·第八章"),
        ("Laozi", "老子"),
        "The highest good is like water. Water benefits all things and does not contend; it stays where all dislike to "
        "be, and so is near the Way.",
    ),
    Famous(
        "知彼知己者，百战不殆；不知彼而知己，一胜一负；不知彼，不知己，每战必殆。",
        ("The Art of War, 3", "孙子兵法·谋攻"),
        ("Sun Wu", "孙武"),
        "Who knows the other and himself is in no danger in a hundred battles; who knows himself but not the other "
        "wins one and loses one; who knows neither is in danger in every battle.",
    ),
    Famous(
        "宋人有耕田者，田中有株，兔走，触株折颈而死，因释其耒而守株，冀复得兔。",
        ("Han Feizi, 49", "韩非子·五蠹"),
        ("Han Fei", "韩非"),
        "In Song a man was ploughing; in the field was a stump; a hare ran into it, broke its neck and died. So he put "
        "down his plough and watched the stump, hoping to get another hare.",
    ),
    Famous(
        "晋太元中，武陵人捕鱼为业。缘溪行，忘路之远近。",
        ("The Peach Blossom Spring", "桃花源记"),
        ("Tao Yuanming", "陶渊明"),
        "In the Taiyuan years of Jin there was a man of Wuling who lived by fishing. He went along a stream and forgot "
        "how far he had gone.",
    ),
    Famous(
        "师者，所以传道受业解惑也。人非生而知之者，孰能无惑？",
        ("On Teachers", "师说"),
        ("Han Yu", "韩愈"),
        "A teacher is one who passes on the Way, gives lessons and resolves doubts. People are not born knowing; "
        "who could be without doubts?",
    ),
    Famous(
        "不以物喜，不以己悲。居庙堂之高则忧其民，处江湖之远则忧其君。",
        ("Yueyang Tower", "岳阳楼记"),
        ("Fan Zhongyan", "范仲淹"),
        "Not glad because of things, not sad because of oneself. High at court they worry about the people; far away "
        "on rivers and lakes they worry about their lord.",
    ),
]


class ClassicalBench(Bench):
    """The model in one directory; the native engine rounds it to int8."""

    name = "classical"
    parts = PARTS

    def mark_of(self, part: str) -> str:
        """The inputs of a part: the model (except for copied text), the texts, and how much of them."""
        marks = [] if part == "copied" else [self.marks["int8"]]
        marks += [self.digest(name) for one in (TEST, VALID) for name in one.files]
        if part == "samples":
            marks.append(self.digest(f"{FOLDER}/train.lzh"))
            marks.append(hashlib.sha256(repr(FAMOUS).encode()).hexdigest())
        return " ".join([*marks, str(self.arguments.lines)])

    def translated(self, texts: list[str], **settings: Any) -> list[str]:
        """Translations in int8."""
        made = self.translator("int8").translate(texts, source_language="lzh", target_language="zh", **settings)
        return [one.text for one in made]

    def samples(self) -> Results:
        """Lines of the test set and famous sentences, translated with default settings."""
        texts, references = self.lines(TEST)
        numbers = middles(len(texts))
        lines = [{"line": n + 1, "source": texts[n], "reference": references[n]} for n in numbers]
        famous = [one._asdict() | {"source": one.text} for one in FAMOUS]
        made = self.translated([one["source"] for one in (*lines, *famous)])
        for sample, translation in zip((*lines, *famous), made, strict=True):
            sample["translation"] = translation
        return {"lines": lines, "famous": famous, "clauses": known_clauses(self.arguments.data)}

    def copied(self) -> Results:
        """Scores of the source text as its own translation."""
        return {one.name: scored(*self.lines(one)) for one in (TEST, VALID)}

    def lengths(self) -> list[Results]:
        """Scores on the test set by source length, translated and copied."""
        texts, references = self.lines(TEST)
        made = self.translated(texts, **SEARCHES["beam 4"])
        found = []
        for least, most in zip((0, *LENGTHS), (*LENGTHS, None), strict=True):
            chosen = [n for n, text in enumerate(texts) if least < len(text) and (most is None or len(text) <= most)]
            if chosen:
                wanted = [references[n] for n in chosen]
                scores = {
                    "scores": scored([made[n] for n in chosen], wanted),
                    "copied": scored([texts[n] for n in chosen], wanted),
                }
                found.append({"longer_than": least, "at_most": most, "num_sentences": len(chosen), **scores})
        return found

    def speeds(self) -> list[Results]:
        """Speed on the test set in batches and sentence by sentence, in every precision."""
        chosen = self.arguments
        return [
            one
            for precision in chosen.precisions
            for one in speed(
                chosen.model, chosen.data, [TEST], precision=precision, num_lines=chosen.lines, rounds=chosen.rounds
            )
        ]

    def measure(self) -> None:
        """Measure all requested parts."""
        measures: dict[str, Callable[[], Any]] = {
            "samples": self.samples,
            "copied": self.copied,
            "lengths": self.lengths,
            "speed": self.speeds,
        }
        for name, measure in measures.items():
            if name in self.arguments.parts:
                with on_cores(self.arguments.cores):
                    self.measure_part(name, measure)
        if "scores" in self.arguments.parts:
            self.measure_scores([TEST, VALID])


def middles(number: int) -> list[int]:
    """The middle line of every tenth of the test set: no manual selection."""
    return sorted({(2 * tenth + 1) * number // (2 * NUM_LINES) for tenth in range(NUM_LINES)})


def scored(made: list[str], references: list[str]) -> list[Results]:
    """BLEU and chrF2 of Chinese text."""
    return [one.to_dict() for one in score(made, references, metrics=("bleu", "chrf"), target_language="zh")]


def characters(text: str) -> str:
    """Only the Chinese characters, since editions differ in punctuation."""
    return NOT_A_CHARACTER.sub("", text)


def known_clauses(data: Path) -> dict[str, int]:
    """How often clauses of the famous sentences occur in the corpus; whole sentences must not occur."""
    names = [f"{FOLDER}/{part}.lzh" for part in ("train", "valid", "test")]
    corpus = "\n".join(characters(line) for name in names for line in lines_of(data, name))
    for one in FAMOUS:
        if characters(one.text) in corpus:
            sys.exit(f"{one.text} is in the corpus: choose another sentence for FAMOUS")
    clauses = [characters(part) for one in FAMOUS for part in re.split(r"[，。；：？！、]", one.text)]
    counts = {clause: corpus.count(clause) for clause in clauses if len(clause) >= SHORTEST_CLAUSE}
    return {clause: count for clause, count in counts.items() if count}


def parse() -> argparse.Namespace:
    directories = {"model": "the model directory that `heedful train` wrote"}
    parser = parser_of("classical", PARTS, description=__doc__, directories=directories)
    parser.add_argument("--rounds", type=int, default=3, help="number of timed translations of the whole text")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    ClassicalBench(arguments, {"int8": arguments.model, "float32": arguments.model}).finish(benchmark_page)


if __name__ == "__main__":
    run(main)
