"""All settings: frozen dataclasses with a description of each field, and the presets.

A `Config` is complete and checked; `heedful.config_loading` makes it from YAML, flags and mappings. This file imports
no heavy package, so that `heedful --help` answers at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

from heedful.errors import ConfigError

LANGUAGE_MODELS = ("encoder", "decoder")
"""The architectures that are trained on one text: a masked language model and a next-token model."""
RESERVED_SYMBOLS = ("<pad>", "<unk>", "<s>", "</s>")

MAX_IDS, MAX_WIDTH, MAX_LENGTH = 1 << 24, 1 << 16, 1 << 15
LARGEST: dict[str, dict[str, float]] = {
    "data": {"max_characters": 1 << 30, "max_length_ratio": 1e6, "row_width": MAX_LENGTH, "num_workers": 1024},
    "tokenizer": {"vocab_size": MAX_IDS},
    "model": {
        "source_vocab_size": MAX_IDS, "target_vocab_size": MAX_IDS, "d_model": MAX_WIDTH, "d_ff": MAX_WIDTH,
        "num_heads": 4096, "head_dim": MAX_WIDTH, "key_dim": MAX_WIDTH, "num_encoder_layers": 256,
        "num_decoder_layers": 256, "norm_epsilon": 1, "max_length": MAX_LENGTH, "kernel_size": 1023,
        "attention_window": MAX_LENGTH,
    },
    "training": {
        "tokens_per_step": 1 << 31, "tokens_per_microbatch": 1 << 31, "num_bleu_sentences": 1 << 20,
        "num_samples": 1000,
        "average_last": 1000, "keep_checkpoints": 1000,
    },
    "decoding": {
        "beam_size": 1000, "num_best": 1 << 16, "min_length": MAX_LENGTH, "max_length": MAX_LENGTH,
        "max_extra_length": MAX_LENGTH, "no_repeat_ngram_size": MAX_LENGTH, "temperature": 1e6, "top_k": MAX_IDS,
        "tokens_per_batch": 1 << 30,
    },
}  # fmt: skip
"""The largest value of each number that has no other upper bound; the native engine relies on them."""


@dataclass(frozen=True)
class CorpusConfig:
    """One aligned corpus: two text files, or one TSV, CSV or JSONL file; or the text of a language model."""

    source: str | None = None
    """Text file of the source side, one sentence a line."""
    target: str | None = None
    """Text file of the target side; line n translates line n of the source."""
    path: str | None = None
    """Instead of two files: one `.tsv`, `.csv` or `.jsonl` file with both sides."""
    text: str | None = None
    """Instead of two files: one text file for a language model, one text a line."""
    source_column: str | None = None
    """Column of the source in `path`: a number from 1, or a name in the heading; None: "source", else the first."""
    target_column: str | None = None
    """Column of the target in `path`, likewise; None: "target", else the second."""
    weight: float = 1.0
    """How often an epoch uses each pair: 2 uses all twice; 0.5 uses half of them, and the next epoch the other half."""
    source_language: str | None = None
    """Language code of this corpus's source, when it differs from `data.source_language`."""
    target_language: str | None = None
    """Language code of this corpus's target, when it differs from `data.target_language`."""
    both_directions: bool = False
    """Also use every pair the other way round (needs both language codes; the target language becomes a tag)."""
    source_tag: str | None = None
    """Put this word as one token before each source, for example to mark back-translated text."""

    def __post_init__(self) -> None:
        named = self.text or self.path or self.source
        if not self.weight > 0:
            raise ConfigError(f"data: the weight of {named} must be above 0, not {self.weight}.")
        if self.source_tag is not None and not re.fullmatch(r"[a-z][a-z_-]+", self.source_tag):
            raise ConfigError(f"data: the source_tag of {named} is a word of small letters, not {self.source_tag!r}.")
        if self.source_tag is not None and (f"<{self.source_tag}>" in RESERVED_SYMBOLS or self.both_directions):
            why = "would mark both languages; name the corpus twice" if self.both_directions else "is taken"
            raise ConfigError(f"data: the source_tag {self.source_tag!r} of {named} {why}.")


