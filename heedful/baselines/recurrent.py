"""The recurrent encoder-decoder that the paper compares with: GRU or LSTM, with attention.

The encoder is bidirectional, and the decoder's first state summarises the whole source. There are two decoders:

- Bahdanau et al. (2015), `attention_scoring: additive`. Before each step the last state attends to the memory, and the
  context is part of the step's input. As in GNMT only the first layer attends and runs step by step; the layers above
  read whole targets at once. The loop contains only what depends on the previous step: embeddings and memory are
  multiplied by the cell's input weights beforehand, and the contexts for the readout are summed afterwards.
- Luong et al. (2015), `dot` or `scaled_dot`. The recurrent layers read the target alone, in one call, and each new
  state attends to the memory. Luong's input feeding is left out: it would require a loop over the target. `dot`
  compares the states without projections, as Luong does; with projections, an unscaled product of many dimensions
  saturates softmax within a few updates, and attention is hardly learned. `scaled_dot` projects and divides by √D, as
  the Transformer does.

The file begins with one step of each cell written out. It takes the projections of its input and of its state
separately, so that the inputs of all steps can be projected at once.

Both decoders attend as `cross_attention` says: globally, to a window (local-m or local-p), or to one position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from heedful.baselines.base import BaselineModel, BaselineState, Sentences
from heedful.config import ModelConfig
from heedful.model.batch_invariance import requires_invariance, sigmoid
from heedful.model.seq2seq import DecoderState, Memory, StepOutput
from heedful.model.weighting import Weighting, cross_attention_mask
from heedful.tensor_types import Bool, Float, Int

CELLS = {"gru": nn.GRU, "lstm": nn.LSTM}
NUM_GATES = {"gru": 3, "lstm": 4}
Hidden = tuple[Tensor, ...]
"""The layers' states, each (layers, R, D): one tensor for a GRU, two for an LSTM; of one layer each (R, D)."""


@dataclass
class RecurrentState(BaselineState):
    """The states of the decoder's layers, and how many tokens they have read."""

    hidden: Hidden
    length: int = 0

    @property
    def num_rows(self) -> int:
        """Rows in the state: sentences times beams."""
        return self.hidden[0].shape[1]

    def reorder(self, rows: Int[Tensor, " R"]) -> None:
        """Make row r continue the hypothesis of row rows[r]."""
        self.hidden = tuple(part[:, rows] for part in self.hidden)


class DecoderOutput(NamedTuple):
    """The last layer's output for each token, the context from the memory, and the attention weights.

    `log_prob` is the log-probability of sampled positions, if training samples them.
    """

    output: Float[Tensor, "R T D"]
    context: Float[Tensor, "R T D"]
    weights: Float[Tensor, "R T S"]
    log_prob: Float[Tensor, "R T"] | None = None


def recurrent_layers(
    config: ModelConfig, inputs: int, width: int, num_layers: int, *, bidirectional: bool = False
) -> nn.GRU | nn.LSTM:
    """Layers that read whole sequences, with dropout between them."""
    dropout = config.dropout if num_layers > 1 else 0.0
    layers = CELLS[config.cell](
        inputs, width, num_layers, batch_first=True, bidirectional=bidirectional, dropout=dropout
    )
    init_recurrent(layers.named_parameters(), config.cell)
    return layers


def init_recurrent(parameters: Iterable[tuple[str, Tensor]], cell: str) -> None:
    """Orthogonal recurrent matrices, Glorot's input matrices, biases 0, but 1 for an LSTM's forget gate."""
    for name, parameter in parameters:
        if "bias" in name:
            nn.init.zeros_(parameter)
            if cell == "lstm" and "bias_ih" in name:
                nn.init.ones_(parameter.detach().chunk(4)[1])
            continue
        for gate in parameter.detach().chunk(NUM_GATES[cell]):
            (nn.init.orthogonal_ if "weight_hh" in name else nn.init.xavier_uniform_)(gate)


def run_bidirectional(
    layers: nn.GRU | nn.LSTM, x: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"]
) -> Float[Tensor, "B S E"]:
    """The output of bidirectional layers for padded sequences, with all rows at every step.

    torch's packed sequences drop rows as they end, so that the shapes of all products depend on the lengths of the
    other sentences in the batch. Here padding comes after the real tokens in both directions, and its output is unused.
    """
    positions = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
    reversed_positions = torch.where(positions < lengths[:, None], lengths[:, None] - 1 - positions, positions)

    def reverse(values: Tensor) -> Tensor:
        return values.gather(1, reversed_positions[..., None].expand_as(values))

    for level in range(layers.num_layers):
        forward = run_layer(layers, f"l{level}", x)
        backward = run_layer(layers, f"l{level}_reverse", reverse(x))
        x = torch.cat((forward, reverse(backward)), dim=-1)
    return x


