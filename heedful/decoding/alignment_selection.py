"""Choose the attention that alignments are read from, without hand-aligned data.

IBM Model 1 (`heedful.decoding.build_shortlist`) is trained in both directions on a few thousand pairs. Links on which
both directions agree are nearly always correct; the attention that recovers most of them is chosen. It takes seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from heedful.decoding.build_shortlist import Lexicon
from heedful.decoding.engines.torch_engine import make_batches, pad
from heedful.decoding.search import force_decode
from heedful.errors import CorpusError, DecodingError
from heedful.model.seq2seq import Seq2Seq
from heedful.model_dir.save_load import KEY, AlignmentSource
from heedful.search_types import SpecialTokens, special_tokens
from heedful.text.tokenizer import Tokenizer

LEXICON_PAIRS, ALIGNED_PAIRS = 10_000, 200
"""Number of pairs to train the lexicons on, and to compare attention on."""
MAX_LENGTH = 80
"""Longer sentences, in tokens, are skipped."""
MARGIN = 0.01
"""A single head is chosen only if its recall exceeds that of the best mean over heads by this much."""
MIN_LINKS = 50


class TokenPair(NamedTuple):
    """A tokenized sentence pair, including tag and end token."""

    source: Sequence[int]
    target: Sequence[int]


def choose_alignment(
    model: Seq2Seq,
    tokenizer: Tokenizer,
    train_pairs: Sequence[TokenPair],
    held_out: Sequence[TokenPair],
    *,
    device: torch.device | None = None,
) -> AlignmentSource | None:
    """The attention that best recovers the lexicon's links; None if there is no attention or too few links.

    `train_pairs`: a few thousand pairs for the lexicon; `held_out`: a few hundred pairs to align. The choice is
    deterministic.
    """
    num_tags, special = 1 if tokenizer.tags else 0, special_tokens(tokenizer)
    known = [without_specials(pair, num_tags) for pair in drop_long(train_pairs)]
    lexicons = train_lexicons(known, tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    aligned = drop_long(held_out)
    links = [intersected_links(*without_specials(pair, num_tags), *lexicons) for pair in aligned]
    if sum(len(found) for found in links) < MIN_LINKS:
        return None
    try:
        chosen_device = device or torch.device("cpu")
        recall = link_recall(model, special, aligned, links, num_tags=num_tags, device=chosen_device)
    except DecodingError:  # a model without attention
        return None
    return choose_source(recall)


def link_recall(
    model: Seq2Seq,
    special: SpecialTokens,
    pairs: Sequence[TokenPair],
    links: Sequence[np.ndarray],
    *,
    num_tags: int,
    device: torch.device,
) -> dict[AlignmentSource, float]:
    """The fraction of the links that each attention recovers."""
    counts: dict[AlignmentSource, int] = {}
    lengths = [max(map(len, pair)) for pair in pairs]
    for batch in make_batches(lengths, tokens_per_batch=4096, rows_per_sentence=1):
        source, mask = pad([pairs[i].source for i in batch], pad_id=special.pad_id, device=device)
        targets = [pairs[i].target for i in batch]
        forced = force_decode(model, source, mask, targets, bos_id=special.bos_id, need_weights=True)
        for index, score in zip(batch, forced, strict=True):
            assert score.attention is not None, "need_weights is set"
            weights, (targets_of, sources_of) = score.attention.numpy(), links[index].T
            for chosen in list_sources(weights.shape[1], weights.shape[2]):
                layer = weights[:, chosen.layer]
                one = layer.mean(axis=1) if chosen.head is None else layer[:, chosen.head]
                best = chosen.rows(one, num_tags).argmax(axis=1)
                counts[chosen] = counts.get(chosen, 0) + int((best[targets_of] == sources_of).sum())
    total = sum(len(found) for found in links)
    return {chosen: count / total for chosen, count in counts.items()}


def list_sources(num_layers: int, num_heads: int) -> list[AlignmentSource]:
    """All candidates: the mean over heads of each layer, then each head, each at both step offsets."""
    heads: list[int | None] = [None, *range(num_heads)]
    return [AlignmentSource(layer, offset, head) for head in heads for layer in range(num_layers) for offset in (0, 1)]


def choose_source(recall: Mapping[AlignmentSource, float]) -> AlignmentSource:
    """The best mean over heads, or the best single head if it is better by `MARGIN`."""
    mean = max((chosen for chosen in recall if chosen.head is None), key=lambda chosen: recall[chosen])
    best = max(recall, key=lambda chosen: recall[chosen])
    return best if recall[best] >= recall[mean] + MARGIN else mean


def drop_long(pairs: Sequence[TokenPair]) -> list[TokenPair]:
    """The pairs without a long side."""
    return [pair for pair in pairs if max(map(len, pair)) <= MAX_LENGTH]


def without_specials(pair: TokenPair, num_tags: int) -> tuple[np.ndarray, np.ndarray]:
    """Both sides without tag and end token."""
    return np.asarray(pair.source[num_tags:-1], dtype=np.int64), np.asarray(pair.target[:-1], dtype=np.int64)


def train_lexicons(pairs: Sequence[tuple[np.ndarray, np.ndarray]], *sizes: int) -> tuple[Lexicon, Lexicon]:
    """Lexicons for source → target and target → source."""
    forwards, backwards = Lexicon(*sizes), Lexicon(*reversed(sizes))
    forwards.update([source for source, _ in pairs], [target for _, target in pairs])
    backwards.update([target for _, target in pairs], [source for source, _ in pairs])
    return forwards, backwards


def intersected_links(source: np.ndarray, target: np.ndarray, forwards: Lexicon, backwards: Lexicon) -> np.ndarray:
    """Links that are most likely in both directions: rows (target index, source index)."""
    if not len(source) or not len(target):
        return np.zeros((0, 2), dtype=np.int64)
    sources = forwards.probabilities(source, target).argmax(axis=1)
    targets = backwards.probabilities(target, source).argmax(axis=1)
    indices = np.arange(len(target))
    recall = targets[sources] == indices
    return np.stack([indices[recall], sources[recall]], axis=1)


def evenly_spaced(count: int, max_count: int) -> list[int]:
    """At max_count `max_count` evenly spaced indices below `count`."""
    number = min(count, max_count)
    return [index * count // number for index in range(number)]


def record_alignment(
    directory: str | Path, corpora: Sequence[tuple[Sequence[str], Sequence[str], str | None]]
) -> AlignmentSource:
    """Choose the attention for a model directory and save the choice in it.

    Each corpus is (sources, targets, target language). Every fiftieth pair is held out. A model with several directions
    needs a few thousand pairs of each. The weights and other files do not change.
    """
    from heedful.model_dir import load_model
    from heedful.model_dir.save_load import save_details

    loaded = load_model(directory)
    tokenizer = loaded.tokenizer
    pairs: list[TokenPair] = []
    for sources, targets, language in corpora:
        indices = evenly_spaced(min(len(sources), len(targets)), LEXICON_PAIRS // len(corpora))
        ids = tokenizer.encode_sources([sources[index] for index in indices], language)
        pairs += map(TokenPair, ids, tokenizer.encode_targets([targets[index] for index in indices]))
    train_pairs = [pair for number, pair in enumerate(pairs) if number % 50]
    chosen = choose_alignment(loaded.model, tokenizer, train_pairs, pairs[::50])
    if chosen is None:
        raise CorpusError("no attention was chosen: the model has none, or there are too few pairs; provide thousands.")
    save_details(directory, {KEY: chosen.to_dict()})
    return chosen
