"""Choosing the attention that a model's alignments are read from, without alignments made by hand.

Both directions of IBM Model 1 (`heedful.decoding.ibm_model1`) are learned from a few thousand pairs. Links on
which they agree are nearly always right; the attention that agrees with most of them is chosen. It takes seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from heedful.decoding.batching import make_batches, pad
from heedful.decoding.forced_decoding import force
from heedful.decoding.ibm_model1 import Lexicon
from heedful.errors import CorpusError, DecodingError
from heedful.model.seq2seq import Seq2Seq
from heedful.model_dir.alignment_source import KEY, AlignmentSource
from heedful.search_types import SpecialTokens, special_tokens
from heedful.text.tokenizer import Tokenizer

LEXICON_PAIRS, ALIGNED_PAIRS = 10_000, 200
"""To learn from, and to compare on."""
LONGEST = 80
"""Longer sentences, in tokens, are left out."""
MARGIN = 0.01
"""A single head must agree with so much more of the links than the best mean over heads to be chosen."""
FEWEST_LINKS = 50


class PairOfIds(NamedTuple):
    """A pair of sentences as the tokenizer gives it: tag and end token included."""

    source: Sequence[int]
    target: Sequence[int]


def choose_alignment(
    model: Seq2Seq,
    tokenizer: Tokenizer,
    learned: Sequence[PairOfIds],
    held_out: Sequence[PairOfIds],
    *,
    device: torch.device | None = None,
) -> AlignmentSource | None:
    """The attention that agrees best with the links of a lexicon; None for models without, or too few links.

    `learned`: pairs to learn the lexicon from, some thousand; `held_out`: pairs to align, some hundred. The same pairs
    give the same choice.
    """
    num_tags, special = 1 if tokenizer.tags else 0, special_tokens(tokenizer)
    known = [words_of(pair, num_tags) for pair in without_long(learned)]
    lexicons = learn_both(known, tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    aligned = without_long(held_out)
    links = [sure_links(*words_of(pair, num_tags), *lexicons) for pair in aligned]
    if sum(len(found) for found in links) < FEWEST_LINKS:
        return None
    try:
        where = device or torch.device("cpu")
        agreed = agreements(model, special, aligned, links, num_tags=num_tags, device=where)
    except DecodingError:  # a model without attention
        return None
    return best_source(agreed)


def agreements(
    model: Seq2Seq,
    special: SpecialTokens,
    pairs: Sequence[PairOfIds],
    links: Sequence[np.ndarray],
    *,
    num_tags: int,
    device: torch.device,
) -> dict[AlignmentSource, float]:
    """Which part of the links each attention finds."""
    counts: dict[AlignmentSource, int] = {}
    lengths = [max(map(len, pair)) for pair in pairs]
    for batch in make_batches(lengths, tokens_per_batch=4096, rows_per_sentence=1):
        source, mask = pad([pairs[i].source for i in batch], pad_id=special.pad_id, device=device)
        targets = [pairs[i].target for i in batch]
        forced = force(model, source, mask, targets, bos_id=special.bos_id, need_weights=True)
        for index, score in zip(batch, forced, strict=True):
            assert score.attention is not None, "it was asked for"
            weights, (targets_of, sources_of) = score.attention.numpy(), links[index].T
            for chosen in sources_in(weights.shape[1], weights.shape[2]):
                layer = weights[:, chosen.layer]
                one = layer.mean(axis=1) if chosen.head is None else layer[:, chosen.head]
                best = chosen.rows(one, num_tags).argmax(axis=1)
                counts[chosen] = counts.get(chosen, 0) + int((best[targets_of] == sources_of).sum())
    total = sum(len(found) for found in links)
    return {chosen: count / total for chosen, count in counts.items()}


def sources_in(num_layers: int, num_heads: int) -> list[AlignmentSource]:
    """All that may be chosen: of each layer the mean over its heads, then each head, at both steps."""
    heads: list[int | None] = [None, *range(num_heads)]
    return [AlignmentSource(layer, offset, head) for head in heads for layer in range(num_layers) for offset in (0, 1)]


def best_source(agreed: Mapping[AlignmentSource, float]) -> AlignmentSource:
    """The best mean over heads, or the best head if it is clearly better."""
    mean = max((chosen for chosen in agreed if chosen.head is None), key=lambda chosen: agreed[chosen])
    best = max(agreed, key=lambda chosen: agreed[chosen])
    return best if agreed[best] >= agreed[mean] + MARGIN else mean


def without_long(pairs: Sequence[PairOfIds]) -> list[PairOfIds]:
    """The pairs of which no side is long."""
    return [pair for pair in pairs if max(map(len, pair)) <= LONGEST]


def words_of(pair: PairOfIds, num_tags: int) -> tuple[np.ndarray, np.ndarray]:
    """Both sides without tag and end token."""
    return np.asarray(pair.source[num_tags:-1], dtype=np.int64), np.asarray(pair.target[:-1], dtype=np.int64)


def learn_both(pairs: Sequence[tuple[np.ndarray, np.ndarray]], *sizes: int) -> tuple[Lexicon, Lexicon]:
    """What source tokens become, and what target tokens come from."""
    forwards, backwards = Lexicon(*sizes), Lexicon(*reversed(sizes))
    forwards.update([source for source, _ in pairs], [target for _, target in pairs])
    backwards.update([target for _, target in pairs], [source for source, _ in pairs])
    return forwards, backwards


def sure_links(source: np.ndarray, target: np.ndarray, forwards: Lexicon, backwards: Lexicon) -> np.ndarray:
    """The links that are the likeliest in both directions: (index in the target, index in the source) each."""
    if not len(source) or not len(target):
        return np.zeros((0, 2), dtype=np.int64)
    sources = forwards.probabilities(source, target).argmax(axis=1)
    targets = backwards.probabilities(target, source).argmax(axis=1)
    places = np.arange(len(target))
    agreed = targets[sources] == places
    return np.stack([places[agreed], sources[agreed]], axis=1)


def spread(count: int, most: int) -> list[int]:
    """At most so many places, evenly from the first `count`."""
    number = min(count, most)
    return [place * count // number for place in range(number)]


def record_alignment(
    directory: str | Path, corpora: Sequence[tuple[Sequence[str], Sequence[str], str | None]]
) -> AlignmentSource:
    """Choose for a model directory and store the choice in it: each corpus is sources, targets, target language.

    Every fiftieth pair is held out. A model of several directions needs some thousand pairs of each. The weights and
    all other files stay as they are.
    """
    from heedful.model_dir import load_model
    from heedful.model_dir.save_load import save_details

    loaded = load_model(directory)
    tokenizer = loaded.tokenizer
    pairs: list[PairOfIds] = []
    for sources, targets, language in corpora:
        places = spread(min(len(sources), len(targets)), LEXICON_PAIRS // len(corpora))
        ids = tokenizer.encode_sources([sources[place] for place in places], language)
        pairs += map(PairOfIds, ids, tokenizer.encode_targets([targets[place] for place in places]))
    learned = [pair for number, pair in enumerate(pairs) if number % 50]
    chosen = choose_alignment(loaded.model, tokenizer, learned, pairs[::50])
    if chosen is None:
        raise CorpusError("nothing was chosen: the model has no attention, or there are too few pairs; give thousands.")
    save_details(directory, {KEY: chosen.to_dict()})
    return chosen
