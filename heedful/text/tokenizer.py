"""The tokenizer: text to subword ids and back, over SentencePiece. Special tokens are added here and nowhere else.

    encode_source("Hallo.", "en") = [<2en>] ▁Hallo . </s>        (the tag only in models with several target languages)
    encode_target("Hello.")       =         ▁Hello . </s>        (no <s>: the model's input is bos + ids[:-1])

Text is not normalised and no whitespace is removed, so with byte fallback `decode(encode_target(text)) == text` for
every text that UTF-8 can hold. (Half a surrogate pair is no character: it becomes U+FFFD. Without byte fallback,
characters that are not in the vocabulary become <unk>; on a side of whole words, words do.) Specials and tags are
control symbols: typing "<2de>" or "</s>" gives ordinary characters.

The same sentences and settings give the same tokenizer, byte for byte.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sentencepiece

from heedful.config import TokenizerConfig
from heedful.errors import ConfigError, CorpusError, DecodingError, ModelDirectoryError
from heedful.text.tokenizer_training import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    UNK_ID,
    choose_vocab_size,
    learn_subwords,
    learn_words,
)
from heedful.text.word_cache import WordByWord

if TYPE_CHECKING:  # translating needs no numpy, and importing it takes longer than that
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "Tokenizer",
    "choose_vocab_size",
    "id_type",
    "learn_tokenizer",
    "sampled_places",
    "tag_piece",
    "train_tokenizer",
]

PIECE_FIELD = 0x0A  # before each piece in a serialised model; its length in bytes follows
_SPACE_MARK = "\u2581"  # SentencePiece writes a space as this character
_DRAWN_AT_ONCE = 1 << 20
_STAND_INS = tuple(chr(plane * 0x10000 + low) for plane in range(16, 0, -1) for low in (0xFFFF, 0xFFFE))


def id_type(vocab_size: int) -> np.dtype[Any]:
    """The smallest type that holds every id of a vocabulary: two bytes up to 65,536 ids, else four."""
    import numpy as np

    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def marker_piece(marker: str) -> str:
    """The piece that marks sources of some corpora: `<back-translated>` for "back-translated"."""
    return f"<{marker}>"


def tag_piece(language: str) -> str:
    """The piece that asks for a target language: `<2de>` for "de"."""
    return f"<2{language}>"


class Tokenizer:
    """Text to ids and back. Joint: one SentencePiece model for both sides; separate: one for each."""

    pad_id, unk_id, bos_id, eos_id = PAD_ID, UNK_ID, BOS_ID, EOS_ID

    def __init__(
        self,
        source_model: bytes,
        target_model: bytes | None = None,
        *,
        kind: str = "bpe",
        tags: Sequence[str] = (),
        markers: Sequence[str] = (),
    ) -> None:
        """Wrap serialised SentencePiece models; without `target_model` the source's serves both sides."""
        self.kind = kind
        self.joint = target_model is None
        self.tags, self.markers = tuple(tags), tuple(markers)
        self._models = (source_model,) if target_model is None else (source_model, target_model)
        self._source = _Side(source_model)
        self._target = self._source if target_model is None else _Side(target_model)
        self._tag_ids = {language: self._source.tag_id(language) for language in self.tags}
        self._marker_ids = {marker: self._source.marker_id(marker) for marker in self.markers}

    @property
    def source_vocab_size(self) -> int:
        """Number of source ids."""
        return self._source.vocab_size

    @property
    def target_vocab_size(self) -> int:
        """Number of target ids."""
        return self._target.vocab_size

    @property
    def control_ids(self) -> tuple[int, ...]:
        """Source ids that no text can spell: language tags and markers."""
        return (*self._tag_ids.values(), *self._marker_ids.values())

    @property
    def identity(self) -> str:
        """SHA-256 of all that decides which ids a text gets: two tokenizers with one identity are the same."""
        plain = [self.kind, [hashlib.sha256(model).hexdigest() for model in self._models], self.tags, self.markers]
        return hashlib.sha256(json.dumps(plain).encode()).hexdigest()

    @cached_property
    def byte_ids(self) -> tuple[int, ...]:
        """Target ids of the 256 bytes; empty without byte fallback."""
        return self._target.byte_ids()

    @cached_property
    def broken_ids(self) -> tuple[int, ...]:
        """Target ids of pieces with U+FFFD, which stands for what could not be read."""
        return self._target.ids_with("\ufffd", self._models[-1])

    def encode_source(self, text: str, target_language: str | None = None) -> list[int]:
        """Ids of a source sentence: the tag if the model has tags, the subwords, the end."""
        return self.encode_sources([text], target_language)[0]

    def encode_target(self, text: str) -> list[int]:
        """Ids of a target sentence: the subwords, the end."""
        return self.encode_targets([text])[0]

    def encode_sources(
        self, texts: Sequence[str], target_language: str | None = None, *, num_threads: int = 1
    ) -> list[list[int]]:
        """`encode_source` for many sentences into one language, on several threads."""
        tag = self._tag(target_language)
        return [[*tag, *ids, EOS_ID] for ids in self._source.encode(texts, num_threads)]

    def encode_targets(self, texts: Sequence[str], *, num_threads: int = 1) -> list[list[int]]:
        """`encode_target` for many sentences, on several threads."""
        return [[*ids, EOS_ID] for ids in self._target.encode(texts, num_threads)]

    def pack_sources(
        self, texts: Sequence[str], target_language: str | None = None, *, marker: str | None = None
    ) -> list[bytes]:
        """`encode_sources` for a whole corpus, marked or not: each sentence as the bytes of an array of `id_type`."""
        import numpy as np

        dtype = id_type(self.source_vocab_size)
        first = [*self._tag(target_language), *([self._marker_ids[marker]] if marker is not None else [])]
        tag, end = np.array(first, dtype).tobytes(), np.array([EOS_ID], dtype).tobytes()
        return [tag + ids + end for ids in self._source.pack(texts)]

    def pack_targets(self, texts: Sequence[str]) -> list[bytes]:
        """`encode_targets` for a whole corpus: each sentence as the bytes of an array of `id_type`."""
        import numpy as np

        end = np.array([EOS_ID], id_type(self.target_vocab_size)).tobytes()
        return [ids + end for ids in self._target.pack(texts)]

    def encode_prefix(self, text: str) -> list[int]:
        """Ids of the beginning of a target sentence: as `encode_target`, without the end."""
        return self._target.encode([text], 1)[0]

    def decode(self, ids: Iterable[int]) -> str:
        """The target text of ids; specials and tags are silent."""
        return self._target.decode(ids)

    def decode_all(self, many: Sequence[Sequence[int]], *, num_threads: int = 1) -> list[str]:
        """`decode` for many sentences, on several threads."""
        return self._target.decode_all(many, num_threads)

    def decode_source(self, ids: Iterable[int]) -> str:
        """The source text of ids; specials and tags are silent."""
        return self._source.decode(ids)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Target ids as their pieces, for showing: `▁Hello`, `</s>`, `<0xE2>` (a byte)."""
        return self._target.pieces(ids)

    def source_pieces(self, ids: Iterable[int]) -> list[str]:
        """Source ids as their pieces, for showing."""
        return self._source.pieces(ids)

    def save(self, directory: str | Path) -> None:
        """Write `tokenizer.model` (joint) or `source.model` and `target.model`, and `tokenizer.json`."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        for name, model in zip(_file_names(joint=self.joint), self._models, strict=True):
            (folder / name).write_bytes(model)
        special = {"pad": PAD_ID, "unk": UNK_ID, "bos": BOS_ID, "eos": EOS_ID}
        description = {"kind": self.kind, "joint": self.joint, "tags": list(self.tags), "special": special}
        if self.markers:
            description["markers"] = list(self.markers)
        (folder / "tokenizer.json").write_text(json.dumps(description, indent=2, ensure_ascii=False) + "\n", "utf-8")

    @classmethod
    def load(cls, directory: str | Path, *, paths: Mapping[str, Path] | None = None) -> Tokenizer:
        """Read what `save` wrote; `paths` says where a file lies that is not in its place."""
        folder, elsewhere = Path(directory), paths or {}
        description = _read_description(elsewhere.get("tokenizer.json", folder / "tokenizer.json"))
        models = []
        for name in _file_names(joint=description["joint"]):
            try:
                models.append(elsewhere.get(name, folder / name).read_bytes())
            except OSError as error:
                raise ModelDirectoryError(f"{folder / name}: cannot read the tokenizer: {error.strerror}.") from None
        try:
            markers = description.get("markers", [])
            return cls(*models, kind=description["kind"], tags=description["tags"], markers=markers)
        except (RuntimeError, ValueError, ConfigError) as error:
            raise ModelDirectoryError(
                f"{folder}: the tokenizer is damaged or does not fit its tokenizer.json: {error}"
            ) from None

    def _tag(self, target_language: str | None) -> list[int]:
        if not self.tags:
            return []
        if target_language is None and len(self.tags) == 1:
            target_language = self.tags[0]
        if target_language not in self._tag_ids:
            asked = "no target language was given" if target_language is None else f"not into {target_language!r}"
            raise DecodingError(f"this model translates into {', '.join(self.tags)}; {asked}. Name one of them.")
        return [self._tag_ids[target_language]]


