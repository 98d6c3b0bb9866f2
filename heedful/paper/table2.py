"""Table 2 of the paper: train with the published recipe on given corpora, and compare BLEU and cost with the paper.

DIRECTORY/model/              the model directory, with the training data and log
DIRECTORY/translations/       the translations, one text file per test corpus
DIRECTORY/results.json        all results, with machine, command and seed
DIRECTORY/table2.md           the report

"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.atomic_files import replace_file
from heedful.config import Config
from heedful.config_loading import build_config, merge, read_request, to_mapping
from heedful.errors import ConfigError
from heedful.paper.compare_quality import scored_sets
from heedful.paper.experiment_io import (
    RESULTS,
    check_choice,
    corpora_of,
    machine,
    open_output,
    refuse_init_from,
    results_header,
    write_json,
)
from heedful.paper.plot_style import LANGUAGES
from heedful.paper.profiling import read_training_curves
from heedful.paper.text_tables import markdown_table
from heedful.training_pipeline import Request, TrainingResult, as_mapping, train
from heedful.validation_bleu import translate_pairs

if TYPE_CHECKING:
    import torch

    from heedful.console import Console
    from heedful.data.prepare import Prepared


@dataclass(frozen=True)
class Published:
    """A row: tokenized BLEU as printed and training FLOPs, for both language pairs; None where the paper has none."""

    system: str
    bleu_german: str | None = None
    bleu_french: str | None = None
    flops_german: float | None = None
    flops_french: float | None = None


ROWS = (
    Published("ByteNet", "23.75"),
    Published("Deep-Att + PosUnk", None, "39.2", None, 1.0e20),
    Published("GNMT + RL", "24.6", "39.92", 2.3e19, 1.4e20),
    Published("ConvS2S", "25.16", "40.46", 9.6e18, 1.5e20),
    Published("MoE", "26.03", "40.56", 2.0e19, 1.2e20),
    Published("Deep-Att + PosUnk ensemble", None, "40.4", None, 8.0e20),
    Published("GNMT + RL ensemble", "26.30", "41.16", 1.8e20, 1.1e21),
    Published("ConvS2S ensemble", "26.36", "41.29", 7.7e19, 1.2e21),
    Published("Transformer (base)", "27.3", "38.1", 3.3e18, 3.3e18),
    Published("Transformer (big)", "28.4", "41.8", 2.3e19, 2.3e19),
)
"""The paper prints one cost for each Transformer, for both language pairs together."""

SUSTAINED_FLOPS_PER_SECOND = 9.5e12
"""The paper's assumption for one P100; its costs are this times eight GPUs times the seconds of training."""
NUM_GPUS = 8
HOURS = {"base": 12.0, "big": 3.5 * 24}
"""The training time in the paper (section 5.2)."""


def estimated_flops(recipe: str) -> float:
    """The paper's estimate of the training cost (footnote 5): time × GPUs × sustained throughput."""
    return HOURS[recipe] * 3600 * NUM_GPUS * SUSTAINED_FLOPS_PER_SECOND


FORMAT = "heedful table 2"
FORMAT_VERSION = 1
RECIPES = ("base", "big")
TABLE = "table2.md"
RECIPE_SECTIONS = ("tokenizer", "model", "training", "decoding")
NOT_THE_RECIPE = {
    *("tokenizer.path", "tokenizer.vocab_size"),  # the vocabulary size is compared separately
    *("model.source_vocab_size", "model.target_vocab_size", "model.max_length"),
    *("training.steps", "training.epochs", "training.tokens", "training.minutes"),  # reported as a share of the recipe
    *("training.seed", "training.device", "training.precision", "training.compile", "training.tokens_per_microbatch"),
    *("training.num_bleu_sentences", "training.num_samples", "training.save_every", "training.log_every"),
    *("training.tensorboard", "training.max_skipped_steps", "decoding.tokens_per_batch"),
}
"""Keys that depend on the corpus or the machine, or that do not affect the result."""


