"""The measured Table 1: layers compute what they claim; counted operations, reach and exponents are correct."""

from __future__ import annotations

import itertools
import json
import math
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.cli import run
from heedful.cli.paper.tables import format_exponents
from heedful.errors import ConfigError
from heedful.paper.experiment_io import processor
from heedful.paper.layer_costs import (
    LAYERS,
    RestrictedSelfAttention,
    SelfAttention,
    build_layer,
    dependent_operations,
    gradient_reach,
    layers_to_span,
    peak_bytes,
    product_flops,
)
from heedful.paper.profiling import MAX_EXPONENT_SPREAD, Clock, is_busy, time_runs
from heedful.paper.table1 import (
    COUNTED_STEPS,
    THEORY,
    Point,
    Sweep,
    count_products,
    exponent_spread,
    exponents,
    fit,
    measure,
    timing_summary,
    timing_warnings,
)

CPU = torch.device("cpu")
SIZES = {"d_model": 16, "window": 5, "kernel_size": 3}


def layer_of(kind: str, **sizes: int) -> torch.nn.Module:
    return build_layer(kind, device=CPU, attention="explicit", **{**SIZES, **sizes})  # type: ignore[arg-type]


@given(length=st.integers(1, 12), window=st.integers(3, 9))
def test_restricted_attention_equals_band_mask(length: int, window: int) -> None:
    torch.manual_seed(1)
    layer = build_layer("restricted", d_model=16, window=window, kernel_size=3, device=CPU)
    assert isinstance(layer, RestrictedSelfAttention)
    x = torch.randn(1, length, 16)
    offsets = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    before = (window - 1) // 2
    band = (offsets >= -before) & (offsets <= window - 1 - before)
    attention = layer.attention
    expected, _ = attention(x, mask=band[None, None])
    torch.testing.assert_close(layer(x), expected)


def test_table1_uses_model_attention() -> None:
    layer = layer_of("self_attention")
    assert isinstance(layer, SelfAttention)
    x = torch.randn(1, 7, 16)
    attention = layer.attention
    everything = torch.ones(1, 1, 7, 7, dtype=torch.bool)
    expected, _ = attention(x, mask=everything)
    torch.testing.assert_close(layer(x), expected)


@given(kind=st.sampled_from(list(LAYERS)), length=st.integers(2, 24), width=st.sampled_from([8, 16, 32]))
def test_counted_flops_equal_formula(kind: str, length: int, width: int) -> None:
    sizes = {**SIZES, "d_model": width}
    mixing, whole = count_products(kind, length=length, **sizes)
    assert mixing == product_flops(kind, length=length, **sizes)
    projections = 4 * 2 * length * width * width if kind in ("self_attention", "restricted") else 0
    assert whole == mixing + projections


def test_long_recurrence_flops_use_formula() -> None:
    one, two = (count_products("recurrent", length=n, **SIZES)[0] for n in (COUNTED_STEPS, 2 * COUNTED_STEPS))
    assert two == 2 * one


@pytest.mark.parametrize(
    ("kind", "reach"), [("self_attention", 29), ("restricted", 2), ("recurrent", 29), ("convolutional", 1)]
)
def test_gradient_reach(kind: str, reach: int) -> None:
    assert gradient_reach(layer_of(kind), length=30, d_model=16) == reach  # type: ignore[arg-type]


def test_recurrent_gradient_reaches_a_thousand_steps() -> None:
    assert gradient_reach(layer_of("recurrent"), length=1500, d_model=16) == 1499  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", list(LAYERS))
