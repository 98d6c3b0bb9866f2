"""Trees as sequences of symbols, after Vinyals et al. (2015), whom the paper follows.

    (S (NP (DT The) (NN cat)) (VP (VBD sat)))   ⇄   (S (NP XX XX )NP (VP XX )VP )S

Closing brackets carry their label, every tag is XX, and the words are left out: they are the source side.
"""

from __future__ import annotations

from collections.abc import Sequence

from heedful.text.trees import Span, Tree, events

WORD = "XX"


def linearise(tree: Tree) -> list[str]:
    """The symbols of a tree."""
    symbols: list[str] = []
    labels: list[str] = []
    for event in events(tree):
        if isinstance(event, Span):
            labels.append(event.label)
            symbols.append(f"({event.label}")
        elif event is None:
            symbols.append(f"){labels.pop()}")
        else:
            symbols.append(WORD)
    return symbols


def rebuild(symbols: Sequence[str], words: Sequence[str], tags: Sequence[str] | None = None) -> Tree:
    """The tree of symbols over words; ValueError says why there is none. Without tags every tag is XX."""
    spans: list[Span] = []
    stack: list[tuple[int, str]] = []
    used = 0
    for number, symbol in enumerate(symbols, start=1):
        if spans and not stack:
            raise ValueError(f"symbol {number}: {symbol!r} comes after the tree is closed")
        if symbol == WORD:
            if not stack:
                raise ValueError(f"symbol {number}: a word outside of all brackets")
            used += 1
        elif symbol.startswith("(") and len(symbol) > 1:
            stack.append((len(spans), symbol[1:]))
            spans.append(Span(symbol[1:], used, used))
        elif symbol.startswith(")") and stack and symbol[1:] == stack[-1][1]:
            place, label = stack.pop()
            if spans[place].start == used:
                raise ValueError(f"symbol {number}: {symbol!r} closes a constituent without words")
            spans[place] = Span(label, spans[place].start, used)
        else:
            raise ValueError(f"symbol {number}: {symbol!r} does not fit here")
    if stack or not spans:
        raise ValueError(f"{len(stack)} brackets are not closed" if stack else "there are no symbols")
    if used != len(words):
        raise ValueError(f"{used} words where the sentence has {len(words)}")
    return Tree(tuple(words), tuple(tags) if tags is not None else (WORD,) * used, tuple(spans))
