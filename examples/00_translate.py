"""Translate with the bundled model: no training, no download, no GPU.

    python examples/00_translate.py

The model has four directions. The language of each text is detected; only English needs a target language.
"""

import heedful

translator = heedful.Translator.load()  # without a name: the bundled model

# German and Chinese are translated into English; a list may contain both.
texts = ["Wo ist der Bahnhof?", "我昨天买了一本新书。"]
for text, translation in zip(texts, translator.translate(texts), strict=True):
    print(f"{text} → {translation.text}  ({translation.source_language}, score {translation.score:.2f})")

# English needs a target language.
text = "I would like a cup of coffee, please."
for language in ("de", "zh"):
    [translation] = translator.translate([text], target_language=language)
    print(f"{text} → {translation.text}")

# Alternatives, best first.
[translation] = translator.translate(["Good morning!"], target_language="de", num_best=3)
for found in translation.n_best:
    print(f"{found.score:7.2f}  {found.text}")
