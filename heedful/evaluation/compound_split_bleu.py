"""BLEU as the paper's generation measured it: on tokens, with hyphenated compounds taken apart.

The paper prints tokenised BLEU and says no more. Its authors' script for English to German turns `(\\S)-(\\S)` into
`\\1 ##AT##-##AT## \\2` on both sides, after Moses's tokenizer. A
hyphen so counts as a word of its own, one that is nearly always right, and the score comes out higher than sacreBLEU's.
The tokens here are those of sacreBLEU's 13a, not of Moses's script, so even this figure is only close to the paper's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from heedful.evaluation.score import Interval, Score, align, plain_numbers, seeded

NAME = "compound-split BLEU"
TOKENIZER = "13a+compound-split"
"""What stands in the signature after `tok:`."""
_COMPOUND = re.compile(r"(\S)-(\S)")


def split_compounds(text: str) -> str:
    """Tokenised text with each hyphen inside a word as a word of its own, marked on both sides."""
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", text)


def tokenised_and_split(lines: Sequence[str]) -> list[str]:
    """Lines as they are compared: tokens by 13a, then compounds taken apart."""
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
    signature = str(metric.get_signature()).replace("tok:none", f"tok:{TOKENIZER}")
    return Score(NAME, float(result.score), signature, interval)