def read_recipe(name: str) -> dict[str, Any]:
    """The paper's recipe as a request, without its placeholder corpora."""
    check_choice("--recipe", name, RECIPES)
    with as_file(files("heedful.paper") / "recipes" / f"{name}.yaml") as path:
        recipe = read_request(path)
    recipe["data"] = {key: value for key, value in recipe["data"].items() if key != "train"}
    return recipe


def run_table2(
    request: Request,
    *,
    recipe: str = "base",
    output: Path,
    language: str = "en",
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    command: str | None = None,
) -> dict[str, Any]:
    """Train with the recipe on the corpora of `request`, translate, score and write the report; returns the results.

    Other keys of the request override the recipe and are listed in the report. If the run is interrupted, `complete` is
    False in the results; `resume` continues it.
    """
    from heedful.console import Console

    check_choice("--lang", language, LANGUAGES)
    plain_request = as_mapping(request)
    plain = recipe_request(plain_request, recipe, output)
    requested = build_config(plain)
    refuse_init_from(requested)
    open_output(output, FORMAT, "run of Table 2", data=requested.data, resume=resume, overwrite=overwrite)
    console = Console(quiet=quiet)
    ended = train(plain, resume=resume, overwrite=overwrite, quiet=quiet)
    if ended.stopped_by not in (None, "early stopping"):
        console.note("The run was interrupted; repeat the command with --resume to continue.")
        return {"format": FORMAT, "complete": False}
    results = results_header(FORMAT, FORMAT_VERSION, command) | measure(recipe, requested, ended, output, console)
    results |= {"recipe": recipe, "complete": True}
    write_json(output / RESULTS, results)
    replace_file(output / TABLE, markdown(results, language))
    console.note(f"Wrote {output / RESULTS} and {output / TABLE}.")
    return results


# ---------------------------------------------------------------------- before any work


def recipe_request(plain_request: Mapping[str, Any], recipe: str, output: Path) -> dict[str, Any]:
    """The recipe, overridden by the request and validated as far as possible without the corpora."""
    if plain_request.get("preset") not in (None, "auto", recipe):
        raise ConfigError(f"preset: table2 uses --recipe {' or '.join(RECIPES)} instead; remove this key.")
    plain = merge(read_recipe(recipe), {**plain_request, "preset": recipe, "output": str(output / "model")})
    if build_config(plain).model.architecture != "transformer":
        raise ConfigError("model.architecture: the recipe is for the Transformer; for others use heedful compare.")
    return plain


# ---------------------------------------------------------------------- the numbers


def measure(recipe: str, requested: Config, ended: TrainingResult, output: Path, console: Console) -> dict[str, Any]:
    """All numbers of the finished run; `requested` is its configuration before the data was prepared."""
    from heedful.build_model import num_parameters, resolve_device
    from heedful.data.prepare import Prepared
    from heedful.model_dir import describe, load_model

    directory = output / "model"
    device = resolve_device(describe(directory)["config"]["training"]["device"])
    loaded = load_model(directory, device=device)
    config, published = loaded.config, build_config(read_recipe(recipe))
    prepared = Prepared.open(config.data.prepared or directory / "training" / "data")
    spent = loaded.details["training"]
    return {
        "scored_on": "test" if prepared.test_pairs else "valid",
        "scores": score_test_sets(loaded.model, config, prepared, device, output, console),
        "languages": [config.data.source_language, config.data.target_language],
        "num_train_pairs": len(prepared.train),
        "corpora": corpora_of(prepared),
        "parameters": num_parameters(loaded.model),
        "vocab_size": config.model.target_vocab_size,
        "vocab_size_asked": requested_vocab_size(requested),
        "vocab_size_of_recipe": published.tokenizer.vocab_size,
        "valid_loss": ended.valid_loss,
        "weights": spent["weights"],
        "num_averaged": num_averaged(config, ended.steps) if spent["weights"] == "average" else None,
        "num_averaged_of_recipe": published.training.average_last,
        "steps": ended.steps,
        "steps_of_recipe": published.training.steps,
        "warmup_steps": config.training.warmup_steps,
        "stopped_by": ended.stopped_by,
        "epochs": spent["epochs"],
        "target_tokens": spent["tokens"],
        **training_cost(config, published, ended.steps, directory, spent),
        "changed": recipe_changes(published, config, requested_vocab_size(requested)),
        "seed": config.training.seed,
        "machine": machine(device),
        "settings": to_mapping(config),
    }


