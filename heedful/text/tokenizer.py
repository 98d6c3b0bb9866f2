"""The tokenizer: text to subword ids and back, over SentencePiece. Special tokens are added here and nowhere else.

    encode_source("Hallo.", "en") = [<2en>] ▁Hallo . </s>        (the tag only in models with several target languages)
    encode_target("Hello.")       =         ▁Hello . </s>        (no <s>: the model's input is bos + ids[:-1])

Text is not normalised and no whitespace is removed, so with byte fallback `decode(encode_target(text)) == text` for
every text that UTF-8 can encode. (A lone surrogate becomes U+FFFD. Without byte fallback, characters outside the
vocabulary become <unk>; with a word vocabulary, words do.) Special tokens and tags are control symbols: "<2de>" or
"</s>" in a text is encoded as ordinary characters.

The same sentences and settings give the same tokenizer, byte for byte.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sentencepiece

from heedful.config import TokenizerConfig
from heedful.errors import ConfigError, CorpusError, DecodingError, ModelDirectoryError, remedy_for
from heedful.text.tokenizer_training import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    UNK_ID,
    build_word_vocabulary,
    choose_vocab_size,
    train_subwords,
)

if TYPE_CHECKING:  # translating does not need numpy
    import numpy as np
    import numpy.typing as npt

__all__ = [
    "Tokenizer",
    "choose_vocab_size",
    "id_type",
    "sample_indices",
    "tag_piece",
    "train_tokenizer",
    "train_tokenizer_on_sample",
]

PIECE_FIELD = 0x0A  # precedes each piece in a serialised model; the length in bytes follows
_SPACE_MARK = "\u2581"  # SentencePiece writes a space as this character
_MAX_CACHED_WORDS = 1 << 18  # about 50 MB
_DRAWS_PER_STEP = 1 << 20
_PLACEHOLDERS = tuple(chr(plane * 0x10000 + low) for plane in range(16, 0, -1) for low in (0xFFFF, 0xFFFE))


def id_type(vocab_size: int) -> np.dtype[Any]:
    """The smallest unsigned type for the ids of a vocabulary: 16 bits up to 65,536 ids, else 32."""
    import numpy as np

    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


MASK = "mask"
"""The source tag whose piece, `<mask>`, hides a token of a masked language model."""


def source_tag_piece(source_tag: str) -> str:
    """The piece in front of the sources of a tagged corpus: `<back-translated>` for "back-translated"."""
    return f"<{source_tag}>"


def tag_piece(language: str) -> str:
    """The piece in front of a source that selects the target language: `<2de>` for "de"."""
    return f"<2{language}>"


class Tokenizer:
    """Text to ids and back, with one SentencePiece model for both sides (joint) or one for each."""

    pad_id, unk_id, bos_id, eos_id = PAD_ID, UNK_ID, BOS_ID, EOS_ID

    def __init__(
        self,
        source_model: bytes,
        target_model: bytes | None = None,
        *,
        kind: str = "bpe",
        tags: Sequence[str] = (),
        source_tags: Sequence[str] = (),
    ) -> None:
        """Wrap serialised SentencePiece models; without `target_model`, `source_model` serves both sides."""
        self.kind = kind
        self.joint = target_model is None
        self.tags = tuple(tags)
        self.source_tags = tuple(source_tags)
        self._models = (source_model,) if target_model is None else (source_model, target_model)
        self._source = _Side(source_model)
        self._target = self._source if target_model is None else _Side(target_model)
        self._tag_ids = {language: self._source.tag_id(language) for language in self.tags}
        self._source_tag_ids = {source_tag: self._source.source_tag_id(source_tag) for source_tag in self.source_tags}

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
        """Source ids that no text is encoded to: target-language tags and source tags."""
        return (*self._tag_ids.values(), *self._source_tag_ids.values())

    @property
    def mask_id(self) -> int | None:
        """The id of `<mask>`; None if the tokenizer was not trained for a language model."""
        return self._source_tag_ids.get(MASK)

    @property
    def identity(self) -> str:
        """SHA-256 of everything that determines the ids of a text: equal for equal tokenizers."""
        plain = [self.kind, [hashlib.sha256(model).hexdigest() for model in self._models], self.tags, self.source_tags]
        return hashlib.sha256(json.dumps(plain).encode()).hexdigest()

    @cached_property
    def byte_ids(self) -> tuple[int, ...]:
        """Target ids of the 256 byte pieces; empty without byte fallback."""
        return self._target.byte_ids()

    @cached_property
    def broken_ids(self) -> tuple[int, ...]:
        """Target ids of pieces that contain U+FFFD, the replacement character."""
        return self._target.ids_with("\ufffd", self._models[-1])

    def encode_source(self, text: str, target_language: str | None = None) -> list[int]:
        """Ids of a source sentence: the tag if the model has tags, the subwords, the end token."""
        return self.encode_sources([text], target_language)[0]

    def encode_target(self, text: str) -> list[int]:
        """Ids of a target sentence: the subwords, the end token."""
        return self.encode_targets([text])[0]

    def encode_sources(
        self, texts: Sequence[str], target_language: str | None = None, *, num_threads: int = 1
    ) -> list[list[int]]:
        """`encode_source` for many sentences into one target language, on several threads."""
        tag = self._tag(target_language)
        return [[*tag, *ids, EOS_ID] for ids in self._source.encode(texts, num_threads)]

    def encode_targets(self, texts: Sequence[str], *, num_threads: int = 1) -> list[list[int]]:
        """`encode_target` for many sentences, on several threads."""
        return [[*ids, EOS_ID] for ids in self._target.encode(texts, num_threads)]

    def pack_sources(
        self, texts: Sequence[str], target_language: str | None = None, *, source_tag: str | None = None
    ) -> list[bytes]:
        """`encode_sources` for a corpus with this source tag: each sentence as the bytes of an `id_type` array."""
        import numpy as np

        dtype = id_type(self.source_vocab_size)
        first = [*self._tag(target_language), *([self._source_tag_ids[source_tag]] if source_tag is not None else [])]
        tag, end = np.array(first, dtype).tobytes(), np.array([EOS_ID], dtype).tobytes()
        return [tag + ids + end for ids in self._source.pack(texts)]

    def pack_targets(self, texts: Sequence[str]) -> list[bytes]:
        """`encode_targets` for a corpus: each sentence as the bytes of an `id_type` array."""
        import numpy as np

        end = np.array([EOS_ID], id_type(self.target_vocab_size)).tobytes()
        return [ids + end for ids in self._target.pack(texts)]

    def encode_prefix(self, text: str) -> list[int]:
        """Ids of the beginning of a target sentence: `encode_target` without the end token."""
        return self._target.encode([text], 1)[0]

    def encode_masked(self, text: str) -> list[int]:
        """Ids of a text in which `<mask>` hides a token, together with the space before it; the end token is last."""
        if self.mask_id is None:
            raise DecodingError("this tokenizer has no <mask>; it was not trained for a language model.")
        return [*self._source.encode_with(text, source_tag_piece(MASK), self.mask_id), EOS_ID]

    def decode(self, ids: Iterable[int]) -> str:
        """The target text of ids; special tokens and tags give no text."""
        return self._target.decode(ids)

    def decode_all(self, many: Sequence[Sequence[int]], *, num_threads: int = 1) -> list[str]:
        """`decode` for many sentences, on several threads."""
        return self._target.decode_all(many, num_threads)

    def decode_source(self, ids: Iterable[int]) -> str:
        """The source text of ids; special tokens and tags give no text."""
        return self._source.decode(ids)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Target ids as readable pieces: `▁Hello`, `</s>`, `<0xE2>` (a byte)."""
        return self._target.pieces(ids)

    def source_pieces(self, ids: Iterable[int]) -> list[str]:
        """Source ids as readable pieces."""
        return self._source.pieces(ids)

    def save(self, directory: str | Path) -> None:
        """Write `tokenizer.model` (joint) or `source.model` and `target.model`, and `tokenizer.json`."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        for name, model in zip(_file_names(joint=self.joint), self._models, strict=True):
            (folder / name).write_bytes(model)
        special = {"pad": PAD_ID, "unk": UNK_ID, "bos": BOS_ID, "eos": EOS_ID}
        description = {"kind": self.kind, "joint": self.joint, "tags": list(self.tags), "special": special}
        if self.source_tags:
            description["source_tags"] = list(self.source_tags)
        (folder / "tokenizer.json").write_text(json.dumps(description, indent=2, ensure_ascii=False) + "\n", "utf-8")

    @classmethod
    def load(cls, directory: str | Path, *, paths: Mapping[str, Path] | None = None) -> Tokenizer:
        """Read a directory that `save` wrote; `paths` gives other locations for some of its files."""
        folder, elsewhere = Path(directory), paths or {}
        description = _read_description(elsewhere.get("tokenizer.json", folder / "tokenizer.json"))
        models = []
        for name in _file_names(joint=description["joint"]):
            try:
                models.append(elsewhere.get(name, folder / name).read_bytes())
            except OSError as error:
                raise ModelDirectoryError(f"{folder / name}: cannot read the tokenizer: {error.strerror}.") from None
        try:
            source_tags = description.get("source_tags", [])
            return cls(*models, kind=description["kind"], tags=description["tags"], source_tags=source_tags)
        except (RuntimeError, ValueError, ConfigError) as error:
            raise ModelDirectoryError(
                f"{folder}: the tokenizer is damaged or does not match its tokenizer.json: {error}"
            ) from None

    def _tag(self, target_language: str | None) -> list[int]:
        if not self.tags:
            return []
        if target_language is None and len(self.tags) == 1:
            target_language = self.tags[0]
        if target_language not in self._tag_ids:
            problem = "no target language was given" if target_language is None else f"not into {target_language!r}"
            raise DecodingError(f"this model translates into {', '.join(self.tags)}; {problem}. Name one of them.")
        return [self._tag_ids[target_language]]


def train_tokenizer(
    pairs: Iterable[tuple[str, str]],
    config: TokenizerConfig,
    *,
    vocab_size: int | None = None,
    tags: Sequence[str] = (),
    seed: int = 1,
) -> Tokenizer:
    """Train a tokenizer on pairs: any tuples whose first two fields are source and target.

    At most `config.max_sentences` sentences are used, sampled uniformly. `vocab_size` overrides `config.vocab_size`;
    without either, a size is chosen. The result may have fewer pieces: see `train_subwords`. A target side of kind
    "word" has a token for every word of these sentences, and <unk> for others.
    """
    all_pairs = list(pairs)
    indices = sample_indices(len(all_pairs), config, seed=seed)
    sample = [(all_pairs[index][0], all_pairs[index][1]) for index in indices.tolist()]
    return train_tokenizer_on_sample(sample, config, num_pairs=len(all_pairs), vocab_size=vocab_size, tags=tags)


def train_tokenizer_on_sample(
    sample: Sequence[tuple[str, str]],
    config: TokenizerConfig,
    *,
    num_pairs: int,
    vocab_size: int | None = None,
    tags: Sequence[str] = (),
    source_tags: Sequence[str] = (),
) -> Tokenizer:
    """`train_tokenizer` on a sample of a corpus of `num_pairs` pairs."""
    if vocab_size is None:
        vocab_size = config.vocab_size
    if vocab_size is not None and vocab_size <= 0:
        raise ConfigError(f"tokenizer.vocab_size must be above 0, not {vocab_size}.")
    if not sample:
        raise CorpusError("there are no sentences to train a tokenizer on.")
    sources, targets = [pair[0] for pair in sample], [pair[1] for pair in sample]
    tag_pieces = [
        *(tag_piece(language) for language in tags),
        *(source_tag_piece(source_tag) for source_tag in source_tags),
    ]
    train = partial(train_subwords, config=config, vocab_size=vocab_size, num_pairs=num_pairs)
    if config.joint:
        model = train(sources + targets, control_symbols=tag_pieces)
        return Tokenizer(model, kind=config.kind, tags=tags, source_tags=source_tags)
    source_model = train(sources, control_symbols=tag_pieces)
    if config.target_kind == "word":
        target_model = build_word_vocabulary(targets)
    else:
        kind = config.target_kind or config.kind
        target_model = train(targets, config=replace(config, kind=kind), control_symbols=[])
    return Tokenizer(source_model, target_model, kind=config.kind, tags=tags, source_tags=source_tags)


def sample_indices(num_pairs: int, config: TokenizerConfig, *, seed: int) -> npt.NDArray[np.int64]:
    """A uniform random sample of the indices of `num_pairs` pairs, as many as `config.max_sentences` allows.

    Reservoir sampling on indices: later pairs randomly replace earlier ones.
    """
    import numpy as np

    limit = max(1, config.max_sentences // 2 if config.joint else config.max_sentences)
    indices = np.arange(min(num_pairs, limit))
    generator = np.random.RandomState()
    _, state, _ = random.Random(seed).getstate()
    # the same random numbers as random.Random
    generator.set_state(("MT19937", np.array(state[:-1], dtype=np.uint32), state[-1], 0, 0.0))
    for start in range(limit, num_pairs, _DRAWS_PER_STEP):
        pairs = np.arange(start, min(start + _DRAWS_PER_STEP, num_pairs))
        drawn = (generator.random_sample(len(pairs)) * (pairs + 1)).astype(np.int64)
        for slot, pair in zip(drawn[drawn < limit].tolist(), pairs[drawn < limit].tolist(), strict=True):
            indices[slot] = pair
    return indices


class _Side:
    """One SentencePiece model with lossless encoding."""

    def __init__(self, model: bytes) -> None:
        if not model:
            raise ValueError("the SentencePiece model is empty")
        self._model: Any = sentencepiece.SentencePieceProcessor(model_proto=model)
        special_ids = (self._model.pad_id(), self._model.unk_id(), self._model.bos_id(), self._model.eos_id())
        if special_ids != (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
            raise ValueError(f"pad, unk, bos and eos must have ids 0 to 3, found {special_ids}")
        self.vocab_size: int = self._model.get_piece_size()
        self._has_bytes = self._model.piece_to_id("<0x00>") != UNK_ID
        self._mark_bytes = self._byte_ids(_SPACE_MARK)
        self._pieces: dict[int, str] = {}

    def source_tag_id(self, source_tag: str) -> int:
        number: int = self._model.piece_to_id(source_tag_piece(source_tag))
        if not self._model.is_control(number):
            raise ConfigError(f"the tokenizer has no piece for the source tag {source_tag!r}; train one with it.")
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
        """`encode` with a word cache if the model supports it: each sentence as the bytes of an `id_type` array."""
        import numpy as np

        dtype = id_type(self.vocab_size)
        if self._word_cache is None:
            return [np.array(ids, dtype=dtype).tobytes() for ids in self.encode(texts, 1)]
        clean = [text if text.isascii() else _without_surrogates(text) for text in texts]
        packed = self._word_cache.encode(clean)
        for index, text in enumerate(clean):
            if _SPACE_MARK in text:
                packed[index] = np.array(self._encode_with_mark(text), dtype=dtype).tobytes()
        return packed

    @cached_property
    def _word_cache(self) -> WordCache | None:
        return WordCache(self._model, id_type(self.vocab_size)) if WordCache.supports(self._model) else None

    def decode(self, ids: Iterable[int]) -> str:
        text: str = self._model.decode(self._validated(ids))
        return text

    def decode_all(self, many: Sequence[Sequence[int]], num_threads: int) -> list[str]:
        numbers = [self._validated(ids) for ids in many]
        texts: list[str] = self._model.decode(numbers, num_threads=num_threads) if numbers else []
        return texts

    def pieces(self, ids: Iterable[int]) -> list[str]:
        cache = self._pieces
        return [cache[number] if number in cache else self._piece(int(number)) for number in ids]

    def _piece(self, number: int) -> str:
        """A piece that is not cached yet; SentencePiece returns them one by one, slowly."""
        (number,) = self._validated([number])
        self._pieces[number] = piece = str(self._model.id_to_piece(number))
        return piece

    def _validated(self, ids: Iterable[int]) -> list[int]:
        numbers = [int(number) for number in ids]
        if numbers and (min(numbers) < 0 or max(numbers) >= self.vocab_size):
            raise DecodingError(
                f"ids must lie between 0 and {self.vocab_size - 1}, found {min(numbers)} to {max(numbers)}."
            )
        return numbers

    def _encode_with_mark(self, text: str) -> list[int]:
        """Encode U+2581, which SentencePiece reads as a space: encode a placeholder, then replace it by the bytes."""
        for placeholder in _PLACEHOLDERS:
            if placeholder not in text and self._model.piece_to_id(placeholder) == UNK_ID:
                ids: list[int] = self._model.encode(text.replace(_SPACE_MARK, placeholder))
                return _replace(ids, self._byte_ids(placeholder), self._mark_bytes)
        plain: list[int] = self._model.encode(text)
        return plain

    def encode_with(self, text: str, mark: str, number: int) -> list[int]:
        """Encode a text in which `number` replaces each `mark` and the space before it."""
        if not self._has_bytes:
            raise DecodingError(f"{mark} needs a tokenizer with byte fallback (tokenizer.byte_fallback=true).")
        placeholder = next(one for one in _PLACEHOLDERS if one not in text and self._model.piece_to_id(one) == UNK_ID)
        ids: list[int] = self._model.encode(text.replace(f" {mark}", mark).replace(mark, placeholder))
        ids = _replace(ids, self._byte_ids(placeholder), [number])
        space = self._model.piece_to_id(_SPACE_MARK)  # before a mark at the beginning
        return ids[1:] if ids[:2] == [space, number] else ids

    def byte_ids(self) -> tuple[int, ...]:
        ids = tuple(self._model.piece_to_id(f"<0x{byte:02X}>") for byte in range(256))
        return ids if all(map(self._model.is_byte, ids)) else ()

    def ids_with(self, character: str, model: bytes) -> tuple[int, ...]:
        """Ids of the pieces that contain a character, from the serialised model: faster than reading all pieces."""
        ids = set()
        for match in re.finditer(re.escape(character.encode()), model):
            for start in range(max(2, match.start() - 127), match.start() + 1):
                tag, length = model[start - 2 : start]
                if tag == PIECE_FIELD and start + length >= match.end():
                    number = self._model.piece_to_id(model[start : start + length].decode(errors="replace"))
                    if character in self._model.id_to_piece(number):
                        ids.add(number)
        return tuple(sorted(ids))

    def _byte_ids(self, character: str) -> list[int]:
        return [self._model.piece_to_id(f"<0x{byte:02X}>") for byte in character.encode()]


class WordCache:
    """Encodes word by word, with the ids of each word cached; only for models that `supports` accepts.

    A BPE model without pieces across spaces merges inside words only, so the ids of a sentence are the concatenated ids
    of its words. Most words of a corpus repeat, and looking them up is many times faster than encoding.
    """

    def __init__(self, model: Any, dtype: np.dtype[Any]) -> None:
        self._model = model
        self._type_code = dtype.char
        self._cache: dict[str, bytes] = {}

    @staticmethod
    def supports(model: Any) -> bool:
        """Whether the ids of a sentence are those of its words: BPE with byte fallback, no piece across a space."""
        size = model.get_piece_size()
        # BPE scores are 0, -1, -2, …; those of unigram are logarithms, whose sums could round differently
        is_bpe = size > 2 and model.get_score(size - 1) == model.get_score(size - 2) - 1
        if not is_bpe or model.piece_to_id("<0x00>") == model.unk_id():
            return False
        if model.normalize(" ﬁ  x ") != "▁▁ﬁ▁▁x▁":  # each space becomes a mark before a word, and nothing else changes
            return False
        return not any(_SPACE_MARK in piece[1:] for piece in model.id_to_piece(list(range(size))))

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        """The subword ids of each text, as the bytes of an array; no text may contain U+2581."""
        split = [text.split(" ") if text else [] for text in texts]
        if len(self._cache) > _MAX_CACHED_WORDS:
            self._cache.clear()
        self._add(list(set(chain.from_iterable(split)).difference(self._cache)))
        lookup = self._cache.__getitem__
        return [b"".join(map(lookup, words)) for words in split]

    def _add(self, words: list[str]) -> None:
        # SentencePiece puts a mark before a word but not before an empty text: of the three marks of "  " take one
        encoded = self._model.encode([word or "  " for word in words])
        for word, ids in zip(words, encoded, strict=True):
            self._cache[word] = self._to_bytes(ids if word else ids[: len(ids) // 3])

    def _to_bytes(self, ids: list[int]) -> bytes:
        return struct.pack(f"<{len(ids)}{self._type_code}", *ids)


def _replace(ids: list[int], old: list[int], new: list[int]) -> list[int]:
    result: list[int] = []
    position = 0
    while position < len(ids):
        matches = ids[position : position + len(old)] == old
        result.extend(new if matches else ids[position : position + 1])
        position += len(old) if matches else 1
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
        remedy = remedy_for(error, "check the directory, or copy the model again")
        raise ModelDirectoryError(
            f"{path}: cannot read the tokenizer's description: {error.strerror}; {remedy}."
        ) from None
    except ValueError as error:
        raise ModelDirectoryError(f"{path}: not valid JSON: {error}.") from None
    types = {"kind": str, "joint": bool, "tags": list, "special": dict}
    if not isinstance(description, dict) or any(not isinstance(description.get(k), t) for k, t in types.items()):
        raise ModelDirectoryError(f"{path}: expected the keys {', '.join(types)}; the file was modified.")
    source_tags = description.get("source_tags", [])
    if not isinstance(source_tags, list) or not all(isinstance(source_tag, str) for source_tag in source_tags):
        raise ModelDirectoryError(f"{path}: source_tags must be a list of strings.")
    if not all(isinstance(tag, str) for tag in description["tags"]):
        raise ModelDirectoryError(f"{path}: tags must be a list of language codes.")
    if description["special"] != {"pad": PAD_ID, "unk": UNK_ID, "bos": BOS_ID, "eos": EOS_ID}:
        raise ModelDirectoryError(f"{path}: unknown special ids {description['special']}.")
    return description
