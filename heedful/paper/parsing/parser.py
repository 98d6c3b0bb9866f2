"""The parser: sentences in words in, trees out, in the same order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.errors import DecodingError, ModelDirectoryError
from heedful.paper.parsing.linearize import ONE_FOR_ALL, WordSymbols, rebuild, recognise
from heedful.text.parse_trees import Tree

if TYPE_CHECKING:
    import torch

    from heedful.decoding.constraints import BracketRule, BracketSymbols
    from heedful.decoding.translator import Translator
    from heedful.text.tokenizer import Tokenizer

AT_ONCE = 1024
"""Sentences of like length that go to the translator together, between two words about progress."""
_SPACE_MARK = "\u2581"


@dataclass(frozen=True)
class Guess:
    """What the parser makes of a sentence: a tree, or why there is none."""

    tree: Tree | None
    log_prob: float = 0.0
    problem: str | None = None


class Parser:
    """A translator from words to brackets, and back from brackets to trees."""

    def __init__(self, translator: Translator, *, forced: bool = True) -> None:
        """`forced`: let the search produce whole trees over exactly the sentence's words and nothing else."""
        self.symbols, self.word_symbols = bracket_symbols(translator.tokenizer)
        self.translator = translator
        translator.make_rule = self.make_rule if forced else None

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto", forced: bool = True) -> Parser:
        """The parser of a model directory that `heedful paper table4` made."""
        from heedful.decoding.translator import Translator

        return cls(Translator.load(path, device=device, engine="torch"), forced=forced)

    def parse(
        self,
        sentences: Sequence[Sequence[str]],
        *,
        tell: Callable[[int], None] = lambda done: None,
        **settings: Any,
    ) -> list[Guess]:
        """The trees of sentences, each given as its words; `settings` as for `Translator.translate`.

        `tell` is called now and then with how many more are done.
        """
        guesses = [Guess(None, problem="the sentence is longer than the model takes")] * len(sentences)
        fitting = [place for place, words in enumerate(sentences) if self._fits(words)]
        fitting.sort(key=lambda place: len(sentences[place]))
        tell(len(sentences) - len(fitting))
        for start in range(0, len(fitting), AT_ONCE):
            places = fitting[start : start + AT_ONCE]
            texts = [self.word_symbols.source_text(sentences[place]) for place in places]
            found_here = self.translator.translate(texts, **{"checks": False, "protect": False, **settings})
            for place, found in zip(places, found_here, strict=True):
                guesses[place] = read_guess(found.text, sentences[place], found.log_prob, self.word_symbols)
            tell(len(places))
        return guesses

    def make_rule(self, texts: Sequence[str], max_lengths: Sequence[int], device: torch.device) -> BracketRule:
        """The rule that lets only trees over the words of these texts out."""
        from heedful.decoding.constraints import make_bracket_rule

        num_words = [len(text.split(" ")) for text in texts]
        return make_bracket_rule(self.symbols, num_words=num_words, max_lengths=max_lengths, device=device)

    def _fits(self, words: Sequence[str]) -> bool:
        if not words:
            raise DecodingError("a sentence without words has no tree.")
        longest = self.translator.max_length
        tokens = self.translator.tokenizer.encode_source(self.word_symbols.source_text(words))
        return max(len(tokens), len(words) + 3) <= longest


def read_guess(
    text: str, words: Sequence[str], log_prob: float, word_symbols: WordSymbols = ONE_FOR_ALL
) -> Guess:  # fmt: skip
    """The tree in a translation, if it is one."""
    try:
        return Guess(rebuild(text.split(), words, word_symbols=word_symbols), log_prob)
    except ValueError as error:
        return Guess(None, log_prob, str(error))


def bracket_symbols(tokenizer: Tokenizer) -> tuple[BracketSymbols, WordSymbols]:
    """What the target ids of a parsing model mean, and what stands for a word: all is read off its vocabulary."""
    from heedful.decoding.constraints import BracketSymbols

    special = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id)
    numbers = [number for number in range(tokenizer.target_vocab_size) if number not in special]
    names = [piece.removeprefix(_SPACE_MARK) for piece in tokenizer.pieces(numbers)]
    ids = dict(zip(names, numbers, strict=True))
    labels = [name[1:] for name in ids if name[:1] == "(" and len(name) > 1 and f"){name[1:]}" in ids]
    pairs = tuple((ids[f"({label}"], ids[f"){label}"]) for label in labels)
    words = {name: number for name, number in ids.items() if name[:1] not in ("(", ")")}
    if not pairs or not words:
        raise ModelDirectoryError("this model does not write trees; train one that does: heedful paper table4 --help")
    word_symbols = recognise(words)
    symbols = BracketSymbols(
        pairs,
        word_ids=tuple(words[name] for name in word_symbols.markers or words),
        eos_id=tokenizer.eos_id,
        vocab_size=tokenizer.target_vocab_size,
        numbered=word_symbols.kind == "index",
    )
    return symbols, word_symbols
