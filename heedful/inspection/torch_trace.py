"""The same trace by torch: the reference for the native one, and the only one of models that the native engine lacks.

A `Transformer` records what its modules compute, through forward hooks, which keep every module on its explicit path.
Other models record their attention weights, logits and probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.model.attention import MultiHeadAttention, attend_explicit
from heedful.model.layers import DecoderLayer, EncoderLayer, FeedForward
from heedful.model.norms import LayerNorm, RMSNorm, normalise
from heedful.model.positions import position_ids, sinusoidal_encoding
from heedful.model.seq2seq import Seq2Seq
from heedful.model.transformer import Transformer
from heedful.search_types import SpecialTokens

if TYPE_CHECKING:
    import numpy as np


@torch.inference_mode()
def torch_trace(
    model: Seq2Seq,
    source: Sequence[int],
    target: Sequence[int],
    special: SpecialTokens,
    *,
    max_length: int = 0,
    wanted: Sequence[str] = ("*",),
) -> tuple[list[int], dict[str, np.ndarray]]:
    """Trace a pair; `target` begins with the start token and is continued greedily up to `max_length` tokens.

    Returns the continued target without start and end token, and the tensors by name.
    """
    found = [*target[1:], *_continue_greedily(model, source, target, special, max_length)]
    recorder = Recorder(wanted)
    source_ids, target_ids = torch.tensor([source]), torch.tensor([[target[0], *found]])
    if isinstance(model, Transformer):
        _trace_transformer(model, source_ids, target_ids, recorder)
    else:
        _trace_steps(model, source_ids, target_ids, recorder)
    return found, {name: tensor.float().numpy() for name, tensor in recorder.tensors.items()}


class Recorder:
    """Keeps the tensors whose names match a pattern."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self.wanted, self.tensors = wanted, dict[str, Tensor]()
        self.layer_outputs: dict[str, Tensor] = {}

    def add(self, name: str, tensor: Tensor) -> None:
        """Keep a tensor, without its batch dimension."""
        if any(fnmatchcase(name, pattern) for pattern in self.wanted):
            self.tensors[name] = tensor[0].detach().clone()

    def add_parameter(self, name: str, parameter: Tensor) -> None:
        """Keep a parameter, if a pattern is exactly its name."""
        if name in self.wanted:
            self.tensors[name] = parameter.detach().clone()


def _continue_greedily(
    model: Seq2Seq, source: Sequence[int], target: Sequence[int], special: SpecialTokens, max_length: int
) -> list[int]:
    if max_length < len(target):
        return []
    from heedful.config import DecodingConfig
    from heedful.decoding.search import greedy_search

    source_ids = torch.tensor([source])
    [[hypothesis]] = greedy_search(
        model,
        source_ids,
        torch.ones_like(source_ids, dtype=torch.bool),
        DecodingConfig(method="greedy"),
        special,
        max_lengths=[max_length],
        prefix=[target[1:]],
    )
    tokens = hypothesis.tokens[len(target) - 1 :]
    return tokens[:-1] if tokens and tokens[-1] == special.eos_id else tokens


def _trace_transformer(model: Transformer, source: Tensor, target: Tensor, recorder: Recorder) -> None:
    layers: dict[nn.Module, str] = {layer: f"encoder.layers.{i}" for i, layer in enumerate(model.encoder.layers)}
    layers |= {layer: f"decoder.layers.{i}" for i, layer in enumerate(model.decoder.layers)}
    hooks = [hook for layer, name in layers.items() for hook in _record_layer(layer, name, recorder)]
    for stack, name in ((model.encoder, "encoder.norm"), (model.decoder, "decoder.norm")):
        if stack.norm is not None:
            hooks.append(_record_norm(stack.norm, name, recorder))
    hooks.append(model.encoder.register_forward_hook(lambda _module, _inputs, output: recorder.add("memory", output)))
    hooks.append(
        model.decoder.register_forward_hook(lambda _module, _inputs, output: recorder.add("decoder.output", output[0]))
    )
    try:
        _record_embedding(model, "source", model.source_embedding, source, recorder)
        _record_embedding(model, "target", model.target_table, target, recorder)
        logits = model(source, target)
    finally:
        for hook in hooks:
            hook.remove()
    _record_parameters(model, recorder)
    recorder.add("logits", logits)
    recorder.add("probabilities", torch.softmax(logits, dim=-1))
    everything = torch.ones(1, 1, target.shape[1], target.shape[1], dtype=torch.bool)
    for i in range(len(model.decoder.layers)):
        x = recorder.layer_outputs[f"decoder.layers.{i}"]
        x = x if model.decoder.norm is None else normalise(model.decoder.norm, x, everything)
        recorder.add(f"decoder.layers.{i}.logits", _output_layer(model, x))


