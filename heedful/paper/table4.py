"""Section 6.3 and Table 4 of the paper: train a constituency parser on given treebanks and score labelled brackets.

DIRECTORY/data/           words and linearized trees, one sentence per line
DIRECTORY/model/          the model directory
DIRECTORY/*.trees         the predicted trees of each test set
DIRECTORY/results.json    all results, with machine, command and seed
DIRECTORY/table4.md       the report, with the paper's numbers

"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.config import Config
from heedful.config_loading import build_config, from_mapping, merge, to_mapping
from heedful.errors import ConfigError
from heedful.evaluation.evalb import MAX_SHORT_WORDS, Tree, aggregate, read_trees, score_trees, with_tags, write_tree
from heedful.paper.experiment_io import (
    RESULTS,
    check_choice,
    evenly_spaced,
    machine,
    open_output,
    refuse_init_from,
    results_header,
    write_json,
)
from heedful.paper.parsing import (
    KINDS,
    XX_SYMBOLS,
    Parser,
    ParseResult,
    WordSymbols,
    f1_evaluation,
    linearize,
)
from heedful.paper.text_tables import markdown_table
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
"""Parts of the messages about invalid trees, and the kinds under which they are counted."""
LARGE_GPU_BYTES = 24e9  # GPUs with more memory decode larger batches

SHARED: dict[str, Any] = {
    "data": {  # no filtering: short sentences repeat, and trees are longer than their words
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
"""Settings for parsing with a model of any size; the search, except its beam, is the paper's."""

