"""Is one system better than another? Scores with their signatures, and a paired test on the same sentences.

    python examples/04_score_two_systems.py

The model in the box with two searches: the likeliest token at each step, or the four best beginnings. It learned from
sentences like these and may know some of them, so the scores flatter it; the comparison is fair. In a shell the same
is `heedful score greedy.de beam.de -r examples/data/tatoeba-test.de`.
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

# A score is a number together with the recipe that made it: it prints as both.
for name, translations in systems.items():
    for score in heedful.score(translations, references, metrics=("bleu", "chrf"), target_language="de"):
        print(f"{name}: {score}")

# The p-value: how often chance alone, by resampling the sentences, would show so large a difference.
print(compare(systems, references, metrics=("bleu", "chrf"), target_language="de").render(width=100))
