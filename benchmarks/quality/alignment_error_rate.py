"""Alignment error rate against manual alignments: every layer, step and head, and the alignments that users get.

    python benchmarks/quality/alignment_error_rate.py heedful/bundled/en-de-zh --write 2026-11-18
    python benchmarks/quality/alignment_error_rate.py model --directions de-en --write 2026-11-18 --name tiny

The alignment error rate (Och and Ney 2003) of the predicted links A and the manual links S is
1 − 2 |A ∩ S| / (|A| + |S|), over all pairs of benchmarks/data, in percent; lower is better. The model is given
both sentences. A target token is linked to the source token with the greatest weight; two words are linked if any of
their tokens are.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from benchmarks.common.run_metadata import run_metadata
from heedful.decoding.alignment_selection import list_sources
from heedful.decoding.engines.torch_engine import make_batches, pad
from heedful.decoding.search import force_decode
from heedful.decoding.translator import Translator
from heedful.decoding.word_alignment import Span, locate
from heedful.model_dir import load_model
from heedful.model_dir.save_load import AlignmentSource, LoadedModel, default_source, recorded_source
from heedful.paper.text_tables import markdown_table

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "benchmarks" / "data"
DIRECTIONS = ("en-de", "de-en", "en-zh", "zh-en")
WORD = re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+(?:['’-][^\W\u3400-\u9fff]+)*|[^\w\s]|_")
Links = set[tuple[int, int]]


class GoldPair(NamedTuple):
    """Two sentences and the alignment links between their words."""

    source: str
    target: str
    links: Links


def read_gold(direction: str) -> list[GoldPair]:
    """The manually aligned pairs in one direction."""
    from_english = direction.startswith("en-")
    other = direction.removeprefix("en-") if from_english else direction.removesuffix("-en")
    pairs = []
    for line in (DATA / f"alignments.en-{other}.tsv").read_text(encoding="utf-8").splitlines():
        english, foreign, pharaoh = line.split("\t")
        links = {(int(i), int(j)) for i, j in (link.split("-") for link in pharaoh.split())}
        backwards = {(j, i) for i, j in links}
        pairs.append(GoldPair(english, foreign, links) if from_english else GoldPair(foreign, english, backwards))
    return pairs


def words_of_tokens(text: str, tokens: Sequence[str]) -> list[list[int]]:
    """The words that each subword is part of."""
    words: list[Span] = [found.span() for found in WORD.finditer(text)]
    return [
        [n for n, word in enumerate(words) if word[0] < end and start < word[1]] for start, end in locate(text, tokens)
    ]


def word_links(
    alignment: Iterable[tuple[int, int]], source: Sequence[Sequence[int]], target: Sequence[Sequence[int]]
) -> Links:
    """Word links from subword links; `source` and `target` map subwords to words."""
    return {(i, j) for one, other in alignment for i in source[one] for j in target[other]}


def error_rate(pairs: Iterable[tuple[Links, Links]]) -> float:
    """The alignment error rate of (predicted, manual) pairs, in percent."""
    both = found = gold = 0
    for ours, theirs in pairs:
        both, found, gold = both + len(ours & theirs), found + len(ours), gold + len(theirs)
    return 100 * (1 - 2 * both / (found + gold))


def measure_all(loaded: LoadedModel, pairs: Sequence[GoldPair], language: str | None) -> dict[AlignmentSource, float]:
    """The error rate of every layer, step and head."""
    tokenizer, num_tags = loaded.tokenizer, 1 if loaded.tokenizer.tags else 0
    sources = tokenizer.encode_sources([pair.source for pair in pairs], language)
    targets = tokenizer.encode_targets([pair.target for pair in pairs])
    found: dict[AlignmentSource, list[tuple[Links, Links]]] = {}
    for batch in make_batches([len(ids) for ids in sources], tokens_per_batch=2048, rows_per_sentence=1):
        given = pad([sources[i] for i in batch], pad_id=tokenizer.pad_id, device=torch.device("cpu"))
        forced = force_decode(
            loaded.model, *given, [targets[i] for i in batch], bos_id=tokenizer.bos_id, need_weights=True
        )
        for i, score in zip(batch, forced, strict=True):
            assert score.attention is not None
            words = (
                words_of_tokens(pairs[i].source, tokenizer.source_pieces(sources[i][num_tags:-1])),
                words_of_tokens(pairs[i].target, tokenizer.pieces(targets[i][:-1])),
            )
            weights = score.attention.numpy()
            for chosen in list_sources(weights.shape[1], weights.shape[2]):
                layer = weights[:, chosen.layer]
                one = layer.mean(axis=1) if chosen.head is None else layer[:, chosen.head]
                best = chosen.rows(one, num_tags).argmax(axis=1)
                links = word_links(((int(i), j) for j, i in enumerate(best)), *words)
                found.setdefault(chosen, []).append((links, pairs[i].links))
    return {chosen: error_rate(links) for chosen, links in found.items()}


def measure_translator(translator: Translator, pairs: Sequence[GoldPair], language: str | None) -> float:
    """The error rate for users: `translate` with the whole target as prefix."""
    translations = translator.translate(
        [pair.source for pair in pairs],
        target_prefix=[pair.target for pair in pairs],
        target_language=language,
        align=True,
        method="greedy",
    )
    found = []
    for pair, translation in zip(pairs, translations, strict=True):
        length = len(translator.tokenizer.encode_prefix(pair.target))
        words = (
            words_of_tokens(pair.source, translation.source_tokens),
            words_of_tokens(pair.target, translation.tokens[:length]),
        )
        assert translation.alignment is not None
        found.append((word_links(translation.alignment[:length], *words), pair.links))
    return error_rate(found)


def all_rows(table: dict[str, dict[AlignmentSource, float]]) -> Iterator[list[str]]:
    """A row per layer and step: the mean over heads and the best head, in each direction."""
    some = next(iter(table.values()))
    for chosen in (one for one in some if one.head is None):
        heads = [
            one for one in some if one.head is not None and (one.layer, one.offset) == (chosen.layer, chosen.offset)
        ]
        cells = []
        for errors in table.values():
            best = min(heads, key=lambda head: errors[head])
            cells.append(f"{errors[chosen]:.1f} / {errors[best]:.1f} (head {best.head})")
        yield [str(chosen.layer), str(chosen.offset), *cells]


def named_rows(loaded: LoadedModel, table: dict[str, dict[AlignmentSource, float]]) -> Iterator[list[str]]:
    """Rows of the previous method, the default, the recorded source and the best."""
    model = loaded.config.model
    layers = model.num_decoder_layers
    sources = {
        "previous: the second-to-last layer, the step that predicts": AlignmentSource(max(layers - 2, 0), 0),
        "default without a record": default_source(layers),
        "recorded": recorded_source(loaded.details, num_layers=layers, num_heads=model.num_heads),
    }
    for name, chosen in sources.items():
        if chosen is not None:
            head = "mean" if chosen.head is None else f"head {chosen.head}"
            shown = f"{name} (layer {chosen.layer}, offset {chosen.offset}, {head})"
            yield [shown, *(f"{errors[chosen]:.1f}" for errors in table.values())]
    yield ["the best of all, per direction", *(f"{min(errors.values()):.1f}" for errors in table.values())]


def engine_rows(model: Path, gold: dict[str, list[GoldPair]], languages: dict[str, str | None]) -> Iterator[list[str]]:
    """Rows of each engine."""
    for engine, quantization in (("native", "int8"), ("native", "float32"), ("torch", "float32")):
        translator = Translator.load(model, device="cpu", engine=engine, quantization=quantization)
        cells = [f"{measure_translator(translator, pairs, languages[one]):.1f}" for one, pairs in gold.items()]
        yield [f"`translate(align=True)`, {engine} {quantization}", *cells]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--directions", nargs="+", default=list(DIRECTIONS), choices=DIRECTIONS)
    parser.add_argument("--name", default="bundled", help="name of the model in the result's file name")
    parser.add_argument("--write", metavar="DATE", help="write benchmarks/results/alignment_error_rate_DATE_NAME.md")
    chosen = parser.parse_args()
    loaded = load_model(chosen.model)
    gold = {direction: read_gold(direction) for direction in chosen.directions}
    languages = {one: one[-2:] if loaded.tokenizer.tags else None for one in gold}
    table = {one: measure_all(loaded, pairs, languages[one]) for one, pairs in gold.items()}
    model, counts = loaded.config.model, ", ".join(f"{one}: {len(pairs)}" for one, pairs in gold.items())
    summary = [*named_rows(loaded, table), *engine_rows(chosen.model, gold, languages)]
    page = (
        f"# Alignment error rate of the {chosen.name} model\n\n"
        f"Percent; lower is better. {model.num_decoder_layers} decoder layers of {model.num_heads} heads, "
        f"norm placement {model.norm_placement}. Manually aligned pairs: {counts}.\n\n"
        f"{markdown_table(['alignments from', *gold], summary)}\n\n"
        f"Every layer and step: offset 0 is the step that predicts a token, offset 1 the step that reads it. "
        f"Each cell: the mean over the heads, then the best head.\n\n"
        f"{markdown_table(['layer', 'offset', *gold], list(all_rows(table)))}\n\n{run_metadata()}"
    )
    sys.stdout.write(page)
    if chosen.write:
        folder = Path(os.environ.get("OUT") or ROOT / "benchmarks" / "results")
        (folder / f"alignment_error_rate_{chosen.write}_{chosen.name}.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