GPU_SIZE: dict[str, Any] = {  # as configs/multi30k.yaml, except dropout; measured in docs/paper/results.md
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
    """Files of trees, one per line; without `valid`, sentences are held out from `train`.

    `sentences`: number of sentences to score of each test set, evenly spaced; None: all.
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
    """Train a parser on treebanks, parse the test sets and score the trees; returns and writes the results.

    `request` overrides the defaults (its `output` is the directory for all files); `paper` selects the paper's size.
    `words` is the symbol of a word in a tree: "xx" as in the paper, its index ("index") or its tag ("tags"); None:
    "index", or "xx" with `paper`. `brackets`: "forced" restricts the search to complete trees, "free" does not, "both"
    runs both. If the training is interrupted, `complete` is False in the results.
    """
    from heedful.build_model import resolve_device
    from heedful.console import Console

    words = words or ("xx" if paper else "index")
    check_choice("--words", words, KINDS)
    check_choice("--brackets", brackets, BRACKETS)
    check_choice("--lang", language, LANGUAGES)
    if not treebanks.train or not treebanks.test:
        raise ConfigError("table4 needs trees for training and for the test: give --train FILE and --test FILE.")
    if treebanks.sentences is not None and treebanks.sentences < 1:
        raise ConfigError(f"--sentences must be 1 or more, not {treebanks.sentences}.")
    plain = as_mapping(request)
    output = Path(str(plain.get("output") or "table4"))
    device = resolve_device(build_config(plain, "base").training.device)
    word_symbols = WordSymbols(words)
    train_request = parsing_request(plain, device=device, paper=paper, word_symbols=word_symbols)
    refuse_init_from(build_config(train_request, "base"))
    console = Console(quiet=quiet)
    tests = [evenly_spaced(read_trees(path), treebanks.sentences) for path in treebanks.test]
    valid_trees = [tree for path in treebanks.valid or treebanks.train for tree in read_trees(path)]
    make_evaluator = f1_evaluation({word_symbols.source_text(tree.words): tree for tree in valid_trees})
    open_output(output, FORMAT, "run", resume=resume, overwrite=overwrite)
    corpora, train_sentences = write_corpora(treebanks, output / "data", word_symbols, console)
    train_request = merge(train_request, {"output": str(output / "model"), "data": corpora})
    ended = train(train_request, resume=resume, overwrite=overwrite, quiet=quiet, make_evaluator=make_evaluator)
    results = {**parsing_header(output, ended, device, command), "words": words}
    if ended.stopped_by in (None, "early stopping"):
        for path, gold in zip(treebanks.test, tests, strict=True):
            name = set_name(path, taken=[one["name"] for one in results["tests"]])
            seen = sum(XX_SYMBOLS.source_text(tree.words) in train_sentences for tree in gold)
            scored = {
                mode: score_set(output, name, gold, mode, device, console)
                for mode in BRACKETS[brackets]
            }  # fmt: skip
            results["tests"].append({"name": name, "file": str(path), "num_seen_in_training": seen, **scored})
        results["complete"] = True
    write_results(output, results, language)
    return results


def parsing_request(
    plain: Mapping[str, Any], *, device: torch.device, paper: bool, word_symbols: WordSymbols = XX_SYMBOLS
) -> dict[str, Any]:
    """The request with the settings for parsing; a preset in the request keeps its own size."""
    if paper and plain.get("preset"):
        raise ConfigError("--paper and --preset exclude each other: the size of the paper's parser is not a preset.")
    size = PAPER_SIZE if paper else CPU_SIZE if device.type == "cpu" else GPU_SIZE
    base = merge(SHARED, {} if plain.get("preset") else size)
    train_request = merge(merge(base, {"tokenizer": {"user_defined_symbols": word_symbols.markers}}), plain)
    if not any(train_request["training"].get(name) for name in BUDGETS):
        train_request["training"]["epochs"] = DEFAULT_EPOCHS.get(device.type, DEFAULT_EPOCHS["cuda"])
    return train_request


def write_corpora(
    treebanks: Treebanks, folder: Path, word_symbols: WordSymbols, console: Console
) -> tuple[dict[str, list[dict[str, str]]], set[str]]:
    """Write words and symbols of the trees as training corpora; also returns the training sentences."""
    corpora: dict[str, list[dict[str, str]]] = {"train": [], "valid": []}
    train_sentences: set[str] = set()
    folder.mkdir(parents=True, exist_ok=True)
    with console.stages() as report:
        for role, paths in (("train", treebanks.train), ("valid", treebanks.valid)):
            for number, path in enumerate(paths, start=1):
                trees = read_trees(path)
                report(f"reading {path}", len(trees), len(trees))
                stem = role if len(paths) == 1 else f"{role}-{number}"
                train_sentences.update(XX_SYMBOLS.source_text(tree.words) for tree in trees if role == "train")
                corpus = {"source": str(folder / f"{stem}.words"), "target": str(folder / f"{stem}.brackets")}
                write_if_changed(Path(corpus["source"]), [word_symbols.source_text(tree.words) for tree in trees])
                write_if_changed(Path(corpus["target"]), [" ".join(linearize(tree, word_symbols)) for tree in trees])
                corpora[role].append(corpus)
    return {role: described for role, described in corpora.items() if described}, train_sentences


def write_if_changed(path: Path, lines: Sequence[str]) -> None:
    """Write lines; an unchanged file keeps its modification time, so that a resumed run recognizes its data."""
    text = "".join(f"{line}\n" for line in lines).encode()
    if not path.exists() or path.read_bytes() != text:
        path.write_bytes(text)


def set_name(path: str | Path, taken: Sequence[str]) -> str:
    """A name for a test set, such as craft-test for craft/test.trees.xz; with a number if it is already taken."""
    parts = Path(path).parts[-2:]
    stem = parts[-1].split(".")[0] or "test"
    name = f"{parts[0]}-{stem}" if len(parts) == 2 and parts[0] not in ("/", ".", "..") else stem
    return name if name not in taken else f"{name}-{len(taken) + 1}"


def score_set(
    output: Path, name: str, gold: Sequence[Tree], mode: str, device: torch.device, console: Console
) -> dict[str, Any]:
    """Parse a test set, write the trees to a file and return the scores."""
    parser = Parser.load(output / "model", device=str(device), forced=mode == "forced")
    large_gpu = device.type == "cuda" and _gpu_memory(device) > LARGE_GPU_BYTES
    config = parser.translator.config
    settings = {"tokens_per_batch": (4 if large_gpu else 1) * config.tokens_per_batch, "batch_invariant": False}
    with console.stages() as report:
        stage = f"parsing {name} ({mode} brackets)"
        parsed = parser.parse(
            [tree.words for tree in gold], report=lambda done: report(stage, done, len(gold)), **settings
        )
    write_trees(output / f"{name}.{mode}.trees", parsed, gold)
    counts = score_trees(gold, [result.tree for result in parsed])
    scores = {"all": aggregate(counts), "short": aggregate(counts, max_words=MAX_SHORT_WORDS)}
    console.note(f"{name}, {mode} brackets: {scores['all']}; {scores['all'].num_failed} without a tree.")
    problems = Counter(_kind_of_problem(result.problem) for result in parsed if result.problem)
    numbers: dict[str, Any] = {
        **{part: one.to_dict() for part, one in scores.items()},
        "problems": dict(problems.most_common()),
    }
    if parser.word_symbols.kind == "tags":
        numbers["tag_accuracy"] = tag_accuracy(gold, parsed)
    return numbers


def tag_accuracy(gold: Sequence[Tree], parsed: Sequence[ParseResult]) -> float:
    """Percentage of words with the gold tag, in the sentences that have a tree."""
    pairs = [(tree.tags, result.tree.tags) for tree, result in zip(gold, parsed, strict=True) if result.tree]
    right = sum(one == other for tags, described in pairs for one, other in zip(tags, described, strict=True))
    return 100 * right / max(1, sum(len(tags) for tags, _ in pairs))


def _kind_of_problem(problem: str) -> str:
    """The kind of a problem, without numbers and symbols."""
    for kind, name in PROBLEMS.items():
        if kind in problem:
            return name
    return problem


def _gpu_memory(device: torch.device) -> float:
    import torch

    return float(torch.cuda.get_device_properties(device).total_memory)


def write_trees(path: Path, parsed: Sequence[ParseResult], gold: Sequence[Tree]) -> None:
    """Write the predicted trees, one per line, with gold tags for other scorers; an empty line if there is no tree."""
    lines = [
        write_tree(with_tags(result.tree, tree.tags)) if result.tree else ""
        for result, tree in zip(parsed, gold, strict=True)
    ]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def parsing_header(output: Path, ended: TrainingResult, device: torch.device, command: str | None) -> dict[str, Any]:
    """The results without the tests: settings, training and machine."""
    from heedful.model_dir import describe

    described: dict[str, Any] = describe(output / "model")
    config = from_mapping(Config, described["config"])
    plain = to_mapping(config)
    return {
        **results_header(FORMAT, FORMAT_VERSION, command),
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
    """Write the results and, if they are complete, the report."""
    write_json(output / RESULTS, results)
    if results["complete"]:
        (output / TABLE).write_text(markdown(results, language), encoding="utf-8")


PAPER_ROWS = (
    ("Vinyals & Kaiser et al. (2014)", "wsj", 88.3),
    ("Petrov et al. (2006)", "wsj", 90.4),
    ("Zhu et al. (2013)", "wsj", 90.4),
    ("Dyer et al. (2016)", "wsj", 91.7),
    ("Transformer (4 layers)", "wsj", 91.3),
    ("Zhu et al. (2013)", "semi", 91.3),
    ("Huang & Harper (2009)", "semi", 91.3),
    ("McClosky et al. (2006)", "semi", 92.1),
    ("Vinyals & Kaiser et al. (2014)", "semi", 92.1),
    ("Transformer (4 layers)", "semi", 92.7),
    ("Luong et al. (2015)", "multi", 93.0),
    ("Dyer et al. (2016)", "generative", 93.3),
)
"""The rows of Table 4: parser, training, F1 on section 23 of the Wall Street Journal."""

LANGUAGES = ("en", "zh")
WORDS = {
    "en": {
        "title": "Constituency parsing (section 6.3, Table 4)",
        "ours": "Our results",
        "columns": ("test set", "brackets", "sentences", "F1", "precision", "recall", "F1, ≤ 40 words",
                    "exact match", "crossing", "no tree"),
        "forced": "forced",
        "free": "free",
        "paper": "Table 4 of the paper: WSJ section 23",
        "paper_columns": ("parser", "training", "F1"),
        "layers": " (4 layers)",
        "wsj": "WSJ only, discriminative",
        "semi": "semi-supervised",
        "multi": "multi-task",
        "generative": "generative",
        "caveat": "The two tables are not comparable: the paper's numbers are on section 23 of the Wall Street Journal "
        "(trained on about 40,000 of its sentences), ours on the treebanks named here.",
        "measure": "F1 of labelled brackets as in evalb (COLLINS.prm): without punctuation, tags and root. For a "
        "sentence without a tree, all gold brackets count as missed. F1, precision, recall and exact match are in per "
        "cent; crossing is the number of crossing brackets per sentence.",
        "seen": "{name}: {count:,} of {total:,} test sentences also occur in the training data.",
    },
    "zh": {
        "title": "成分句法分析（第 6.3 节，表 4）",
        "ours": "本次结果",
        "columns": ("测试集", "括号", "句数", "F1", "精确率", "召回率", "F1（≤ 40 词）", "完全匹配", "交叉", "无树"),
        "forced": "强制合法",
        "free": "不限制",
        "paper": "论文表 4：WSJ 第 23 节",
        "paper_columns": ("分析器", "训练", "F1"),
        "layers": "（4 层）",
        "wsj": "仅 WSJ，判别式",
        "semi": "半监督",
        "multi": "多任务",
        "generative": "生成式",
        "caveat": "两张表不可比：论文的得分在《华尔街日报》第 23 节上计算（训练用其中约 4 万句），本次的在上列树库上。",
        "measure": "带标签括号的 F1，按 evalb（COLLINS.prm）计数：不计标点、词性和根。"
        "没有得到树的句子，其标准括号全部算作遗漏。F1、精确率、召回率和完全匹配为百分数；交叉为每句的交叉括号数。",
        "seen": "{name}：{total:,} 个测试句中有 {count:,} 句也出现在训练数据中。",
    },
}  # fmt: skip


def our_rows(results: Mapping[str, Any], language: str) -> tuple[list[str], list[list[str]]]:
    """The header and rows of our results: one row per test set and decoding mode."""
    words: Any = WORDS[language]
    rows = []
    for test in results["tests"]:
        for mode in ("forced", "free"):
            if mode in test:
                rows.append([test["name"], words[mode], *_score_cells(test[mode])])
    return list(words["columns"]), rows


def _score_cells(scores: Mapping[str, Any]) -> list[str]:
    whole, short = scores["all"], scores["short"]
    shares = [f"{whole[name]:.1f}" for name in ("f1", "precision", "recall")]
    return [
        f"{whole['num_sentences']:,}",
        *shares,
        f"{short['f1']:.1f}",
        f"{whole['exact']:.1f}",
        f"{whole['crossing']:.2f}",
        f"{whole['num_failed']:,}",
    ]


def paper_rows(language: str) -> tuple[list[str], list[list[str]]]:
    """The header and rows of the paper's table."""
    words: Any = WORDS[language]
    rows = [[name.replace(" (4 layers)", words["layers"]), words[kind], f"{f1:.1f}"] for name, kind, f1 in PAPER_ROWS]
    return list(words["paper_columns"]), rows


def remarks(results: Mapping[str, Any], language: str) -> list[str]:
    """The notes below the tables."""
    words: Any = WORDS[language]
    seen = []
    for test in results["tests"]:
        whole = (test.get("forced") or test["free"])["all"]
        counts = {"count": test["num_seen_in_training"], "total": whole["num_sentences"]}
        seen.append(words["seen"].format(name=test["name"], **counts))
    return [words["caveat"], words["measure"], *seen]


def markdown(results: Mapping[str, Any], language: str) -> str:
    """The report as a Markdown page."""
    words: Any = WORDS[language]
    parts = [
        f"# {words['title']}",
        f"## {words['ours']}",
        markdown_table(*our_rows(results, language), names=2),
        f"## {words['paper']}",
        markdown_table(*paper_rows(language), names=2),
        "\n".join(f"- {remark}" for remark in remarks(results, language)),
    ]
    if results.get("command"):
        parts.append(f"```bash\n{results['command']}\n```")
    return "\n\n".join(parts) + "\n"