def test_layers_to_span(kind: str) -> None:
    """The number of layers computed from the reach of one layer equals that of a real stack."""
    length = 8
    layers = layers_to_span(gradient_reach(layer_of(kind), length=length, d_model=16), length)  # type: ignore[arg-type]
    for depth in (layers - 1, layers):
        torch.manual_seed(2)
        stack = torch.nn.Sequential(*(layer_of(kind).double() for _ in range(depth)))
        x = torch.randn(1, length, 16, dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad((stack(x) if depth else x * 1)[0, -1].sum(), x)
        assert bool(gradient[0, 0].abs().sum() > 0) == (depth == layers)


def test_sequential_operations() -> None:
    for kind in LAYERS:
        short, long = (dependent_operations(layer_of(kind), length=n, d_model=16) for n in (10, 20))  # type: ignore[arg-type]
        growth = THEORY[kind].operations
        assert (long - short >= 10) == (growth == 1)
        assert growth == 1 or long == short


def test_explicit_attention_needs_quadratic_memory_and_fused_does_not() -> None:
    def needed(attention: str, length: int) -> int:
        layer = build_layer("self_attention", device=CPU, attention=attention, **SIZES)
        x = torch.randn(1, length, 16)
        return peak_bytes(lambda: layer(x), CPU)

    assert needed("explicit", 256) > 3.2 * needed("explicit", 128)
    assert needed("fused", 256) < 2.2 * needed("fused", 128)


def test_live_bytes() -> None:
    x = torch.zeros(1000)

    def chain() -> torch.Tensor:
        y = x + 1
        z = y * 2
        del y
        return z - 1

    assert peak_bytes(chain, CPU) == 2 * 4000


@given(n_power=st.floats(0, 3), d_power=st.floats(0, 3))
def test_fitted_exponents_are_those_of_a_power_law(n_power: float, d_power: float) -> None:
    def value(n: int, d: int) -> float:
        return 3e-6 * n**n_power * d**d_power

    points = [Point("x", n, d, value(n, d), 1, 1, 1, 1, 1, 1, 1, 1) for n in (16, 64, 256, 512) for d in (32, 64)]
    found = fit(points, "seconds")
    assert math.isclose(found[0], n_power, abs_tol=1e-6)
    assert math.isclose(found[1], d_power, abs_tol=1e-6)


@pytest.mark.parametrize("lengths", [(16,), (64, 16), (1, 4), (16, 16)])
def test_invalid_lengths_are_refused(lengths: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="--lengths"):
        Sweep(lengths, (16, 32))


def test_table1_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "made" / "here"
    flags = [
        "--quick",
        "--lengths",
        "16,32,64,128",
        "--widths",
        "16,32",
        "--window",
        "5",
        "--device",
        "cpu",
        "-q",
        "--json",
    ]
    assert run(["paper", "table1", "-o", str(folder), *flags]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert len(printed["points"]) == 4 * 4 * 2
    assert (
        printed["versions"]["torch"] == torch.__version__.split("+")[0]
        or printed["versions"]["torch"] == torch.__version__
    )
    for kind, theory in THEORY.items():
        found = printed["exponents"][kind]
        assert found["flops_mixing"] == pytest.approx(theory.flops, abs=1e-6)
        assert found["operations"][0] == pytest.approx(theory.operations, abs=0.05)
        assert found["path"][0] == pytest.approx(theory.span, abs=0.15)
        assert all(point["seconds"] > 0 and point["memory_bytes"] > 0 for point in printed["points"])
    assert (folder / "table1.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (folder / "table1.svg").read_text(encoding="utf-8")


def test_table1_prints_theory_and_exponents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    flags = ["--quick", "--lengths", "16,32", "--widths", "16,32", "--device", "cpu"]
    assert run(["paper", "table1", "-o", str(tmp_path), *flags]) == 0
    printed = capsys.readouterr().out
    assert "n²·d" in printed
    assert "n^2.00 d^1.00" in printed


@pytest.mark.parametrize(
    "flags", [["--lengths", "16,x"], ["--window", "2"], ["--attention", "flash"], ["--lang", "de"]]
)
def test_wrong_flags_are_one_line(flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["paper", "table1", "-o", str(tmp_path), "--device", "cpu", *flags]) == 2
    assert flags[0] in capsys.readouterr().err


def test_existing_output_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Results of other experiments are never replaced, its own only with --overwrite; checked before measuring."""
    flags = ["--quick", "--lengths", "4,8", "--widths", "8,16", "--device", "cpu"]
    other, file, own = tmp_path / "comparison", tmp_path / "file", tmp_path / "own folder"
    other.mkdir()
    (other / "results.json").write_text('{"format": "heedful comparison", "systems": []}')
    file.write_text("kept")
    assert run(["paper", "table1", "-o", str(own), *flags]) == 0
    capsys.readouterr()
    for folder, message in (
        (other, "results of another experiment"),
        (file, "must be a directory"),
        (own, "already holds a measured Table 1; add --overwrite to replace"),
    ):
        assert run(["paper", "table1", "-o", str(folder), *flags]) == 2
        text = capsys.readouterr().err
        assert message in text and "self_attention" not in text
    assert "comparison" in (other / "results.json").read_text() and file.read_text() == "kept"
    assert run(["paper", "table1", "-o", str(own), *flags, "--overwrite", "-q"]) == 0
    made = json.loads((own / "results.json").read_text("utf-8"))
    assert made["format"] == "heedful table 1" and made["device"]["name"] == processor()


# ---- a busy machine --------------------------------------------------------------------------------------------------


class NoisyClock:
    """A clock whose wall time advances by random amounts while another program uses the processor."""

    def __init__(self, seed: int, largest_wait: float, times_per_wait: int = 1) -> None:
        self.drawn, self.largest_wait, self.times_per_wait = random.Random(seed), largest_wait, times_per_wait
        self.waited, self.num_calls = 0.0, 0

    def wall(self) -> float:
        self.num_calls += 1
        if self.largest_wait and self.num_calls % self.times_per_wait == 0:
            self.waited += self.drawn.random() * self.largest_wait
        return time.process_time() + self.waited

    def clock(self) -> Clock:
        return Clock(self.wall, time.process_time)


QUICK = Sweep((16, 32, 64), (16, 32), window=5, seconds_each=0.001)


def test_noisy_clock_is_reported_and_its_exponents_are_withheld() -> None:
    noisy = [
        replace(point, seconds_repeats=tuple(point.seconds * factor**index for index in range(3)))
        for point, factor in zip(
            measure(QUICK, CPU, clock=NoisyClock(1, 0.01).clock()), itertools.cycle((1.0, 3.0, 0.5)), strict=False
        )
    ]
    summary = timing_summary(noisy)
    assert summary["cpu_share"] < 0.5 and is_busy(summary["cpu_share"])
    assert set(summary["unreliable"]) == set(LAYERS)
    found = exponents(noisy)
    assert all(found[kind]["seconds"] is None and found[kind]["flops"] is not None for kind in LAYERS)
    for language, words in (("en", ("busy", "not reliable", "recurrent")), ("zh", ("机器繁忙", "不可靠", "循环层"))):
        text = " ".join(timing_warnings({"timing": summary}, language))
        assert all(word in text for word in words), text


def test_clock_without_waiting_is_not_reported() -> None:
    """The clock is the CPU time, so that other programs cannot fail the test."""
    points = measure(QUICK, CPU, clock=NoisyClock(1, 0.0).clock())
    assert timing_summary(points)["cpu_share"] == pytest.approx(1, abs=0.02)
    steady = [replace(point, seconds_repeats=(), seconds_mixing_repeats=()) for point in points]
    assert timing_warnings({"timing": timing_summary(steady)}, "en") == []
    assert all(exponents(steady)[kind]["seconds"] is not None for kind in LAYERS)


def test_median_and_smallest_repeat_ignore_rare_waits() -> None:
    """Waits of 50 ms at every fortieth reading of the clock change the CPU share, but not the median."""
    x = torch.randn(64, 64)
    calm = time_runs(lambda: x @ x, CPU, min_seconds=0.01, clock=NoisyClock(1, 0.0).clock())
    disturbed = time_runs(lambda: x @ x, CPU, min_seconds=0.01, clock=NoisyClock(2, 0.05, 40).clock())
    assert disturbed.cpu_share < 0.5 < calm.cpu_share
    assert disturbed.seconds < 0.01


def test_disagreeing_repeats_have_no_exponent() -> None:
    def points_with(noise: float) -> list[Point]:
        return [
            Point(
                "recurrent", n, d, n * 1e-3, n * 1e-3, *[1] * 7,
                seconds_repeats=(n * 1e-3, n ** (1 + noise) * 1e-3), seconds_mixing_repeats=(n * 1e-3,) * 2,
            )
            for n in (16, 64, 256) for d in (32, 64)
        ]  # fmt: skip

    calm, wild = points_with(MAX_EXPONENT_SPREAD - 0.01), points_with(MAX_EXPONENT_SPREAD + 0.01)
    assert exponents(calm)["recurrent"]["seconds"] == pytest.approx((1, 0), abs=1e-6)
    assert exponents(wild)["recurrent"]["seconds"] is None
    assert exponents(wild)["recurrent"]["seconds_mixing"] == pytest.approx((1, 0), abs=1e-6)
    assert exponent_spread(wild, "seconds") == pytest.approx(MAX_EXPONENT_SPREAD + 0.01)
    assert format_exponents(exponents(wild)["recurrent"]["seconds"]) == "–"


def test_results_without_repeats_have_no_warnings() -> None:
    assert timing_warnings({"exponents": {}}, "en") == []


def test_every_quantity_has_exponents() -> None:
    points = [Point("recurrent", n, d, *[1.0] * 2, *[1] * 7) for n in (2, 4) for d in (2, 4)]  # type: ignore[arg-type]
    assert exponents(points)["recurrent"]["path"] == pytest.approx((0, 0), abs=1e-9)
