"""Cost of a lexical shortlist in BLEU and its gain in time, in the native engine and in CTranslate2.

    heedful shortlist -m model --source train.en --target train.de
    heedful export --to ctranslate2 --quantization int8 -m model -o exported
    python benchmarks/speed/shortlists.py model --test newstest2014 test.en test.de --ctranslate2 exported

More model directories, the same model with shortlists of other sizes, are scored and timed too. Times are for
sentences of the first test set with 25 tokens; every engine generates 25 tokens for each, so that all do the same work.
The engines are interleaved, and the best round of each counts, since the others are slowed down by other programs.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.common.run_metadata import run_metadata
from benchmarks.speed.native_speed import LENGTH, SPECIAL, Run, Sources, measure, table, with_ctranslate2
from heedful.config import DecodingConfig
from heedful.cpu_count import usable_cores
from heedful.decoding.engines.native_engine import NativeDecodingEngine
from heedful.decoding.translator import Translator
from heedful.evaluation.score import score
from heedful.model_dir.shortlist import read_shortlist
from heedful.native import NativeEngine

WITH, WITHOUT = "native, shortlist", "native, all words"


def lines_of(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()


def quality(models: list[Path], tests: list[list[str]]) -> str:
    """BLEU of each model with its shortlist, and of the first one without, greedy and with beam 4."""
    heads = [f"{name}, {method}" for name, _, _ in tests for method in ("greedy", "beam 4")]
    rows = [f"| shortlist | candidates | {' | '.join(heads)} |", "|---|---|" + "---|" * len(heads)]
    for index, directory in enumerate([models[0], *models]):
        translator = Translator.load(directory, engine="native")
        engine = native_of(translator)
        wanted = None if index else False
        name, sizes = "none", f"{engine.shape.target_vocab_size:,}"
        if wanted is None:
            shortlist = read_shortlist(directory)
            assert shortlist is not None, f"{directory} has no shortlist"
            settings = shortlist.settings
            name = f"{settings['per_token']} per token, {settings['frequent']:,} frequent, {settings['pairs']:,} pairs"
            texts = lines_of(tests[0][1])
            lengths = [len(shortlist.candidates(translator.tokenizer.encode_source(text))) for text in texts]
            sizes = f"{np.mean(lengths):,.0f}"
        cells = []
        for _, source, reference in tests:
            for search in ({"method": "greedy"}, {"beam_size": 4}):
                found = translator.translate(lines_of(source), shortlist=wanted, **search)
                scores = score([one.text for one in found], lines_of(reference), metrics=("bleu",))
                cells.append(f"{scores[0].value:.2f}")
        rows.append(f"| {name} | {sizes} | {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    return "\n".join(rows)


def native_of(translator: Translator) -> NativeEngine:
    assert isinstance(translator.engine, NativeDecodingEngine)
    return translator.engine.engine


def native(engine: NativeEngine, *, shortlist: bool) -> Run:
    def run(sources: Sources, beam_size: int) -> int:
        config = DecodingConfig(beam_size=beam_size, min_length=LENGTH - 1, shortlist=shortlist)
        found = engine.translate_ids(sources, config, SPECIAL, max_lengths=[LENGTH - 1] * len(sources))
        return sum(len(hypotheses[0].tokens) for hypotheses in found)

    return run


def speed(models: list[Path], exported: Path | None, source: str, *, threads: int, rounds: int) -> str:
    """Times of the native engine and of CTranslate2 in both thread layouts, with and without shortlists."""
    engines = [NativeEngine.load(directory, num_threads=threads) for directory in models]
    tokenizer = Translator.load(models[0], engine="native").tokenizer
    sentences = [ids for ids in tokenizer.encode_sources(lines_of(source)) if len(ids) == LENGTH]
    runs = {WITH: native(engines[0], shortlist=True), WITHOUT: native(engines[0], shortlist=False)}
    runs |= {f"{WITH} of {d.name}": native(e, shortlist=True) for d, e in zip(models[1:], engines[1:], strict=True)}
    for workers, each in ((threads, 1), (1, threads)) if exported else ():
        for use_map in (False, True):
            name = f"CTranslate2 int8, {workers} × {each} threads, {'vocabulary map' if use_map else 'full vocabulary'}"
            assert exported is not None
            runs[name] = with_ctranslate2(exported, workers=workers, threads=each, use_map=use_map)
    return table(measure(runs, rounds=rounds, given=sentences), WITH)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+", help="model directories with shortlists")
    parser.add_argument("--test", nargs=3, action="append", required=True, metavar=("NAME", "SOURCE", "REFERENCE"))
    parser.add_argument("--ctranslate2", type=Path, help="the first model, exported for CTranslate2 in int8")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--without-quality", action="store_true", help="measure times only")
    parser.add_argument("--write", metavar="DATE", help="write the tables to benchmarks/results")
    chosen = parser.parse_args()
    parts = ["# Lexical shortlists"]
    if not chosen.without_quality:
        parts.append(quality(chosen.models, chosen.test))
    before = os.getloadavg()[0]
    timed = speed(chosen.models, chosen.ctranslate2, chosen.test[0][1], threads=chosen.threads, rounds=chosen.rounds)
    kernels = NativeEngine.load(chosen.models[0], num_threads=1).kernels
    summary = (
        f"{chosen.threads} threads, {kernels} kernels, load average {before:.1f} before, "
        f"best of {chosen.rounds} rounds."
    )
    page = "\n\n".join([*parts, timed, summary, run_metadata()])
    print(page)
    if chosen.write:
        path = Path(__file__).resolve().parents[1] / "results" / f"shortlists_{chosen.write}_cpu.md"
        path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