def train_tokenizer(
    pairs: Iterable[tuple[str, str]],
    config: TokenizerConfig,
    *,
    vocab_size: int | None = None,
    tags: Sequence[str] = (),
    seed: int = 1,
) -> Tokenizer:
    """Learn a tokenizer from pairs (anything that begins with source and target; for several directions, all of them).

    At most `config.max_sentences` sentences are used, every one with equal chance. `vocab_size` goes before
    `config.vocab_size`; without both a size is chosen. It may come out smaller than asked: see `learn_subwords`. A
    target side of kind "word" has a token for every word of these sentences, and <unk> for others.
    """
    kept = list(pairs)
    places = sampled_places(len(kept), config, seed=seed)
    sample = [(kept[place][0], kept[place][1]) for place in places.tolist()]
    return learn_tokenizer(sample, config, num_pairs=len(kept), vocab_size=vocab_size, tags=tags)


def learn_tokenizer(
    sample: Sequence[tuple[str, str]],
    config: TokenizerConfig,
    *,
    num_pairs: int,
    vocab_size: int | None = None,
    tags: Sequence[str] = (),
    markers: Sequence[str] = (),
) -> Tokenizer:
    """`train_tokenizer` on a sample that was taken already, from `num_pairs` pairs."""
    wanted = vocab_size if vocab_size is not None else config.vocab_size
    if wanted is not None and wanted <= 0:
        raise ConfigError(f"tokenizer.vocab_size must be above 0, not {wanted}.")
    if not sample:
        raise CorpusError("there is no sentence to learn a tokenizer from.")
    sources, targets = [pair[0] for pair in sample], [pair[1] for pair in sample]
    tag_pieces = [*(tag_piece(language) for language in tags), *(marker_piece(marker) for marker in markers)]
    learn = partial(learn_subwords, config=config, wanted=wanted, num_pairs=num_pairs)
    if config.joint:
        model = learn(sources + targets, control_symbols=tag_pieces)
        return Tokenizer(model, kind=config.kind, tags=tags, markers=markers)
    source_model = learn(sources, control_symbols=tag_pieces)
    if config.target_kind == "word":
        target_model = learn_words(targets)
    else:
        kind = config.target_kind or config.kind
        target_model = learn(targets, config=replace(config, kind=kind), control_symbols=[])
    return Tokenizer(source_model, target_model, kind=config.kind, tags=tags, markers=markers)


