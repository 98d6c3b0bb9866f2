"""The rows of Table 3 as in the paper, and the same rows scaled to a base model of any size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from heedful.config_loading import build_config, merge
from heedful.errors import ConfigError, did_you_mean
from heedful.paper.experiment_io import check_choice

SCALES = ("cheap", "paper")
BIG_BUDGET = 3
"""The big model is trained three times as long: 300,000 instead of 100,000 steps (section 5.2)."""
WARMUP_SHARE = 5
"""At the cheap scale, warm-up takes one fifth of the steps, to the same peak as the paper's 4,000 steps."""
PAPER_WARMUP = 4000


@dataclass(frozen=True)
class Values:
    """The columns of the table: depth, widths, heads and regularization."""

    layers: int = 6
    d_model: int = 512
    d_ff: int = 2048
    heads: int = 8
    key_dim: int = 64
    value_dim: int = 64
    dropout: float = 0.1
    label_smoothing: float = 0.1
    positions: str = "sinusoidal"

    def model(self) -> dict[str, Any]:
        """This row as keys of the section `model`."""
        return {
            "architecture": "transformer",
            "num_encoder_layers": self.layers,
            "num_decoder_layers": self.layers,
            "d_model": self.d_model,
            "d_ff": self.d_ff,
            "num_heads": self.heads,
            "head_dim": self.value_dim,
            "key_dim": None if self.key_dim == self.value_dim else self.key_dim,
            "dropout": self.dropout,
            "positions": self.positions,
        }


PAPER_BASE = Values()
SIZES = ("layers", "d_model", "d_ff", "heads", "key_dim", "value_dim")
SIZE_KEYS = ("num_encoder_layers", "num_decoder_layers", "d_model", "d_ff", "num_heads", "head_dim", "key_dim")

ROW_KEYS = {
    "model": ("architecture", "head_dim", "key_dim", "dropout", "positions"),
    "training": ("label_smoothing",),
}


@dataclass(frozen=True)
class Row:
    """One row: its group and name, its values in the paper, and the paper's results."""

    group: str
    name: str
    values: Values
    perplexity: float
    bleu: float
    millions: float | None = None
    """Parameters in millions, if the paper prints them."""

    def at(self, base: Values) -> Values:
        """The row relative to another base: sizes in proportion, other values unchanged."""
        found: dict[str, Any] = {}
        for name in SIZES:
            scaled = getattr(base, name) * getattr(self.values, name) / getattr(PAPER_BASE, name)
            if scaled < 1 or scaled != int(scaled):
                raise ConfigError(
                    f"table3: row {self.name} needs {name} = {scaled:g}, which is not an integer; use other sizes "
                    f"for the base (a multiple of three layers; powers of two for widths and heads), or select --rows."
                )
            found[name] = int(scaled)
        return replace(self.values, **found)

    @property
    def budget(self) -> int:
        """The training budget of this row as a multiple of the base's."""
        return BIG_BUDGET if self.group == "big" else 1


def _row(group: str, name: str, numbers: tuple[float, float, float | None], **changes: Any) -> Row:
    return Row(group, name, replace(PAPER_BASE, **changes), *numbers)


ROWS = (
    _row("base", "base", (4.92, 25.8, 65)),
    _row("A", "A-heads-1", (5.29, 24.9, None), heads=1, key_dim=512, value_dim=512),
    _row("A", "A-heads-4", (5.00, 25.5, None), heads=4, key_dim=128, value_dim=128),
    _row("A", "A-heads-16", (4.91, 25.8, None), heads=16, key_dim=32, value_dim=32),
    _row("A", "A-heads-32", (5.01, 25.4, None), heads=32, key_dim=16, value_dim=16),
    _row("B", "B-keys-16", (5.16, 25.1, 58), key_dim=16),
    _row("B", "B-keys-32", (5.01, 25.4, 60), key_dim=32),
    _row("C", "C-layers-2", (6.11, 23.7, 36), layers=2),
    _row("C", "C-layers-4", (5.19, 25.3, 50), layers=4),
    _row("C", "C-layers-8", (4.88, 25.5, 80), layers=8),
    _row("C", "C-width-256", (5.75, 24.5, 28), d_model=256, key_dim=32, value_dim=32),
    _row("C", "C-width-1024", (4.66, 26.0, 168), d_model=1024, key_dim=128, value_dim=128),
    _row("C", "C-inner-1024", (5.12, 25.4, 53), d_ff=1024),
    _row("C", "C-inner-4096", (4.75, 26.2, 90), d_ff=4096),
    _row("D", "D-dropout-0.0", (5.77, 24.6, None), dropout=0.0),
    _row("D", "D-dropout-0.2", (4.95, 25.5, None), dropout=0.2),
    _row("D", "D-smoothing-0.0", (4.67, 25.3, None), label_smoothing=0.0),
    _row("D", "D-smoothing-0.2", (5.47, 25.7, None), label_smoothing=0.2),
    _row("E", "E-learned", (4.92, 25.7, None), positions="learned"),
    _row("big", "big", (4.33, 26.4, 213), d_model=1024, d_ff=4096, heads=16, dropout=0.3),
)
"""Table 3 from top to bottom; names contain the value in the paper, whatever the base."""
GROUPS = tuple(dict.fromkeys(row.group for row in ROWS))