@dataclass(frozen=True)
class DataConfig:
    """Training, validation and test corpora, filters, and packing into rows."""

    train: tuple[CorpusConfig, ...] = ()
    """Corpora to train on."""
    valid: tuple[CorpusConfig, ...] = ()
    """Corpora for validation; when empty, pairs are held out of the training corpora."""
    test: tuple[CorpusConfig, ...] = ()
    """Corpora to score the finished model on; never trained on."""
    source_language: str | None = None
    """Language code of the source, such as "en"; written into the model card."""
    target_language: str | None = None
    """Language code of the target, such as "de"; also selects sacreBLEU's tokenizer."""
    target_tags: bool | None = None
    """Put a tag such as `<2de>` before each source; None: only when there is more than one target language."""
    temperature: float = 1.0
    """Above 1: oversample language pairs with less text, each in proportion to its text to the power 1/temperature."""
    max_characters: int = 2000
    """Pairs with a longer side, counted in characters, are dropped."""
    max_length_ratio: float = 6.0
    """Pairs whose longer side has more than this many times the bytes of the shorter (both plus 20) are dropped."""
    deduplicate: bool = True
    """Drop repeated pairs."""
    drop_identical: bool = True
    """Drop pairs whose target equals their source (switch off for copying, spelling or normalising text)."""
    drop_overlap: bool = True
    """Drop training pairs that are also in valid or test."""
    num_valid_pairs: int | None = None
    """Number of pairs held out when no valid corpus is given; None: 2 %, at most 2,000."""
    row_width: int | None = None
    """Tokens in one row of a batch; longer sentences are dropped. None: 128, or more if many sentences need it."""
    prepared: str | None = None
    """Directory written by `heedful prepare`: train from it and skip reading the corpora."""
    shuffle: Literal["pairs", "blocks"] | None = None
    """Each epoch shuffles all "pairs", or "blocks" of rows packed once; None: blocks above 16 million pairs."""
    num_workers: int | None = None
    """Processes that read and tokenise the corpora; None: one for each core. The result is always the same."""

    def __post_init__(self) -> None:
        require_at_most(self, "data")
        require_positive(self, "data", ("max_characters", "row_width", "num_workers"))
        require_named(self, "data", "prepared")
        if not 1 <= self.temperature <= 100:
            raise ConfigError(f"data.temperature must be from 1 to 100, not {self.temperature}.")
        if self.max_length_ratio < 1:
            raise ConfigError(f"data.max_length_ratio must be at least 1, not {self.max_length_ratio}.")
        if self.num_valid_pairs is not None and self.num_valid_pairs < 0:
            raise ConfigError(f"data.num_valid_pairs may not be negative, got {self.num_valid_pairs}.")


@dataclass(frozen=True)
class TokenizerConfig:
    """How text becomes subword ids (SentencePiece)."""

    path: str | None = None
    """Use the tokenizer of this directory instead of training one."""
    kind: Literal["bpe", "unigram"] = "bpe"
    """Algorithm that learns the subwords."""
    target_kind: Literal["bpe", "unigram", "word"] | None = None
    """The same for the target if vocabularies are separate; "word": the text between two spaces is one token."""
    vocab_size: int | None = None
    """Number of subwords (of each side if separate); None: selected by the size of the corpus."""
    joint: bool = True
    """One vocabulary for both sides; False: one for each side."""
    byte_fallback: bool = True
    """Encode unknown characters as bytes, so that no input is lost."""
    character_coverage: float = 0.9998
    """Share of the corpus's characters that get their own ids."""
    user_defined_symbols: tuple[str, ...] = ()
    """Text that is always one token, such as a tag `<name>`; on sides with subwords."""
    max_sentences: int = 500_000
    """Learn the subwords from at most this many sentences, sampled evenly."""

    def __post_init__(self) -> None:
        require_at_most(self, "tokenizer")
        require_positive(self, "tokenizer", ("vocab_size", "max_sentences"))
        require_named(self, "tokenizer", "path")
        if self.target_kind is not None and self.joint:
            raise ConfigError("tokenizer.target_kind needs separate vocabularies; set tokenizer.joint=false too.")
        if not 0.98 <= self.character_coverage <= 1:
            raise ConfigError(f"tokenizer.character_coverage must be from 0.98 to 1, not {self.character_coverage}.")
        for symbol in self.user_defined_symbols:
            if not symbol or symbol.split() != [symbol] or "\u2581" in symbol:
                raise ConfigError(
                    f"tokenizer.user_defined_symbols: {symbol!r} is empty or holds a space; a symbol has none."
                )
            if symbol in RESERVED_SYMBOLS or self.user_defined_symbols.count(symbol) > 1:
                raise ConfigError(f"tokenizer.user_defined_symbols: {symbol!r} is taken; each symbol must be new.")


