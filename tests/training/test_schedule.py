"""Budgets and learning rates: the paper's formula, the other schedules, and warm-ups by budget."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.config import TrainingConfig
from heedful.training.optimizer import Budget, Schedule, TrainingProgress


def rates(config: TrainingConfig, num_steps: int, d_model: int = 512) -> list[float]:
    """The rate of each step of a run with this many steps."""
    schedule = Schedule(config, d_model)
    return [schedule.rate(step, (step - 1) / num_steps) for step in range(1, num_steps + 1)]


@given(
    step=st.integers(1, 300_000),
    warmup=st.integers(1, 20_000),
    d_model=st.sampled_from([64, 512, 1024]),
    factor=st.sampled_from([None, 0.5, 2.0]),
)
def test_paper_schedule_is_formula_of_section_5_3(step: int, warmup: int, d_model: int, factor: float | None) -> None:
    config = TrainingConfig(steps=300_000, warmup_steps=warmup, learning_rate_factor=factor)
    formula = (factor or 1.0) * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
    assert Schedule(config, d_model).rate(step, step / 300_000) == pytest.approx(formula, rel=1e-12)


@pytest.mark.parametrize("schedule", ["paper", "inverse_sqrt"])
def test_learning_rate_scales_paper_schedule(schedule: str) -> None:
    config = TrainingConfig(steps=2000, warmup_steps=100, schedule=schedule, learning_rate=7e-4)
    found = rates(config, 2000)
    assert max(found) == found[99] == pytest.approx(7e-4)
    formula = [min(step**-0.5, step * 100**-1.5) for step in range(1, 2001)]
    assert found == pytest.approx([7e-4 * value / max(formula) for value in formula])


def test_default_schedule_of_long_run_is_papers() -> None:
    schedule = Schedule(TrainingConfig(steps=100_000), 512)
    assert schedule.warmup_steps == 4000
    for step in (1, 100, 4000, 4001, 99_999):
        formula = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert schedule.rate(step, step / 100_000) == pytest.approx(formula)


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
@pytest.mark.parametrize("final", [0.0, 0.1])
def test_cosine_and_linear_end_at_final_ratio(schedule: str, final: float) -> None:
    config = TrainingConfig(
        steps=1000, warmup_steps=50, schedule=schedule, learning_rate=1e-3, final_learning_rate_ratio=final
    )
    found = rates(config, 1000)
    assert found[:50] == pytest.approx([1e-3 * step / 50 for step in range(1, 51)])
    assert all(earlier > later for earlier, later in pairwise(found[50:]))
    assert Schedule(config, 512).rate(1001, 1.0) == pytest.approx(1e-3 * final)
    assert found[50] == pytest.approx(1e-3)  # the decay starts at the end of the warm-up, from the peak
    half = Schedule(config, 512).rate(526, 0.525)
    assert half == pytest.approx(1e-3 * (final + (1 - final) * 0.5))
    quarter = Schedule(config, 512).rate(763, 0.05 + 0.75 * 0.95)
    share = 0.25 if schedule == "linear" else 0.5 * (1 + math.cos(0.75 * math.pi))
    assert quarter == pytest.approx(1e-3 * (final + (1 - final) * share))


def test_cosine_decays_from_end_of_detected_warmup() -> None:
    schedule = Schedule(TrainingConfig(epochs=1, schedule="linear", learning_rate=1e-3), 512)
    found = [schedule.rate(step + 1, step / 200) for step in range(200)]
    assert max(found) == pytest.approx(1e-3)
    assert all(abs(later - earlier) < 1e-4 for earlier, later in pairwise(found))  # no jump anywhere


def test_constant_schedule_stays_at_peak() -> None:
    config = TrainingConfig(steps=100, warmup_steps=10, schedule="constant", learning_rate=2e-3)
    assert rates(config, 100)[9:] == [2e-3] * 91


@pytest.mark.parametrize(("steps", "warmup"), [(5, 1), (300, 30), (39_000, 3900), (1_000_000, 4000)])
def test_warmup_is_a_tenth_of_short_budget(steps: int, warmup: int) -> None:
    assert Schedule(TrainingConfig(steps=steps), 512).warmup_steps == warmup


@pytest.mark.parametrize("schedule", ["paper", "inverse_sqrt", "cosine", "linear", "constant"])
def test_warmup_is_detected_without_step_budget(schedule: str) -> None:
    """Two hundred steps that nobody knew of before: the rate rises over a tenth of them and never jumps."""
    found = Schedule(TrainingConfig(minutes=1, schedule=schedule, learning_rate=1e-3), 512)
    course = [found.rate(step, (step - 1) / 200) for step in range(1, 201)]
    assert 20 <= (found.warmup_steps or 0) <= 22
    assert max(course) == pytest.approx(1e-3, rel=0.06)
    assert course.index(max(course)) in range(19, 23)
    rising = course[: course.index(max(course)) + 1]
    assert all(0 < earlier < later for earlier, later in pairwise(rising))
    assert max(abs(later - earlier) for earlier, later in pairwise(course)) < 1.2e-4


def test_first_limit_sets_warmup() -> None:
    """A minute that ends after 200 of 10,000 steps: without this the run would end while the rate still rises."""
    schedule = Schedule(TrainingConfig(steps=10_000, minutes=1, schedule="cosine", learning_rate=1e-3), 512)
    course = [schedule.rate(step, (step - 1) / 200) for step in range(1, 201)]
    assert course.index(max(course)) in range(19, 23)
    assert course[-1] < 1e-6 + 0.001 * max(course)


def test_warmup_is_at_most_4000_steps() -> None:
    schedule = Schedule(TrainingConfig(epochs=100, learning_rate=1e-3, schedule="inverse_sqrt"), 512)
    course = [schedule.rate(step, step / 1_000_000) for step in range(1, 5000)]
    assert schedule.warmup_steps == 4000
    assert course.index(max(course)) == 3999


def test_detected_warmup_can_be_restored() -> None:
    config = TrainingConfig(minutes=1, learning_rate=1e-3, schedule="inverse_sqrt")
    whole = Schedule(config, 512)
    course = [whole.rate(step, (step - 1) / 200) for step in range(1, 201)]
    resumed = Schedule(config, 512, warmup_steps=whole.warmup_steps)
    assert [resumed.rate(step, (step - 1) / 200) for step in range(100, 201)] == course[99:]


def test_fraction_used_is_that_of_first_limit() -> None:
    budget = Budget(steps=100, epochs=4, tokens=10_000, minutes=2)
    assert budget.fraction_used(TrainingProgress()) == 0
    assert budget.fraction_used(TrainingProgress(steps=50, epochs=1, tokens=1000, seconds=12)) == 0.5
    assert budget.fraction_used(TrainingProgress(steps=10, epochs=3, tokens=1000, seconds=12)) == 0.75
    assert budget.fraction_used(TrainingProgress(steps=10, epochs=1, tokens=9000, seconds=12)) == 0.9
    assert budget.fraction_used(TrainingProgress(steps=10, epochs=1, tokens=1000, seconds=120)) == 1.0
    assert Budget(minutes=1).fraction_used(TrainingProgress(steps=10**6, seconds=30)) == 0.5


def test_budget_of_config() -> None:
    assert Budget.of(TrainingConfig(steps=3, minutes=2.5)) == Budget(steps=3, minutes=2.5)
