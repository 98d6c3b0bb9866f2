"""`TextGenerator`: a language model that continues texts, fills masks, and measures perplexity.

A decoder continues a text by the searches that translate: the text is a target prefix, and there is no source. An
encoder predicts the tokens that `<mask>` hides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from heedful.config import DecodingConfig
from heedful.config_loading import from_mapping, to_mapping
from heedful.errors import ConfigError, DecodingError, TextError
from heedful.model_dir.registry import find_model
from heedful.model_dir.save_load import require_language_model
from heedful.search_types import DecodeRequest, Engine, Hypothesis, SearchSettings, longest_first
from heedful.text.tokenizer import MASK, Tokenizer, source_tag_piece

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from heedful.model.language_model import LanguageModel

MASK_TOKEN = source_tag_piece(MASK)
TRANSLATION_SETTINGS = ("split", "shortlist", "checks", "protect")
"""Search settings that apply to translation only."""


@dataclass(frozen=True)
class Generation:
    """One continuation of a prompt."""

    text: str
    """The prompt and its continuation."""
    continuation: str
    tokens: list[str]
    """The subwords of the continuation, without the end token."""
    log_prob: float
    """Log-probability of the continuation, including the end token."""
    finished: bool
    """False if the text was cut off at the maximum length."""

    def __str__(self) -> str:
        """The text."""
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Candidate:
    """A token for a mask, as text with the space before it if there is one."""

    text: str
    probability: float


@dataclass(frozen=True)
class FilledText:
    """A text with the most likely token in place of each mask."""

    text: str
    masks: list[list[Candidate]]
    """For each mask its most likely tokens, each independent of the other masks."""

    def __str__(self) -> str:
        """The text."""
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Perplexity:
    """How well a language model predicts a text: exp(-log-probability / count), so lower is better."""

    log_prob: float
    """Of all counted tokens together."""
    num_tokens: int
    num_characters: int
    """Including a line break after each line."""
    num_lines: int
    num_too_long: int
    """Lines that were left out, because they are longer than the model accepts."""
    is_pseudo: bool
    """Whether each token was predicted from both sides, which is not the probability of a text."""

    @property
    def token(self) -> float:
        """Perplexity of a token, which depends on the vocabulary; of a line's tokens its end is one, unless pseudo."""
        return math.exp(-self.log_prob / max(1, self.num_tokens))

    @property
    def character(self) -> float | None:
        """Perplexity of a character, which does not depend on the vocabulary; None if pseudo."""
        return None if self.is_pseudo else math.exp(-self.log_prob / max(1, self.num_characters))

    @property
    def name(self) -> str:
        """The name of the measure."""
        return "pseudo-perplexity" if self.is_pseudo else "perplexity"

    def __str__(self) -> str:
        """The perplexity of a token, and of a character if it is defined, with what they were measured on."""
        of_character = "" if self.character is None else f", {self.character:.3f} per character"
        counted = f"{self.num_lines:,} lines, {self.num_tokens:,} tokens, {self.num_characters:,} characters"
        return f"{self.name} {self.token:.2f} per token{of_character} ({counted})"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"name": self.name, "token": self.token, "character": self.character, **asdict(self)}

    def scores(self) -> list[dict[str, Any]]:
        """The perplexities as scores of a model card; the signature states what they are means over."""
        values = {"token": self.token, "character": self.character}
        return [
            {"name": self.name, "value": value, "signature": f"per:{unit}|tokens:{self.num_tokens}", "interval": None}
            for unit, value in values.items()
            if value is not None
        ]