@dataclass(frozen=True)
class ModelConfig:
    """The shape of the model. The defaults are the paper's base model (Table 3, first row)."""

    architecture: Literal["transformer", "recurrent", "convolutional", "encoder", "decoder"] = "transformer"
    """The paper's model, one of the two it is compared with, or a language model: its encoder or its decoder alone."""
    source_vocab_size: int = 37_000
    """Number of source ids; `train` sets it from the tokenizer."""
    target_vocab_size: int = 37_000
    """Number of target ids; `train` sets it from the tokenizer."""
    d_model: int = 512
    """Width of the residual stream (d_model in the paper)."""
    d_ff: int = 2048
    """Inner width of the feed-forward sublayers (d_ff)."""
    num_heads: int = 8
    """Attention heads (h)."""
    head_dim: int | None = None
    """Width of one head (d_v, and d_k unless key_dim is set); None: d_model / num_heads."""
    key_dim: int | None = None
    """Of a Transformer: width of the queries and keys of one head (d_k), when it differs from head_dim."""
    num_encoder_layers: int = 6
    """Layers of the encoder (N)."""
    num_decoder_layers: int = 6
    """Layers of the decoder (N)."""
    norm_placement: Literal["post", "pre"] = "post"
    """Normalise after the residual sum, as in the paper, or before each sublayer."""
    norm: Literal["layer", "rms", "batch"] = "layer"
    """LayerNorm, RMSNorm, or BatchNorm over the real tokens of a batch."""
    norm_epsilon: float = 1e-5
    """Added to the variance before its square root."""
    final_norm: bool | None = None
    """Normalise the output of each stack; None: only for "pre", where it would otherwise not be normalised."""
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    """Kind of positional encoding."""
    max_length: int = 1024
    """Longest sentence, in tokens, that the model accepts."""
    activation: Literal["relu", "gelu", "swiglu"] = "relu"
    """Activation inside the feed-forward sublayers."""
    attention_scoring: Literal["scaled_dot", "dot", "additive"] = "scaled_dot"
    """Score of a query and a key: q·k/√d_k, q·k, or v·tanh(q + k)."""
    self_attention: Literal["global", "local", "hard"] = "global"
    """Of a Transformer: each token attends to all tokens, to a window around itself, or to exactly one token."""
    cross_attention: Literal["global", "local_monotonic", "local_predictive", "hard"] = "global"
    """Each target position attends to the whole source, to a window (Luong's local-m or local-p), or to one token."""
    attention_window: int = 10
    """Of local attention: number of tokens that the window covers on each side of its centre (Luong's D)."""
    hard_attention_gradient: Literal["straight_through", "gumbel", "reinforce"] = "straight_through"
    """How hard attention learns: argmax with softmax's gradient, a Gumbel-softmax sample, or sampling (REINFORCE)."""
    cell: Literal["gru", "lstm"] = "gru"
    """Cell of a recurrent model; with additive scoring its attention is Bahdanau's, otherwise Luong's."""
    kernel_size: int = 3
    """Of a convolutional model: width of the convolutions."""
    bias: bool = True
    """Use a bias in linear layers and norms (RMSNorm never has one)."""
    tying: Literal["three_way", "target", "none"] = "three_way"
    """Share one matrix among source embedding, target embedding and output; only the last two; or nothing."""
    dropout: float = 0.1
    """Dropout on each sublayer's output, before the residual sum (P_drop)."""
    embedding_dropout: float | None = None
    """Dropout on the sums of embeddings and positions; None: as `dropout`."""
    attention_dropout: float = 0.0
    """Dropout on attention weights."""
    activation_dropout: float = 0.0
    """Dropout inside the feed-forward sublayers, after the activation."""

    def __post_init__(self) -> None:
        require_at_most(self, "model")
        require_positive(self, "model", ("source_vocab_size", "target_vocab_size", "d_model", "d_ff", "num_heads"))
        require_positive(
            self, "model", ("head_dim", "key_dim", "num_encoder_layers", "num_decoder_layers", "max_length")
        )
        require_positive(self, "model", ("norm_epsilon", "kernel_size", "attention_window"))
        if self.head_dim is None and self.d_model % self.num_heads:
            raise ConfigError(
                f"model.d_model ({self.d_model}) is not divisible by model.num_heads ({self.num_heads}); "
                f"change one of them or set model.head_dim."
            )
        is_transformer = self.architecture == "transformer" or self.is_language_model
        if self.key_dim is not None and not is_transformer:
            raise ConfigError(f"model.key_dim belongs to a Transformer; leave it out of a {self.architecture} model.")
        if self.positions == "rotary" and self.attention_key_dim % 2:
            name = "head_dim" if self.key_dim is None else "key_dim"
            raise ConfigError(f"model.positions=rotary needs an even {name}, not {self.attention_key_dim}.")
        self._check_attention_kinds(is_transformer=is_transformer)
        if is_transformer and self.positions == "rotary" and self.attention_scoring == "additive":
            raise ConfigError("model.positions=rotary works on dot products; use scaled_dot or dot scoring with it.")
        if self.architecture == "convolutional" and self.positions == "rotary":
            raise ConfigError("model.positions=rotary needs queries and keys; use sinusoidal or learned.")
        if self.architecture == "convolutional" and self.attention_scoring == "additive":
            raise ConfigError("a convolutional model asks by dot products; use scaled_dot or dot scoring with it.")
        if self.architecture == "recurrent" and self.d_model % 2:
            raise ConfigError(f"a recurrent model reads both ways and needs an even d_model, not {self.d_model}.")
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ConfigError(f"model.positions=sinusoidal needs an even d_model, not {self.d_model}.")
        self._check_vocabularies()
        for name in ("dropout", "embedding_dropout", "attention_dropout", "activation_dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ConfigError(f"model.{name} must be at least 0 and below 1, not {value}.")

    def _check_vocabularies(self) -> None:
        if self.is_language_model and self.source_vocab_size != self.target_vocab_size:
            raise ConfigError(
                f"model.architecture={self.architecture} has one vocabulary, not source_vocab_size "
                f"{self.source_vocab_size} and target_vocab_size {self.target_vocab_size}; set both alike."
            )
        if self.tying == "three_way" and self.source_vocab_size != self.target_vocab_size:
            raise ConfigError(
                f"model.tying=three_way needs one joint vocabulary, not source_vocab_size {self.source_vocab_size} and "
                f"target_vocab_size {self.target_vocab_size}; use model.tying=target with separate ones."
            )

    @property
    def is_language_model(self) -> bool:
        """Whether the model has a single stack and is trained on one text."""
        return self.architecture in LANGUAGE_MODELS

    def _check_attention_kinds(self, *, is_transformer: bool) -> None:
        """Refuse kinds of attention that the architecture does not have, or that cannot learn."""
        if self.self_attention != "global" and not is_transformer:
            raise ConfigError(
                f"model.self_attention={self.self_attention} belongs to a Transformer; a {self.architecture} model has "
                f"no self-attention."
            )
        if self.cross_attention != "global" and self.architecture not in ("transformer", "recurrent"):
            raise ConfigError(
                f"model.cross_attention={self.cross_attention} belongs to a Transformer or a recurrent model; leave it "
                f"out of a model with the architecture {self.architecture}."
            )
        if self.self_attention == "hard" and self.hard_attention_gradient == "reinforce":
            raise ConfigError(
                "model.hard_attention_gradient=reinforce rewards a choice by the target token it leads to, which "
                "self-attention does not have; use straight_through or gumbel with model.self_attention=hard."
            )

    @property
    def samples_cross_attention(self) -> bool:
        """Whether training samples the attended positions and learns from rewards (REINFORCE)."""
        return self.cross_attention == "hard" and self.hard_attention_gradient == "reinforce"

    @property
    def attention_head_dim(self) -> int:
        """Width of one head, as set or derived."""
        return self.head_dim if self.head_dim is not None else self.d_model // self.num_heads

    @property
    def attention_key_dim(self) -> int:
        """Width of the queries and keys of one head, as set or that of the head."""
        return self.key_dim if self.key_dim is not None else self.attention_head_dim

    @property
    def has_final_norm(self) -> bool:
        """Whether each stack ends with a norm, as set or derived."""
        return self.final_norm if self.final_norm is not None else self.norm_placement == "pre"


@dataclass(frozen=True)
class TrainingConfig:
    """How weights are trained. The optimizer and the schedule default to those of the paper (sections 5.3 and 5.4)."""

    seed: int = 1
    """Determines initial weights, held-out pairs, data order and dropout."""
    device: str = "auto"
    """Where to train: "auto", "cpu", "cuda", "cuda:1" or "mps"."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of matrix products; auto: bf16 autocast on a GPU that supports it, otherwise fp32."""
    compile: bool | None = None
    """Compile the training step with torch.compile; None: on a GPU, where Triton is installed."""
    fused_step: bool | None = None
    """One GPU: custom kernels, bf16 between layers, one CUDA graph; CPU: per sentence; None: where supported."""
    init_from: str | None = None
    """Start from the weights and tokenizer of this model directory (or installed name), for fine-tuning."""
    sharding: Literal["none", "full"] = "none"
    """With several ranks: each holds the whole model (DDP), or a shard of it, for large models (FSDP2)."""
    steps: int | None = None
    """Stop after this many updates."""
    epochs: float | None = None
    """Stop after this many passes over the data."""
    tokens: int | None = None
    """Stop after this many target tokens."""
    minutes: float | None = None
    """Stop after this many minutes of training."""
    tokens_per_step: int | None = None
    """Target tokens in one update, including padding; None: set by the preset (25,000 in the paper)."""
    tokens_per_microbatch: int | None = None
    """Target tokens in one forward and backward pass; smaller values only reduce memory."""
    optimizer: Literal["adam", "muon"] = "adam"
    """Adam; or Muon (orthogonalised momentum) with the same rate for the matrices in a Transformer's layers."""
    betas: tuple[float, float] = (0.9, 0.98)
    """Adam's decay rates β1 and β2."""
    epsilon: float = 1e-9
    """Adam's ε."""
    weight_decay: float = 0.0
    """Decoupled weight decay on matrices (not on biases, norms and embeddings)."""
    schedule: Literal["paper", "inverse_sqrt", "cosine", "linear", "constant"] = "paper"
    """Learning rate after the warm-up; cosine and linear end with the budget."""
    learning_rate: float | None = None
    """Peak learning rate; None: for `paper` that of the formula, otherwise the preset's, or 0.0005."""
    learning_rate_factor: float | None = None
    """For `paper`, instead of a peak: the factor before d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)."""
    final_learning_rate_ratio: float = 0.0
    """For cosine and linear: the final rate divided by the peak."""
    warmup_steps: int | None = None
    """Updates during which the rate rises; None: 4,000 as in the paper, or a tenth of a shorter budget."""
    label_smoothing: float = 0.1
    """Share of the probability spread over the whole vocabulary (ε_ls)."""
    r_drop: float = 0.0
    """Weight of R-Drop, which computes each row with two dropout masks that should agree; 0: off."""
    clip_norm: float | None = None
    """Scale gradients down to this norm if theirs is larger."""
    validate_every: int | None = None
    """Updates between validations; None: 20 per run, 6 per short run, fewer if they took over a tenth of it."""
    num_bleu_sentences: int = 200
    """Number of valid sentences translated at each validation for BLEU (chrF where it is undefined); 0: none."""
    num_samples: int = 3
    """Number of those translations that are printed."""
    early_stopping: int | None = None
    """Stop after this many validations without a better `best_metric`."""
    best_metric: Literal["loss", "bleu"] = "loss"
    """How weights are compared on valid; bleu: chrF where BLEU is undefined, F1 for a parser."""
    average_last: int = 0
    """Also average the weights of the last n validations (the paper averages 5 or 20 checkpoints)."""
    ema_decay: float = 0.0
    """Also keep an exponential moving average of the weights with this decay; 0: off."""
    final_weights: Literal["auto", "best", "last", "average", "ema"] = "auto"
    """Weights in the final model directory; auto: the best on valid of all that exist."""
    save_every: int | None = None
    """Updates between saves of the resume state; None: at each validation."""
    keep_checkpoints: int = 0
    """Keep this many models of the run in `checkpoints/`: the first, the last, and others between; 0: none."""
    shard_mb: float | None = None
    """Split the model's weights into files of at most this many MB, with an index; None: one file."""
    log_every: int = 20
    """Updates between two lines of the log."""
    tensorboard: bool = True
    """Write TensorBoard files in addition to the JSON-lines log."""
    max_skipped_steps: int = 20
    """Stop after this many consecutive updates were skipped because loss or gradients were not finite."""

    def __post_init__(self) -> None:
        require_at_most(self, "training")
        require_seed(self, "training")
        require_named(self, "training", "init_from")
        require_positive(self, "training", ("steps", "epochs", "tokens", "minutes", "tokens_per_step"))
        require_positive(self, "training", ("tokens_per_microbatch", "learning_rate", "learning_rate_factor"))
        require_positive(self, "training", ("warmup_steps", "clip_norm", "validate_every", "early_stopping"))
        require_positive(self, "training", ("save_every", "shard_mb", "log_every", "max_skipped_steps", "epsilon"))
        require_not_negative(
            self, "training", ("weight_decay", "r_drop", "num_bleu_sentences", "num_samples", "average_last")
        )
        if not 0 <= self.final_learning_rate_ratio <= 1:
            raise ConfigError(
                f"training.final_learning_rate_ratio is a share from 0 to 1, not {self.final_learning_rate_ratio}."
            )
        if not 0 <= self.label_smoothing < 1:
            raise ConfigError(f"training.label_smoothing must be at least 0 and below 1, not {self.label_smoothing}.")
        if not 0 <= self.ema_decay < 1:
            raise ConfigError(f"training.ema_decay must be at least 0 and below 1, not {self.ema_decay}.")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"training.betas must be at least 0 and below 1, not {self.betas}.")
        if self.learning_rate is not None and self.learning_rate_factor is not None:
            raise ConfigError("training.learning_rate and training.learning_rate_factor exclude each other; set one.")
        if self.learning_rate_factor is not None and self.schedule != "paper":
            raise ConfigError("training.learning_rate_factor belongs to schedule=paper; use training.learning_rate.")
        if self.keep_checkpoints < 0 or self.keep_checkpoints == 1:
            raise ConfigError(
                f"training.keep_checkpoints must be at least 2, for the first and the last model, or 0 for none; "
                f"not {self.keep_checkpoints}."
            )
        if self.final_weights == "average" and not self.average_last:
            raise ConfigError("training.final_weights=average needs training.average_last.")
        if self.final_weights == "ema" and not self.ema_decay:
            raise ConfigError("training.final_weights=ema needs training.ema_decay.")
        if self.optimizer == "muon" and self.sharding == "full":
            raise ConfigError(
                "training.optimizer=muon needs whole matrices, and training.sharding=full (FSDP2) divides them among "
                "the ranks; use optimizer=adam or sharding=none."
            )
        if self.best_metric == "bleu" and not self.num_bleu_sentences:
            raise ConfigError("training.best_metric=bleu needs training.num_bleu_sentences above 0.")


