"""Local and hard attention beside the paper's: what each kind learns on copying and reversing, and what it costs.

The kinds are those of `heedful.model.weighting`: windows around a known or a predicted position (Luong et al., 2015,
section 3.2), and attention to a single position (Xu et al., 2015), learned by straight-through gradients or REINFORCE.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from heedful.build_model import build_model, num_parameters
from heedful.config import ModelConfig, TrainingConfig
from heedful.model.attention import causal_mask
from heedful.model.weighting import cross_attention_mask, self_attention_mask
from heedful.paper.experiment_io import RESULTS, complete_runs, open_runs, write_json
from heedful.paper.plot_style import in_language, new_figure, save, styled
from heedful.paper.synthetic_tasks import (
    Estimate,
    SyntheticTraining,
    accuracy,
    check_seeds,
    estimate,
    group_runs,
    make_batch,
    small_config,
    train_on_task,
)
from heedful.paper.text_tables import Table
from heedful.training.step import TrainingStep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT, FORMAT_VERSION = "heedful attention kinds", 1
LEARNED_LOSS, LEARNED_OVER = 0.1, 20
"""A task counts as learned when the mean training loss of this many updates is below this many nats per token."""
LONG = 100
"""Tokens of the longer pair whose multiply-adds are counted."""
TIMED_UPDATES = 20

SYSTEMS: dict[str, dict[str, Any]] = {
    "transformer": {"norm_placement": "pre"},
    "luong": {"architecture": "recurrent"},
}
KINDS: dict[str, dict[str, Any]] = {
    "global": {},
    "local_monotonic": {"cross_attention": "local_monotonic"},
    "local_predictive": {"cross_attention": "local_predictive"},
    "hard_straight_through": {"cross_attention": "hard", "hard_attention_gradient": "straight_through"},
    "hard_reinforce": {"cross_attention": "hard", "hard_attention_gradient": "reinforce"},
    "local_both": {"self_attention": "local", "cross_attention": "local_monotonic"},
}
"""Kinds of cross-attention, and last one whose self-attention is local too, which only a Transformer has."""
TASKS = ("copy", "reverse")

WORDS = {
    "caption": (
        "Kinds of attention on copying and reversing; seeds: {seeds}",
        "各种注意力在复制和逆序任务上的结果；种子数：{seeds}",
    ),
    "costs": ("What each kind costs", "各种注意力的代价"),
    "interval": ("± is the 95 % interval of the mean (t distribution).", "± 为均值的 95% 置信区间（t 分布）。"),
    "setup": (
        "{min_length} to {max_length} digits, window ±{window}, {steps} updates of {pairs_per_batch} pairs, one layer "
        "each side.",
        "{min_length} 到 {max_length} 个数字，窗口 ±{window}，更新 {steps} 次，每次 {pairs_per_batch} 对，"
        "编码器和解码器各一层。",
    ),
    "learned_note": (
        "Updates: until the training loss of 20 updates is below 0.1 nats per token; – if a seed does not get there.",
        "更新次数：20 次更新的平均训练损失首次低于 0.1 nat/词元；– 表示有种子未达到。",
    ),
    "costs_note": (
        "Multiply-adds: of all attention to one pair, if no score outside a window is computed; in Heedful a window is "
        "a mask and saves nothing. CPU time: a whole update, one thread.",
        "乘加次数：一个句对的全部注意力，假设不计算窗口之外的分数；Heedful 用掩码实现窗口，并不节省计算。"
        "CPU 时间：一次完整的更新，单线程。",
    ),
    "system": ("system", "系统"),
    "kind": ("attention", "注意力"),
    "transformer": ("Transformer",) * 2,
    "luong": ("GRU, Luong", "GRU（Luong）"),
    "global": ("global, soft", "全局软注意力"),
    "local_monotonic": ("local-m", "local-m（单调窗口）"),
    "local_predictive": ("local-p", "local-p（预测窗口）"),
    "hard_straight_through": ("hard, straight-through", "硬注意力，直通"),
    "hard_reinforce": ("hard, REINFORCE", "硬注意力，REINFORCE"),
    "local_both": ("local-m, local self-attention", "local-m，自注意力也为局部"),
    "copy": ("copy", "复制"),
    "reverse": ("reverse", "逆序"),
    "exact": ("{task}: exact (%)", "{task}：完全正确（%）"),
    "tokens": ("{task}: right tokens (%)", "{task}：正确词元（%）"),
    "learned_at": ("{task}: updates", "{task}：更新次数"),
    "parameters": ("parameters", "参数"),
    "multiply_adds": ("multiply-adds, {tokens} tokens", "乘加次数，{tokens} 个词元"),
    "milliseconds": ("CPU time of an update (ms)", "一次更新的 CPU 时间（ms）"),
    "title": (
        "Right tokens by kind of attention: mean and 95 % interval of {seeds} seeds",
        "各种注意力的正确词元：{seeds} 个种子的均值与 95% 置信区间",
    ),
    "axis": ("right tokens (%)", "正确词元（%）"),
    "stage": ("training", "训练"),
}


@dataclass(frozen=True)
class AttentionKindsSettings:
    """What is trained: every kind of attention of each system on both tasks, with every seed."""

    systems: tuple[str, ...] = tuple(SYSTEMS)
    seeds: tuple[int, ...] = (1, 2, 3)
    min_length: int = 3
    max_length: int = 6
    window: int = 1
    steps: int = 500
    pairs_per_batch: int = 32
    learning_rate: float = 3e-3
    test_lengths: tuple[int, ...] = (3, 4, 5, 6)
    num_pairs: int = 50
    """Test pairs of each length."""


def quick_settings() -> AttentionKindsSettings:
    """A first look: the Transformer alone, one seed, short training."""
    return AttentionKindsSettings(systems=("transformer",), seeds=(1,), steps=60)


@dataclass(frozen=True)
class AttentionKindsRun:
    """One trained model; accuracies are means over the test lengths."""

    system: str
    kind: str
    task: str
    seed: int
    loss: float
    """Mean training loss of the last updates, in nats per token."""
    exact: float
    tokens: float
    learned_at: int | None
    """The update at which the task was learned."""
    cpu_seconds: float


def kinds_of(system: str) -> list[str]:
    """The kinds that a system has: recurrent models have no self-attention."""
    return [kind for kind, changes in KINDS.items() if system == "transformer" or "self_attention" not in changes]


def kind_config(system: str, kind: str, window: int) -> ModelConfig:
    """One layer each side with d_model 64; a Transformer has four heads."""
    return small_config(
        **SYSTEMS[system], **KINDS[kind], attention_window=window, num_encoder_layers=1, num_decoder_layers=1
    )


def train_kind(
    system: str,
    kind: str,
    task: str,
    seed: int,
    settings: AttentionKindsSettings,
    *,
    advance: Callable[[], None] = lambda: None,
) -> AttentionKindsRun:
    """Train one model and test it by greedy search; everything depends on the seed."""
    start = time.process_time()
    trained = train_on_task(
        kind_config(system, kind, settings.window),
        SyntheticTraining(
            task, settings.steps, seed, settings.min_length, settings.max_length, length_spread=0,
            pairs_per_batch=settings.pairs_per_batch, learning_rate=settings.learning_rate,
        ),
        report=lambda name, num_done, total: advance(),
    )  # fmt: skip
    found = [
        accuracy(trained.model, task, length, num_pairs=settings.num_pairs, seed=seed)
        for length in settings.test_lengths
    ]
    windows = [trained.losses[end - LEARNED_OVER : end] for end in range(LEARNED_OVER, len(trained.losses) + 1)]
    means = [statistics.fmean(window) for window in windows]
    learned = [step for step, mean in enumerate(means, LEARNED_OVER) if mean < LEARNED_LOSS]
    return AttentionKindsRun(
        system, kind, task, seed, statistics.fmean(trained.losses[-LEARNED_OVER:]),
        statistics.fmean(one.exact for one in found), statistics.fmean(one.tokens for one in found),
        learned[0] if learned else None, round(time.process_time() - start, 2),
    )  # fmt: skip


# ---- costs -----------------------------------------------------------------------------------------------------------


def attention_multiply_adds(config: ModelConfig, num_tokens: int) -> int:
    """Multiply-adds of scores and weighted sums for a pair of `num_tokens` tokens each, and of local-p's prediction.

    Only pairs of positions that may attend to each other count. Local-p counts a whole window for each position. Hard
    attention computes all scores, but its sum has one term. Projections of queries, keys and values are left out.
    """
    is_transformer = config.architecture == "transformer"
    num_heads, key_dim, value_dim = 1, config.d_model, config.d_model
    if is_transformer:
        num_heads, key_dim, value_dim = config.num_heads, config.attention_key_dim, config.attention_head_dim

    def count(kind: str, num_pairs: int) -> int:
        num_summed = num_tokens if kind == "hard" else num_pairs
        predictor = num_tokens * (config.d_model + 1) * key_dim if kind == "local_predictive" else 0
        return num_heads * (num_pairs * key_dim + num_summed * value_dim + predictor)

    everything, positions = torch.ones(1, 1, num_tokens, num_tokens, dtype=torch.bool), torch.arange(num_tokens)[None]
    causal = causal_mask(num_tokens, everything.device)
    encoder = int(self_attention_mask(everything, positions, positions, config).sum())
    decoder = int(self_attention_mask(causal, positions, positions, config).sum())
    cross = int(cross_attention_mask(everything, positions, config).sum())
    if config.cross_attention == "local_predictive":
        cross = num_tokens * min(num_tokens, 2 * config.attention_window + 1)
    if not is_transformer:
        return count(config.cross_attention, cross)
    in_decoder = count(config.self_attention, decoder) + count(config.cross_attention, cross)
    return config.num_encoder_layers * count(config.self_attention, encoder) + config.num_decoder_layers * in_decoder


def update_milliseconds(config: ModelConfig, settings: AttentionKindsSettings) -> float:
    """Median processor time of an update on pairs of the longest training length.

    The fused step is switched off: it supports global attention only and would make the comparison unfair.
    """
    torch.manual_seed(1)
    training = TrainingConfig(steps=TIMED_UPDATES, compile=False, precision="fp32", fused_step=False)
    update = TrainingStep(build_model(config), training, torch.device("cpu"))
    batch = make_batch("copy", torch.randint(10, (settings.pairs_per_batch, settings.max_length)).tolist())
    times = []
    for _ in range(TIMED_UPDATES):
        start = time.process_time()
        update(batch, batch.num_tokens, 1e-4)
        times.append(1000 * (time.process_time() - start))
    return statistics.median(times)


def measure_costs(settings: AttentionKindsSettings) -> list[dict[str, Any]]:
    """Parameters, multiply-adds and time of an update for each kind of each system."""
    rows = []
    for system in settings.systems:
        for kind in kinds_of(system):
            config = kind_config(system, kind, settings.window)
            rows.append({
                "system": system,
                "kind": kind,
                "parameters": num_parameters(build_model(config)),
                "multiply_adds": attention_multiply_adds(config, settings.max_length + 1),
                "multiply_adds_long": attention_multiply_adds(config, LONG),
                "milliseconds": update_milliseconds(config, settings),
            })  # fmt: skip
    return rows


# ---- the experiment --------------------------------------------------------------------------------------------------


def run_attention_kinds(
    output: Path,
    *,
    settings: AttentionKindsSettings,
    command: str,
    language: str = "en",
    overwrite: bool = False,
    resume: bool = False,
    report: Callable[[str, int, int | None], None] = lambda stage, done, total: None,
) -> dict[str, Any]:
    """Train all models; writes `results.json` after each, then the tables and the figure."""
    check_seeds(len(settings.seeds))
    with styled(in_language(WORDS, language).values()):  # report missing fonts and an unusable output before training
        results = open_runs(
            output, FORMAT, FORMAT_VERSION, "comparison of kinds of attention",
            settings=asdict(settings), command=command, resume=resume, overwrite=overwrite,
        )  # fmt: skip
        combinations = [
            (system, kind, task, seed)
            for system in settings.systems
            for seed in settings.seeds
            for task in TASKS
            for kind in kinds_of(system)
        ]
        stage, total = in_language(WORDS, language)["stage"], len(combinations) * settings.steps
        complete_runs(
            output, results, ("system", "kind", "task", "seed"), combinations,
            train=lambda system, kind, task, seed: train_kind(
                system, kind, task, seed, settings, advance=lambda: report(stage, 1, total)
            ),
            skip=lambda: report(stage, settings.steps, total),
        )  # fmt: skip
        results["costs"] = measure_costs(settings)
        results["complete"] = True
        write_json(output / RESULTS, results)
        text = "\n".join(table.render("markdown") for table in attention_kinds_tables(results, language))
        (output / "attention_kinds.md").write_text(text, encoding="utf-8")
        save(draw_attention_kinds(results, language), output, "attention_kinds")
    return results


Summary = dict[tuple[str, str, str], dict[str, Estimate | None]]


def summarise(results: Mapping[str, Any]) -> Summary:
    """Mean and interval of each quantity by system, kind and task; `learned_at` is None if a seed did not learn."""
    groups = group_runs(results["runs"], "system", "kind", "task")
    summary: Summary = {}
    for (system, kind, task), runs in groups.items():
        steps = [run["learned_at"] for run in runs]
        summary[system, kind, task] = {
            "exact": estimate([100 * run["exact"] for run in runs]),
            "tokens": estimate([100 * run["tokens"] for run in runs]),
            "learned_at": None if None in steps else estimate(steps),
        }
    return summary


def attention_kinds_tables(results: Mapping[str, Any], language: str) -> list[Table]:
    """What each kind learns, and what it costs."""
    words, settings, summary = in_language(WORDS, language), results["settings"], summarise(results)
    pairs = [(system, kind) for system in settings["systems"] for kind in kinds_of(system)]

    def cell(system: str, kind: str, task: str, name: str) -> str:
        found = summary[system, kind, task][name]
        return "–" if found is None else found.text(0)

    names = [(task, name) for task in TASKS for name in ("exact", "tokens", "learned_at")]
    learned = Table(
        caption=words["caption"].format(seeds=len(settings["seeds"])),
        heading=[words["system"], words["kind"], *(words[name].format(task=words[task]) for task, name in names)],
        rows=[
            [words[system], words[kind], *(cell(system, kind, task, name) for task, name in names)]
            for system, kind in pairs
        ],
        notes=[words["setup"].format(**settings), words["interval"], words["learned_note"]],
        num_names=2,
    )
    costs = Table(
        caption=words["costs"],
        heading=[
            words["system"], words["kind"], words["parameters"],
            words["multiply_adds"].format(tokens=settings["max_length"] + 1),
            words["multiply_adds"].format(tokens=LONG), words["milliseconds"],
        ],
        rows=[
            [
                words[row["system"]], words[row["kind"]], f"{row['parameters']:,}", f"{row['multiply_adds']:,}",
                f"{row['multiply_adds_long']:,}", f"{row['milliseconds']:.1f}",
            ]
            for row in results["costs"]
        ],
        notes=[words["costs_note"]],
        num_names=2,
    )  # fmt: skip
    return [learned, costs]


def draw_attention_kinds(results: Mapping[str, Any], language: str) -> Figure:
    """Right tokens of each kind: a panel for each task, a colour for each system."""
    words, settings, summary = in_language(WORDS, language), results["settings"], summarise(results)
    figure = new_figure(7.2, 4.6)
    for panel, task in zip(figure.subplots(1, 2, sharey=True), TASKS, strict=True):
        for shift, system in enumerate(settings["systems"]):
            kinds = kinds_of(system)
            estimates = [summary[system, kind, task]["tokens"] for kind in kinds]
            means = [one.mean for one in estimates if one is not None]
            bars = [one.half_width or 0.0 for one in estimates if one is not None]
            places = [list(KINDS).index(kind) + 0.2 * (shift - 0.5) for kind in kinds]
            panel.errorbar(means, places, xerr=bars, fmt="o", markersize=4, capsize=2, label=words[system])
        panel.set_yticks(range(len(KINDS)), [words[kind] for kind in KINDS])
        panel.set(title=words[task], xlabel=words["axis"], xlim=(0, 104))
        panel.grid(visible=True, axis="x", alpha=0.25)
    figure.axes[0].invert_yaxis()
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(words["title"].format(seeds=len(settings["seeds"])))
    return figure
