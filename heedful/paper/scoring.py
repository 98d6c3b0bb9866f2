"""Scoring functions compared (section 3.2.1): additive, dot and scaled dot over d_k, trained on a small task.

Queries and keys have unit variance at initialisation, as the paper assumes in its argument for the division by √d_k.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from heedful.build_model import Model, build_model
from heedful.data.packing import Batch
from heedful.model.attention import MultiHeadAttention, Scoring
from heedful.model.transformer import Transformer
from heedful.paper.experiment_io import RESULTS, complete_runs, open_runs, write_json
from heedful.paper.plot_style import in_language, new_figure, save, styled
from heedful.paper.synthetic_tasks import (
    Estimate,
    accuracy,
    check_seeds,
    estimate,
    group_runs,
    make_batch,
    small_config,
    token_loss,
    train_small_model,
)
from heedful.paper.text_tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT, FORMAT_VERSION = "heedful scoring", 1
SCORINGS = ("additive", "dot", "scaled_dot")
MEASURED = ("loss", "exact", "entropy_first", "entropy_last", "gradient_first", "gradient_mean")
VALID_PAIRS = 100

WORDS = {
    "caption": ("Scoring functions by d_k; seeds: {seeds}", "不同 d_k 下的打分函数；种子数：{seeds}"),
    "interval": ("± is the 95 % interval of the mean (t distribution).", "± 为均值的 95% 置信区间（t 分布）。"),
    "task": (
        "Task: {task} {length} digits, {steps} updates, one layer each side, one head.",
        "任务：{task}，{length} 个数字，更新 {steps} 次，编码器和解码器各一层，单头。",
    ),
    "reverse": ("reverse", "反转"),
    "copy": ("copy", "复制"),
    "sort": ("sort", "排序"),
    "scoring": ("scoring", "打分函数"),
    "d_k": ("d_k",) * 2,
    "additive": ("additive", "加性"),
    "dot": ("dot", "点积"),
    "scaled_dot": ("scaled dot", "缩放点积"),
    "loss": ("loss (nats per token)", "损失（nat/词元）"),
    "exact": ("exact match (%)", "完全正确（%）"),
    "entropy_first": ("entropy, step 1 (nats)", "熵，第 1 步（nat）"),
    "entropy_last": ("entropy, trained (nats)", "熵，训练后（nat）"),
    "gradient_first": ("gradient norm at the scores, step 1", "分数处的梯度范数，第 1 步"),
    "gradient_mean": ("gradient norm at the scores, steps 1–{tenth}", "分数处的梯度范数，第 1–{tenth} 步"),
    "title": (
        "Scoring functions, trained: mean and 95 % interval of {seeds} seeds",
        "训练后的打分函数：{seeds} 个种子的均值与 95% 置信区间",
    ),
    "stage": ("training", "训练"),
}


@dataclass(frozen=True)
class ScoringSettings:
    """What is trained: every scoring at every d_k with every seed."""

    key_dims: tuple[int, ...] = (4, 16, 64, 256, 512)
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    task: str = "reverse"
    length: int = 10
    steps: int = 300
    pairs_per_batch: int = 32
    learning_rate: float = 2e-3


def quick_settings() -> ScoringSettings:
    """A short version, for a first result within half a minute."""
    return ScoringSettings(key_dims=(4, 512), seeds=(1,), steps=60)


@dataclass(frozen=True)
class ScoringRun:
    """One trained model; entropies and gradients are those of the cross-attention."""

    scoring: str
    key_dim: int
    seed: int
    loss: float
    exact: float
    entropy_first: float
    entropy_last: float
    gradient_first: float
    gradient_mean: float
    """Mean norm of the gradient with respect to the scores over the first tenth of the steps."""
    cpu_seconds: float


def build_scoring_model(scoring: str, key_dim: int, *, seed: int) -> Transformer:
    """One layer per side with one head; queries and keys are initialised to unit variance."""
    config = small_config(
        attention_scoring=scoring, key_dim=key_dim, num_heads=1, num_encoder_layers=1, num_decoder_layers=1,
        norm_placement="pre",
    )  # fmt: skip
    torch.manual_seed(seed)
    model = build_model(config)
    assert isinstance(model, Transformer)
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            for layer in (module.query, module.key):
                nn.init.normal_(layer.weight, std=config.d_model**-0.5)
    model.use_attention("explicit")
    return model


class ScoreRecorder:
    """Keeps the scores of the decoder's cross-attention, with their gradient."""

    def __init__(self, model: Transformer) -> None:
        self.latest: Tensor = torch.empty(0)
        scoring = model.decoder.layers[-1].get_submodule("cross_attention").get_submodule("scoring")
        assert isinstance(scoring, Scoring)
        self._hook = scoring.register_forward_hook(self._record)

    def _record(self, module: nn.Module, inputs: Any, scores: Tensor) -> None:
        self.latest = scores
        if scores.requires_grad:
            scores.retain_grad()

    def gradient_norm(self) -> float:
        """Frobenius norm of ∂loss/∂scores of the latest backward pass."""
        gradient = self.latest.grad
        assert gradient is not None
        return gradient.norm().item()

    def entropy(self) -> float:
        """Mean entropy of the softmax of the latest scores, in nats; all keys must be real."""
        weights = torch.softmax(self.latest.detach().double(), dim=-1)
        return torch.special.entr(weights).sum(dim=-1).mean().item()

    def close(self) -> None:
        """Stop recording."""
        self._hook.remove()