@dataclass(frozen=True)
class DecodingConfig:
    """How translations are searched. The defaults are those of the paper (section 6.1)."""

    method: Literal["beam", "greedy", "sampling"] = "beam"
    """Beam search, the best token at each step, or random sampling."""
    beam_size: int = 4
    """Hypotheses kept at each step of a beam search."""
    length_penalty: Literal["paper", "average", "none"] = "paper"
    """score = log_prob / lp: paper (GNMT) lp = ((5 + length) / 6)^α; average lp = length^α; none lp = 1."""
    length_penalty_alpha: float = 0.6
    """α of the length penalty."""
    num_best: int = 1
    """Translations to return for each sentence, best first."""
    min_length: int = 0
    """Shortest translation, in tokens."""
    max_length: int | None = None
    """Longest translation, in tokens; None: source length + `max_extra_length`."""
    max_extra_length: int = 50
    """Maximum length of a translation beyond that of its source, in tokens."""
    no_repeat_ngram_size: int = 0
    """Never generate the same n tokens twice; 0: off."""
    temperature: float = 1.0
    """For sampling: divides the logits; below 1 is safer, above 1 more varied."""
    top_k: int = 0
    """For sampling: draw only from the k most likely tokens; 0: off."""
    top_p: float = 1.0
    """For sampling: draw from the fewest tokens with this total probability."""
    seed: int = 1
    """For sampling: determines the draws."""
    split: Literal["long", "always", "never"] = "long"
    """Split inputs into sentences: only those longer than the training sentences, all, or none."""
    tokens_per_batch: int = 8192
    """Source tokens (times beam) decoded together."""
    batch_invariant: bool = True
    """With torch on a CPU: a translation does not depend on the other sentences of its batch; False is faster."""
    shortlist: bool | None = None
    """Use only the shortlist's candidates; None: if the model has a shortlist and the engine is native."""
    checks: bool | None = None
    """Search again if numbers differ or phrases repeat, copy the text if its translation is empty, and warn of other
    problems; None: from one language into another, if the model or the request names both."""
    protect: bool | None = None
    """Keep URLs, placeholders, tags, code, emoji and white space; None: in models from one language into another."""

    def __post_init__(self) -> None:
        require_at_most(self, "decoding")
        require_positive(self, "decoding", ("beam_size", "num_best", "max_length", "temperature", "tokens_per_batch"))
        if self.method == "beam" and self.num_best > self.beam_size:
            raise ConfigError(
                f"decoding.num_best ({self.num_best}) cannot exceed decoding.beam_size ({self.beam_size})."
            )
        if self.method == "greedy" and self.num_best > 1:
            raise ConfigError(
                "decoding.method=greedy gives one translation; use beam or sampling for num_best above 1."
            )
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"decoding.top_p must be above 0 and at most 1, not {self.top_p}.")
        require_not_negative(self, "decoding", ("min_length", "max_extra_length", "no_repeat_ngram_size", "top_k"))
        if self.max_length is not None and self.min_length > self.max_length:
            raise ConfigError(f"decoding.min_length ({self.min_length}) exceeds max_length ({self.max_length}).")
        require_seed(self, "decoding")
        if not 0 <= self.length_penalty_alpha <= 10:
            raise ConfigError(f"decoding.length_penalty_alpha must be from 0 to 10, not {self.length_penalty_alpha}.")


