"""Teacher forcing (section 3.1): the input of the decoder in training and in decoding; both give the same logits.

In training the decoder reads the whole reference, shifted right by one, in one pass; the causal mask hides later
tokens. In decoding it reads one token per step. Fed the same tokens, both give the same logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from heedful.build_model import Model, build_model
from heedful.config import ModelConfig
from heedful.errors import ConfigError
from heedful.model_dir import load_model
from heedful.paper.plot_style import in_language
from heedful.paper.text_tables import Table
from heedful.tensor_types import Float

SPECIAL_PIECES = ("<pad>", "<s>", "</s>")
BOS_ID, EOS_ID = 1, 2

WORDS = {
    "caption": ("Teacher forcing: {source} → {target}", "教师强制：{source} → {target}"),
    "step": ("step", "步"),
    "fed": ("fed in training", "训练时的输入"),
    "expected": ("to predict", "应预测"),
    "probability": ("probability", "概率"),
    "at_once": ("all at once", "一次算完"),
    "one_step": ("step by step", "逐步计算"),
    "difference": ("difference", "logits 差"),
    "own": ("fed in decoding", "解码时的输入"),
    "training": (
        "Training reads all {count} inputs in one pass; the causal mask hides later inputs from each position.",
        "训练时一次读入全部 {count} 个输入；因果掩码使每个位置看不到后面的输入。",
    ),
    "decoding": (
        "Decoding reads one input a step, with the keys and values of earlier inputs in a cache.",
        "解码时每步只读入一个词元，前面各词元的键和值保存在缓存中。",
    ),
    "proof": (
        "Fed the reference, both ways give the same logits: largest difference {difference:.1e}, "
        "largest logit {largest:.1f}.",
        "输入同为参考译文时，两种方式的 logits 相同：最大差 {difference:.1e}，最大 logit 为 {largest:.1f}。",
    ),
    "own_note": (
        "Fed in training: the reference, shifted right. Fed in decoding: the model's own output of the step before.",
        "训练时的输入是右移一位的参考译文；解码时的输入是模型自己上一步的输出。",
    ),
    "untrained": (
        "The model is small and untrained: its predictions are random. Use -m MODEL for a trained one.",
        "此模型很小且未经训练，预测是随机的。用 -m MODEL 指定训练好的模型。",
    ),
}


@dataclass(frozen=True)
class Pair:
    """A model and a sentence pair as ids; the target ends with the end token."""

    model: Model
    source: list[int]
    target: list[int]
    bos_id: int
    eos_id: int
    pieces: Callable[[Sequence[int]], list[str]]
    texts: tuple[str, str]
    is_trained: bool


@dataclass(frozen=True)
class TeacherForcing:
    """What the decoder reads and computes for one pair, in training and in decoding."""

    pair: Pair
    target_input: list[int]
    """The reference shifted right: the start token, then all but the end token."""
    at_once: Float[Tensor, "T V"]
    """Logits of one pass over the shifted reference."""
    one_step: Float[Tensor, "T V"]
    """Logits of one step after another, fed the same tokens."""
    own_input: list[int]
    """What greedy search is fed: the start token, then its own output, at most as long as the reference."""

    @property
    def difference(self) -> float:
        """The largest difference between the two ways to compute the logits."""
        return (self.at_once - self.one_step).abs().max().item()


def untrained_pair(source: str, target: str, *, seed: int = 1) -> Pair:
    """The words of a pair as the vocabulary of a small Transformer with random weights."""
    if not source.split() or not target.split():
        raise ConfigError("source and target must each hold at least one word.")
    vocabulary = [*SPECIAL_PIECES, *dict.fromkeys([*source.split(), *target.split()])]
    config = ModelConfig(
        source_vocab_size=len(vocabulary), target_vocab_size=len(vocabulary), d_model=32, d_ff=64, num_heads=4,
        num_encoder_layers=2, num_decoder_layers=2,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build_model(config).eval()
    ids = {word: number for number, word in enumerate(vocabulary)}
    return Pair(
        model,
        [*(ids[word] for word in source.split()), EOS_ID],
        [*(ids[word] for word in target.split()), EOS_ID],
        BOS_ID,
        EOS_ID,
        lambda numbers: [vocabulary[number] for number in numbers],
        (source, target),
        is_trained=False,
    )


def trained_pair(directory: Path, source: str, target: str, *, target_language: str | None = None) -> Pair:
    """A pair in the subwords of a trained model."""
    loaded = load_model(directory)
    tokenizer = loaded.tokenizer
    pair = Pair(
        loaded.model, tokenizer.encode_source(source, target_language), tokenizer.encode_target(target),
        tokenizer.bos_id, tokenizer.eos_id, tokenizer.pieces, (source, target), is_trained=True,
    )  # fmt: skip
    longest = max(len(pair.source), len(pair.target))
    if longest > loaded.model.max_length:
        raise ConfigError(f"a sentence has {longest} tokens; the model accepts {loaded.model.max_length}.")
    return pair


@torch.inference_mode()
def compute_teacher_forcing(pair: Pair) -> TeacherForcing:
    """Compute the logits both ways, and what greedy search is fed."""
    source = torch.tensor([pair.source])
    target_input = [pair.bos_id, *pair.target[:-1]]
    at_once = pair.model(source, torch.tensor([target_input]))[0]
    one_step, _ = _decode(pair, lambda step, logits: target_input[step])
    _, own_input = _decode(pair, lambda step, logits: int(logits.argmax()) if step else pair.bos_id)
    return TeacherForcing(pair, target_input, at_once, one_step, own_input)


def _decode(pair: Pair, choose: Callable[[int, Tensor], int]) -> tuple[Float[Tensor, "T V"], list[int]]:
    """Feed one token per step, selected by `choose` from the step and the latest logits; stop after the end token."""
    model, num_steps = pair.model, len(pair.target)
    source = torch.tensor([pair.source])
    state = model.start(
        model.encode(source, torch.ones_like(source, dtype=torch.bool)), num_beams=1, max_length=num_steps
    )
    logits: list[Tensor] = [torch.empty(0)]
    fed: list[int] = []
    for step in range(num_steps):
        fed.append(choose(step, logits[-1]))
        if fed[-1] == pair.eos_id and step:
            break
        logits.append(model.step(torch.tensor([fed[-1]]), state).logits[0])
    return torch.stack(logits[1:]), fed


def teacher_forcing_table(computed: TeacherForcing, language: str) -> Table:
    """The inputs, predictions and differences, a row for each step."""
    texts = in_language(WORDS, language)
    pair, pieces = computed.pair, computed.pair.pieces
    probabilities = torch.softmax(computed.at_once.float(), dim=-1)
    differences = (computed.at_once - computed.one_step).abs().amax(dim=-1).tolist()
    own = [*pieces(computed.own_input), *[""] * (len(pair.target) - len(computed.own_input))]
    columns = (
        [str(step) for step in range(1, len(pair.target) + 1)],
        pieces(computed.target_input),
        pieces(pair.target),
        pieces(computed.at_once.argmax(dim=-1).tolist()),
        pieces(computed.one_step.argmax(dim=-1).tolist()),
        own,
        [f"{probabilities[step, token].item():.3f}" for step, token in enumerate(pair.target)],
        [f"{difference:.1e}" for difference in differences],
    )
    headings = ("step", "fed", "expected", "at_once", "one_step", "own", "probability", "difference")
    notes = [
        texts["training"].format(count=len(pair.target)),
        texts["decoding"],
        texts["proof"].format(difference=computed.difference, largest=computed.at_once.abs().max().item()),
        texts["own_note"],
        *([] if pair.is_trained else [texts["untrained"]]),
    ]
    return Table(
        caption=texts["caption"].format(source=pair.texts[0], target=pair.texts[1]),
        heading=[texts[name] for name in headings],
        rows=list(zip(*columns, strict=True)),
        notes=notes,
        num_names=6,
    )