def run_layer(layers: nn.GRU | nn.LSTM, name: str, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
    """The output of one layer in one direction for sequences of equal length, from a state of zeros."""
    weights = [getattr(layers, f"{kind}_{name}") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    zeros = x.new_zeros(1, x.shape[0], layers.hidden_size)
    rest = (weights, True, 1, 0.0, False, False, True)  # has_biases, layers, dropout, train, bidirectional, batch_first
    if isinstance(layers, nn.LSTM):
        return torch.lstm(x, (zeros, zeros), *rest)[0]
    return torch.gru(x, zeros, *rest)[0]


def as_torch(hidden: Hidden) -> Tensor | Hidden:
    """States in the form that torch's layers take: one tensor for a GRU, a pair for an LSTM."""
    return hidden[0] if len(hidden) == 1 else hidden


def as_hidden(states: Tensor | Hidden) -> Hidden:
    """The inverse of `as_torch`."""
    return (states,) if isinstance(states, Tensor) else states


def gru_step(
    from_input: Float[Tensor, "R 3*D"], from_state: Float[Tensor, "R 3*D"], hidden: Hidden
) -> tuple[Float[Tensor, "R D"]]:
    """r, z = σ(x + h); n = tanh(x + r · h); the new state is (1 - z) · n + z · the old one."""
    width = hidden[0].shape[-1]
    (x, x_new), (h, h_new) = (part.split((2 * width, width), dim=-1) for part in (from_input, from_state))
    reset, update = sigmoid(x + h).chunk(2, dim=-1)
    return (torch.lerp(torch.tanh(torch.addcmul(x_new, reset, h_new)), hidden[0], update),)


def lstm_step(
    from_input: Float[Tensor, "R 4*D"], from_state: Float[Tensor, "R 4*D"], hidden: Hidden
) -> tuple[Float[Tensor, "R D"], Float[Tensor, "R D"]]:
    """i, f, g, o = x + h; the new cell is σ(f) · the old one + σ(i) · tanh(g), the new state σ(o) · tanh(cell)."""
    input_gate, forget, new, output_gate = (from_input + from_state).chunk(4, dim=-1)
    cell = torch.addcmul(sigmoid(forget) * hidden[1], sigmoid(input_gate), torch.tanh(new))
    return sigmoid(output_gate) * torch.tanh(cell), cell


STEPS: dict[str, Callable[[Tensor, Tensor, Hidden], Hidden]] = {"gru": gru_step, "lstm": lstm_step}


SHRINK_BELOW = 0.5
"""Finished sentences are dropped from the loop in groups, when less than this fraction of its rows is active."""


class MemoryWeighting(Weighting):
    """Local or hard attention of one head to the memory."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.cross_attention, config, num_heads=1, width=config.d_model)

    def weigh(
        self,
        scores: Float[Tensor, "B Q S"],
        mask: Bool[Tensor, "B S"],
        states: Float[Tensor, "B Q D"],
        positions: Int[Tensor, "1 P"],
    ) -> Float[Tensor, "B Q S"]:
        """The weights for several target positions, or for several states at one position."""
        visible = cross_attention_mask(mask[:, None, None], positions, self.config)
        weights: Tensor = self(scores[:, None], visible, x=states)
        return weights[:, 0]


def build_memory_weighting(config: ModelConfig) -> MemoryWeighting | None:
    """None for global attention, which the decoders compute themselves."""
    return None if config.cross_attention == "global" else MemoryWeighting(config)


@dataclass(frozen=True)
class AttentionInputs:
    """What is constant over the steps: the projected memory and the weights of one step, all of one dtype.

    `product` computes both the state's part of the gates and the query; `context_gates` is each position's part.
    """

    keys: Float[Tensor, "B S D"]
    context_gates: Float[Tensor, "B S G"]
    padding_bias: Float[Tensor, "B S"]
    product: Float[Tensor, "D G+D"]
    bias: Float[Tensor, " G+D"]
    vector: Float[Tensor, " D"]
    mask: Bool[Tensor, "B S"]
    weighting: MemoryWeighting | None
    advance: Callable[[Tensor, Tensor, Hidden], Hidden]

    def first(self, count: int) -> AttentionInputs:
        """The inputs for the first `count` sentences."""
        return replace(
            self,
            keys=self.keys[:count],
            context_gates=self.context_gates[:count],
            padding_bias=self.padding_bias[:count],
            mask=self.mask[:count],
        )

    def step(self, gates: Float[Tensor, "R G"], hidden: Hidden, position: int) -> tuple[Hidden, Float[Tensor, "B N S"]]:
        """Attend with the last state, add the context to the gates, advance; N rows of a sentence share its memory."""
        (num_sentences, num_positions, width), num_rows = self.keys.shape, gates.shape[0]
        projected = torch.addmm(self.bias, hidden[0], self.product)
        from_state, query = projected.split((gates.shape[1], width), dim=-1)
        shape = (num_sentences, num_rows // num_sentences)
        mixed = torch.tanh(query.view(*shape, 1, width) + self.keys[:, None])
        padding_bias = self.padding_bias[:, None].expand(*shape, num_positions).reshape(-1)
        scores = torch.addmv(padding_bias, mixed.view(-1, width), self.vector)
        scores = scores.view(*shape, num_positions)
        if self.weighting is None:
            weights = torch.softmax(scores, dim=-1)
        else:
            positions = torch.full((1, 1), position, device=scores.device)
            states = hidden[0].view(*shape, width)
            weights = self.weighting.weigh(scores.float(), self.mask, states, positions).type_as(scores)
        gates = torch.baddbmm(gates.view(*shape, -1), weights, self.context_gates).view(num_rows, -1)
        return self.advance(gates, from_state, hidden), weights


class BahdanauDecoder(nn.Module):
    """e = v · tanh(W s + U m) of the last state s and each position m of the memory; the cell reads softmax(e) · m."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, self.num_upper = config.d_model, config.num_decoder_layers - 1
        self.dropout, self.advance, self.num_gates = config.dropout, STEPS[config.cell], NUM_GATES[config.cell]
        self.first = (nn.GRUCell if config.cell == "gru" else nn.LSTMCell)(2 * width, width)  # of [embedding; context]
        init_recurrent(self.first.named_parameters(), config.cell)
        self.upper = recurrent_layers(config, width, width, self.num_upper) if self.num_upper else None
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=config.bias)
        self.vector = nn.Parameter(torch.empty(width).uniform_(-(width**-0.5), width**-0.5))
        self.weighting = build_memory_weighting(config)

    def keys(self, memory: Memory) -> Float[Tensor, "B S D+G"]:
        """The keys and each position's part of the gates; computed once for a source."""
        width = self.query.in_features
        context_gates = F.linear(memory.values, self.first.weight_ih[:, width:])
        return torch.cat((self.key(memory.values), context_gates), dim=-1)

    def read(self, embedded: Float[Tensor, "B T D"], lengths: Sequence[int], state: RecurrentState) -> DecoderOutput:
        """Read whole targets, the longest first, starting from the state."""
        memory, total = state.memory, embedded.shape[1]
        packed = pack_padded_sequence(embedded, shrink_in_groups(lengths), batch_first=True)
        sizes = packed.batch_sizes
        steps = self._gates_of(packed.data).split(sizes.tolist())
        outputs, weights, log_probs, _ = self._loop(steps, state)
        output = PackedSequence(torch.cat(outputs), sizes)
        if self.upper is not None:
            between = PackedSequence(F.dropout(output.data, self.dropout, self.training), sizes)
            output, _ = self.upper(between, as_torch(tuple(part[1:] for part in state.hidden)))
        padded, all_weights = (
            pad_packed_sequence(part, batch_first=True, total_length=total)[0]
            for part in (output, PackedSequence(torch.cat(weights)[:, 0], sizes))
        )
        context = all_weights.type_as(memory.values) @ memory.values
        log_prob = None
        if log_probs:
            sampled = PackedSequence(torch.cat(log_probs), sizes)
            log_prob = pad_packed_sequence(sampled, batch_first=True, total_length=total)[0][..., 0]
        return DecoderOutput(padded, context, all_weights, log_prob)

    def step(self, embedded: Float[Tensor, "R 1 D"], state: RecurrentState) -> DecoderOutput:
        """Read one token a row and advance the state."""
        gates = self._gates_of(embedded[:, 0])
        [output], [weights], _, last = self._loop([gates], state)
        output, after = output[:, None], tuple(part[None] for part in last)
        if self.upper is not None:
            output, above = self.upper(output, as_torch(tuple(part[1:].contiguous() for part in state.hidden)))
            after = tuple(torch.cat(pair) for pair in zip(after, as_hidden(above), strict=True))
        state.hidden = after
        context = weights.type_as(state.memory.values) @ state.memory.values
        return DecoderOutput(output, context.view_as(embedded), weights.view(embedded.shape[0], 1, -1))

    def _gates_of(self, embedded: Float[Tensor, "R D"]) -> Float[Tensor, "R G"]:
        """The embeddings' part of the gates."""
        return F.linear(embedded, self.first.weight_ih[:, : embedded.shape[-1]], self.first.bias_ih)

    def _loop(
        self, steps: Sequence[Float[Tensor, "R G"]], state: RecurrentState
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor], Hidden]:
        """Outputs, weights and sampled log-probabilities of each step, whose rows may become fewer; the last state."""
        inputs = self._attention_inputs(state, steps[0].dtype)
        hidden: Hidden = tuple(part[0].to(steps[0].dtype) for part in state.hidden)
        num_rows, outputs, weights = steps[0].shape[0], [], []
        log_probs: list[Tensor] = []
        with torch.autocast(steps[0].device.type, enabled=False):  # all tensors have the same dtype
            for position, gates in enumerate(steps, state.length):
                if gates.shape[0] < num_rows:
                    num_rows = gates.shape[0]
                    inputs, hidden = inputs.first(num_rows), tuple(part[:num_rows] for part in hidden)
                hidden, step_weights = inputs.step(gates, hidden, position)
                outputs.append(hidden[0])
                weights.append(step_weights)
                if self.weighting is not None and self.weighting.log_prob is not None:
                    log_probs.append(self.weighting.log_prob)
        return outputs, weights, log_probs, hidden

    def _attention_inputs(self, state: RecurrentState, dtype: torch.dtype) -> AttentionInputs:
        width = self.query.in_features
        keys, context_gates = state.keys.to(dtype).split((width, self.num_gates * width), dim=-1)
        zeros = torch.zeros(state.memory.mask.shape, dtype=dtype, device=keys.device)
        return AttentionInputs(
            keys=keys,
            context_gates=context_gates,
            padding_bias=zeros.masked_fill(~state.memory.mask, torch.finfo(dtype).min),
            product=torch.cat((self.first.weight_hh, self.query.weight)).to(dtype).t(),
            bias=F.pad(self.first.bias_hh, (0, width)).to(dtype),  # the query has no bias
            vector=self.vector.to(dtype),
            mask=state.memory.mask,
            weighting=self.weighting,
            advance=self.advance,
        )


