"""The terms of a glossary in a sentence, as phrases that the search requires in its translation."""

from __future__ import annotations

from collections.abc import Sequence

from heedful.decoding.word_alignment import locate
from heedful.native.bindings import CONTINUES_WORD, ENDS_IN_WORD
from heedful.search_types import RequiredPhrase, special_tokens
from heedful.text.glossary import Match, is_word_character
from heedful.text.tokenizer import Tokenizer

MAX_PHRASES = 64
"""Of one sentence."""
MAX_REMEMBERED = 100_000
"""Terms."""
_SPACE_MARK = "\u2581"


class PhraseEncoder:
    """Encodes the translations of terms, and remembers them."""

    max_phrases = MAX_PHRASES
    """A server requires fewer of one sentence, because each makes the search slower."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        special = special_tokens(tokenizer)
        self._forbidden = {special.pad_id, special.bos_id, special.eos_id, *special.forbidden}
        self._known: dict[str, RequiredPhrase] = {}

    def phrases(self, matches: Sequence[Match], text: str, source: Sequence[int]) -> tuple[RequiredPhrase, ...]:
        """The phrases that the translation of a text must contain, without those that the vocabulary cannot spell.

        `source`: the ids of the text.
        """
        if not matches:
            return ()
        num_tags = 1 if self.tokenizer.tags else 0
        places = locate(text, self.tokenizer.source_pieces(source[num_tags:-1]))
        phrases = []
        for match in matches:
            inside = [
                number
                for number, (start, end) in enumerate(places, start=num_tags)
                if start < match.end and match.start < end
            ]
            if (phrase := self._phrase(match.target)).alternatives:
                phrases.append(phrase._replace(source=(inside[0], inside[-1] + 1) if inside else (0, 0)))
        return tuple(phrases[: self.max_phrases])

    def _phrase(self, term: str) -> RequiredPhrase:
        """The token sequences that spell a term.

        At the beginning of a translation, a term whose first word is in lower case may have a capital.
        """
        if term not in self._known:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            first_word = term.split()[0]
            may_be_capital = first_word == first_word.lower() and first_word[0].upper() != first_word[0]
            capital = self._sequences(term[0].upper() + term[1:]) if may_be_capital else ()
            self._known[term] = RequiredPhrase(self._sequences(term), at_beginning=capital)
        return self._known[term]

    def _sequences(self, text: str) -> tuple[tuple[int, ...], ...]:
        """The tokens of a text after a space, and directly after punctuation, if the vocabulary can spell it."""
        unique = dict.fromkeys(self._encode(text))
        return tuple(ids for ids in unique if ids and not self._forbidden.intersection(ids))

    def _encode(self, text: str) -> list[tuple[int, ...]]:
        bracket, spaced = self.tokenizer.encode_prefix("("), tuple(self.tokenizer.encode_prefix(text))
        both = self.tokenizer.encode_prefix("(" + text)
        if both[: len(bracket)] != bracket:
            return [spaced]
        bare = tuple(both[len(bracket) :])
        is_space_alone = spaced[1:] == bare and self.tokenizer.pieces(spaced[:1]) == [_SPACE_MARK]
        return [bare] if is_space_alone else [spaced, bare]


def word_flags(tokenizer: Tokenizer) -> bytes:
    """For each target token, whether it continues a word and whether it ends inside one."""
    pieces = tokenizer.pieces(range(tokenizer.target_vocab_size))
    special = special_tokens(tokenizer)
    no_text = {special.pad_id, special.bos_id, special.eos_id, *special.forbidden, *special.byte_ids}
    return bytes(
        0
        if number in no_text
        else CONTINUES_WORD * is_word_character(piece[0]) + ENDS_IN_WORD * is_word_character(piece[-1])
        for number, piece in enumerate(pieces)
    )
