"""How many sentence pairs a shortlist needs: BLEU with shortlists from fewer pairs, against the full vocabulary.

    python benchmarks/quality/shortlist_corpus_size.py train.en train.de --write 2026-11-18

The model is a copy of the bundled one (or `--model`). The last pairs are the test set, the shortlists are learned from
the first pairs, as many as each row says, with the default sizes of `heedful shortlist`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.common.run_metadata import run_metadata
from heedful.decoding.build_shortlist import ShortlistSize, TokenizedPairs, make_shortlist
from heedful.decoding.translator import Translator
from heedful.evaluation.score import score
from heedful.interop.export import repack
from heedful.model_dir.registry import find_model
from heedful.model_dir.shortlist import save_shortlist


def measure(model: Path, args: argparse.Namespace) -> list[str]:
    """A row for each number of pairs."""
    sources, targets = (Path(path).read_text(encoding="utf-8").splitlines() for path in (args.source, args.target))
    test = slice(len(sources) - args.test, None)
    tokenizer = Translator.load(model).tokenizer
    sizes = (tokenizer.source_vocab_size, tokenizer.target_vocab_size)
    tag = args.to if tokenizer.tags else None
    rows, best = [], 0.0
    for count in (None, *args.pairs):
        average = float(sizes[1])
        if count is not None:
            collected = TokenizedPairs(tokenizer)
            step = (len(sources) - args.test) // count
            chosen = slice(0, step * count, step)
            collected.add(sources[chosen], targets[chosen], tag)
            made = make_shortlist(collected, ShortlistSize(), vocab_sizes=sizes)
            save_shortlist(model, made)
            average = collected.average(made)
        translator = Translator.load(model, engine="native")
        found = translator.translate(sources[test], target_language=args.to, shortlist=count is not None)
        bleu = score([one.text for one in found], targets[test], metrics=["bleu"], target_language=args.to, bootstrap=0)
        best = best or bleu[0].value
        name = "none: all words" if count is None else f"{count:,}"
        rows.append(f"| {name} | {average:,.0f} | {bleu[0].value:.2f} | {bleu[0].value - best:+.2f} |")
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--model", default="en-de-zh")
    parser.add_argument("--to", default="de")
    parser.add_argument("--test", type=int, default=500)
    parser.add_argument("--pairs", type=int, nargs="+", default=[100, 300, 1000, 3000, 5000, 10000, 19500])
    parser.add_argument("--write", metavar="DATE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        repack(find_model(args.model), model, compact=True, shard_mb=None)
        rows = measure(model, args)
    head = ["| pairs | candidates per sentence | BLEU | difference |", "|---|---|---|---|"]
    note = (
        f"Model {Path(args.model).name}, into {args.to}, beam 4, native int8. The shortlists were "
        f"learned without the {args.test} test pairs, but the model may have been trained on them: compare the "
        "differences, not the levels."
    )
    text = "\n".join(["# Sentence pairs needed for a shortlist", "", note, "", *head, *rows, "", run_metadata()])
    if args.write:
        path = Path(__file__).resolve().parents[1] / "results" / f"shortlist_corpus_size_{args.write}_cpu.md"
        path.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
