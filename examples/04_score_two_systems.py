"""Is one system better than another? Scores with their signatures, and a paired test on the same sentences.

    python examples/04_score_two_systems.py

Two made-up systems stand for real ones: references in which some words are missing, more of them in the first. In a
shell the same is `heedful score first.de second.de -r examples/data/tatoeba-test.de`.
"""

import random
from pathlib import Path

import heedful
from heedful.evaluation.significance import compare

random.seed(1)
references = (Path(__file__).parent / "data" / "tatoeba-test.de").read_text(encoding="utf-8").splitlines()


def forgetful(sentence: str, share: float) -> str:
    """The sentence without about this share of its words, but with at least one."""
    words = sentence.split()
    return " ".join(word for word in words if random.random() >= share) or words[0]


systems = {
    "first": [forgetful(sentence, 0.25) for sentence in references],
    "second": [forgetful(sentence, 0.15) for sentence in references],
}

# A score is a number together with the recipe that made it: it prints as both.
for name, translations in systems.items():
    for score in heedful.score(translations, references, metrics=("bleu", "chrf"), target_language="de"):
        print(f"{name}: {score}")

# The p-value: how often chance alone, by resampling the sentences, would show so large a difference.
print(compare(systems, references, metrics=("bleu", "chrf"), target_language="de").render(width=100))
