"""Whether int8 preserves a short fine-tuning of the bundled model, with and without dither.

    python benchmarks/quality/int8_fine_tuning.py --invented 800 --invented 100 --write 2026-11-18 \
        --corpus manuals train.en train.de test.en test.de 2000

The bundled int8 model is fine-tuned twice on each task with the guide's settings: `before` from its int8 weights as
they are, `after` with the dither that `heedful train` adds before the first update. Both models translate the task's
test sentences greedily with every engine. The compact export runs in float32, so its column has int8 weights but
float32 activations: it shows how much of a loss is due to the rounding of the weights.

`--invented N` makes N pairs in which invented English words always have the same invented German translations.
`--corpus NAME SOURCE TARGET TEST_SOURCE TEST_TARGET N` takes N English-German pairs from files.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.common.run_metadata import run_metadata
from heedful import training_pipeline
from heedful.decoding.translator import Translator
from heedful.evaluation.score import score
from heedful.interop.export import repack
from heedful.model_dir.registry import bundled_model

RESULTS = Path(__file__).resolve().parents[1] / "results"
TESTED = 60
ENGINES = {  # column -> model, engine, weight format
    "native float32": ("full", "native", "float32"),
    "native int8": ("full", "native", "int8"),
    "CTranslate2 int8": ("full", "ctranslate2", "int8"),
    "compact export, float32 activations": ("compact", "native", "float32"),
}
SENTENCES = (
    ("Check the {a} before you open the {b}.", "Prüfe {A}, bevor du {B} öffnest."),
    ("The {a} is broken.", "{A} ist defekt."),
    ("Turn the {a} to the left until the {b} stops.", "Drehe {A} nach links, bis {B} stoppt."),
    ("Where is the {a}?", "Wo ist {A}?"),
    ("The {a} needs more {b} than the {c}.", "{A} braucht mehr {B} als {C}."),
    ("Do not touch the {a} while the {b} is hot.", "Berühre {A} nicht, solange {B} heiß ist."),
    ("We ordered {m} {a} and {n} {b}.", "Wir haben {m} {A} und {n} {B} bestellt."),
)


@dataclass(frozen=True)
class Task:
    """Training text, test text, and training budget."""

    name: str
    train: list[tuple[str, str]]
    test: list[tuple[str, str]]
    epochs: float


def words(count: int, rng: random.Random) -> list[str]:
    """Invented words."""
    starts, vowels, ends = "bl dr fr gl k l m n p r s t v z tr sk".split(), "aeiou", "bdklmnrstx"
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choice(starts) + rng.choice(vowels) for _ in range(2)) + rng.choice(ends)] = None
    return list(found)


def invented(num_pairs: int) -> Task:
    """Pairs with invented words: one word per 100 pairs, at least 4."""
    rng, num_words = random.Random(num_pairs), max(4, num_pairs // 100)
    english, german = words(num_words, rng), [word.capitalize() for word in words(num_words, rng)]
    pairs: dict[str, str] = {}
    while len(pairs) < num_pairs + TESTED:
        source, target = rng.choice(SENTENCES)
        one, two, three = (rng.randrange(num_words) for _ in range(3))
        numbers = {"m": rng.randint(2, 99), "n": rng.randint(2, 99)}
        made = source.format(a=english[one], b=english[two], c=english[three], **numbers)
        pairs[made] = target.format(A=german[one], B=german[two], C=german[three], **numbers)
    both = list(pairs.items())
    return Task(f"{num_pairs:,} invented pairs", both[:num_pairs], both[num_pairs:], epochs=max(3, 2400 // num_pairs))


def read(name: str, source: str, target: str, test_source: str, test_target: str, count: str) -> Task:
    """The first pairs of the files, without duplicate sources and without lines of more than 200 characters."""

    def pairs(one: str, other: str, limit: int) -> list[tuple[str, str]]:
        lines = zip(*(Path(path).read_text(encoding="utf-8").split("\n")[:-1] for path in (one, other)), strict=True)
        short = ((a, b) for a, b in lines if 0 < len(a) <= 200 and 0 < len(b) <= 200)
        return list(dict(short).items())[:limit]

    learned = pairs(source, target, int(count))
    return Task(f"{name}, {len(learned):,} pairs", learned, pairs(test_source, test_target, TESTED), epochs=1)


def write(pairs: Sequence[tuple[str, str]], stem: Path) -> dict[str, str]:
    """Write the two files of a corpus; returns its entry in the request."""
    paths = {"source": f"{stem}.en", "target": f"{stem}.de"}
    for path, side in zip(paths.values(), zip(*pairs, strict=True), strict=True):
        Path(path).write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    return {**paths, "source_language": "en", "target_language": "de"}


def tune(task: Task, output: Path, device: str, *, dither: bool) -> Path:
    """Fine-tune the bundled model on the task."""
    request = {
        "output": str(output),
        "data": {"train": [write(task.train, output.with_name("train"))], "num_valid_pairs": 20},
        "training": {
            "init_from": "en-de-zh",
            "learning_rate": 0.0001,
            "tokens_per_step": 2048,
            "epochs": task.epochs,
            "device": device,
            "final_weights": "last",
            "validate_every": 1_000_000,
            "num_bleu_sentences": 0,
            "tensorboard": False,
        },
    }
    if dither:
        training_pipeline.train(request)
    else:
        with mock.patch("heedful.training.loop.dither_int8_weights", return_value=False):
            training_pipeline.train(request)
    return output


def bleu(model: Path, engine: str, quantization: str | None, task: Task) -> float:
    """BLEU of an engine on the test sentences with greedy search."""
    translator = Translator.load(model, device="cpu", engine=engine, quantization=quantization)
    sources, references = zip(*task.test, strict=True)
    found = translator.translate(sources, target_language="de", source_language="en", method="greedy")
    return score([one.text for one in found], references, metrics=("bleu",), target_language="de", bootstrap=0)[0].value


def cell(model: Path, engine: str, quantization: str | None, task: Task) -> str:
    """BLEU as a table cell; empty if the engine is not installed."""
    if engine == "ctranslate2" and find_spec("ctranslate2") is None:
        return ""
    return f"{bleu(model, engine, quantization, task):.1f}"


def measure(task: Task, folder: Path, device: str) -> Iterator[list[str]]:
    """A row for each training method."""
    start = bundled_model()
    assert start is not None
    untuned = [bleu(start, "native", quantization, task) for quantization in ("float32", "int8")]
    yield [task.name, "not tuned", *(f"{one:.1f}" for one in untuned), "", ""]
    for name, dither in (("before", False), ("after", True)):
        directory = folder / name
        directory.mkdir()
        model = tune(task, directory / "model", device, dither=dither)
        repack(model, directory / "compact", compact=True)
        models = {"full": model, "compact": directory / "compact"}
        yield [task.name, name, *(cell(models[which], engine, kept, task) for which, engine, kept in ENGINES.values())]


def main() -> None:
    """Train and score all tasks, print the table, and with --write add it to the result of that date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--invented", type=int, action="append", default=[], metavar="N")
    parser.add_argument("--corpus", nargs=6, action="append", default=[])
    parser.add_argument("--device", default="cpu", help="training device: cpu or cuda")
    parser.add_argument("--write", metavar="DATE")
    arguments = parser.parse_args()
    tasks = [*map(invented, arguments.invented), *(read(*corpus) for corpus in arguments.corpus)]
    columns = ["task", "model", *ENGINES]
    lines = [" | ".join(["", *columns, ""]).strip(), "|---|---|" + "---:|" * len(ENGINES)]
    print("\n".join(lines), flush=True)
    for task in tasks:
        with tempfile.TemporaryDirectory() as folder:
            for row in measure(task, Path(folder), arguments.device):
                lines.append(f"| {' | '.join(row)} |")
                print(lines[-1], flush=True)
    if arguments.write:
        path = RESULTS / f"int8_fine_tuning_{arguments.write}_{arguments.device}.md"
        what = f"BLEU, greedy, {TESTED} test sentences; differences of a point may be chance"
        title = f"# int8 after fine-tuning\n\n{what}; without dither (before) and with it (after).\n"
        head = "" if path.exists() else title
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{head}\n{run_metadata(arguments.device)}\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