def shrink_in_groups(lengths: Sequence[int]) -> Int[Tensor, " M"]:
    """Lengths, longest first, some of them raised so that the loop drops rows rarely.

    Each drop costs a copy of all inputs in the backward pass; computing some padding costs less.
    """
    ends = torch.tensor(lengths).clamp(min=1)
    sizes = (ends > torch.arange(int(ends[0]))[:, None]).sum(dim=1).tolist()  # active rows at each step
    for step in range(1, len(sizes)):
        if sizes[step] >= SHRINK_BELOW * sizes[step - 1]:
            sizes[step] = sizes[step - 1]
    return (torch.tensor(sizes)[:, None] > torch.arange(len(lengths))).sum(dim=0)


class LuongDecoder(nn.Module):
    """softmax(s · m), or softmax(W s · U m / √D), over the positions m of the memory, s being the new state."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.d_model
        self.layers = recurrent_layers(config, width, width, config.num_decoder_layers)
        is_scaled = config.attention_scoring == "scaled_dot"
        self.scale = width**-0.5 if is_scaled else 1.0
        self.query = nn.Linear(width, width, bias=False) if is_scaled else nn.Identity()
        self.key = nn.Linear(width, width, bias=config.bias) if is_scaled else nn.Identity()
        self.weighting = build_memory_weighting(config)

    def keys(self, memory: Memory) -> Float[Tensor, "B S D"]:
        """The keys of all positions; computed once for a source."""
        keys: Tensor = self.key(memory.values)
        return keys

    def read(self, embedded: Float[Tensor, "B T D"], lengths: Sequence[int], state: RecurrentState) -> DecoderOutput:
        """Read whole targets, the longest first, starting from the state."""
        packed = pack_padded_sequence(embedded, torch.tensor(lengths).clamp(min=1), batch_first=True)
        output, _ = self.layers(packed, as_torch(state.hidden))
        padded, _ = pad_packed_sequence(output, batch_first=True, total_length=embedded.shape[1])
        return self._attend(padded, state, torch.arange(padded.shape[1], device=padded.device)[None])

    def step(self, embedded: Float[Tensor, "R 1 D"], state: RecurrentState) -> DecoderOutput:
        """Read one token a row and advance the state."""
        output, after = self.layers(embedded, as_torch(state.hidden))
        state.hidden = as_hidden(after)
        return self._attend(output, state, torch.full((1, 1), state.length, device=output.device))

    def _attend(
        self, output: Float[Tensor, "R T D"], state: RecurrentState, positions: Int[Tensor, "1 P"]
    ) -> DecoderOutput:
        """Attention to the memory; the rows of a sentence share it."""
        memory, shape = state.memory, output.shape
        queries = self.query(output).reshape(memory.values.shape[0], -1, shape[-1])
        scores = (queries @ state.keys.transpose(1, 2)).float() * self.scale
        if self.weighting is None:
            weights = torch.softmax(scores.masked_fill(~memory.mask[:, None], torch.finfo(scores.dtype).min), dim=-1)
        else:
            states = output.reshape(memory.values.shape[0], -1, shape[-1])
            weights = self.weighting.weigh(scores, memory.mask, states, positions)
        context = weights.type_as(memory.values) @ memory.values
        log_prob = None if self.weighting is None else self.weighting.log_prob
        return DecoderOutput(output, context.reshape(shape), weights.reshape(*shape[:2], -1), log_prob)


class RecurrentSeq2Seq(BaselineModel):
    """Bidirectional encoder, recurrent decoder, attention between them; implements `Seq2Seq`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        width = config.d_model
        self.encoder = recurrent_layers(config, width, width // 2, config.num_encoder_layers, bidirectional=True)
        self.decoder = (BahdanauDecoder if config.attention_scoring == "additive" else LuongDecoder)(config)
        self.first_state = nn.Linear(width, width * config.num_decoder_layers)
        self.readout = nn.Linear(3 * width, width)
        self.log_prob: Tensor | None = None

    def encode(self, source: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"]) -> Memory:
        """Read the sources in both directions; padding is zero, so an empty source gives a context of zeros."""
        x = self.tables.embed_source(source)
        lengths = source_mask.sum(dim=1).clamp(min=1)
        if requires_invariance(x) and not self.training:
            values = run_bidirectional(self.encoder, x, lengths)
        else:
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            values, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True, total_length=source.shape[1])
        return Memory(F.dropout(values * source_mask[..., None], self.config.dropout, self.training), source_mask)

    def read(self, targets: Sentences, memory: Memory) -> Float[Tensor, "M L D"]:
        """Read whole targets, for all steps at once where possible."""
        state = self.start(memory, num_beams=1, max_length=targets.tokens.shape[1])
        embedded = self.tables.embed_target(targets.tokens)
        decoded = self.decoder.read(embedded, targets.lengths, state)
        if decoded.log_prob is not None:
            self.log_prob = targets.to_rows(decoded.log_prob[..., None])[..., 0]
        return self._read_out(embedded, decoded)

    def sampled_log_prob(self) -> Float[Tensor, "B T"]:
        """The log-probability of the source positions that the last training pass sampled."""
        assert self.log_prob is not None
        return self.log_prob

    def start(self, memory: Memory, *, num_beams: int, max_length: int) -> RecurrentState:
        """The first state is a summary of the source: tanh(W · mean of the memory)."""
        real = memory.mask[..., None]
        mean = (memory.values * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)
        first = torch.tanh(self.first_state(mean)).unflatten(1, (-1, self.config.d_model)).transpose(0, 1)
        first = first.repeat_interleave(num_beams, dim=1).contiguous()
        hidden = (first,) if self.config.cell == "gru" else (first, torch.zeros_like(first))
        return RecurrentState(memory, self.decoder.keys(memory), num_beams, hidden)

    def step(self, tokens: Int[Tensor, " R"], state: DecoderState, *, need_weights: bool = False) -> StepOutput:
        """Feed one token a row; the recurrent state is the cache."""
        assert isinstance(state, RecurrentState)
        embedded = self.tables.embed_target(tokens[:, None])
        decoded = self.decoder.step(embedded, state)
        state.length += 1
        attention = decoded.weights[:, None] if need_weights else None
        return StepOutput(self.tables.logits(self._read_out(embedded, decoded))[:, 0], attention)

    def _read_out(self, embedded: Float[Tensor, "R T D"], decoded: DecoderOutput) -> Float[Tensor, "R T D"]:
        """The input of the output projection: tanh(W [output; context; embedding]), with dropout."""
        x = torch.tanh(self.readout(torch.cat((decoded.output, decoded.context, embedded), dim=-1)))
        return F.dropout(x, self.config.dropout, self.training)