def sampled_places(num_pairs: int, config: TokenizerConfig, *, seed: int) -> npt.NDArray[np.int64]:
    """Which of so many pairs to learn from: as many as `config.max_sentences` allows, each with equal chance.

    A reservoir, decided beforehand: the sample keeps its places, and a later pair may take over one of them.
    """
    import numpy as np

    limit = max(1, config.max_sentences // 2 if config.joint else config.max_sentences)
    places = np.arange(min(num_pairs, limit))
    chance = np.random.RandomState()
    _, state, _ = random.Random(seed).getstate()
    chance.set_state(
        ("MT19937", np.array(state[:-1], dtype=np.uint32), state[-1], 0, 0.0)
    )  # the numbers of random.Random
    for start in range(limit, num_pairs, _DRAWN_AT_ONCE):
        pairs = np.arange(start, min(start + _DRAWN_AT_ONCE, num_pairs))
        drawn = (chance.random_sample(len(pairs)) * (pairs + 1)).astype(np.int64)
        for place, pair in zip(drawn[drawn < limit].tolist(), pairs[drawn < limit].tolist(), strict=True):
            places[place] = pair
    return places


class _Side:
    """One SentencePiece model, made lossless."""

    def __init__(self, model: bytes) -> None:
        if not model:
            raise ValueError("the SentencePiece model is empty")
        self._model: Any = sentencepiece.SentencePieceProcessor(model_proto=model)
        found = (self._model.pad_id(), self._model.unk_id(), self._model.bos_id(), self._model.eos_id())
        if found != (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
            raise ValueError(f"pad, unk, bos and eos must have ids 0 to 3, found {found}")
        self.vocab_size: int = self._model.get_piece_size()
        self._has_bytes = self._model.piece_to_id("<0x00>") != UNK_ID
        self._mark_bytes = self._byte_ids(_SPACE_MARK)
        self._pieces: dict[int, str] = {}

    def marker_id(self, marker: str) -> int:
        number: int = self._model.piece_to_id(marker_piece(marker))
        if not self._model.is_control(number):
            raise ConfigError(f"the tokenizer has no piece for the marker {marker!r}; train one with it.")
        return number

    def tag_id(self, language: str) -> int:
        number: int = self._model.piece_to_id(tag_piece(language))
        if not self._model.is_control(number):
            raise ConfigError(
                f"the tokenizer has no tag for target language {language!r}; train one for these languages, "
                f"or set data.target_tags=false."
            )
        return number

    def encode(self, texts: Sequence[str], num_threads: int) -> list[list[int]]:
        clean = [text if text.isascii() else _without_surrogates(text) for text in texts]
        encoded: list[list[int]] = self._model.encode(clean, num_threads=num_threads)
        if self._has_bytes:
            for index, text in enumerate(clean):
                if _SPACE_MARK in text:
                    encoded[index] = self._encode_with_mark(text)
        return encoded

    def pack(self, texts: Sequence[str]) -> list[bytes]:
        """`encode`, but each sentence as the bytes of an array of `id_type`: word by word where the model allows it."""
        import numpy as np

        dtype = id_type(self.vocab_size)
        if self._by_words is None:
            return [np.array(ids, dtype=dtype).tobytes() for ids in self.encode(texts, 1)]
        clean = [text if text.isascii() else _without_surrogates(text) for text in texts]
        packed = self._by_words.encode(clean)
        for index, text in enumerate(clean):
            if _SPACE_MARK in text:
                packed[index] = np.array(self._encode_with_mark(text), dtype=dtype).tobytes()
        return packed

    @cached_property
    def _by_words(self) -> WordByWord | None:
        return WordByWord(self._model, id_type(self.vocab_size)) if WordByWord.suits(self._model) else None

    def decode(self, ids: Iterable[int]) -> str:
        text: str = self._model.decode(self._checked(ids))
        return text

    def decode_all(self, many: Sequence[Sequence[int]], num_threads: int) -> list[str]:
        numbers = [self._checked(ids) for ids in many]
        texts: list[str] = self._model.decode(numbers, num_threads=num_threads) if numbers else []
        return texts

    def pieces(self, ids: Iterable[int]) -> list[str]:
        known = self._pieces
        return [known[number] if number in known else self._piece(int(number)) for number in ids]

    def _piece(self, number: int) -> str:
        """A piece that was not asked for yet: SentencePiece tells them one by one, and slowly."""
        (number,) = self._checked([number])
        self._pieces[number] = piece = str(self._model.id_to_piece(number))
        return piece

    def _checked(self, ids: Iterable[int]) -> list[int]:
        numbers = [int(number) for number in ids]
        if numbers and (min(numbers) < 0 or max(numbers) >= self.vocab_size):
            raise DecodingError(
                f"ids must lie between 0 and {self.vocab_size - 1}, found {min(numbers)} to {max(numbers)}."
            )
        return numbers

    def _encode_with_mark(self, text: str) -> list[int]:
        """SentencePiece would read U+2581 as a space: encode a stand-in, then put the bytes of U+2581 in its place."""
        for stand_in in _STAND_INS:
            wanted = self._byte_ids(stand_in)
            if stand_in not in text and self._model.piece_to_id(stand_in) == UNK_ID:
                ids: list[int] = self._model.encode(text.replace(_SPACE_MARK, stand_in))
                return _replace(ids, wanted, self._mark_bytes)
        plain: list[int] = self._model.encode(text)
        return plain

    def byte_ids(self) -> tuple[int, ...]:
        ids = tuple(self._model.piece_to_id(f"<0x{byte:02X}>") for byte in range(256))
        return ids if all(map(self._model.is_byte, ids)) else ()

    def ids_with(self, character: str, model: bytes) -> tuple[int, ...]:
        """Ids of the pieces that hold a character, found in the serialised model: asking for all pieces is slow."""
        found = set()
        for match in re.finditer(re.escape(character.encode()), model):
            for start in range(max(2, match.start() - 127), match.start() + 1):
                tag, length = model[start - 2 : start]
                if tag == PIECE_FIELD and start + length >= match.end():
                    number = self._model.piece_to_id(model[start : start + length].decode(errors="replace"))
                    if character in self._model.id_to_piece(number):
                        found.add(number)
        return tuple(sorted(found))

    def _byte_ids(self, character: str) -> list[int]:
        return [self._model.piece_to_id(f"<0x{byte:02X}>") for byte in character.encode()]


def _replace(ids: list[int], old: list[int], new: list[int]) -> list[int]:
    result: list[int] = []
    position = 0
    while position < len(ids):
        found = ids[position : position + len(old)] == old
        result.extend(new if found else ids[position : position + 1])
        position += len(old) if found else 1
    return result


def _without_surrogates(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _file_names(*, joint: bool) -> tuple[str, ...]:
    return ("tokenizer.model",) if joint else ("source.model", "target.model")


def _read_description(path: Path) -> dict[str, Any]:
    try:
        description = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ModelDirectoryError(f"{path}: cannot read the tokenizer's description: {error.strerror}.") from None
    except ValueError as error:
        raise ModelDirectoryError(f"{path}: not valid JSON: {error}.") from None
    types = {"kind": str, "joint": bool, "tags": list, "special": dict}
    if not isinstance(description, dict) or any(not isinstance(description.get(k), t) for k, t in types.items()):
        raise ModelDirectoryError(f"{path}: expected the keys {', '.join(types)}; the file was altered.")
    markers = description.get("markers", [])
    if not isinstance(markers, list) or not all(isinstance(marker, str) for marker in markers):
        raise ModelDirectoryError(f"{path}: markers must be a list of words.")
    if not all(isinstance(tag, str) for tag in description["tags"]):
        raise ModelDirectoryError(f"{path}: tags must be a list of language codes.")
    if description["special"] != {"pad": PAD_ID, "unk": UNK_ID, "bos": BOS_ID, "eos": EOS_ID}:
        raise ModelDirectoryError(f"{path}: unknown special ids {description['special']}.")
    return description