class TextGenerator:
    """A language model, its tokenizer and search settings."""

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: Tokenizer,
        config: DecodingConfig | None = None,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        """Make a generator of a model that is on `device` already."""
        from heedful.decoding.engines import make_torch_engine

        self.model, self.tokenizer, self.config, self.device = (
            model.eval(),
            tokenizer,
            config or DecodingConfig(),
            device,
        )
        self.engine: Engine = make_torch_engine(model, tokenizer, device)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> TextGenerator:
        """Load a directory, or an installed model by its name, that `heedful train --text` wrote."""
        from heedful.decoding.engines import load_torch_model

        directory = find_model(path, "a directory that `heedful train --text` wrote.")
        require_language_model(directory)
        model, loaded, resolved = load_torch_model(directory, device)
        return cls(model, loaded.tokenizer, loaded.config.decoding, device=resolved)

    @property
    def fills_masks(self) -> bool:
        """Whether the model fills masks (an encoder); otherwise it continues texts (a decoder)."""
        return not self.model.is_causal

    # ---- continuing texts

    def generate(self, prompts: Sequence[str], **settings: Unpack[SearchSettings]) -> list[list[Generation]]:
        """Continue texts: for each prompt `num_best` continuations, best first.

        A prompt is one line or its beginning, and may be empty. The generation ends with the end of the line, or at
        `max_length` tokens with the prompt; by default `max_extra_length` tokens after it. `settings` override keys of
        `DecodingConfig`, such as `method="beam"`, `temperature=0.8` or `seed=2`.
        """
        if self.fills_masks:
            raise DecodingError(
                "this is a masked language model, which fills <mask> in a text and does not continue it."
            )
        for name in TRANSLATION_SETTINGS:
            if name in settings:
                raise ConfigError(f"decoding.{name} is for translation; leave it out.")
        config = from_mapping(DecodingConfig, {**to_mapping(self.config), "shortlist": None, **settings}, "decoding")
        requests = [self._request(index, prompt, config) for index, prompt in enumerate(prompts)]
        results = self.engine.decode(requests, config, align=False, constraint_factory=None) if requests else {}
        return [
            [self._generation(hypothesis, request) for hypothesis in results[request].hypotheses]
            for request in requests
        ]

    def _request(self, index: int, prompt: str, config: DecodingConfig) -> DecodeRequest:
        """The prompt as the prefix of a target; the source is never read, but its length and ids select the batch."""
        if "\n" in prompt:
            raise TextError(index + 1, "has several lines; a language model continues one line.")
        text = prompt.rstrip()  # a space belongs to the word after it
        prefix = tuple(self.tokenizer.encode_prefix(text)) if text else ()
        longest = self.model.max_length - 1
        limit = min(config.max_length or len(prefix) + config.max_extra_length, longest)
        if len(prefix) > limit:
            raise TextError(
                index + 1,
                f"has {len(prefix)} tokens, more than {limit} together with what is generated "
                f"(decoding.max_length; the model accepts {longest}).",
            )
        return DecodeRequest((*prefix, self.tokenizer.eos_id), prefix, text, limit)

    def _generation(self, hypothesis: Hypothesis, request: DecodeRequest) -> Generation:
        first = len(request.prefix)
        tokens = hypothesis.tokens[first : -1 if hypothesis.tokens[-1:] == [self.tokenizer.eos_id] else None]
        text = self.tokenizer.decode(hypothesis.tokens)
        return Generation(
            text=text,
            continuation=text[len(request.text) :],
            tokens=self.tokenizer.pieces(tokens),
            log_prob=sum(hypothesis.token_log_probs[first:]),
            finished=hypothesis.finished,
        )

    # ---- filling masks

    def fill_masks(self, texts: Sequence[str], *, num_candidates: int = 5) -> list[FilledText]:
        """For each `<mask>` of each text the most likely tokens, predicted from both sides.

        A mask stands for one token. Special tokens and bytes of rare characters are no candidates.
        """
        import torch

        if not self.fills_masks:
            raise DecodingError(
                "this model continues texts; only an encoder (model.architecture=encoder) fills <mask>."
            )
        rows = [self._encode_masked(index, text) for index, text in enumerate(texts)]
        filled = []
        for ids in rows:
            with torch.inference_mode():
                logits = self.model.logits(torch.tensor([ids], device=self.device))[0].float()
            logits = logits.index_fill(1, torch.tensor(self._excluded_ids(), device=self.device), -torch.inf)
            places = [place for place, token in enumerate(ids) if token == self.tokenizer.mask_id]
            probabilities, tokens = torch.softmax(logits[places], dim=-1).topk(min(num_candidates, logits.shape[1]))
            masks = [
                [Candidate(self._token_text(token), value) for token, value in zip(*row, strict=True)]
                for row in zip(tokens.tolist(), probabilities.tolist(), strict=True)
            ]
            best = dict(zip(places, tokens[:, 0].tolist(), strict=True))
            text = self.tokenizer.decode([best.get(place, token) for place, token in enumerate(ids)])
            filled.append(FilledText(text, masks))
        return filled

    def _encode_masked(self, index: int, text: str) -> list[int]:
        if MASK_TOKEN not in text:
            raise TextError(
                index + 1,
                f"has no {MASK_TOKEN}: this masked language model predicts the token that it hides, as in "
                f'"A word is {MASK_TOKEN} here."',
            )
        ids = self.tokenizer.encode_masked(text)
        if len(ids) > self.model.max_length:
            raise TextError(index + 1, f"has {len(ids)} tokens; the model accepts {self.model.max_length}.")
        return ids

    def _excluded_ids(self) -> list[int]:
        """Ids that no mask may stand for: special tokens, and bytes, which are parts of characters."""
        tokenizer = self.tokenizer
        special = [tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id]
        return [*special, *tokenizer.control_ids, *tokenizer.byte_ids]

    def _token_text(self, token: int) -> str:
        return self.tokenizer.pieces([token])[0].replace("\u2581", " ")

    # ---- perplexity

    def perplexity(self, lines: Sequence[str]) -> Perplexity:
        """The perplexity of a text, line by line, in float32.

        Of an encoder it is the pseudo-perplexity (Salazar et al., 2020): each token is hidden in turn and predicted
        from all others of its line.
        """
        rows = [self.tokenizer.encode_target(line.strip()) for line in lines if line.strip()]
        kept = [ids for ids in rows if len(ids) <= self.model.max_length]
        if not kept:
            raise DecodingError("there is no line to measure: all are empty or longer than the model accepts.")
        sums = [self._line_log_probs(part) for part in self._parts(kept)]
        num_ends = 0 if self.model.is_causal else 1
        return Perplexity(
            log_prob=math.fsum(value for part in sums for value in part),
            num_tokens=sum(len(ids) - num_ends for ids in kept),
            num_characters=sum(len(self.tokenizer.decode(ids)) + 1 for ids in kept),
            num_lines=len(kept),
            num_too_long=len(rows) - len(kept),
            is_pseudo=not self.model.is_causal,
        )

    def _parts(self, rows: Sequence[list[int]]) -> Iterator[list[list[int]]]:
        """Lines of similar length, up to `tokens_per_batch` tokens that go through the model."""
        part: list[list[int]] = []
        for index in longest_first([len(ids) for ids in rows]):
            copies = 1 if self.model.is_causal else len(rows[index])
            if part and (len(part) + 1) * copies * len(part[0]) > self.config.tokens_per_batch:
                yield part
                part = []
            part.append(rows[index])
        yield part

    def _line_log_probs(self, rows: Sequence[list[int]]) -> list[float]:
        """The log-probability of each line; the longest is first."""
        if self.model.is_causal:
            inputs = [[self.tokenizer.bos_id, *ids[:-1]] for ids in rows]
            return self._log_probs(inputs, rows)
        sums = []
        for ids in rows:  # one copy for each token, which alone is hidden in it
            copies = [[*ids[:place], self.tokenizer.mask_id, *ids[place + 1 :]] for place in range(len(ids) - 1)]
            wanted = [[-1] * place + [ids[place]] + [-1] * (len(ids) - place - 1) for place in range(len(ids) - 1)]
            sums.append(math.fsum(self._log_probs(copies, wanted)) if copies else 0.0)  # type: ignore[arg-type]
        return sums

    def _log_probs(self, inputs: Sequence[list[int]], outputs: Sequence[list[int]]) -> list[float]:
        """For each row, the sum of the log-probabilities of its outputs; -1 is not counted."""
        import torch

        def padded(rows: Sequence[list[int]], padding: int) -> Tensor:
            width = max(map(len, rows))
            return torch.tensor([[*row, *[padding] * (width - len(row))] for row in rows], device=self.device)

        tokens, wanted = padded(inputs, self.tokenizer.pad_id), padded(outputs, -1)
        lengths = torch.tensor([len(row) for row in inputs], device=self.device)
        segments = (torch.arange(tokens.shape[1], device=self.device) < lengths[:, None]).long()
        with torch.inference_mode():
            log_probs = torch.log_softmax(self.model.logits(tokens, segments).float(), dim=-1)
        chosen = log_probs.gather(2, wanted.clamp(min=0)[:, :, None])[:, :, 0]
        return chosen.masked_fill(wanted < 0, 0.0).double().sum(dim=1).tolist()
