"""Section 6.3 of the paper, run on treebanks of one's own: a Transformer that parses, scored by labelled brackets.

DIRECTORY/data/           words and linearised trees, one sentence a line
DIRECTORY/model/          the model directory
DIRECTORY/*.trees         the predicted trees of each test set, for any scorer
DIRECTORY/results.json    every number, with machine, command and seed
DIRECTORY/table4.md       the numbers beside those of the paper
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.config import Config
from heedful.config_loading import from_mapping, merge, settle, to_mapping
from heedful.errors import ConfigError
from heedful.evaluation.evalb import SHORT, score_trees, summarise
from heedful.paper.experiment_io import (
    RESULTS,
    check_choice,
    heading_of,
    machine,
    open_output,
    refuse_start,
    write_json,
)
from heedful.paper.parsing.linearize import KINDS, ONE_FOR_ALL, WordSymbols, linearise
from heedful.paper.parsing.parser import Guess, Parser
from heedful.paper.parsing.valid_f1 import evenly, f1_on_valid
from heedful.paper.table4_report import LANGUAGES, markdown
from heedful.text.parse_trees import Tree, read_trees, with_tags, write_tree
from heedful.training_pipeline import Request, TrainingResult, as_mapping, train

if TYPE_CHECKING:
    import torch

    from heedful.console import Console

FORMAT = "heedful parsing"
FORMAT_VERSION = 1
TABLE = "table4.md"
BRACKETS = {"both": ("forced", "free"), "forced": ("forced",), "free": ("free",)}
BUDGETS = ("steps", "epochs", "tokens", "minutes")
PROBLEMS = {
    "not closed": "not closed",
    "after the tree is closed": "after the tree is closed",
    "another word's": "another word's symbol",
    "does not fit here": "wrong bracket",
    "words where": "other number of words",
    "without words": "without words",
}
"""What is in a message about a broken tree, and what such are counted as."""
ROOMY_GPU = 24e9  # bytes, from which larger batches are decoded

SHARED: dict[str, Any] = {
    "data": {  # a treebank is taken as it is: short sentences come again, and a tree is longer than its words
        "max_characters": 100_000,
        "max_length_ratio": 1000.0,
        "deduplicate": False,
        "drop_identical": False,
        "drop_overlap": False,
        "row_width": 512,
    },
    "tokenizer": {"joint": False, "target_kind": "word"},
    "training": {"num_bleu_sentences": 0},
    "decoding": {"length_penalty_alpha": 0.3, "max_extra_length": 300, "split": "never"},
}
"""What parsing needs, whatever the size of the model; the search but for its beam is the paper's."""

GPU_SIZE: dict[str, Any] = {  # as configs/multi30k.yaml, but for dropout; measured in docs/paper/results.md
    "preset": "small",
    "model": {
        "d_model": 384,
        "d_ff": 1024,
        "num_heads": 6,
        "num_encoder_layers": 4,
        "num_decoder_layers": 4,
        "positions": "rotary",
        "activation": "swiglu",
        "dropout": 0.2,
        "attention_dropout": 0.1,
        "activation_dropout": 0.1,
    },
    "training": {
        "tokens_per_step": 12_288,
        "learning_rate": 1.5e-3,
        "r_drop": 1.0,
        "ema_decay": 0.998,
        "average_last": 5,
        "num_bleu_sentences": 400,
        "best_metric": "bleu",
        "num_samples": 0,
    },
}
CPU_SIZE: dict[str, Any] = {
    "preset": "small",
    "model": {"num_encoder_layers": 4, "num_decoder_layers": 4},
}
PAPER_SIZE: dict[str, Any] = {
    "preset": "big",
    "model": {"num_encoder_layers": 4, "num_decoder_layers": 4},
    "decoding": {"beam_size": 21},
}
DEFAULT_EPOCHS = {"cpu": 10.0, "cuda": 60.0}


@dataclass(frozen=True)
class Treebanks:
    """Files of trees, one a line; without `valid`, sentences are held out of `train`.

    `sentences`: score so many of each test set, taken evenly; None: all.
    """

    train: Sequence[str | Path]
    test: Sequence[str | Path]
    valid: Sequence[str | Path] = ()
    sentences: int | None = None


