"""Whether engines translate identically: each against torch in float32, on the same sentences, per search method.

    heedful train --source examples/data/tatoeba.en --target examples/data/tatoeba.de \\
        --preset tiny --steps 1000 -o model
    python benchmarks/invariance/engine_parity.py model examples/data/tatoeba-test.en examples/data/tatoeba-test.de \\
        --write 2026-11-15

Reports the number of translations that differ from torch's, the largest difference of `log_prob` among the others, and
the BLEU of each engine's translations. Engines that are not installed are skipped.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.common.run_metadata import run_metadata
from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator
from heedful.errors import ConfigError
from heedful.evaluation.score import score
from heedful.paper.text_tables import markdown_table

ROOT = Path(__file__).resolve().parents[2]
ENGINES = (("ctranslate2", "float32"), ("native", "float32"), ("ctranslate2", "int8"), ("native", "int8"))
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"method": "greedy"},
    "beam 4, `paper` α = 0.6 (the default)": {},
    "beam 8, `paper`": {"beam_size": 8},
    "beam 4, `average` α = 0.6": {"length_penalty": "average"},
    "beam 4, `average` α = 1": {"length_penalty": "average", "length_penalty_alpha": 1.0},
    "beam 4, `none`": {"length_penalty": "none"},
}


def compared(ours: list[Translation], theirs: list[Translation]) -> tuple[int, float]:
    """Number of translations that differ, and the largest difference of log-probabilities of the others."""
    same = [(one, other) for one, other in zip(ours, theirs, strict=True) if one.text == other.text]
    return len(ours) - len(same), max((abs(one.log_prob - other.log_prob) for one, other in same), default=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("source", type=Path, help="sentences, one per line")
    parser.add_argument("target", type=Path, help="their translations")
    parser.add_argument("--write", metavar="DATE", help="write benchmarks/results/engine_parity_DATE_cpu.md")
    arguments = parser.parse_args()
    texts, references = (path.read_text(encoding="utf-8").splitlines() for path in (arguments.source, arguments.target))
    torch_engine = Translator.load(arguments.model, device="cpu", engine="torch")
    ours = {name: torch_engine.translate(texts, **settings) for name, settings in SEARCHES.items()}
    rows = []
    for engine, kind in (("torch", "float32"), *ENGINES):
        try:
            other = Translator.load(arguments.model, device="cpu", engine=engine, quantization=kind)
        except ConfigError as error:
            if engine != "torch":
                print(f"{engine} {kind} skipped: {error}", file=sys.stderr)
                continue
            other = torch_engine
        for name, settings in SEARCHES.items():
            found = other.translate(texts, **settings)
            differ, apart = compared(ours[name], found)
            bleu = score([one.text for one in found], references, metrics=["bleu"])[0].value
            rows.append([engine, kind, name, f"{differ:,}", f"{apart:.4f}", f"{bleu:.2f}"])
    heading = ["engine", "weights", "search", "differ from torch", "largest difference of `log_prob`", "BLEU"]
    page = (
        f"# Do engines translate identically?\n\n{len(texts):,} sentences of {arguments.source.name}, on a CPU.\n\n"
        f"{markdown_table(heading, rows)}\n\n{run_metadata()}"
    )
    sys.stdout.write(page)
    if arguments.write:
        path = ROOT / "benchmarks" / "results" / f"engine_parity_{arguments.write}_cpu.md"
        path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
