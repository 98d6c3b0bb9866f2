"""Multi-head attention of a few words with every number written out (sections 3.2.1 and 3.2.2).

The numbers are those of `MultiHeadAttention` with two heads of width 2 and small random weights; the seed decides them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.config import ModelConfig
from heedful.errors import ConfigError
from heedful.model.attention import MultiHeadAttention, attend_explicit, causal_mask
from heedful.model.positions import sinusoidal_encoding
from heedful.paper.plot_style import in_language
from heedful.tensor_types import Bool, Float

D_MODEL, NUM_HEADS, MAX_WORDS = 4, 2, 8
DECIMALS = 3
CJK = re.compile(r"[\u3400-\u9fff]")

SIMILAR = {
    "a": (1.0, 0.0),
    "b": (0.8, 0.6),
    "c": (0.0, 1.0),
    "d": (-1.0, 0.0),
    "e": (2.0, 0.0),
}
"""Two-dimensional vectors that are compared with the first."""

WORDS = {
    "title": ("Attention of “{words}”, number by number", "“{words}”的注意力：逐个数字计算"),
    "shape": (
        "d_model = {d}, {h} heads, d_k = d_v = {dk}. Numbers are rounded to {digits} decimals for display only.",
        "d_model = {d}，{h} 个头，d_k = d_v = {dk}。数字只在显示时四舍五入到 {digits} 位小数。",
    ),
    "similar": ("The dot product as similarity", "点积表示相似度"),
    "similar_text": (
        "Of vectors of length 1, the dot product is the cosine of their angle: 1 in the same direction, 0 at a right "
        "angle, -1 in the opposite direction. A longer vector has a larger dot product at the same angle.",
        "长度为 1 的两个向量，其点积等于夹角的余弦：同向为 1，垂直为 0，反向为 -1。夹角不变时，向量越长，点积越大。",
    ),
    "vector": ("vector", "向量"),
    "length": ("length", "长度"),
    "angle": ("angle to a", "与 a 的夹角"),
    "product": ("dot product with a", "与 a 的点积"),
    "input": ("Words as vectors: X = E + P", "词变成向量：X = E + P"),
    "input_text": (
        "E holds the embedding of each word, P the sinusoidal encoding of its position, counted from 0.",
        "E 是各词的词嵌入，P 是其位置（从 0 开始）的正弦编码。",
    ),
    "project": ("Queries, keys and values", "查询、键与值"),
    "project_text": (
        "Three matrices, which training learns, give each word a query (what it looks for), a key (what it is found "
        "by) and a value (what it passes on).",
        "训练得到的三个矩阵把每个词变成查询（要找什么）、键（凭什么被找到）和值（传出什么）。",
    ),
    "split": ("Heads", "分头"),
    "split_text": (
        "Columns 1 and 2 of Q, K and V belong to head 1, columns 3 and 4 to head 2.",
        "Q、K、V 的第 1、2 列属于第 1 个头，第 3、4 列属于第 2 个头。",
    ),
    "head": ("head {head}", "第 {head} 个头"),
    "scores": ("Scores: Q Kᵀ", "分数：Q Kᵀ"),
    "scores_text": (
        "Rows are queries, columns are keys: the dot product says how well the key fits the query.",
        "行是查询，列是键：点积表示键与查询的匹配程度。",
    ),
    "scaled": ("Scaling: divide by √d_k = √{dk}", "缩放：除以 √d_k = √{dk}"),
    "scaled_text": (
        "Otherwise the scores would grow with √d_k, and the softmax would put nearly everything on one key.",
        "否则分数随 √d_k 变大，softmax 会几乎全部集中到一个键上。",
    ),
    "masked": ("Mask: −∞ where a word may not look", "掩码：不可关注处置为 −∞"),
    "masked_text": (
        "This is a decoder's self-attention: a word may attend to itself and to earlier words.",
        "这里是解码器的自注意力：每个词只能关注自己和前面的词。",
    ),
    "weights": ("Softmax of each row", "逐行 softmax"),
    "weights_text": (
        "The weights of a row are positive and sum to 1; exp(−∞) = 0.",
        "每行权重为正，和为 1；exp(−∞) = 0。",
    ),
    "heads": ("Weighted sum of the values", "对值加权求和"),
    "heads_text": (
        "Each word receives the values of the words it attends to, times the weights.",
        "每个词得到它所关注的词的值，按权重相加。",
    ),
    "concatenated": ("Concatenation of the heads", "拼接各头"),
    "concatenated_text": ("The results of the heads side by side.", "各头的结果左右并排。"),
    "output": ("Output: Concat · W_O", "输出：拼接结果 · W_O"),
    "output_text": (
        "W_O, also learned, mixes the heads. This is what the module returns.",
        "同样由训练得到的 W_O 把各头混合起来，这就是模块的返回值。",
    ),
    "check": (
        "Largest difference from the output of MultiHeadAttention: {difference:.1e}",
        "与 MultiHeadAttention 输出的最大差：{difference:.1e}",
    ),
}


@dataclass(frozen=True)
class WorkedExample:
    """All tensors of one self-attention over a few words, without the batch dimension."""

    words: list[str]
    attention: MultiHeadAttention
    embeddings: Float[Tensor, "T D"]
    positions: Float[Tensor, "T D"]
    x: Float[Tensor, "T D"]
    query: Float[Tensor, "H T Dk"]
    key: Float[Tensor, "H T Dk"]
    value: Float[Tensor, "H T Dh"]
    scores: Float[Tensor, "H T T"]
    scaled: Float[Tensor, "H T T"]
    mask: Bool[Tensor, "T T"]
    masked: Float[Tensor, "H T T"]
    weights: Float[Tensor, "H T T"]
    heads: Float[Tensor, "H T Dh"]
    concatenated: Float[Tensor, "T D"]
    output: Float[Tensor, "T D"]

    def matrix_of(self, name: str) -> Float[Tensor, "D D"]:
        """W_Q, W_K, W_V or W_O by the name of its layer: as in the paper, applied from the right."""
        layer = getattr(self.attention, name)
        assert isinstance(layer, torch.nn.Linear)
        return layer.weight.detach().T


@dataclass(frozen=True)
class Matrix:
    """A named matrix to display; rows and columns may have labels."""

    name: str
    values: Float[Tensor, "T K"]
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()


@dataclass(frozen=True)
class Step:
    """One step: heading, explanation, groups of matrices, and calculations of single numbers."""

    title: str
    text: str
    groups: Sequence[Sequence[Matrix]]
    calculations: Sequence[str] = ()
    formulas: Sequence[str] = ()
    """The formula of each group, such as `Q = X W_Q`."""


QUOTES = "\x02", "\x03"
"""Characters around a word of the example inside a formula; no text has them."""


def quoted(word: str) -> str:
    """A word inside a formula, marked as text."""
    return word.join(QUOTES)


def split_words(text: str) -> list[str]:
    """The words of the text; Chinese text without spaces is split into characters."""
    words = text.split()
    if len(words) == 1 and CJK.search(text):
        words = list(words[0])
    if not 2 <= len(words) <= MAX_WORDS:
        raise ConfigError(f"the text has {len(words)} words; give 2 to {MAX_WORDS}, separated by spaces.")
    return words


def joined(words: Sequence[str]) -> str:
    """The words as a text: with spaces, unless each is one Chinese character."""
    return ("" if all(CJK.fullmatch(word) for word in words) else " ").join(words)


@torch.inference_mode()
def compute_example(text: str, *, seed: int = 1) -> WorkedExample:
    """Compute every tensor with the modules of the model; embeddings and weights are multiples of 0.1."""
    words = split_words(text)
    generator = torch.Generator().manual_seed(seed)

    def tenths(*shape: int) -> Tensor:
        return torch.randint(-10, 11, shape, generator=generator) / 10

    attention = MultiHeadAttention(ModelConfig(d_model=D_MODEL, num_heads=NUM_HEADS, bias=False)).eval()
    for layer in (attention.query, attention.key, attention.value, attention.output):
        layer.weight.copy_(tenths(D_MODEL, D_MODEL))
    vocabulary = list(dict.fromkeys(words))
    embeddings = tenths(len(vocabulary), D_MODEL)[[vocabulary.index(word) for word in words]]
    positions = sinusoidal_encoding(torch.arange(len(words))[None], D_MODEL)[0]
    x = embeddings + positions
    mask = causal_mask(len(words), x.device)

    query = attention.queries(x[None])
    key, value = attention.keys_values(x[None])
    scaled = attention.scoring(query, key)
    attended = attend_explicit(query, key, value, mask, scoring=attention.scoring, dropout=0.0)
    assert attended.weights is not None
    output, _ = attention(x[None], mask=mask, need_weights=True)
    return WorkedExample(
        words, attention, embeddings, positions, x, query[0], key[0], value[0],
        scores=(query @ key.transpose(-2, -1))[0],
        scaled=scaled[0],
        mask=mask[0, 0],
        masked=scaled[0].masked_fill(~mask[0, 0], float("-inf")),
        weights=attended.weights[0],
        heads=attended.values[0],
        concatenated=attended.values[0].transpose(0, 1).flatten(1),
        output=output[0],
    )  # fmt: skip


def number(value: float, digits: int = DECIMALS) -> str:
    """A number for display; never "-0.000"."""
    if value == float("-inf"):
        return "−∞"
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def numbers(values: Float[Tensor, "T K"], digits: int = DECIMALS) -> list[list[str]]:
    """The numbers of a matrix for display: whole numbers and multiples of 0.1 are not padded with zeros."""
    finite = values[values.isfinite()]
    for fewer in range(2):
        if ((finite * 10**fewer).round() / 10**fewer - finite).abs().amax() < 1e-6:
            digits = fewer
            break
    return [[number(value, digits) for value in row] for row in values.tolist()]


def in_sum(value: float) -> str:
    """A number as a factor or summand: negative ones in parentheses."""
    return f"({number(value)})" if float(value) < 0 and number(value).startswith("-") else number(value)


def _products(left: Tensor, right: Tensor) -> str:
    return " + ".join(f"{in_sum(a)}·{in_sum(b)}" for a, b in zip(left.tolist(), right.tolist(), strict=True))


def steps(example: WorkedExample, language: str) -> list[Step]:
    """The example step by step, in the order of equation 1 and Figure 2."""
    texts = in_language(WORDS, language)
    return [
        _similarity(texts),
        *_projection_steps(example, texts),
        *_score_steps(example, texts),
        *_value_steps(example, texts),
    ]


def _step(
    texts: dict[str, str],
    name: str,
    groups: Sequence[Sequence[Matrix]],
    *calculations: str,
    formulas: Sequence[str] = (),
) -> Step:
    return Step(texts[name].format(dk=D_MODEL // NUM_HEADS), texts[f"{name}_text"], groups, calculations, formulas)


def _per_head(symbol: str, values: Tensor, rows: Sequence[str], columns: Sequence[str] = ()) -> list[Matrix]:
    return [Matrix(f"{symbol}_{head + 1}", values[head], rows, columns) for head in range(len(values))]


def _projection_steps(example: WorkedExample, texts: dict[str, str]) -> list[Step]:
    names, last = example.words, len(example.words) - 1
    whole = {name: getattr(example, name).transpose(0, 1).flatten(1) for name in ("query", "key", "value")}
    x = Matrix("X", example.x, names)
    projected = [
        [x, Matrix(f"W_{letter}", example.matrix_of(name)), Matrix(letter, whole[name], names)]
        for letter, name in zip("QKV", whole, strict=True)
    ]
    heads = [_per_head(letter, getattr(example, name), names) for letter, name in zip("QKV", whole, strict=True)]
    sine = number(example.positions[last, 0].item())
    products = _products(example.x[last], example.matrix_of("query")[:, 0])
    return [
        _step(
            texts,
            "input",
            [[Matrix("E", example.embeddings, names), Matrix("P", example.positions, names), x]],
            f"P({last}, 0) = sin({last} / 10000^(0/{D_MODEL})) = {sine}",
            formulas=["X = E + P"],
        ),
        _step(
            texts,
            "project",
            projected,
            f"Q({quoted(names[last])}, 1) = {products} = {number(whole['query'][last, 0].item())}",
            formulas=["Q = X W_Q", "K = X W_K", "V = X W_V"],
        ),
        _step(texts, "split", [[matrix for matrices in heads for matrix in matrices]]),
    ]


def _score_steps(example: WorkedExample, texts: dict[str, str]) -> list[Step]:
    names, last = example.words, len(example.words) - 1
    place = f"({quoted(names[last])}, {quoted(names[0])})"
    scores = {name: _per_head("S", getattr(example, name), names, names) for name in ("scores", "scaled", "masked")}
    first = {name: number(getattr(example, name)[0, last, 0].item()) for name in ("scores", "scaled", "weights")}
    products = _products(example.query[0, last], example.key[0, 0])
    additive = torch.zeros(example.mask.shape).masked_fill(~example.mask, float("-inf"))
    exponentials = [f"exp({number(value)})" for value in example.masked[0, last].tolist()]
    return [
        _step(
            texts,
            "scores",
            [scores["scores"]],
            f"S_1{place} = {products} = {first['scores']}",
            formulas=["S_i = Q_i K_iᵀ"],
        ),
        _step(
            texts,
            "scaled",
            [scores["scaled"]],
            f"{first['scores']} / {number((D_MODEL / NUM_HEADS) ** 0.5)} = {first['scaled']}",
            formulas=["S_i = Q_i K_iᵀ / √d_k"],
        ),
        _step(
            texts,
            "masked",
            [[Matrix("M", additive, names, names)], scores["masked"]],
            formulas=["S_i = Q_i K_iᵀ / √d_k + M"],
        ),
        _step(
            texts,
            "weights",
            [_per_head("A", example.weights, names, names)],
            f"A_1{place} = {exponentials[0]} / ({' + '.join(exponentials)}) = {first['weights']}",
            formulas=["A_i = softmax(S_i)"],
        ),
    ]


def _value_steps(example: WorkedExample, texts: dict[str, str]) -> list[Step]:
    names, last = example.words, len(example.words) - 1
    w_o = example.matrix_of("output")
    concatenated = Matrix("C", example.concatenated, names)
    place = f"({quoted(names[last])}, 1)"
    weighted = _products(example.weights[0, last], example.value[0, :, 0])
    mixed = _products(example.concatenated[last], w_o[:, 0])
    return [
        _step(
            texts,
            "heads",
            [_per_head("O", example.heads, names)],
            f"O_1{place} = {weighted} = {number(example.heads[0, last, 0].item())}",
            formulas=["O_i = A_i V_i"],
        ),
        _step(texts, "concatenated", [[concatenated]], formulas=["C = Concat(O_1, O_2)"]),
        _step(
            texts,
            "output",
            [[concatenated, Matrix("W_O", w_o), Matrix("Y", example.output, names)]],
            f"Y{place} = {mixed} = {number(example.output[last, 0].item())}",
            formulas=["Y = C W_O"],
        ),
    ]


def similarities() -> Float[Tensor, "K M"]:
    """For each vector of `SIMILAR`: its two components, length, angle to the first in degrees, and dot product."""
    vectors = torch.tensor(list(SIMILAR.values()), dtype=torch.float64)
    lengths = vectors.norm(dim=-1)
    products = vectors @ vectors[0]
    angles = torch.rad2deg(torch.arccos((products / lengths / lengths[0]).clamp(-1, 1)))
    return torch.cat((vectors, torch.stack((lengths, angles, products), dim=-1)), dim=-1)


def _similarity(texts: dict[str, str]) -> Step:
    columns = ("x", "y", texts["length"], texts["angle"], texts["product"])
    b = torch.tensor(SIMILAR["b"])
    return Step(
        texts["similar"],
        texts["similar_text"],
        [[Matrix(texts["vector"], similarities(), list(SIMILAR), columns)]],
        [f"a·b = {_products(torch.tensor(SIMILAR['a']), b)} = {number(similarities()[1, -1].item())}"],
        ["a·b = a_x·b_x + a_y·b_y"],
    )


def difference_from_module(example: WorkedExample) -> float:
    """The largest difference between the last step, computed from the displayed tensors, and the module's output."""
    heads = torch.softmax(example.masked, dim=-1) @ example.value
    written_out = heads.transpose(0, 1).flatten(1) @ example.matrix_of("output")
    return (written_out - example.output).abs().max().item()