@dataclass(frozen=True)
class Config:
    """The complete configuration of one model: data, tokenizer, model, training and decoding."""

    preset: str = "auto"
    """tiny, small, iwslt, base or big; auto: selected by the size of the corpus and the device."""
    output: str = "model"
    """The model directory to write."""
    name: str | None = None
    """Name for the model card."""
    licence: str | None = None
    """Licence for the model card, such as "CC-BY-4.0"."""
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)

    def __post_init__(self) -> None:
        if not self.output.strip():  # an empty path would be the working directory
            raise ConfigError("output: the name is empty; name the model directory to write (-o model).")
        if self.model.tying == "three_way" and not self.tokenizer.joint:
            raise ConfigError("model.tying=three_way needs tokenizer.joint=true; use model.tying=target or none.")
        corpora = (*self.data.train, *self.data.valid, *self.data.test)
        architecture = self.model.architecture
        if self.model.is_language_model:
            self._check_language_model([corpus for corpus in corpora if corpus.text is None])
        elif texts := [corpus.text for corpus in corpora if corpus.text is not None]:
            raise ConfigError(
                f"model.architecture={architecture} needs two sides, not the single text {texts[0]}: give --source and "
                f"--target, or set --model.architecture=decoder or encoder for a language model."
            )

    def _check_language_model(self, pairs: list[CorpusConfig]) -> None:
        architecture = self.model.architecture
        if pairs:
            raise ConfigError(
                f"architecture {architecture} needs --text, not --source/--target: a language model is trained on one "
                f"text file (not on {pairs[0].path or pairs[0].source})."
            )
        if not self.tokenizer.joint:
            raise ConfigError(f"tokenizer.joint=false is for two sides; architecture {architecture} has one text.")
        if self.data.target_tags:
            raise ConfigError(
                f"data.target_tags is for translation; architecture {architecture} has no target language."
            )
        if self.training.num_bleu_sentences:
            raise ConfigError(
                f"training.num_bleu_sentences is for translation; leave it out, architecture {architecture} is "
                f"validated by its loss and perplexity."
            )


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "tiny": {
        "model": {
            "d_model": 128, "d_ff": 512, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 2,
            "norm_placement": "pre", "dropout": 0.1,
        },
        "training": {"tokens_per_step": 512, "schedule": "cosine", "learning_rate": 3e-3, "clip_norm": 1.0},
    },
    "small": {
        "model": {
            "d_model": 256, "d_ff": 1024, "num_heads": 4, "num_encoder_layers": 3, "num_decoder_layers": 3,
            "norm_placement": "pre", "dropout": 0.2,
        },
        "training": {"tokens_per_step": 6144, "schedule": "cosine", "learning_rate": 2e-3, "clip_norm": 1.0},
    },
    "iwslt": {
        "model": {"d_model": 512, "d_ff": 1024, "num_heads": 4, "dropout": 0.3},
        "training": {"tokens_per_step": 12_288, "schedule": "inverse_sqrt", "learning_rate": 7e-4},
    },
    "base": {"model": {}, "training": {"tokens_per_step": 25_600}},
    "big": {
        "model": {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3},
        "training": {"tokens_per_step": 25_600},
    },
}  # fmt: skip
"""The values that each preset changes; base and big are those of the paper."""