CHEAP: dict[str, Any] = {
    "model": {"num_encoder_layers": 3, "num_decoder_layers": 3, "d_model": 256, "d_ff": 1024, "num_heads": 8},
    "training": {"steps": 1500, "tokens_per_step": 8192, "log_every": 50},
}
"""A base of half the width and depth, for which all rows of the table have integer sizes."""
PAPER: dict[str, Any] = {"training": {"steps": 100_000, "validate_every": 5000}}
RECIPE: dict[str, Any] = {
    "training": {
        "num_bleu_sentences": 0,
        "num_samples": 0,
        "tensorboard": False,
        "final_weights": "last",
        "average_last": 0,
    }
}
"""For every run: the last weights without averaging (section 6.2); BLEU once, at the end."""
BUDGETS = ("steps", "epochs", "tokens", "minutes")


def choose_rows(names: Sequence[str]) -> list[Row]:
    """The rows of these groups and names, in the order of the table; always with the base."""
    known = (*GROUPS, *(row.name for row in ROWS))
    for name in names:
        if name not in known:
            raise ConfigError(f"--rows: unknown row {name!r}{did_you_mean(name, known)}; choose {', '.join(known)}.")
    selected = {*names, "base"} if names else set(GROUPS)
    return [row for row in ROWS if row.group in selected or row.name in selected]


def base_request(request: Mapping[str, Any], scale: str) -> dict[str, Any]:
    """The request of the base row: the recipe of the scale, overridden by the user's request."""
    check_choice("--scale", scale, SCALES)
    if request.get("preset") not in (None, "auto", "base"):
        raise ConfigError("preset: table3 always uses the preset base; remove this key.")
    model, training = dict(request.get("model") or {}), dict(request.get("training") or {})
    conflicting = [f"model.{key}" for key in SIZE_KEYS if model.get(key) is not None]
    if conflicting and scale == "paper":
        raise ConfigError(f"{conflicting[0]}: --scale paper uses the paper's sizes; use --scale cheap for others.")
    for section, keys in ROW_KEYS.items():
        for key in keys:
            if (request.get(section) or {}).get(key) is not None:
                raise ConfigError(f"{section}.{key}: this key is set by the rows of the table; remove it.")
    if training.get("final_weights") not in (None, "last"):
        raise ConfigError(
            "training.final_weights: table3 compares the last weights of every row (section 6.2); remove this key."
        )
    recipe = merge(PAPER if scale == "paper" else CHEAP, RECIPE)
    if any(training.get(name) for name in BUDGETS):
        recipe["training"].pop("steps")
    found = merge(merge(recipe, request), {"preset": "base"})
    if scale == "cheap":
        found["training"] = {**_warm_up(found["training"]), **found["training"]}
    return found


def _warm_up(training: Mapping[str, Any]) -> dict[str, Any]:
    """Warm-up over a fifth of the steps, to the peak of the paper's 4,000 steps; the user's settings take priority."""
    steps = int(training["steps"]) if str(training.get("steps") or "").isdigit() else None
    if steps is None or any(training.get(name) for name in BUDGETS[1:]):
        return {}
    found: dict[str, Any] = {"validate_every": steps}
    if any(name in training for name in ("warmup_steps", "learning_rate", "learning_rate_factor", "schedule")):
        return found
    warmup = max(1, min(PAPER_WARMUP, steps // WARMUP_SHARE))
    return {**found, "warmup_steps": warmup, "learning_rate_factor": (warmup / PAPER_WARMUP) ** 0.5}


def base_values(request: Mapping[str, Any]) -> Values:
    """The sizes of the base model of a request."""
    model = build_config(request, "base").model
    if model.num_encoder_layers != model.num_decoder_layers:
        raise ConfigError(
            "table3: N is the depth of both stacks; set num_encoder_layers and num_decoder_layers to the same value."
        )
    return Values(
        model.num_encoder_layers,
        model.d_model,
        model.d_ff,
        model.num_heads,
        model.attention_key_dim,
        model.attention_head_dim,
    )


def row_request(row: Row, base: Mapping[str, Any], *, seed: int) -> dict[str, Any]:
    """The request of a row: the base request with the row's values, budget and seed."""
    values = row.at(base_values(base))
    training: dict[str, Any] = {"label_smoothing": values.label_smoothing, "seed": seed}
    config = build_config(base, "base").training
    for name in BUDGETS:
        if getattr(config, name):
            training[name] = getattr(config, name) * row.budget
    if config.validate_every and config.validate_every == config.steps:
        training["validate_every"] = training["steps"]
    return merge(base, {"model": values.model(), "training": training})