def training_cost(
    config: Config, published: Config, steps: int, directory: Path, spent: Mapping[str, Any]
) -> dict[str, Any]:
    """The training cost: device hours and the floating-point operations of the matrix products."""
    from heedful.build_model import resolve_device
    from heedful.paper.profiling import step_flops
    from heedful.training.step import uses_bf16

    curves = read_training_curves(directory / "training" / "log.jsonl")
    seconds = curves.train[-1].seconds if curves.train else 60 * spent["minutes"]
    products = step_flops(config)
    return {
        "precision": "bf16" if uses_bf16(config.training, resolve_device(config.training.device)) else "fp32",
        "hours": seconds / 3600,
        "training_tokens_per_second": curves.tokens_per_second,
        "flops_of_a_step": products,
        "flops": products * steps,
        "flops_of_all_steps": products * (published.training.steps or 0),
    }


def score_test_sets(
    model: Any, config: Config, prepared: Prepared, device: torch.device, output: Path, console: Console
) -> list[dict[str, Any]]:
    """BLEU, compound-split BLEU and chrF on each test corpus, or on valid if there is none; keeps the translations."""
    from heedful.evaluation.score import base_language, compound_split_bleu, score

    pairs, sets = scored_sets(prepared)
    folder = output / "translations"
    folder.mkdir(exist_ok=True)
    for stale in folder.glob("[0-9]*-*.txt"):  # an earlier run may have had other test sets
        stale.unlink()
    scores = []
    for number, part in enumerate(sets, start=1):
        chosen = [pairs[place] for place in part.indices]
        console.note(f"Translating the {len(chosen):,} sentences of {part.name} …")
        texts = translate_pairs(model, prepared.tokenizer, chosen, config.decoding, device)
        path = folder / f"{number}-{re.sub(r'[^0-9A-Za-z._-]+', '_', Path(part.name).name)}.txt"
        replace_file(path, "".join(" ".join(text.splitlines()) + "\n" for text in texts))
        references, language = [pair.target for pair in chosen], part.language or config.data.target_language
        bleu, chrf = score(texts, references, metrics=("bleu", "chrf"), target_language=language)
        has_spaces = base_language(language) is None  # 13a splits at spaces
        split = compound_split_bleu(texts, references).to_dict() if has_spaces else None
        scores.append(
            {
                "data": part.name,
                "num_sentences": len(texts),
                "translations": str(path.relative_to(output)),
                "bleu": bleu.to_dict(),
                "compound_split_bleu": split,
                "chrf": chrf.to_dict(),
            }
        )
    return scores


