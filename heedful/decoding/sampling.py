"""Sampling: draw each token from the model's distribution, with temperature, top-k and top-p.

A sample is a pure function of (seed, source, prefix, sample number). It does not depend on the batch or on the device's
random generator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.config import DecodingConfig
from heedful.decoding.constraints import Constraint, SpecialTokens
from heedful.decoding.greedy import decode_loop
from heedful.model.seq2seq import Seq2Seq
from heedful.search_types import Hypothesis
from heedful.tensor_types import Bool, Float, Int


def search(
    model: Seq2Seq,
    source: Int[Tensor, "B S"],
    source_mask: Bool[Tensor, "B S"],
    config: DecodingConfig,
    special: SpecialTokens,
    *,
    max_lengths: Sequence[int],
    prefix: Sequence[Sequence[int]] | None = None,
    forbidden: Sequence[Sequence[int]] | None = None,
    constraint: Constraint | None = None,
) -> list[list[Hypothesis]]:
    """`num_best` samples per sentence, best score first; they may contain duplicates."""
    prefixes = prefix if prefix is not None else [[] for _ in max_lengths]
    identities = [
        [*source[b][source_mask[b]].tolist(), -1, *prefixes[b]]  # -1 separates source and prefix
        for b in range(source.shape[0])
    ]
    uniforms = torch.tensor(
        np.array([draw_uniforms(identity, max(max_lengths) + 1, config) for identity in identities]),
        dtype=torch.float32,
        device=source.device,
    )

    def choose(log_probs: Tensor, step: int, sentences: Tensor) -> Tensor:
        return draw(log_probs, uniforms[sentences, :, step].flatten(), config)

    found = decode_loop(
        model, source, source_mask, config, special,
        max_lengths=max_lengths, prefix=prefix, forbidden=forbidden, constraint=constraint,
        num_rows=config.num_best, choose=choose,
    )  # fmt: skip
    return [sorted(hypotheses, key=lambda hypothesis: -hypothesis.score) for hypotheses in found]


def draw_uniforms(identity: Sequence[int], num_steps: int, config: DecodingConfig) -> np.ndarray:
    """Uniform numbers in [0, 1) for each sample and step (N, T); depend only on the seed and the sentence."""
    digest = hashlib.blake2b(repr(list(identity)).encode(), digest_size=8).digest()
    sentence = int.from_bytes(digest, "big")
    streams = [np.random.default_rng([config.seed % 2**64, sentence, number]) for number in range(config.num_best)]
    return np.stack([stream.random(num_steps) for stream in streams])


def draw(log_probs: Float[Tensor, "R V"], uniforms: Float[Tensor, " R"], config: DecodingConfig) -> Int[Tensor, " R"]:
    """Inverse transform sampling: the token at which the cumulative probability exceeds the row's uniform number."""
    probs, token_ids = kept_distribution(log_probs, config)
    cumulative = probs.cumsum(dim=1)
    index = torch.searchsorted(cumulative, uniforms[:, None] * cumulative[:, -1:], right=True)
    num_kept = (probs > 0).sum(dim=1, keepdim=True)  # rounding must not select a token that was cut
    return token_ids.gather(1, index.minimum(num_kept - 1).clamp(min=0))[
        :, 0
    ]  # clamp: rows that ended earlier keep none


def kept_distribution(
    log_probs: Float[Tensor, "R V"], config: DecodingConfig
) -> tuple[Float[Tensor, "R K"], Int[Tensor, "R K"]]:
    """Probabilities after temperature, top-k and top-p, in this order, sorted descending, and their token ids.

    They are not renormalised after top-p.
    """
    ordered, token_ids = log_probs.sort(dim=1, descending=True, stable=True)
    if config.top_k:
        ordered, token_ids = ordered[:, : config.top_k], token_ids[:, : config.top_k]
    temperature = max(config.temperature, 1e-6)
    probs = torch.softmax((ordered - ordered[:, :1]) / temperature, dim=1)
    if config.top_p < 1:
        before = F.pad(probs.cumsum(dim=1)[:, :-1], (1, 0))
        probs = probs.masked_fill(before >= config.top_p, 0)
    return probs, token_ids
