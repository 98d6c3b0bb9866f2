"""An engine process: it loads all models and translates batches of texts that share their settings.

Messages and answers are JSON objects (see `heedful.process_pool`). `load` comes first:

    {"do": "load", "models": [[name, directory], …], "engine": "auto"} -> a description of the models
    {"do": "translate", "key": {…}, "texts": […], "prefixes": […]} -> {"results": […]}, one for each text
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from heedful.decoding.glossary_phrases import PhraseEncoder
from heedful.decoding.translation import Translation
from heedful.decoding.translator import RoutedTranslator, Translator
from heedful.errors import HeedfulError, TextError
from heedful.model_dir.save_load import read_directions
from heedful.process_pool import serve

MAX_TERMS_OF_SENTENCE = 8
"""Terms of a glossary that are required of one sentence; with more, a sentence would take seconds."""
UNDETERMINED = "und"
"""The code of a language that the model does not name."""


class LoadedModels:
    """The models of an engine process, as one translator."""

    def __init__(self, named: Sequence[tuple[str, str]], engine: str) -> None:
        """`named`: the name and directory of each model; a direction is translated by the first that has it."""
        paths = [path for _, path in named]
        self.translator = (
            Translator.load(paths[0], engine=engine) if len(paths) == 1 else RoutedTranslator(paths, engine=engine)
        )
        self.models = {name: read_directions(path).known for name, path in named}
        for pair in self.translator.directions.known:
            self.translator.translator_for(*pair)  # loads the model of this direction

    def describe(self) -> dict[str, Any]:
        """The models with their directions, and the settings of the search."""
        models = [
            {
                "name": name,
                "directions": [[code or UNDETERMINED for code in pair] for pair in pairs],
                "engine": "/".join(self.translator.translator_for(*pairs[0]).engine_for()),
            }
            for name, pairs in self.models.items()
        ]
        return {"models": models, "beam_size": self.translator.config.beam_size}


def translate_texts(
    translator: Translator, texts: Sequence[str], prefixes: Sequence[str | None], key: dict[str, Any]
) -> list[dict[str, Any]]:
    """The results of all texts. Those that cannot be translated are set aside, and the others repeated."""
    results: dict[int, dict[str, Any]] = {}
    remaining = list(range(len(texts)))
    while remaining:
        try:
            translations = call_translator(
                translator, [texts[i] for i in remaining], [prefixes[i] for i in remaining], key
            )
        except TextError as error:
            results[remaining.pop(error.number - 1)] = {"problem": error.problem}
        except HeedfulError as error:
            return [{"problem": str(error)}] * len(texts)
        except Exception as error:  # a bug: it must not end the process, and its message may quote the text
            frames = "".join(traceback.format_tb(error.__traceback__))
            sys.stderr.write(f"an engine process cannot translate a text: {type(error).__name__}\n{frames}")
            if len(remaining) == 1:
                results[remaining.pop()] = {"failed": True}
                continue
            alone = [translate_texts(translator, [texts[i]], [prefixes[i]], key)[0] for i in remaining]
            results |= zip(remaining, alone, strict=True)
            break
        else:
            results |= zip(remaining, [result_of(translation, key) for translation in translations], strict=True)
            break
    return [results[index] for index in range(len(texts))]


def call_translator(
    translator: Translator, texts: Sequence[str], prefixes: Sequence[str | None], key: dict[str, Any]
) -> list[Translation]:
    """`Translator.translate` with the settings that the texts share."""
    beam_size = max(key["beam_size"] or translator.config.beam_size, key["num_best"])
    settings: dict[str, Any] = {"beam_size": beam_size, "num_best": key["num_best"], "split": key["split"]}
    if beam_size > 1 and translator.config.method == "greedy":
        settings["method"] = "beam"
    return translator.translate(
        texts,
        source_language=None if key["source"] == UNDETERMINED else key["source"],
        target_language=None if key["target"] == UNDETERMINED else key["target"],
        target_prefix=prefixes if any(prefixes) else None,
        glossary=key["glossary"] or None,
        align=key["align"],
        **settings,
    )


def result_of(translation: Translation, key: dict[str, Any]) -> dict[str, Any]:
    """What the server sends of a translation."""
    result: dict[str, Any] = {
        "text": translation.text,
        "score": translation.score,
        "log_prob": translation.log_prob,
        "source": translation.source_language,
        "confidence": translation.language_confidence,
        "warnings": translation.warnings,
        "num_tokens": [len(translation.source_tokens), len(translation.tokens)],
    }
    if key["num_best"] > 1:
        result["n_best"] = [[one.text, one.score, one.log_prob] for one in translation.n_best]
    if key["align"]:
        result["alignment"] = translation.word_alignment or []
    return result


def answerer() -> Any:
    """The function that answers the messages of this process."""
    models: LoadedModels | None = None

    def answer(parts: list[bytes]) -> list[bytes]:
        nonlocal models
        message = json.loads(parts[0])
        if message["do"] == "load":
            models = LoadedModels(message["models"], message["engine"])
            return [json.dumps(models.describe()).encode()]
        assert models is not None
        results = translate_texts(models.translator, message["texts"], message["prefixes"], message["key"])
        return [json.dumps({"results": results}).encode()]

    return answer


if __name__ == "__main__":
    PhraseEncoder.max_phrases = MAX_TERMS_OF_SENTENCE
    serve(answerer())
