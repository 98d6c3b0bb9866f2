"""Constituency parsing as sequence to sequence (section 6.3): linearized trees, the parser, and F1 in validation.

Trees become sequences of symbols as in Vinyals et al. (2015), whom the paper follows:

    (S (NP (DT The) (NN cat)) (VP (VBD sat)))   ⇄   (S (NP XX XX )NP (VP XX )VP )S

Closing brackets carry their label. Words are left out: they are the source. A word's symbol is XX for every word, as
in the paper, or its tag, or its index, which is then also appended to the word in the source:

    The<w0> cat<w1> sat<w2>                      →   (S (NP <w0> <w1> )NP (VP <w2> )VP )S
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.errors import DecodingError, ModelDirectoryError
from heedful.evaluation.evalb import Span, Tree, aggregate, escape, events, score_trees
from heedful.paper.experiment_io import evenly_spaced

if TYPE_CHECKING:
    import torch
    from torch import nn

    from heedful.config import Config
    from heedful.data.prepare import Prepared
    from heedful.decoding.constraints import BracketConstraint, BracketSymbols
    from heedful.decoding.translator import Translator
    from heedful.text.tokenizer import Tokenizer
    from heedful.training.logging import Evaluation
    from heedful.validation_bleu import EvaluateModel, MakeEvaluator

WORD = "XX"
UNKNOWN = "⁇"  # what the tokenizer writes for <unk>
KINDS = ("xx", "index", "tags")
CYCLE = 100
"""Indices repeat after this many words: long sentences are rare, and each index must be learned."""


@dataclass(frozen=True)
class WordSymbols:
    """The symbols of words in trees: "xx", "index" (the position modulo `cycle`) or "tags"."""

    kind: str = "xx"
    cycle: int = CYCLE

    def number(self, position: int) -> str:
        """The symbol of the word at a position, from 0."""
        return f"<w{position % self.cycle}>"

    @property
    def markers(self) -> list[str]:
        """The symbols that also occur in the source."""
        return [self.number(position) for position in range(self.cycle)] if self.kind == "index" else []

    def of(self, tags: Sequence[str]) -> list[str]:
        """The symbols of the words with these tags."""
        if self.kind == "tags":
            return list(tags)
        return [self.number(position) if self.kind == "index" else WORD for position in range(len(tags))]

    def fits(self, symbol: str, position: int) -> bool:
        """Whether a symbol is one for the word at a position."""
        if self.kind == "tags":
            return symbol[0] not in "()" and symbol != UNKNOWN
        return symbol == (self.number(position) if self.kind == "index" else WORD)

    def source_text(self, words: Sequence[str]) -> str:
        """The source text of the words: separated by spaces, brackets escaped as in trees, with indices if used."""
        texts = [escape(word) if word.strip() else "_" for word in words]
        if self.kind == "index":
            texts = [text + self.number(position) for position, text in enumerate(texts)]
        return " ".join(texts)


XX_SYMBOLS = WordSymbols()


def word_symbols_of(names: Collection[str]) -> WordSymbols:
    """The kind of word symbols with these names, which are all word symbols of a vocabulary."""
    cycle = next(position for position in count() if f"<w{position}>" not in names)
    if cycle == len(names):
        return WordSymbols("index", cycle)
    return WordSymbols("xx" if set(names) == {WORD} else "tags")


def linearize(tree: Tree, word_symbols: WordSymbols = XX_SYMBOLS) -> list[str]:
    """The symbols of a tree."""
    words = word_symbols.of(tree.tags)
    symbols: list[str] = []
    labels: list[str] = []
    for event in events(tree):
        if isinstance(event, Span):
            labels.append(event.label)
            symbols.append(f"({event.label}")
        elif event is None:
            symbols.append(f"){labels.pop()}")
        else:
            symbols.append(words[event])
    return symbols


def rebuild(
    symbols: Sequence[str],
    words: Sequence[str],
    tags: Sequence[str] | None = None,
    *,
    word_symbols: WordSymbols = XX_SYMBOLS,
) -> Tree:
    """The tree of symbols over words; ValueError if they are not a tree. Unknown tags are XX."""
    spans: list[Span] = []
    stack: list[tuple[int, str]] = []
    used: list[str] = []
    for number, symbol in enumerate(symbols, start=1):
        if spans and not stack:
            raise ValueError(f"symbol {number}: {symbol!r} comes after the tree is closed")
        if word_symbols.fits(symbol, len(used)):
            if not stack:
                raise ValueError(f"symbol {number}: a word outside all brackets")
            used.append(symbol)
        elif symbol.startswith("(") and len(symbol) > 1:
            stack.append((len(spans), symbol[1:]))
            spans.append(Span(symbol[1:], len(used), len(used)))
        elif symbol.startswith(")") and stack and symbol[1:] == stack[-1][1]:
            position, label = stack.pop()
            if spans[position].start == len(used):
                raise ValueError(f"symbol {number}: {symbol!r} closes a constituent without words")
            spans[position] = Span(label, spans[position].start, len(used))
        else:
            kind = "is another word's symbol" if symbol in word_symbols.markers else "does not fit here"
            raise ValueError(f"symbol {number}: {symbol!r} {kind}")
    if stack or not spans:
        raise ValueError(f"{len(stack)} brackets are not closed" if stack else "there are no symbols")
    if len(used) != len(words):
        raise ValueError(f"{len(used)} words where the sentence has {len(words)}")
    if tags is None:
        tags = used if word_symbols.kind == "tags" else [WORD] * len(used)
    return Tree(tuple(words), tuple(tags), tuple(spans))


SENTENCES_PER_CALL = 1024
"""Sentences of similar length per call of the translator; progress is reported after each call."""
_SPACE_MARK = "\u2581"


@dataclass(frozen=True)
class ParseResult:
    """The result for one sentence: a tree, or the reason why there is none."""

    tree: Tree | None
    log_prob: float = 0.0
    problem: str | None = None


class Parser:
    """Parses sentences given as words; returns trees in the same order."""

    def __init__(self, translator: Translator, *, forced: bool = True) -> None:
        """`forced`: restrict the search to complete trees over exactly the words of the sentence."""
        self.symbols, self.word_symbols = bracket_symbols(translator.tokenizer)
        self.translator = translator
        translator.constraint_factory = self.make_constraint if forced else None

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto", forced: bool = True) -> Parser:
        """Load the parser from a model directory written by `heedful paper table4`."""
        from heedful.decoding.translator import Translator

        return cls(Translator.load(path, device=device, engine="torch"), forced=forced)

    def parse(
        self,
        sentences: Sequence[Sequence[str]],
        *,
        report: Callable[[int], None] = lambda done: None,
        **settings: Any,
    ) -> list[ParseResult]:
        """Parse sentences, each given as a list of words; `settings` as for `Translator.translate`.

        `report` is called with the number of sentences finished since its last call.
        """
        results = [ParseResult(None, problem="the sentence is longer than the model accepts")] * len(sentences)
        fitting = [position for position, words in enumerate(sentences) if self._fits(words)]
        fitting.sort(key=lambda position: len(sentences[position]))
        report(len(sentences) - len(fitting))
        for start in range(0, len(fitting), SENTENCES_PER_CALL):
            batch = fitting[start : start + SENTENCES_PER_CALL]
            texts = [self.word_symbols.source_text(sentences[position]) for position in batch]
            translations = self.translator.translate(texts, **{"checks": False, "protect": False, **settings})
            for position, translation in zip(batch, translations, strict=True):
                results[position] = read_result(
                    translation.text, sentences[position], translation.log_prob, self.word_symbols
                )
            report(len(batch))
        return results

    def make_constraint(
        self, texts: Sequence[str], max_lengths: Sequence[int], device: torch.device
    ) -> BracketConstraint:
        """The search constraint that allows only trees over the words of these texts."""
        from heedful.decoding.constraints import make_bracket_constraint

        num_words = [len(text.split(" ")) for text in texts]
        return make_bracket_constraint(self.symbols, num_words=num_words, max_lengths=max_lengths, device=device)

    def _fits(self, words: Sequence[str]) -> bool:
        if not words:
            raise DecodingError("a sentence without words has no tree.")
        longest = self.translator.max_length
        tokens = self.translator.tokenizer.encode_source(self.word_symbols.source_text(words))
        return max(len(tokens), len(words) + 3) <= longest


def read_result(
    text: str, words: Sequence[str], log_prob: float, word_symbols: WordSymbols = XX_SYMBOLS
) -> ParseResult:  # fmt: skip
    """The tree in a translation, if it is valid."""
    try:
        return ParseResult(rebuild(text.split(), words, word_symbols=word_symbols), log_prob)
    except ValueError as error:
        return ParseResult(None, log_prob, str(error))


def bracket_symbols(tokenizer: Tokenizer) -> tuple[BracketSymbols, WordSymbols]:
    """The brackets and word symbols of a parsing model, read from its vocabulary."""
    from heedful.decoding.constraints import BracketSymbols

    special = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id)
    numbers = [number for number in range(tokenizer.target_vocab_size) if number not in special]
    names = [piece.removeprefix(_SPACE_MARK) for piece in tokenizer.pieces(numbers)]
    ids = dict(zip(names, numbers, strict=True))
    labels = [name[1:] for name in ids if name[:1] == "(" and len(name) > 1 and f"){name[1:]}" in ids]
    pairs = tuple((ids[f"({label}"], ids[f"){label}"]) for label in labels)
    words = {name: number for name, number in ids.items() if name[:1] not in ("(", ")")}
    if not pairs or not words:
        raise ModelDirectoryError("this model is not a parser; train one with heedful paper table4")
    word_symbols = word_symbols_of(words)
    symbols = BracketSymbols(
        pairs,
        word_ids=tuple(words[name] for name in word_symbols.markers or words),
        eos_id=tokenizer.eos_id,
        vocab_size=tokenizer.target_vocab_size,
        numbered=word_symbols.kind == "index",
    )
    return symbols, word_symbols


SIGNATURE = "labelled brackets, COLLINS.prm, greedy, forced"


def f1_evaluation(trees: Mapping[str, Tree]) -> MakeEvaluator:
    """The factory that `train` calls for its validation metric: F1 on `training.num_bleu_sentences` of valid.

    `trees` maps source texts to gold trees, including those of valid.
    """

    def make(config: Config, prepared: Prepared, device: torch.device) -> EvaluateModel | None:
        known = [trees[pair.source] for pair in prepared.valid_pairs if pair.source in trees]
        gold = evenly_spaced(known, config.training.num_bleu_sentences)
        if not gold:
            return None
        decoding = replace(config.decoding, method="greedy", num_best=1, batch_invariant=False, shortlist=None)

        def evaluate(model: nn.Module) -> Evaluation:
            from heedful.decoding.translator import Translator
            from heedful.training.logging import Evaluation, Sample

            parser = Parser(Translator(model, prepared.tokenizer, decoding, device=device))
            results = parser.parse([tree.words for tree in gold], tokens_per_batch=4 * decoding.tokens_per_batch)
            score = aggregate(score_trees(gold, [result.tree for result in results]))
            chosen = evenly_spaced(list(zip(gold, results, strict=True)), config.training.num_samples)
            samples = [Sample(" ".join(tree.words), tree_text(tree), tree_text(result.tree)) for tree, result in chosen]
            return Evaluation(score.f1, SIGNATURE, tuple(samples), name="F1")

        return evaluate

    return make


def tree_text(tree: Tree | None) -> str:
    """The symbols of a tree as text, or an empty string."""
    return " ".join(linearize(tree)) if tree else ""
