"""The optimizer: the paper's Adam, weight decay on matrices only, moments as named tensors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from heedful.config import TrainingConfig
from heedful.training.optimizer import build_optimizer, load_optimizer_tensors, optimizer_tensors, set_learning_rate
from tests.training.small_runs import MODEL, VOCAB, build


def small_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(VOCAB, 4), nn.Linear(4, 3), nn.LayerNorm(3)).double()


def fill_gradients(model: nn.Module, seed: int) -> None:
    chance = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=chance, dtype=parameter.dtype)


def test_adam_without_decay_is_papers() -> None:
    model, config = small_net(), TrainingConfig()
    optimizer = build_optimizer(model, config)
    (beta1, beta2), epsilon = (0.9, 0.98), 1e-9
    mine = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    first = {name: torch.zeros_like(tensor) for name, tensor in mine.items()}
    second = {name: torch.zeros_like(tensor) for name, tensor in mine.items()}
    for step, rate in enumerate((1e-3, 2e-3, 5e-4, 1e-2), start=1):
        fill_gradients(model, step)
        set_learning_rate(optimizer, rate)
        optimizer.step()
        for name, parameter in model.named_parameters():
            gradient = parameter.grad
            assert isinstance(gradient, Tensor)
            first[name] = beta1 * first[name] + (1 - beta1) * gradient
            second[name] = beta2 * second[name] + (1 - beta2) * gradient**2
            unbiased = first[name] / (1 - beta1**step), second[name] / (1 - beta2**step)
            mine[name] = mine[name] - rate * unbiased[0] / (unbiased[1].sqrt() + epsilon)
            torch.testing.assert_close(parameter.detach(), mine[name], rtol=1e-10, atol=1e-12)


def test_weight_decay_applies_to_linear_matrices_only() -> None:
    model = build()
    optimizer = build_optimizer(model, TrainingConfig(weight_decay=0.5))
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    set_learning_rate(optimizer, 0.1)
    optimizer.step()
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    for name, parameter in model.named_parameters():
        decays = parameter.dim() == 2 and id(parameter) not in embeddings
        expected = before[name] * (1 - 0.1 * 0.5) if decays else before[name]
        torch.testing.assert_close(parameter.detach(), expected, msg=name)
    assert any(parameter.dim() == 2 and id(parameter) not in embeddings for parameter in model.parameters())


@pytest.mark.parametrize(("decay", "num_groups"), [(0.0, 1), (0.1, 2)])
def test_every_parameter_is_in_one_group(decay: float, num_groups: int) -> None:
    model = build(MODEL)
    groups = build_optimizer(model, TrainingConfig(weight_decay=decay)).param_groups
    assert len(groups) == num_groups  # each group is an update of its own
    learned = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(learned) == sorted({id(parameter) for parameter in model.parameters()})


def test_optimizer_tensors_roundtrip() -> None:
    """Two optimizers, one with the moments of the other put in, go the same way bit for bit."""
    models = small_net(), small_net()
    optimizers = [build_optimizer(model, TrainingConfig(weight_decay=0.01)) for model in models]
    set_learning_rate(optimizers[0], 1e-2)
    for seed in range(3):
        fill_gradients(models[0], seed)
        optimizers[0].step()
    tensors = optimizer_tensors(optimizers[0], models[0])
    assert {f"{moment}.0.weight" for moment in ("exp_avg", "exp_avg_sq", "step")} <= tensors.keys()
    models[1].load_state_dict(models[0].state_dict())
    load_optimizer_tensors(optimizers[1], models[1], {name: tensor.clone() for name, tensor in tensors.items()})
    for model, optimizer in zip(models, optimizers, strict=True):
        set_learning_rate(optimizer, 1e-3)
        fill_gradients(model, 7)
        optimizer.step()
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(one, other)
    assert all(
        int(tensor) == 4 for name, tensor in optimizer_tensors(optimizers[1], models[1]).items() if "step" in name
    )
