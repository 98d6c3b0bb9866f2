"""An engine process: it loads all models and translates batches of texts that share their settings.

Messages and answers are JSON objects (see `heedful.process_pool`). `load` comes first:

    {"do": "load", "models": [[name, directory], …], "engine": "auto"} -> a description of the models
    {"do": "translate", "key": {…}, "texts": […], "prefixes": […]} -> {"results": […]}, one for each text
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import Any

from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator
from heedful.errors import ConfigError, HeedfulError, TextError
from heedful.process_pool import serve
from heedful.text.corpus import Direction
from heedful.text.language_routing import Directions

UNDETERMINED = "und"
"""The code of a language that the model does not name."""


class LoadedModels:
    """The translators of an engine process, and which of them translates a text."""

    def __init__(self, named: Iterable[tuple[str, Translator]]) -> None:
        self.translators = dict(named)
        self.pairs = {name: served_directions(translator) for name, translator in self.translators.items()}
        known = tuple(dict.fromkeys(pair for pairs in self.pairs.values() for pair in pairs))
        self.all_directions = Directions(known, tuple(dict.fromkeys(pair.target for pair in known if pair.target)))

    def describe(self) -> list[dict[str, Any]]:
        """The name, directions and limits of each model."""
        return [
            {
                "name": name,
                "directions": self.pairs[name],
                "beam_size": translator.config.beam_size,
                "max_length": translator.max_segment_length,
                "engine": "/".join(translator.engine_for()),
            }
            for name, translator in self.translators.items()
        ]

    def translator_for(self, text: str, source: str | None, target: str) -> Translator:
        """The first model with the direction; for a source that is not given, the first with the target."""
        with_target = [name for name, pairs in self.pairs.items() if any(pair.target == target for pair in pairs)]
        if source is None and len(with_target) > 1:
            source = self.all_directions.detect(text)[0]
        found = [name for name in with_target if Direction(source, target) in self.pairs[name]] or with_target
        if not found:
            raise ConfigError(f"no model translates into {target!r}.")
        return self.translators[found[0]]

    def translate(
        self, texts: Sequence[str], prefixes: Sequence[str | None], key: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """The results of all texts; what is wrong with one is its result and does not affect the others."""
        groups: dict[int, list[int]] = {}
        for index, text in enumerate(texts):
            groups.setdefault(id(self.translator_for(text, key["source"], key["target"])), []).append(index)
        results: list[dict[str, Any]] = [{} for _ in texts]
        for translator in self.translators.values():
            members = groups.get(id(translator), [])
            found = translate_texts(translator, [texts[i] for i in members], [prefixes[i] for i in members], key)
            for index, result in zip(members, found, strict=True):
                results[index] = result
        return results


def served_directions(translator: Translator) -> list[Direction]:
    """The directions that a model was trained on; languages that it does not name are undetermined."""
    return [Direction(*(code or UNDETERMINED for code in pair)) for pair in translator.directions.known]


def translate_texts(
    translator: Translator, texts: Sequence[str], prefixes: Sequence[str | None], key: dict[str, Any]
) -> list[dict[str, Any]]:
    """The results of texts for one model. Texts that cannot be translated are set aside, and the others repeated."""
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
    models = LoadedModels(())

    def answer(parts: list[bytes]) -> list[bytes]:
        nonlocal models
        message = json.loads(parts[0])
        if message["do"] == "load":
            engine = message["engine"]
            models = LoadedModels((name, Translator.load(path, engine=engine)) for name, path in message["models"])
            return [json.dumps({"models": models.describe()}).encode()]
        results = models.translate(message["texts"], message["prefixes"], message["key"])
        return [json.dumps({"results": results}).encode()]

    return answer


if __name__ == "__main__":
    serve(answerer())