LANGUAGE_MODEL_DEFAULTS: dict[str, dict[str, Any]] = {
    "training": {"label_smoothing": 0.0, "num_bleu_sentences": 0},
    "decoding": {"method": "sampling", "top_p": 0.9},
}
"""What the architectures `encoder` and `decoder` change over a preset; smoothing would raise their perplexity."""


def choose_preset(num_pairs: int, *, on_gpu: bool) -> str:
    """The default preset for a corpus: larger corpora and a GPU allow larger models."""
    if num_pairs < 20_000:
        return "tiny"
    if num_pairs < 100_000 or not on_gpu:
        return "small"
    return "iwslt" if num_pairs < 500_000 else "base"


def require_not_negative(config: Any, section: str, names: tuple[str, ...]) -> None:
    """Raise `ConfigError` for a negative number."""
    for name in names:
        if getattr(config, name) < 0:
            raise ConfigError(f"{section}.{name} may not be negative, got {getattr(config, name)}.")


def require_positive(config: Any, section: str, names: tuple[str, ...]) -> None:
    """Raise `ConfigError` for a number that is set and not positive."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not value > 0:
            raise ConfigError(f"{section}.{name} must be above 0, not {value}.")


def require_at_most(config: Any, section: str) -> None:
    """Raise `ConfigError` for a number above its bound in `LARGEST`."""
    for name, largest in LARGEST[section].items():
        value = getattr(config, name)
        if value is not None and value > largest:
            raise ConfigError(f"{section}.{name} must be at most {largest:,}, not {value}.")


def require_named(config: Any, section: str, name: str) -> None:
    """Raise `ConfigError` for a name that is set and empty, most often by an undefined shell variable."""
    value = getattr(config, name)
    if value is not None and not value.strip():
        raise ConfigError(f"{section}.{name} is empty; give a name or a path, or leave it out.")


def require_seed(config: Any, section: str) -> None:
    """Raise `ConfigError` for a seed that random generators do not accept: it must fit in 64 signed bits."""
    if not -(2**63) <= config.seed < 2**63:
        raise ConfigError(f"{section}.seed must lie between -2^63 and 2^63, not {config.seed}.")