def draw_batches(settings: ScoringSettings, seed: int) -> Iterator[Batch]:
    """Endless batches of sources of one length."""
    generator = random.Random(seed)
    while True:
        sources = [[generator.randrange(10) for _ in range(settings.length)] for _ in range(settings.pairs_per_batch)]
        yield make_batch(settings.task, sources)


def train_scoring(
    scoring: str,
    key_dim: int,
    seed: int,
    settings: ScoringSettings,
    *,
    advance: Callable[[], None] = lambda: None,
) -> ScoringRun:
    """Train one model and measure it; everything depends on the seed."""
    start = time.process_time()
    model = build_scoring_model(scoring, key_dim, seed=seed)
    recorder = ScoreRecorder(model)
    gradients: list[float] = []
    entropies: list[float] = []

    def observe(step: int, model: Model, loss: float) -> None:
        if step == 1:
            entropies.append(recorder.entropy())
        if step <= max(1, settings.steps // 10):
            gradients.append(recorder.gradient_norm())
        advance()

    train_small_model(
        model,
        draw_batches(settings, seed),
        steps=settings.steps,
        learning_rate=settings.learning_rate,
        observe=observe,
    )
    generator = random.Random(10_000 + seed)
    valid = [[generator.randrange(10) for _ in range(settings.length)] for _ in range(VALID_PAIRS)]
    loss = token_loss(model, settings.task, valid)
    entropies.append(recorder.entropy())
    recorder.close()
    exact = accuracy(model, settings.task, settings.length, num_pairs=VALID_PAIRS, seed=seed).exact
    return ScoringRun(
        scoring, key_dim, seed, loss, exact, entropies[0], entropies[1], gradients[0],
        sum(gradients) / len(gradients), round(time.process_time() - start, 2),
    )  # fmt: skip


def run_scoring(
    output: Path,
    *,
    settings: ScoringSettings,
    command: str,
    language: str = "en",
    overwrite: bool = False,
    resume: bool = False,
    report: Callable[[str, int, int | None], None] = lambda stage, done, total: None,
) -> dict[str, Any]:
    """Train all models; writes `results.json` after each, then `scoring.md`, `scoring.png` and `scoring.svg`."""
    check_seeds(len(settings.seeds))
    with styled(in_language(WORDS, language).values()):  # report missing fonts and an unusable output before training
        results = open_runs(
            output, FORMAT, FORMAT_VERSION, "comparison of scoring functions",
            settings=asdict(settings), command=command, resume=resume, overwrite=overwrite,
        )  # fmt: skip
        combinations = [(s, d, seed) for seed in settings.seeds for d in settings.key_dims for s in SCORINGS]
        stage, total = in_language(WORDS, language)["stage"], len(combinations) * settings.steps
        complete_runs(
            output, results, ("scoring", "key_dim", "seed"), combinations,
            train=lambda scoring, key_dim, seed: train_scoring(
                scoring, key_dim, seed, settings, advance=lambda: report(stage, 1, total)
            ),
            skip=lambda: report(stage, settings.steps, total),
        )  # fmt: skip
        results["complete"] = True
        write_json(output / RESULTS, results)
        (output / "scoring.md").write_text(scoring_table(results, language).render("markdown"), encoding="utf-8")
        save(draw_scoring_results(results, language), output, "scoring")
    return results


def summarise(results: Mapping[str, Any]) -> dict[tuple[str, int], dict[str, Estimate]]:
    """Mean and interval of each quantity by scoring and d_k."""
    groups = group_runs(results["runs"], "scoring", "key_dim")
    return {
        (scoring, key_dim): {name: estimate([run[name] for run in runs]) for name in MEASURED}
        for (scoring, key_dim), runs in groups.items()
    }


def scoring_table(results: Mapping[str, Any], language: str) -> Table:
    """A row for each scoring and d_k."""
    words = in_language(WORDS, language)
    settings, summary = results["settings"], summarise(results)
    rows = []
    for scoring in SCORINGS:
        for key_dim in settings["key_dims"]:
            of = summary[scoring, key_dim]
            percent = Estimate(
                100 * of["exact"].mean, None if of["exact"].half_width is None else 100 * of["exact"].half_width
            )
            rows.append([
                words[scoring], str(key_dim), of["loss"].text(3), percent.text(0), of["entropy_first"].text(2),
                of["entropy_last"].text(2), of["gradient_first"].text(4), of["gradient_mean"].text(4),
            ])  # fmt: skip
    return Table(
        caption=words["caption"].format(seeds=len(settings["seeds"])),
        heading=[words[name].format(tenth=max(1, settings["steps"] // 10)) for name in ("scoring", "d_k", *MEASURED)],
        rows=rows,
        notes=[words["task"].format(**{**settings, "task": words[settings["task"]]}), words["interval"]],
    )


def draw_scoring_results(results: Mapping[str, Any], language: str) -> Figure:
    """Six panels against d_k: loss, exact match, entropies and gradients."""
    words = in_language(WORDS, language)
    summary, key_dims = summarise(results), results["settings"]["key_dims"]
    figure, tenth = new_figure(10, 6.3), max(1, results["settings"]["steps"] // 10)
    for panel, name in zip(figure.subplots(2, 3).flatten(), MEASURED, strict=True):
        factor = 100 if name == "exact" else 1
        for shift, scoring in enumerate(SCORINGS, -1):
            estimates = [summary[scoring, key_dim][name] for key_dim in key_dims]
            means = [factor * one.mean for one in estimates]
            bars = [factor * (one.half_width or 0.0) for one in estimates]
            places = [key_dim * 1.06**shift for key_dim in key_dims]  # side by side, so that intervals can be seen
            panel.errorbar(places, means, yerr=bars, marker="o", markersize=4, capsize=3, label=words[scoring])
        panel.set_xscale("log", base=2)
        panel.set_xticks(key_dims, [str(key_dim) for key_dim in key_dims])
        panel.set(title=words[name].format(tenth=tenth), xlabel="$d_k$")
        panel.set_ylim(0, 104 if name == "exact" else None)
        panel.grid(visible=True, alpha=0.25)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(words["title"].format(seeds=len(results["settings"]["seeds"])))
    return figure
