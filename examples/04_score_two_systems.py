"""Compare two systems: scores with signatures, and a paired significance test on the same sentences.

    python examples/04_score_two_systems.py

The systems are the bundled model with greedy and with beam search. Its training text contains similar sentences and
possibly some of these, so the scores are too high; the comparison is still valid. The same in a shell:
`heedful score greedy.de beam.de -r examples/data/tatoeba-test.de`.
"""

from pathlib import Path

import heedful
from heedful.evaluation.significance import compare

folder = Path(__file__).parent / "data"
sources, references = ((folder / f"tatoeba-test.{side}").read_text("utf-8").splitlines() for side in ("en", "de"))
translator = heedful.Translator.load()
systems = {
    method: [one.text for one in translator.translate(sources, target_language="de", method=method)]
    for method in ("greedy", "beam")
}

# Printing a score includes its signature.
for name, translations in systems.items():
    for score in heedful.score(translations, references, metrics=("bleu", "chrf"), target_language="de"):
        print(f"{name}: {score}")

# The p-value: how often resampled sentences would show so large a difference by chance.
print(compare(systems, references, metrics=("bleu", "chrf"), target_language="de").render(width=100))
