"""Build a lexical shortlist from sentence pairs: likely translations of each source token, and frequent words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress, islice
from typing import Any

import numpy as np

from heedful.config import CorpusConfig
from heedful.decoding.ibm_model1 import Lexicon
from heedful.errors import CorpusError
from heedful.model_dir.shortlist import MASK_DTYPES, Shortlist
from heedful.search_types import special_tokens
from heedful.text.corpus import SentencePair, read_pairs
from heedful.text.tokenizer import Tokenizer, id_type

LINKS_PER_BATCH = 30_000_000
PAIRS_PER_READ = 20_000
PAIRS_PREFIX = "pairs_"
"""Prefix of settings keys that hold the number of pairs for a target language."""
MIN_PAIRS = 10_000
"""Per target language. With fewer pairs, words are missing and BLEU drops by more than 1
(benchmarks/quality/shortlist_corpus_size.py)."""
MAX_LENGTH = 150
"""Longer sentences, in tokens, are skipped: they say little about word translations."""


@dataclass(frozen=True)
class ShortlistSize:
    """The number of candidates per sentence."""

    per_token: int = 100
    """Candidates for each source token."""
    frequent: int = 1000
    """Most frequent tokens of the target language, always candidates."""


class TokenizedPairs:
    """Tokenized sentence pairs with their target languages, stored compactly."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.types = (id_type(tokenizer.source_vocab_size), id_type(tokenizer.target_vocab_size))
        self.sources: list[bytes] = []
        self.targets: list[bytes] = []
        self.languages: list[str | None] = []

    def add(self, sources: Sequence[str], targets: Sequence[str], language: str | None = None) -> None:
        """Add pairs; `language` selects the tag in models with tags."""
        packed = self.tokenizer.pack_sources(sources, language), self.tokenizer.pack_targets(targets)
        for source, target in zip(*packed, strict=True):
            sizes = (len(source) // self.types[0].itemsize, len(target) // self.types[1].itemsize)
            if max(sizes) <= MAX_LENGTH:
                self.sources.append(source)
                self.targets.append(target)
                self.languages.append(language)

    def thin(self) -> None:
        """Keep every other pair."""
        self.sources, self.targets, self.languages = self.sources[::2], self.targets[::2], self.languages[::2]

    def __len__(self) -> int:
        return len(self.sources)

    def source(self, index: int) -> np.ndarray:
        """Ids of a source sentence."""
        return np.frombuffer(self.sources[index], dtype=self.types[0])

    def target(self, index: int) -> np.ndarray:
        """Ids of a target sentence."""
        return np.frombuffer(self.targets[index], dtype=self.types[1])

    def average(self, shortlist: Shortlist, *, most: int = 300) -> float:
        """Mean number of candidates per sentence, over a sample of the sources."""
        some = range(0, len(self), max(1, len(self) // most))
        return float(np.mean([len(shortlist.candidates(self.source(index).tolist())) for index in some]))


def collect_pairs(
    tokenizer: Tokenizer,
    corpora: Iterable[tuple[CorpusConfig, str | None]],
    *,
    most: int,
    progress: Callable[[int], None] = lambda pairs: None,
) -> TokenizedPairs:
    """At most `most` pairs, evenly sampled from all corpora, each with the language of its tag."""
    collected, step, number = TokenizedPairs(tokenizer), 1, 0
    for corpus, language in corpora:
        lines = read_pairs(corpus)
        while items := list(islice(lines, PAIRS_PER_READ)):
            chosen = items[-number % step :: step]
            kept = [item for item in chosen if isinstance(item, SentencePair) and item.source and item.target]
            collected.add([pair.source for pair in kept], [pair.target for pair in kept], language)
            number += len(items)
            while len(collected) > most:
                collected.thin()
                step *= 2
            progress(len(items))
    return collected


def make_shortlist(
    pairs: TokenizedPairs,
    size: ShortlistSize,
    *,
    vocab_sizes: tuple[int, int],
    progress: Callable[[int], None] = lambda pairs: None,
) -> Shortlist:
    """A shortlist for these vocabulary sizes; `progress` receives the number of pairs processed."""
    if not len(pairs):
        raise CorpusError("there are no sentence pairs to build a shortlist from.")
    tokenizer = pairs.tokenizer
    frequent = {language: frequent_tokens(pairs, language, size.frequent) for language in set(pairs.languages)}
    is_frequent = {language: np.isin(np.arange(vocab_sizes[1]), tokens) for language, tokens in frequent.items()}
    lexicon = Lexicon(*vocab_sizes)
    for batch in split_batches(pairs):
        sources, targets = [pairs.source(i) for i in batch], [pairs.target(i) for i in batch]
        rare = [~is_frequent[pairs.languages[i]] for i in batch]
        lexicon.update(sources, [target[kept[target]] for target, kept in zip(targets, rare, strict=True)])
        progress(len(batch))
    starts, found = lexicon.top_targets(size.per_token)
    lists = [found[starts[i] : starts[i + 1]] for i in range(vocab_sizes[0])]
    for token, same in shared_pieces(tokenizer):
        lists[token] = np.append(lists[token], np.int32(same))
    always = [tokenizer.eos_id, *byte_tokens(tokenizer)]
    for language, tokens in frequent.items():
        if language is None:
            always += tokens.tolist()
        else:  # candidates of the tag: frequent words of its language
            lists[tokenizer.encode_source("", language)[0]] = tokens
    special = special_tokens(tokenizer)
    allowed = np.setdiff1d(np.arange(vocab_sizes[1]), [special.pad_id, special.bos_id, *special.forbidden])
    for tag in set(tokenizer.tags) - set(frequent):  # no pairs of this language: allow every word
        lists[tokenizer.encode_source("", tag)[0]] = allowed
    lists = [np.unique(tokens).astype(np.int32) for tokens in lists]
    shortlist = Shortlist(
        starts=np.append(0, np.cumsum([len(tokens) for tokens in lists])).astype(np.int64),
        targets=np.concatenate(lists),
        always=np.unique(always).astype(np.int32),
        settings={"per_token": size.per_token, "frequent": size.frequent, "pairs": len(pairs)},
    )
    return add_languages(shortlist, pairs) if tokenizer.tags else shortlist


def add_languages(shortlist: Shortlist, pairs: TokenizedPairs) -> Shortlist:
    """Record for which languages each entry is: those whose pairs contain its source and target token."""
    tags = pairs.tokenizer.tags
    kind = next((kind for kind in MASK_DTYPES if len(tags) <= 8 * np.dtype(kind).itemsize), None)
    if kind is None:
        return shortlist
    owners = np.repeat(np.arange(shortlist.num_sources), np.diff(shortlist.starts))
    languages: np.ndarray = np.zeros(len(shortlist.targets), dtype=kind)
    settings = dict(shortlist.settings)
    for language in sorted({language for language in pairs.languages if language is not None}):
        mask = [one == language for one in pairs.languages]
        matches = occurs_in(compress(pairs.sources, mask), pairs.types[0], owners)
        matches &= occurs_in(compress(pairs.targets, mask), pairs.types[1], shortlist.targets)
        languages[matches] |= languages.dtype.type(1 << tags.index(language))
        settings[f"{PAIRS_PREFIX}{language}"] = sum(mask)
    return replace(shortlist, languages=languages, settings=settings)


def occurs_in(sentences: Iterable[bytes], dtype: np.dtype[Any], tokens: np.ndarray) -> np.ndarray:
    """Whether each token occurs in the sentences."""
    return np.isin(tokens, np.frombuffer(b"".join(sentences), dtype=dtype))


def shortlist_languages(shortlist: Shortlist, tags: Sequence[str]) -> list[str]:
    """The target languages that a shortlist was built for; all tags if it does not record them."""
    if shortlist.languages is None:
        return list(tags)
    return [tag for tag in tags if f"{PAIRS_PREFIX}{tag}" in shortlist.settings]


def merge_shortlists(old: Shortlist, new: Shortlist, tokenizer: Tokenizer) -> tuple[Shortlist, list[str]]:
    """`new`, plus the entries of `old` for other target languages; also returns these languages.

    If `old` does not record languages, all of its entries are kept.
    """
    tags = tokenizer.tags
    kept = [tag for tag in shortlist_languages(old, tags) if tag not in shortlist_languages(new, tags)]
    if not kept or new.languages is None or old.num_sources != new.num_sources:
        return new, []
    kind = new.languages.dtype.type
    wanted = sum(1 << tags.index(tag) for tag in kept)
    marks = np.full(len(old.targets), wanted, dtype=kind) if old.languages is None else old.languages & kind(wanted)
    rows = [np.repeat(np.arange(one.num_sources), np.diff(one.starts)) for one in (old, new)]
    kept_tags, new_tags = (
        [tokenizer.encode_source("", tag)[0] for tag in some] for some in (kept, set(tags) - set(kept))
    )
    keep_old = (marks != 0) & ~np.isin(rows[0], new_tags)
    keep_new = ~np.isin(rows[1], kept_tags)  # in `new` such a tag allows every word
    owners = np.concatenate([rows[0][keep_old], rows[1][keep_new]])
    targets = np.concatenate([old.targets[keep_old], new.targets[keep_new]])
    width = int(targets.max()) + 1
    codes, places = np.unique(owners * width + targets, return_inverse=True)
    languages = np.zeros(len(codes), dtype=kind)
    np.bitwise_or.at(languages, places, np.concatenate([marks[keep_old], new.languages[keep_new]]))
    keys = [f"{PAIRS_PREFIX}{tag}" for tag in kept]
    kept_counts = {key: old.settings[key] for key in keys if key in old.settings}
    settings = {**new.settings, **kept_counts, "pairs": new.settings["pairs"] + sum(kept_counts.values())}
    starts = np.searchsorted(codes, np.arange(new.num_sources + 1) * width).astype(np.int64)
    found = Shortlist(starts, (codes % width).astype(np.int32), new.always, settings, languages)
    return found, kept


def split_batches(pairs: TokenizedPairs) -> Iterable[list[int]]:
    """Indices of pairs in batches of bounded size, each evenly sampled."""
    num_links = sum(len(source) * len(target) for source, target in zip(pairs.sources, pairs.targets, strict=True)) // (
        pairs.types[0].itemsize * pairs.types[1].itemsize
    )
    count = max(1, -(-num_links // LINKS_PER_BATCH))
    return [list(range(first, len(pairs), count)) for first in range(count)]


def frequent_tokens(pairs: TokenizedPairs, language: str | None, count: int) -> np.ndarray:
    """The most frequent target tokens for one language."""
    text = b"".join(
        target
        for target, target_language in zip(pairs.targets, pairs.languages, strict=True)
        if target_language == language
    )
    counts = np.bincount(np.frombuffer(text, dtype=pairs.types[1]))
    order = np.argsort(-counts, kind="stable")[:count]
    return order[counts[order] > 0]


def shared_pieces(tokenizer: Tokenizer) -> list[tuple[int, int]]:
    """(source id, target id) of pieces in both vocabularies, since names and numbers are often copied."""
    special = special_tokens(tokenizer)
    excluded = {special.bos_id, special.pad_id, *special.forbidden}
    ids = {piece: token for token, piece in enumerate(tokenizer.pieces(range(tokenizer.target_vocab_size)))}
    pieces = enumerate(tokenizer.source_pieces(range(tokenizer.source_vocab_size)))
    return [(token, ids[piece]) for token, piece in pieces if piece in ids and ids[piece] not in excluded]


def byte_tokens(tokenizer: Tokenizer) -> list[int]:
    """The target byte tokens, which can spell any text."""
    pieces = tokenizer.pieces(range(tokenizer.target_vocab_size))
    wanted = {f"<0x{byte:02X}>" for byte in range(256)}
    return [token for token, piece in enumerate(pieces) if piece in wanted]
