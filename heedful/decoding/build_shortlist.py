"""Making a lexical shortlist from pairs of sentences: the words each source token becomes, and frequent words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress, islice
from typing import Any

import numpy as np

from heedful.config import CorpusConfig
from heedful.decoding.ibm_model1 import Lexicon
from heedful.errors import CorpusError
from heedful.model_dir.shortlist import MASKS, Shortlist
from heedful.search_types import special_tokens
from heedful.text.corpus import SentencePair, read_pairs
from heedful.text.tokenizer import Tokenizer, id_type

LINKS_AT_ONCE = 30_000_000
PAIRS_AT_ONCE = 20_000
PAIRS_OF = "pairs_"
"""Before a target language among the settings of a shortlist: how many pairs into it were seen."""
LEAST_PAIRS = 10_000
"""For one target language. With fewer pairs, words are missing and BLEU falls by more than 1
(benchmarks/quality/shortlist_corpus_size.py)."""
LONGEST = 150
"""Longer sentences, in tokens, are left out: they teach little of which word becomes which."""


@dataclass(frozen=True)
class ShortlistSize:
    """How many candidates a sentence gets."""

    per_token: int = 100
    """Of each source token."""
    frequent: int = 1000
    """Always: the most frequent tokens of the target language."""


class PairsInIds:
    """Pairs of sentences as ids, in as little memory as they need, with the language that each is translated into."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.types = (id_type(tokenizer.source_vocab_size), id_type(tokenizer.target_vocab_size))
        self.sources: list[bytes] = []
        self.targets: list[bytes] = []
        self.languages: list[str | None] = []

    def add(self, sources: Sequence[str], targets: Sequence[str], language: str | None = None) -> None:
        """Add pairs; `language` is that of the tag, in models with tags."""
        packed = self.tokenizer.pack_sources(sources, language), self.tokenizer.pack_targets(targets)
        for source, target in zip(*packed, strict=True):
            sizes = (len(source) // self.types[0].itemsize, len(target) // self.types[1].itemsize)
            if max(sizes) <= LONGEST:
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
        """How many candidates a sentence has on average, over some of the sources."""
        some = range(0, len(self), max(1, len(self) // most))
        return float(np.mean([len(shortlist.candidates(self.source(index).tolist())) for index in some]))


def collect_pairs(
    tokenizer: Tokenizer,
    corpora: Iterable[tuple[CorpusConfig, str | None]],
    *,
    most: int,
    tell: Callable[[int], None] = lambda pairs: None,
) -> PairsInIds:
    """At most so many pairs, evenly from the whole of the corpora; each comes with the language of its tag."""
    collected, step, number = PairsInIds(tokenizer), 1, 0
    for corpus, language in corpora:
        lines = read_pairs(corpus)
        while items := list(islice(lines, PAIRS_AT_ONCE)):
            chosen = items[-number % step :: step]
            kept = [item for item in chosen if isinstance(item, SentencePair) and item.source and item.target]
            collected.add([pair.source for pair in kept], [pair.target for pair in kept], language)
            number += len(items)
            while len(collected) > most:
                collected.thin()
                step *= 2
            tell(len(items))
    return collected


def make_shortlist(
    pairs: PairsInIds,
    size: ShortlistSize,
    *,
    vocab_sizes: tuple[int, int],
    tell: Callable[[int], None] = lambda pairs: None,
) -> Shortlist:
    """A shortlist for a model whose vocabularies have these sizes; `tell` hears how many more pairs are done."""
    if not len(pairs):
        raise CorpusError("there is no pair of sentences to make a shortlist from.")
    tokenizer = pairs.tokenizer
    frequent = {language: frequent_tokens(pairs, language, size.frequent) for language in set(pairs.languages)}
    is_frequent = {language: np.isin(np.arange(vocab_sizes[1]), tokens) for language, tokens in frequent.items()}
    lexicon = Lexicon(*vocab_sizes)
    for portion in portions(pairs):
        sources, targets = [pairs.source(i) for i in portion], [pairs.target(i) for i in portion]
        rare = [~is_frequent[pairs.languages[i]] for i in portion]
        lexicon.update(sources, [target[kept[target]] for target, kept in zip(targets, rare, strict=True)])
        tell(len(portion))
    starts, found = lexicon.top_targets(size.per_token)
    lists = [found[starts[i] : starts[i + 1]] for i in range(vocab_sizes[0])]
    for token, same in same_pieces(tokenizer):
        lists[token] = np.append(lists[token], np.int32(same))
    always = [tokenizer.eos_id, *byte_tokens(tokenizer)]
    for language, tokens in frequent.items():
        if language is None:
            always += tokens.tolist()
        else:  # the tag brings the words of its language
            lists[tokenizer.encode_source("", language)[0]] = tokens
    special = special_tokens(tokenizer)
    spoken = np.setdiff1d(np.arange(vocab_sizes[1]), [special.pad_id, special.bos_id, *special.forbidden])
    for tag in set(tokenizer.tags) - set(frequent):  # nothing is known of this language, so nothing is ruled out
        lists[tokenizer.encode_source("", tag)[0]] = spoken
    lists = [np.unique(tokens).astype(np.int32) for tokens in lists]
    made = Shortlist(
        starts=np.append(0, np.cumsum([len(tokens) for tokens in lists])).astype(np.int64),
        targets=np.concatenate(lists),
        always=np.unique(always).astype(np.int32),
        settings={"per_token": size.per_token, "frequent": size.frequent, "pairs": len(pairs)},
    )
    return with_languages(made, pairs) if tokenizer.tags else made


def with_languages(made: Shortlist, pairs: PairsInIds) -> Shortlist:
    """The same, with the languages that each word was learned for: those whose pairs have it and its source token."""
    tags = pairs.tokenizer.tags
    kind = next((kind for kind in MASKS if len(tags) <= 8 * np.dtype(kind).itemsize), None)
    if kind is None:
        return made
    owners = np.repeat(np.arange(made.num_sources), np.diff(made.starts))
    languages: np.ndarray = np.zeros(len(made.targets), dtype=kind)
    settings = dict(made.settings)
    for language in sorted({language for language in pairs.languages if language is not None}):
        own = [one == language for one in pairs.languages]
        is_own = seen(compress(pairs.sources, own), pairs.types[0], owners)
        is_own &= seen(compress(pairs.targets, own), pairs.types[1], made.targets)
        languages[is_own] |= languages.dtype.type(1 << tags.index(language))
        settings[f"{PAIRS_OF}{language}"] = sum(own)
    return replace(made, languages=languages, settings=settings)


def seen(sentences: Iterable[bytes], dtype: np.dtype[Any], tokens: np.ndarray) -> np.ndarray:
    """For each of the tokens whether it stands in the sentences."""
    return np.isin(tokens, np.frombuffer(b"".join(sentences), dtype=dtype))


def languages_of(shortlist: Shortlist, tags: Sequence[str]) -> list[str]:
    """The target languages that a shortlist was learned for; all where it does not tell."""
    if shortlist.languages is None:
        return list(tags)
    return [tag for tag in tags if f"{PAIRS_OF}{tag}" in shortlist.settings]


def merged(old: Shortlist, new: Shortlist, tokenizer: Tokenizer) -> tuple[Shortlist, list[str]]:
    """`new`, with what `old` had learned for other target languages; and these languages.

    Where `old` does not tell which word is for which language, all of its words stay.
    """
    tags = tokenizer.tags
    kept = [tag for tag in languages_of(old, tags) if tag not in languages_of(new, tags)]
    if not kept or new.languages is None or old.num_sources != new.num_sources:
        return new, []
    kind = new.languages.dtype.type
    wanted = sum(1 << tags.index(tag) for tag in kept)
    marks = np.full(len(old.targets), wanted, dtype=kind) if old.languages is None else old.languages & kind(wanted)
    rows = [np.repeat(np.arange(one.num_sources), np.diff(one.starts)) for one in (old, new)]
    theirs, ours = ([tokenizer.encode_source("", tag)[0] for tag in some] for some in (kept, set(tags) - set(kept)))
    stays = (marks != 0) & ~np.isin(rows[0], ours)
    comes = ~np.isin(rows[1], theirs)  # there a tag stands for all words, but the old list knows its own
    owners = np.concatenate([rows[0][stays], rows[1][comes]])
    targets = np.concatenate([old.targets[stays], new.targets[comes]])
    width = int(targets.max()) + 1
    codes, places = np.unique(owners * width + targets, return_inverse=True)
    languages = np.zeros(len(codes), dtype=kind)
    np.bitwise_or.at(languages, places, np.concatenate([marks[stays], new.languages[comes]]))
    told = {f"{PAIRS_OF}{tag}": old.settings[f"{PAIRS_OF}{tag}"] for tag in kept if f"{PAIRS_OF}{tag}" in old.settings}
    settings = {**new.settings, **told, "pairs": new.settings["pairs"] + sum(told.values())}
    starts = np.searchsorted(codes, np.arange(new.num_sources + 1) * width).astype(np.int64)
    found = Shortlist(starts, (codes % width).astype(np.int32), new.always, settings, languages)
    return found, kept


def portions(pairs: PairsInIds) -> Iterable[list[int]]:
    """Numbers of pairs, evenly from the whole, as many as may be looked at together."""
    num_links = sum(len(source) * len(target) for source, target in zip(pairs.sources, pairs.targets, strict=True)) // (
        pairs.types[0].itemsize * pairs.types[1].itemsize
    )
    count = max(1, -(-num_links // LINKS_AT_ONCE))
    return [list(range(first, len(pairs), count)) for first in range(count)]


def frequent_tokens(pairs: PairsInIds, language: str | None, count: int) -> np.ndarray:
    """The most frequent target tokens of the pairs into one language."""
    text = b"".join(target for target, own in zip(pairs.targets, pairs.languages, strict=True) if own == language)
    counts = np.bincount(np.frombuffer(text, dtype=pairs.types[1]))
    order = np.argsort(-counts, kind="stable")[:count]
    return order[counts[order] > 0]


def same_pieces(tokenizer: Tokenizer) -> list[tuple[int, int]]:
    """Source tokens that are target tokens too: names and numbers stay as they are."""
    special = special_tokens(tokenizer)
    silent = {special.bos_id, special.pad_id, *special.forbidden}
    ids = {piece: token for token, piece in enumerate(tokenizer.pieces(range(tokenizer.target_vocab_size)))}
    pieces = enumerate(tokenizer.source_pieces(range(tokenizer.source_vocab_size)))
    return [(token, ids[piece]) for token, piece in pieces if piece in ids and ids[piece] not in silent]


def byte_tokens(tokenizer: Tokenizer) -> list[int]:
    """The target tokens that are single bytes, by which every text can be written."""
    pieces = tokenizer.pieces(range(tokenizer.target_vocab_size))
    wanted = {f"<0x{byte:02X}>" for byte in range(256)}
    return [token for token, piece in enumerate(pieces) if piece in wanted]
