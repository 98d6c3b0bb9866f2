"""Trees as sequences of symbols, after Vinyals et al. (2015), whom the paper follows.

    (S (NP (DT The) (NN cat)) (VP (VBD sat)))   ⇄   (S (NP XX XX )NP (VP XX )VP )S

Closing brackets carry their label and the words are left out: they are the source side. A word's symbol is XX for every
word, as in the paper; or its tag; or its number, which then also stands behind the word in the source:

    The<w0> cat<w1> sat<w2>                      →   (S (NP <w0> <w1> )NP (VP <w2> )VP )S
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count

from heedful.text.parse_trees import Span, Tree, escape, events

WORD = "XX"
UNKNOWN = "⁇"  # what the tokenizer writes for <unk>
KINDS = ("xx", "index", "tags")
CYCLE = 100
"""After so many words numbers begin again: long sentences are rare, and each number must be learned."""


@dataclass(frozen=True)
class WordSymbols:
    """What stands for a word: "xx", "index" (its number, `cycle` of them), or "tags"."""

    kind: str = "xx"
    cycle: int = CYCLE

    def number(self, place: int) -> str:
        """The symbol of a place, from 0."""
        return f"<w{place % self.cycle}>"

    @property
    def markers(self) -> list[str]:
        """The symbols that also stand in the source."""
        return [self.number(place) for place in range(self.cycle)] if self.kind == "index" else []

    def of(self, tags: Sequence[str]) -> list[str]:
        """The symbols of words with these tags."""
        if self.kind == "tags":
            return list(tags)
        return [self.number(place) if self.kind == "index" else WORD for place in range(len(tags))]

    def fits(self, symbol: str, place: int) -> bool:
        """Whether a symbol stands for the word of a place."""
        if self.kind == "tags":
            return symbol[0] not in "()" and symbol != UNKNOWN
        return symbol == (self.number(place) if self.kind == "index" else WORD)

    def source_text(self, words: Sequence[str]) -> str:
        """The words as the model reads them: one space between two, round brackets as in the trees, numbers if any."""
        texts = [escape(word) if word.strip() else "_" for word in words]
        if self.kind == "index":
            texts = [text + self.number(place) for place, text in enumerate(texts)]
        return " ".join(texts)


ONE_FOR_ALL = WordSymbols()


def recognise(names: Collection[str]) -> WordSymbols:
    """Which words' symbols these are: all that a vocabulary has."""
    cycle = next(place for place in count() if f"<w{place}>" not in names)
    if cycle == len(names):
        return WordSymbols("index", cycle)
    return WordSymbols("xx" if set(names) == {WORD} else "tags")


def linearise(tree: Tree, word_symbols: WordSymbols = ONE_FOR_ALL) -> list[str]:
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
    word_symbols: WordSymbols = ONE_FOR_ALL,
) -> Tree:
    """The tree of symbols over words; ValueError says why there is none. Tags that are nowhere said are XX."""
    spans: list[Span] = []
    stack: list[tuple[int, str]] = []
    used: list[str] = []
    for number, symbol in enumerate(symbols, start=1):
        if spans and not stack:
            raise ValueError(f"symbol {number}: {symbol!r} comes after the tree is closed")
        if word_symbols.fits(symbol, len(used)):
            if not stack:
                raise ValueError(f"symbol {number}: a word outside of all brackets")
            used.append(symbol)
        elif symbol.startswith("(") and len(symbol) > 1:
            stack.append((len(spans), symbol[1:]))
            spans.append(Span(symbol[1:], len(used), len(used)))
        elif symbol.startswith(")") and stack and symbol[1:] == stack[-1][1]:
            place, label = stack.pop()
            if spans[place].start == len(used):
                raise ValueError(f"symbol {number}: {symbol!r} closes a constituent without words")
            spans[place] = Span(label, spans[place].start, len(used))
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
