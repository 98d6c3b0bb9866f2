"""The experiment on positions and length: all runs, resumable, with tables and a figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.paper.experiment_io import RESULTS, complete_runs, open_runs, write_json
from heedful.paper.length_generalisation import (
    KINDS,
    CopySettings,
    LengthRun,
    TranslationSettings,
    read_translation_data,
    train_copy,
    train_translation,
)
from heedful.paper.plot_style import in_language, new_figure, save, styled
from heedful.paper.synthetic_tasks import Estimate, check_seeds, estimate, group_runs
from heedful.paper.text_tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMAT, FORMAT_VERSION = "heedful positions", 1
Results = Mapping[str, Any]
Report = Callable[[str, int, int | None], None]

WORDS = {
    "sinusoidal": ("sinusoidal", "正弦"),
    "learned": ("learned", "可学习"),
    "rotary": ("rotary", "旋转"),
    "copy_caption": ("Copying digits, exact match (%) by length", "复制数字：各长度的完全正确率（%）"),
    "copy_note": (
        "Trained on 1 to {longest} digits, {steps} updates. In parentheses: tokens that are right at their place (%).",
        "训练长度为 1 到 {longest} 个数字，更新 {steps} 次。括号内为位置和内容都正确的词元比例（%）。",
    ),
    "untrained_note": (
        "Learned positions beyond the training length have a row in the table of embeddings that was never trained.",
        "超出训练长度的可学习位置在嵌入表中有对应的行，但这些行从未被训练。",
    ),
    "interval_note": (
        "± is the 95 % interval of the mean over {seeds} seeds (t distribution).",
        "± 为 {seeds} 个种子均值的 95% 置信区间（t 分布）。",
    ),
    "length": ("length", "长度"),
    "translation_caption": ("Translation, BLEU by number of sentences in a text", "翻译：按文本句数统计的 BLEU"),
    "sentences": ("sentences", "句数"),
    "subwords": ("source subwords, mean", "源端子词数，均值"),
    "one_by_one": ("{kind}, one by one", "{kind}，逐句翻译"),
    "translation_note": (
        "Trained on single sentences of at most {longest} subwords, {steps} updates. The same test sentences are "
        "joined to texts, and translated whole or one by one.",
        "训练数据为不超过 {longest} 个子词的单句，更新 {steps} 次。同一批测试句拼接成文本后，整段翻译或逐句翻译。",
    ),
    "probe_caption": (
        "Accuracy (%) of a linear probe that reads the position off the encoder's residual stream",
        "从编码器残差流读出位置的线性探针准确率（%）",
    ),
    "layer": ("after layer", "经过层数"),
    "probe_copy": ("copying, {kind}", "复制，{kind}"),
    "probe_translation": ("translation, {kind}", "翻译，{kind}"),
    "probe_note": (
        "Layer 0 is the input of the first layer. {count} positions: chance is {chance:.1f} %.",
        "第 0 层指第一层的输入。共 {count} 个位置，随机猜测的准确率为 {chance:.1f}%。",
    ),
    "layers": ("after layer; dashed: translation", "经过层数；虚线为翻译模型"),
    "exact_title": ("Copying: exact match (%)", "复制：完全正确率（%）"),
    "tokens_title": ("Copying: tokens right at their place (%)", "复制：位置和内容都正确的词元（%）"),
    "bleu_title": ("Translation: BLEU", "翻译：BLEU"),
    "probe_title": ("Linear probe of position: accuracy (%)", "位置线性探针：准确率（%）"),
    "digits": ("digits; dotted: longest in training", "数字个数；点线为最大训练长度"),
    "texts": ("source subwords; dashed: one by one", "源端子词数；虚线为逐句翻译"),
    "title": (
        "Train short, test long: mean and 95 % interval of {seeds} seeds",
        "短序列训练、长序列测试：{seeds} 个种子的均值与 95% 置信区间",
    ),
    "stage_copy": ("copying", "复制"),
    "stage_translation": ("translation", "翻译"),
}  # fmt: skip


@dataclass(frozen=True)
class PositionsSettings:
    """What is trained: every kind of positions with every seed, on copying and, given corpora, on translation."""

    copy: CopySettings
    translation: TranslationSettings | None
    seeds: tuple[int, ...] = (1, 2, 3)


def run_positions(
    output: Path,
    *,
    settings: PositionsSettings,
    command: str,
    language: str = "en",
    overwrite: bool = False,
    resume: bool = False,
    report: Report = lambda stage, done, total: None,
) -> dict[str, Any]:
    """Train all models; writes `results.json` after each, then `positions.md`, `positions.png` and `positions.svg`."""
    check_seeds(len(settings.seeds))
    words = in_language(WORDS, language)
    with styled(words.values()):  # report missing fonts and an unusable output before training
        results = open_runs(
            output, FORMAT, FORMAT_VERSION, "comparison of positions",
            settings=asdict(settings), command=command, resume=resume, overwrite=overwrite,
        )  # fmt: skip
        complete = partial(_complete_task, output, results, settings, words=words, report=report)
        complete(
            "copy",
            settings.copy.steps,
            lambda positions, seed, advance: train_copy(positions, seed, settings.copy, advance=advance),
        )
        if translation := settings.translation:
            data = read_translation_data(translation)
            complete(
                "translation",
                translation.steps,
                lambda positions, seed, advance: train_translation(positions, seed, translation, data, advance=advance),
            )
        results["complete"] = True
        write_json(output / RESULTS, results)
        tables = [table.render("markdown") for table in positions_tables(results, language)]
        (output / "positions.md").write_text("\n".join(tables), encoding="utf-8")
        save(draw_position_results(results, language), output, "positions")
    return results


def _complete_task(
    output: Path,
    results: dict[str, Any],
    settings: PositionsSettings,
    task: str,
    num_steps: int,
    train: Callable[..., LengthRun],
    *,
    words: dict[str, str],
    report: Report,
) -> None:
    combinations = [(task, positions, seed) for seed in settings.seeds for positions in KINDS]
    stage, total = words[f"stage_{task}"], num_steps * len(combinations)
    complete_runs(
        output, results, ("task", "positions", "seed"), combinations,
        train=lambda _, positions, seed: train(
            positions, seed, advance=lambda count: report(stage, count, total)
        ),
        skip=lambda: report(stage, num_steps, total),
    )  # fmt: skip


# ---- tables ----------------------------------------------------------------------------------------------------------


def _runs_of(results: Results, task: str) -> dict[str, list[Mapping[str, Any]]]:
    runs = [run for run in results["runs"] if run["task"] == task]
    return {positions: found for (positions,), found in group_runs(runs, "positions").items()}


def _by_length(runs: Sequence[Mapping[str, Any]], name: str, *, factor: float = 1.0) -> list[Estimate]:
    """The estimates of a quantity for each test length."""
    return [
        estimate([factor * run["by_length"][index][name] for run in runs]) for index in range(len(runs[0]["by_length"]))
    ]


def positions_tables(results: Results, language: str) -> list[Table]:
    """The tables of copying, of translation if it was trained, and of the probe."""
    words = in_language(WORDS, language)
    interval = words["interval_note"].format(seeds=len(results["settings"]["seeds"]))
    tables = [_copy_table(results, words, interval)]
    if results["settings"]["translation"] is not None:
        tables.append(_translation_table(results, words, interval))
    return [*tables, _probe_table(results, words, interval)]


def _copy_table(results: Results, words: dict[str, str], interval: str) -> Table:
    runs, settings = _runs_of(results, "copy"), results["settings"]["copy"]
    columns = []
    for found in runs.values():
        exact, tokens = (_by_length(found, name, factor=100) for name in ("exact", "tokens"))
        columns.append([f"{one.text(0)} ({other.mean:.0f})" for one, other in zip(exact, tokens, strict=True)])
    lengths = [str(length) for length in settings["test_lengths"]]
    return Table(
        caption=words["copy_caption"],
        heading=[words["length"], *(words[kind] for kind in runs)],
        rows=list(zip(lengths, *columns, strict=True)),
        notes=[
            words["copy_note"].format(longest=settings["max_length"], steps=settings["steps"]),
            words["untrained_note"],
            interval,
        ],
    )


def _translation_table(results: Results, words: dict[str, str], interval: str) -> Table:
    runs, settings = _runs_of(results, "translation"), results["settings"]["translation"]
    means = [f"{place['length']:.1f}" for place in next(iter(runs.values()))[0]["by_length"]]
    columns = [
        [one.text(1) for one in _by_length(found, name)]
        for found in runs.values()
        for name in ("bleu", "bleu_one_by_one")
    ]
    headings = [name for kind in runs for name in (words[kind], words["one_by_one"].format(kind=words[kind]))]
    counts = [str(count) for count in settings["sentences"]]
    return Table(
        caption=words["translation_caption"],
        heading=[words["sentences"], words["subwords"], *headings],
        rows=list(zip(counts, means, *columns, strict=True)),
        notes=[
            words["translation_note"].format(longest=settings["max_length"], steps=settings["steps"]),
            interval,
        ],
    )


def _probe_table(results: Results, words: dict[str, str], interval: str) -> Table:
    headings, columns = [words["layer"]], []
    tasks = ["copy", *(["translation"] if results["settings"]["translation"] is not None else [])]
    layers: list[str] = []
    for task in tasks:
        for kind, runs in _runs_of(results, task).items():
            layers = list(runs[0]["probe"])
            headings.append(words[f"probe_{task}"].format(kind=words[kind]))
            columns.append([estimate([100 * run["probe"][layer] for run in runs]).text(0) for layer in layers])
    count = results["settings"]["copy"]["max_length"]
    return Table(
        caption=words["probe_caption"],
        heading=headings,
        rows=list(zip(layers, *columns, strict=True)),
        notes=[words["probe_note"].format(count=count, chance=100 / count), interval],
    )


# ---- the figure ------------------------------------------------------------------------------------------------------


def draw_position_results(results: Results, language: str) -> Figure:
    """Exact match and token accuracy by length, BLEU by length, and the probe by layer."""
    words = in_language(WORDS, language)
    copies, translations = _runs_of(results, "copy"), _runs_of(results, "translation")
    settings = results["settings"]
    figure = new_figure(10, 7 if translations else 6.4)
    exact, tokens, bleu, probe = figure.subplots(2, 2).flatten()
    for panel, name in ((exact, "exact"), (tokens, "tokens")):
        for kind, runs in copies.items():
            estimates = _by_length(runs, name, factor=100)
            _curve(panel, settings["copy"]["test_lengths"], estimates, kind, words[kind])
        panel.axvline(settings["copy"]["max_length"], color="#888888", linestyle=":")
        panel.set(title=words[f"{name}_title"], xlabel=words["digits"], ylim=(0, 104))
    for kind, runs in translations.items():
        lengths = [place["length"] for place in runs[0]["by_length"]]
        _curve(bleu, lengths, _by_length(runs, "bleu"), kind, words[kind])
        _curve(bleu, lengths, _by_length(runs, "bleu_one_by_one"), kind, "", linestyle="--")
    if translations:
        bleu.axvline(settings["translation"]["max_length"], color="#888888", linestyle=":")
        bleu.set(title=words["bleu_title"], xlabel=words["texts"])
        bleu.set_ylim(bottom=0)
    else:
        bleu.axis("off")
    for found, linestyle in ((copies, "-"), (translations, "--")):
        for kind, runs in found.items():
            layers = list(runs[0]["probe"])
            estimates = [estimate([100 * run["probe"][layer] for run in runs]) for layer in layers]
            _curve(probe, [int(layer) for layer in layers], estimates, kind, "", linestyle=linestyle)
    probe.set(title=words["probe_title"], xlabel=words["layers" if translations else "layer"], ylim=(0, 104))
    probe.set_xticks(range(len(layers)))
    exact.legend(frameon=False, fontsize=8.5)
    figure.suptitle(words["title"].format(seeds=len(settings["seeds"])))
    return figure


def _curve(
    panel: Axes,
    places: Sequence[float],
    estimates: Sequence[Estimate],
    kind: str,
    label: str,
    *,
    linestyle: str = "-",
) -> None:
    colour = KINDS.index(kind)
    panel.errorbar(
        places,
        [one.mean for one in estimates],
        yerr=[one.half_width or 0.0 for one in estimates],
        color=f"C{colour}",
        marker="o^s"[colour],
        markersize=4,
        capsize=3,
        linestyle=linestyle,
        linewidth=1.2 if linestyle == "--" else 1.6,
        label=label or None,
    )
    panel.grid(visible=True, alpha=0.25)
