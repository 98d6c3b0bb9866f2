"""Averages of weights: the mean of several, and the moving average."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from heedful.training.checkpoint import MovingAverage, average_weights, copy_weights
from tests.training.small_runs import build, same


def test_average_weights_averages_every_tensor() -> None:
    sets = [
        {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor(5.0)},
        {"a": torch.tensor([3.0, 8.0]), "b": torch.tensor(0.0)},
    ]
    mean = average_weights(sets)
    assert mean["a"].tolist() == [2.0, 5.0]
    assert float(mean["b"]) == 2.5


def test_average_weights_sums_in_double_precision() -> None:
    values = [torch.tensor([1e8]), torch.tensor([1.0]), torch.tensor([-1e8])]
    assert float(average_weights({"a": value} for value in values)["a"]) == pytest.approx(1 / 3)


@pytest.mark.parametrize("count", [1, 3, 7])
def test_average_of_equal_weights_is_bitwise_equal(count: int) -> None:
    weights = copy_weights(build())
    assert same(average_weights([weights] * count), weights)


def test_average_weights_reads_one_state_dict_at_a_time() -> None:
    alive = []

    def sets() -> Iterator[dict[str, Tensor]]:
        for number in range(3):
            alive.append(number)
            yield {"a": torch.tensor(float(number))}

    assert float(average_weights(sets())["a"]) == 1.0
    assert alive == [0, 1, 2]


def test_average_of_nothing_raises() -> None:
    with pytest.raises(ValueError, match="no weights"):
        average_weights([])


def test_moving_average_follows_formula() -> None:
    model = nn.Linear(3, 2)
    average = MovingAverage(model, 0.6)
    mine = copy_weights(model)
    for number in range(1, 30):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        average.update()
        decay = min(0.6, (1 + number) / (10 + number))
        mine = {name: decay * mine[name] + (1 - decay) * weight for name, weight in model.state_dict().items()}
        for name, tensor in average.weights.items():
            torch.testing.assert_close(tensor, mine[name])
    assert average.num_updates == 29


def test_moving_average_of_constant_model_equals_model() -> None:
    model = build()
    average = MovingAverage(model, 0.99)
    for _ in range(20):
        average.update()
    assert same(average.weights, model.state_dict())


def test_copy_weights_does_not_share_memory() -> None:
    model = nn.Linear(2, 2)
    copied, average = copy_weights(model), MovingAverage(model, 0.5)
    before = {name: tensor.clone() for name, tensor in copied.items()}
    with torch.no_grad():
        model.weight.add_(1)
    assert same(copied, before)
    assert same(average.weights, before)