def _record_parameters(model: Transformer, recorder: Recorder) -> None:
    def linear(name: str, layer: nn.Linear, *outputs: int) -> None:
        bias = torch.zeros(layer.out_features) if layer.bias is None else layer.bias
        recorder.add_parameter(f"{name}_weight", layer.weight.view(*outputs, -1))
        recorder.add_parameter(f"{name}_bias", bias.view(*outputs))

    def norm(name: str, module: nn.Module) -> None:
        if isinstance(module, LayerNorm | RMSNorm):
            recorder.add_parameter(f"{name}.weight", module.weight)
            bias = getattr(module, "bias", None)
            recorder.add_parameter(f"{name}.bias", torch.zeros_like(module.weight) if bias is None else bias)

    for name, module in model.named_modules():
        if isinstance(module, MultiHeadAttention):
            for part in ("query", "key", "value"):
                layer = getattr(module, part)
                linear(f"{name}.{part}", layer, module.num_heads, layer.out_features // module.num_heads)
            linear(f"{name}.output", module.output, module.output.out_features)
        elif isinstance(module, FeedForward):
            linear(f"{name}.input", module.inner, module.inner.out_features)
            if module.gate is not None:
                linear(f"{name}.gate", module.gate, module.gate.out_features)
            linear(f"{name}.output", module.output, module.output.out_features)
        else:
            norm(name, module)


def _output_layer(model: Transformer, x: Tensor) -> Tensor:
    return F.linear(x, model.output_weight) if model.output is None else model.output(x)


def _record_embedding(model: Transformer, side: str, table: nn.Embedding, tokens: Tensor, recorder: Recorder) -> None:
    embedding = table(tokens) * math.sqrt(model.config.d_model)
    recorder.add(f"{side}_embedding", embedding)
    learned = model.source_positions if side == "source" else model.target_positions
    if learned is not None:
        recorder.add(f"{side}_positions", learned(position_ids(tokens)))
    elif model.config.positions == "sinusoidal":
        recorder.add(f"{side}_positions", sinusoidal_encoding(position_ids(tokens), model.config.d_model))


def _record_layer(layer: nn.Module, name: str, recorder: Recorder) -> list[Any]:
    """Hooks for all parts of a layer. The residual stream enters at the layer's input and after each sublayer."""
    assert isinstance(layer, EncoderLayer | DecoderLayer)
    stack = name.split(".", maxsplit=1)[0]
    attentions = [("self_attention", layer.self_attention)]
    if isinstance(layer, DecoderLayer):
        attentions.append(("cross_attention", layer.cross_attention))
    hooks = []
    stream: dict[str, Tensor] = {}

    def enter(_module: nn.Module, inputs: tuple[Any, ...]) -> None:
        stream["x"] = inputs[0]
        if name.endswith(".0"):
            recorder.add(f"{stack}.input", inputs[0])

    def finish(place: str, x: Tensor) -> None:
        stream["x"] = recorder.layer_outputs[name] = x
        recorder.add(f"{place}.residual_after", x)

    def leave(place: str) -> Callable[[nn.Module, Any, Any], None]:
        def add(_module: nn.Module, _inputs: Any, output: Any) -> None:
            update = output[0] if isinstance(output, tuple) else output
            recorder.add(f"{place}.residual_before", stream["x"])
            recorder.add(f"{place}.output", update)
            if layer.norm_placement == "pre":
                finish(place, stream["x"] + update)

        return add

    def add_norm(place: str, norm: nn.Module) -> None:
        hooks.append(_record_norm(norm, f"{place}_norm", recorder))
        if layer.norm_placement == "post":
            hooks.append(norm.register_forward_hook(lambda _module, _inputs, output: finish(place, output)))

    hooks.append(layer.register_forward_pre_hook(enter))
    for kind, attention in attentions:
        place = f"{name}.{kind}"
        hooks.append(_record_attention(attention, place, recorder))
        hooks.append(attention.register_forward_hook(leave(place)))
        add_norm(place, getattr(layer, f"{kind}_norm"))
    place = f"{name}.feed_forward"
    hooks += _record_feed_forward(layer.feed_forward, place, recorder)
    hooks.append(layer.feed_forward.register_forward_hook(leave(place)))
    add_norm(place, layer.feed_forward_norm)
    return hooks


def _record_attention(attention: MultiHeadAttention, name: str, recorder: Recorder) -> Any:
    def add(_module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        [x] = inputs
        memory, positions = named.get("memory"), named.get("positions")
        query = attention.queries(x, positions)
        key, value = attention.keys_values(x, positions) if memory is None else attention.keys_values(memory)
        mask = named["mask"]
        scaled = attention.scoring(query, key)
        attended = attend_explicit(
            query, key, value, mask, scoring=attention.scoring, dropout=0.0, weigh=attention.weigh(x)
        )
        assert attended.weights is not None
        recorder.add(f"{name}.query", query)
        recorder.add(f"{name}.key", key)
        recorder.add(f"{name}.value", value)
        recorder.add(f"{name}.scores", scaled / attention.scoring.scale)
        recorder.add(f"{name}.scaled_scores", scaled)
        additive = torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))
        recorder.add(f"{name}.mask", additive[:, 0].expand(-1, query.shape[2], -1))
        recorder.add(f"{name}.weights", attended.weights)
        recorder.add(f"{name}.head_outputs", attended.values)

    return attention.register_forward_pre_hook(add, with_kwargs=True)