def run_table4(
    request: Request,
    treebanks: Treebanks,
    *,
    paper: bool = False,
    words: str | None = None,
    brackets: str = "both",
    language: str = "en",
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    command: str | None = None,
) -> dict[str, Any]:
    """Train a parser on treebanks, parse the test sets, score the trees; returns and writes the results.

    `request` says what differs from the defaults (its `output` is the folder for everything); `paper` takes the
    paper's size. `words`: what stands for a word in a tree, "xx" as in the paper, its number ("index") or its tag
    ("tags"); None: its number, or "xx" with `paper`. `brackets`: "forced" lets the search write whole trees only,
    "free" lets it write anything, "both" does one after the other. Of an interrupted training `complete` is False.
    """
    from heedful.build_model import resolve_device
    from heedful.console import Console

    words = words or ("xx" if paper else "index")
    check_choice("--words", words, KINDS)
    check_choice("--brackets", brackets, BRACKETS)
    check_choice("--lang", language, LANGUAGES)
    if not treebanks.train or not treebanks.test:
        raise ConfigError("a file of trees to train on and one to test on are needed: --train FILE --test FILE.")
    if treebanks.sentences is not None and treebanks.sentences < 1:
        raise ConfigError(f"--sentences must be 1 or more, not {treebanks.sentences}.")
    plain = as_mapping(request)
    output = Path(str(plain.get("output") or "table4"))
    device = resolve_device(settle(plain, "base").training.device)
    word_symbols = WordSymbols(words)
    asked = parsing_request(plain, device=device, paper=paper, word_symbols=word_symbols)
    refuse_start(settle(asked, "base"))
    console = Console(quiet=quiet)
    tests = [evenly(read_trees(path), treebanks.sentences) for path in treebanks.test]
    watched = [tree for path in treebanks.valid or treebanks.train for tree in read_trees(path)]
    make_evaluate = f1_on_valid({word_symbols.source_text(tree.words): tree for tree in watched})
    open_output(output, FORMAT, "run", resume=resume, overwrite=overwrite)
    corpora, known = write_corpora(treebanks, output / "data", word_symbols, console)
    asked = merge(asked, {"output": str(output / "model"), "data": corpora})
    ended = train(asked, resume=resume, overwrite=overwrite, quiet=quiet, make_evaluate=make_evaluate)
    results = {**heading(output, ended, device, command), "words": words}
    if ended.stopped_by in (None, "early stopping"):
        for path, gold in zip(treebanks.test, tests, strict=True):
            name = set_name(path, taken=[one["name"] for one in results["tests"]])
            seen = sum(ONE_FOR_ALL.source_text(tree.words) in known for tree in gold)
            scored = {
                way: score_set(output, name, gold, way, device, console)
                for way in BRACKETS[brackets]
            }  # fmt: skip
            results["tests"].append({"name": name, "file": str(path), "num_seen_in_training": seen, **scored})
        results["complete"] = True
    write_results(output, results, language)
    return results


def parsing_request(
    plain: Mapping[str, Any], *, device: torch.device, paper: bool, word_symbols: WordSymbols = ONE_FOR_ALL
) -> dict[str, Any]:
    """The request with what parsing needs; a preset that is named keeps its own size."""
    if paper and plain.get("preset"):
        raise ConfigError("--paper and --preset exclude each other: the paper's parser is a size of its own.")
    size = PAPER_SIZE if paper else CPU_SIZE if device.type == "cpu" else GPU_SIZE
    base = merge(SHARED, {} if plain.get("preset") else size)
    asked = merge(merge(base, {"tokenizer": {"user_defined_symbols": word_symbols.markers}}), plain)
    if not any(asked["training"].get(name) for name in BUDGETS):
        asked["training"]["epochs"] = DEFAULT_EPOCHS.get(device.type, DEFAULT_EPOCHS["cuda"])
    return asked


def write_corpora(
    treebanks: Treebanks, folder: Path, word_symbols: WordSymbols, console: Console
) -> tuple[dict[str, list[dict[str, str]]], set[str]]:
    """Words and symbols of the trees as corpora for training; also all sentences trained on."""
    corpora: dict[str, list[dict[str, str]]] = {"train": [], "valid": []}
    known: set[str] = set()
    folder.mkdir(parents=True, exist_ok=True)
    with console.stages() as tell:
        for role, paths in (("train", treebanks.train), ("valid", treebanks.valid)):
            for number, path in enumerate(paths, start=1):
                trees = read_trees(path)
                tell(f"reading {path}", len(trees), len(trees))
                stem = role if len(paths) == 1 else f"{role}-{number}"
                known.update(ONE_FOR_ALL.source_text(tree.words) for tree in trees if role == "train")
                corpus = {"source": str(folder / f"{stem}.words"), "target": str(folder / f"{stem}.brackets")}
                write_if_changed(Path(corpus["source"]), [word_symbols.source_text(tree.words) for tree in trees])
                write_if_changed(Path(corpus["target"]), [" ".join(linearise(tree, word_symbols)) for tree in trees])
                corpora[role].append(corpus)
    return {role: found for role, found in corpora.items() if found}, known