def num_averaged(config: Config, steps: int) -> int:
    """The number of averaged checkpoints: one per `validate_every` steps and one at the end, at most `average_last`."""
    every = config.training.validate_every or steps
    return min(config.training.average_last, max(1, -(-steps // every)))


def requested_vocab_size(requested: Config) -> int | None:
    """The requested vocabulary size; None if it comes with the tokenizer or the prepared data."""
    is_given = requested.data.prepared is not None or requested.tokenizer.path is not None
    return None if is_given else requested.tokenizer.vocab_size


def recipe_changes(published: Config, config: Config, vocab_size: int | None = None) -> list[dict[str, Any]]:
    """The keys that differ from the recipe, with both values (for the vocabulary the requested size)."""
    recipe, run = to_mapping(published), to_mapping(config)
    recipe_size = published.tokenizer.vocab_size
    sizes = [{"key": "tokenizer.vocab_size", "recipe": recipe_size, "run": vocab_size}]
    return (sizes if vocab_size not in (None, recipe_size) else []) + [
        {"key": f"{section}.{name}", "recipe": value, "run": run[section][name]}
        for section in RECIPE_SECTIONS
        for name, value in recipe[section].items()
        if f"{section}.{name}" not in NOT_THE_RECIPE and run[section][name] != value
    ]


Results = Mapping[str, Any]
Words = dict[str, str]

WORDS: dict[str, Words] = {
    "en": {
        "title": "Table 2, reproduced",
        "system": "system",
        "german": "BLEU EN-DE",
        "french": "BLEU EN-FR",
        "here": "BLEU, this corpus",
        "flops_german": "FLOPs EN-DE",
        "flops_french": "FLOPs EN-FR",
        "flops_here": "FLOPs, this run",
        "ours": "Heedful ({recipe}), {data}",
        "scores": "Scores by test set",
        "data": "test set",
        "sentences": "sentences",
        "bleu": "BLEU (sacreBLEU, detokenized)",
        "split": "compound-split BLEU (as in the paper's evaluation, tokenized with 13a)",
        "chrf": "chrF",
        "reading": "Notes",
        "shortened": "**Shorter than the recipe:** {steps:,} of its {all:,} steps ({share:.3g} %).",
        "whole": "All {all:,} steps of the recipe were trained.",
        "longer": "**Longer than the recipe:** {steps:,} steps instead of {all:,}.",
        "rising": "The run ended within the {warmup:,} warm-up steps, while the learning rate was still increasing.",
        "changed": "**Differences from the recipe:** {list}.",
        "unchanged": "No other settings differ from the recipe.",
        "change": "`{key}` is {run} instead of {recipe}",
        "averaged": "Number of checkpoints averaged: {count} (recipe: {recipe_size}).",
        "other_weights": "The final weights are “{weights}”, not the average of the last {recipe_size} checkpoints.",
        "vocabulary": "The shared vocabulary has {size:,} subwords; the recipe has about {recipe_size:,}.",
        "small_vocabulary": "The corpus is too small for the requested {requested:,}.",
        "published": "The published scores are on newstest2014 after training on WMT 2014 (4.5 M sentence pairs "
        "English-German, 36 M English-French). Ours are from {pairs:,} sentence pairs and the test sets named here: "
        "**they are comparable with the published scores only if training and test data are the same.**",
        "two_kinds": "Published BLEU is on tokenized text; the authors' script for English to German also splits "
        "hyphenated compounds. This gives higher scores than sacreBLEU on detokenized text, and the two are not "
        "comparable. The closest to the paper's score is compound-split BLEU, shown in the first table; it uses "
        "sacreBLEU's tokenizer 13a, not the Moses script.",
        "no_split": "For target languages without spaces between words the first table shows sacreBLEU's score.",
        "flops": "Published FLOPs are estimates: hours × GPUs × sustained throughput (9.5 TFLOP/s for a P100). Ours "
        "({flops:.2e}) are counted: the matrix products of {steps:,} steps, forward and backward, including padding; "
        "all {all:,} steps of this model take {whole:.2e}.",
        "hours": "Training took {hours:.3g} hours on one {device} ({precision}, including validation); the paper's "
        "base model took 12 hours on eight P100, its big model 3.5 days.",
        "on_valid": "No test corpus was given: the scores are on valid.",
        "early": "Training stopped early because valid did not improve.",
        "one_run": "One run with one seed ({seed}).",
        "made": "Setup",
        "signatures": "signatures",
        "corpora": "corpora",
        "parameters": "parameters",
        "machine": "machine",
        "versions": "versions",
        "command": "command",
        "created": "date",
    },
    "zh": {
        "title": "复现论文的表 2",
        "system": "系统",
        "german": "BLEU 英-德",
        "french": "BLEU 英-法",
        "here": "BLEU，本语料",
        "flops_german": "FLOPs 英-德",
        "flops_french": "FLOPs 英-法",
        "flops_here": "FLOPs，本次运行",
        "ours": "Heedful（{recipe}），{data}",
        "scores": "各测试集的得分",
        "data": "测试集",
        "sentences": "句数",
        "bleu": "BLEU（sacreBLEU，未分词文本）",
        "split": "拆分复合词的 BLEU（同论文的评测方式，用 13a 分词）",
        "chrf": "chrF",
        "reading": "说明",
        "shortened": "**训练短于论文设置：**只训练了 {all:,} 步中的 {steps:,} 步（{share:.3g}%）。",
        "whole": "论文设置的 {all:,} 步全部完成。",
        "longer": "**训练长于论文设置：**{steps:,} 步，论文为 {all:,} 步。",
        "rising": "训练结束时仍在 {warmup:,} 步的预热阶段，学习率还在上升。",
        "changed": "**与论文设置的不同之处：**{list}。",
        "unchanged": "其他设置与论文相同。",
        "change": "`{key}` 为 {run}，论文为 {recipe}",
        "averaged": "权重为 {count} 个检查点的平均（论文：{recipe_size} 个）。",
        "other_weights": "最终权重为“{weights}”，而不是最后 {recipe_size} 个检查点的平均。",
        "vocabulary": "共享词表有 {size:,} 个子词；论文约 {recipe_size:,} 个。",
        "small_vocabulary": "语料太小，达不到所要求的 {requested:,} 个。",
        "published": "论文的得分来自 WMT 2014 训练集（英德 450 万句对，英法 3600 万句对）和 newstest2014 测试集。"
        "本次结果来自 {pairs:,} 个句对和表中所列的测试集：**只有训练集和测试集都相同，才能与论文的得分比较。**",
        "two_kinds": "论文的 BLEU 在分词后的文本上计算，作者的英德评测脚本还拆分连字符复合词，"
        "得分高于 sacreBLEU 在未分词文本上的得分，两者不可比。"
        "与论文最接近的是“拆分复合词的 BLEU”，即第一张表中的得分；"
        "它使用 sacreBLEU 的 13a 分词器，而不是 Moses 脚本。",
        "no_split": "目标语言的词之间没有空格时，第一张表中为 sacreBLEU 的得分。",
        "flops": "论文的 FLOPs 是估计值：小时数 × GPU 数 × 每块 GPU 的持续算力（P100 按 9.5 TFLOP/s）。"
        "本次的（{flops:.2e}）为实际计数：{steps:,} 步的矩阵乘法，含前向和反向，也含填充；"
        "该模型训练满 {all:,} 步为 {whole:.2e}。",
        "hours": "在一块 {device} 上训练 {hours:.3g} 小时（{precision}，含验证）；"
        "论文的 base 模型在八块 P100 上训练 12 小时，big 模型 3.5 天。",
        "on_valid": "未指定测试集：得分在验证集上计算。",
        "early": "验证集不再提升，训练提前停止。",
        "one_run": "只用一个随机种子（{seed}）训练一次。",
        "made": "实验设置",
        "signatures": "签名",
        "corpora": "语料",
        "parameters": "参数量",
        "machine": "机器",
        "versions": "版本",
        "command": "命令",
        "created": "日期",
    },
}


def table(results: Results, language: str) -> tuple[list[str], list[list[str]]]:
    """The paper's rows and one row per test set, as text."""
    words = WORDS[language]
    names = ("system", "german", "french", "here", "flops_german", "flops_french", "flops_here")
    rows = [
        [
            system_name(row.system, language),
            *(value or "–" for value in (row.bleu_german, row.bleu_french)),
            "–",
            *(cost(value) for value in (row.flops_german, row.flops_french)),
            "–",
        ]
        for row in ROWS
    ]
    for one in results["scores"]:
        closest_bleu = one["compound_split_bleu"] or one["bleu"]
        name = words["ours"].format(recipe=results["recipe"], data=one["data"])
        rows.append([name, "–", "–", f"{closest_bleu['value']:.1f}", "–", "–", cost(results["flops"])])
    return [words[name] for name in names], rows


def system_name(system: str, language: str) -> str:
    """The name of a system of the paper: in Chinese, what is not a name is translated."""
    if language == "en":
        return system
    return re.sub(r" \((\w+)\)", r"（\1）", system).replace(" ensemble", "（集成）")


def scores_table(results: Results, language: str) -> tuple[list[str], list[list[str]]]:
    """BLEU, compound-split BLEU and chrF on each test set, with confidence intervals."""
    words = WORDS[language]
    rows = [
        [
            one["data"],
            f"{one['num_sentences']:,}",
            *map(with_interval, (one["bleu"], one["compound_split_bleu"], one["chrf"])),
        ]
        for one in results["scores"]
    ]
    return [words[name] for name in ("data", "sentences", "bleu", "split", "chrf")], rows


def cost(value: float | None) -> str:
    """A cost such as 3.3e18, or a dash for None."""
    return "–" if value is None else f"{value:.1e}".replace("e+", "e")


def with_interval(score: Mapping[str, Any] | None) -> str:
    """A score such as 26.4 ± 0.6, with half the width of its 95 % confidence interval."""
    if score is None:
        return "–"
    interval = score.get("interval")
    half = f" ± {(interval['high'] - interval['low']) / 2:.1f}" if interval else ""
    return f"{score['value']:.1f}{half}"


def remarks(results: Results, language: str) -> list[str]:
    """The notes: differences from the recipe, and which numbers are comparable."""
    words = WORDS[language]
    steps, everything = results["steps"], results["steps_of_recipe"]
    numbers = {"steps": steps, "all": everything, "share": 100 * steps / everything}
    kind = "whole" if steps == everything else "shortened" if steps < everything else "longer"
    num_in_recipe = results["num_averaged_of_recipe"]
    weights = "averaged" if results["num_averaged"] is not None else "other_weights"
    requested = results["vocab_size_asked"]
    small = requested is not None and results["vocab_size"] < 0.98 * requested
    vocabulary = words["vocabulary"].format(size=results["vocab_size"], recipe_size=results["vocab_size_of_recipe"])
    return [
        words[kind].format(**numbers),
        *([words["early"]] if results["stopped_by"] is not None else []),
        *([words["rising"].format(warmup=results["warmup_steps"])] if steps < (results["warmup_steps"] or 0) else []),
        changes_text(results, words),
        words[weights].format(count=results["num_averaged"], weights=results["weights"], recipe_size=num_in_recipe),
        vocabulary + (" " + words["small_vocabulary"].format(requested=requested) if small else ""),
        *([words["on_valid"]] if results["scored_on"] == "valid" else []),
        words["published"].format(pairs=results["num_train_pairs"]),
        words["two_kinds"],
        *([words["no_split"]] if any(one["compound_split_bleu"] is None for one in results["scores"]) else []),
        words["flops"].format(**numbers, flops=results["flops"], whole=results["flops_of_all_steps"]),
        words["hours"].format(
            hours=results["hours"], device=results["machine"]["device"], precision=results["precision"]
        ),
        words["one_run"].format(seed=results["seed"]),
    ]


def changes_text(results: Results, words: Words) -> str:
    """The differences from the recipe as text."""
    changes = [words["change"].format(**change) for change in results["changed"]]
    return words["changed"].format(list="; ".join(changes)) if changes else words["unchanged"]


def markdown(results: Results, language: str) -> str:
    """The report as a Markdown page."""
    words, machine = WORDS[language], results["machine"]
    signatures = [one[kind] for one in results["scores"] for kind in ("bleu", "compound_split_bleu", "chrf")]
    named = dict.fromkeys(f"{one['name']} `{one['signature']}`" for one in signatures if one)
    facts = {
        "signatures": ", ".join(named),
        "corpora": ", ".join(f"{one['role']}: {one['name']} ({one['num_kept']:,})" for one in results["corpora"]),
        "parameters": f"{results['parameters']:,}",
        "machine": f"{machine['device']}; {machine['processor']}, {machine['num_cores']} cores; {machine['system']}",
        "versions": ", ".join(f"{name} {value}" for name, value in results["versions"].items()),
        "command": f"`{results['command']}`" if results["command"] else "–",
        "created": results["created"],
    }
    return "\n".join(
        [
            f"# {words['title']}\n",
            markdown_table(*table(results, language)),
            f"\n## {words['scores']}\n",
            markdown_table(*scores_table(results, language)),
            f"\n## {words['reading']}\n",
            *(f"- {text}" for text in remarks(results, language)),
            f"\n## {words['made']}\n",
            *(f"- {words[name]}: {text}" for name, text in facts.items()),
            "",
        ]
    )