def _record_norm(norm: nn.Module, name: str, recorder: Recorder) -> Any:
    def add(_module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        x = inputs[0]
        if isinstance(norm, LayerNorm | RMSNorm):
            mean = x.mean(dim=-1) if isinstance(norm, LayerNorm) else torch.zeros(x.shape[:-1])
            variance = (x - mean[..., None]).square().mean(dim=-1)
            recorder.add(f"{name}.mean", mean)
            recorder.add(f"{name}.deviation", torch.sqrt(variance + norm.eps))
        recorder.add(f"{name}.input", x)
        recorder.add(f"{name}.output", output)

    return norm.register_forward_hook(add)


def _record_feed_forward(module: FeedForward, name: str, recorder: Recorder) -> list[Any]:
    def add_to(part: str) -> Callable[[nn.Module, Any, Tensor], None]:
        return lambda _module, _inputs, output: recorder.add(f"{name}.{part}", output)

    def add_activated(_module: nn.Module, inputs: tuple[Any, ...], _output: Tensor) -> None:
        recorder.add(f"{name}.post_activation", module.activated(inputs[0]))

    hooks = [module.inner.register_forward_hook(add_to("pre_activation"))]
    if module.gate is not None:
        hooks.append(module.gate.register_forward_hook(add_to("gate")))
    return [*hooks, module.register_forward_hook(add_activated)]


def _trace_steps(model: Seq2Seq, source: Tensor, target: Tensor, recorder: Recorder) -> None:
    """Attention weights and logits of a model that has only steps."""
    memory = model.encode(source, torch.ones_like(source, dtype=torch.bool))
    state = model.start(memory, num_beams=1, max_length=target.shape[1])
    steps = [model.step(token, state, need_weights=True) for token in target.unbind(1)]
    logits = torch.stack([step.logits for step in steps], dim=1)
    recorder.add("logits", logits)
    recorder.add("probabilities", torch.softmax(logits, dim=-1))
    if steps[0].attention is not None:  # (1, L, H, S) at each step
        weights = torch.stack([step.attention for step in steps if step.attention is not None], dim=3)
        for layer in range(weights.shape[1]):
            recorder.add(f"decoder.layers.{layer}.cross_attention.weights", weights[:, layer])