def write_if_changed(path: Path, lines: Sequence[str]) -> None:
    """Write lines; a file that has them already keeps its time, so that a resumed run knows its data again."""
    text = "".join(f"{line}\n" for line in lines).encode()
    if not path.exists() or path.read_bytes() != text:
        path.write_bytes(text)


def set_name(path: str | Path, taken: Sequence[str]) -> str:
    """A name for a test set, such as craft-test for craft/test.trees.xz; numbered if it is taken."""
    parts = Path(path).parts[-2:]
    stem = parts[-1].split(".")[0] or "test"
    name = f"{parts[0]}-{stem}" if len(parts) == 2 and parts[0] not in ("/", ".", "..") else stem
    return name if name not in taken else f"{name}-{len(taken) + 1}"


def score_set(
    output: Path, name: str, gold: Sequence[Tree], way: str, device: torch.device, console: Console
) -> dict[str, Any]:
    """Parse a test set, leave its trees in a file, and return its scores."""
    parser = Parser.load(output / "model", device=str(device), forced=way == "forced")
    roomy = device.type == "cuda" and _gpu_memory(device) > ROOMY_GPU
    config = parser.translator.config
    settings = {"tokens_per_batch": (4 if roomy else 1) * config.tokens_per_batch, "batch_invariant": False}
    with console.stages() as tell:
        stage = f"parsing {name} ({way} brackets)"
        guesses = parser.parse(
            [tree.words for tree in gold], tell=lambda done: tell(stage, done, len(gold)), **settings
        )
    write_guesses(output / f"{name}.{way}.trees", guesses, gold)
    counts = score_trees(gold, [guess.tree for guess in guesses])
    scores = {"all": summarise(counts), "short": summarise(counts, max_words=SHORT)}
    console.note(f"{name}, {way} brackets: {scores['all']}, {scores['all'].num_failed} without a tree.")
    problems = Counter(_kind_of_problem(guess.problem) for guess in guesses if guess.problem)
    figures: dict[str, Any] = {
        **{part: one.to_dict() for part, one in scores.items()},
        "problems": dict(problems.most_common()),
    }
    if parser.word_symbols.kind == "tags":
        figures["tag_accuracy"] = tag_accuracy(gold, guesses)
    return figures


def tag_accuracy(gold: Sequence[Tree], guesses: Sequence[Guess]) -> float:
    """Share of the words, in per cent and of the sentences that have a tree, whose tag is the gold one."""
    pairs = [(tree.tags, guess.tree.tags) for tree, guess in zip(gold, guesses, strict=True) if guess.tree]
    right = sum(one == other for tags, found in pairs for one, other in zip(tags, found, strict=True))
    return 100 * right / max(1, sum(len(tags) for tags, _ in pairs))


def _kind_of_problem(problem: str) -> str:
    """A problem without its numbers and symbols, to count by."""
    for kind, name in PROBLEMS.items():
        if kind in problem:
            return name
    return problem


def _gpu_memory(device: torch.device) -> float:
    import torch

    return float(torch.cuda.get_device_properties(device).total_memory)


def write_guesses(path: Path, guesses: Sequence[Guess], gold: Sequence[Tree]) -> None:
    """Predicted trees, one a line, under the gold tags that other scorers need; an empty line where there is none."""
    lines = [
        write_tree(with_tags(guess.tree, tree.tags)) if guess.tree else ""
        for guess, tree in zip(guesses, gold, strict=True)
    ]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def heading(output: Path, ended: TrainingResult, device: torch.device, command: str | None) -> dict[str, Any]:
    """All of the results but the tests: what was trained, where, with what."""
    from heedful.model_dir import describe

    found: dict[str, Any] = describe(output / "model")
    config = from_mapping(Config, found["config"])
    plain = to_mapping(config)
    return {
        **heading_of(FORMAT, FORMAT_VERSION, command),
        "seed": config.training.seed,
        "steps": ended.steps,
        "stopped_by": ended.stopped_by,
        "valid_loss": ended.valid_loss,
        "valid_f1": ended.valid_bleu,
        "settings": {
            section: plain[section] for section in ("preset", "data", "tokenizer", "model", "training", "decoding")
        },
        "machine": machine(device),
        "tests": [],
    }


def write_results(output: Path, results: Mapping[str, Any], language: str) -> None:
    """Write the numbers, and the table once they are complete."""
    write_json(output / RESULTS, results)
    if results["complete"]:
        (output / TABLE).write_text(markdown(results, language), encoding="utf-8")
