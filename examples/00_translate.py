"""Translate with the model that came with the package: no training, no download, no GPU.

    python examples/00_translate.py

Four directions in one model: the language of each text is detected, and only English must be told where to go.
"""

import heedful

translator = heedful.Translator.load()  # without a name: the model in the box

# German and Chinese go into English; a list may mix them.
texts = ["Wo ist der Bahnhof?", "我昨天买了一本新书。"]
for text, translation in zip(texts, translator.translate(texts), strict=True):
    print(f"{text} → {translation.text}  ({translation.source_language}, score {translation.score:.2f})")

# English goes where it is told to.
text = "I would like a cup of coffee, please."
for language in ("de", "zh"):
    [translation] = translator.translate([text], target_language=language)
    print(f"{text} → {translation.text}")

# What else the search found, best first.
[translation] = translator.translate(["Good morning!"], target_language="de", num_best=3)
for found in translation.n_best:
    print(f"{found.score:7.2f}  {found.text}")
