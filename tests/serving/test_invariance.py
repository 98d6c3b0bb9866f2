"""Through HTTP, a translation is that of `Translator` alone, whatever else is translated at the same time."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

from heedful.decoding.translator import Translator
from tests.serving.running_server import SENTENCES, Connection, running_server

TEXTS = [
    *SENTENCES,
    "",
    "  \n ",
    "Guten Morgen! Wie geht es dir?",
    "今天天气很好，我们去公园吧。",
    "Visit https://example.org/a?b=1 or write to {name}, then press <b>Enter</b>.",
    "First line.\nSecond line, which is longer than the first.\n\nThird.",
    "The bill of 1,234.50 euros is due on 3 May 2024; 17 % are tax. " * 3,
    "🙂🙂",
    "a" * 300,
    "\u202eabc\u0000def",
]
VARIANTS: list[dict[str, Any]] = [
    {"source": "en", "target": "de"},
    {"source": "en", "target": "zh"},
    {"target": "en"},
    {"target": "de", "source": "en", "beam_size": 1},
    {"target": "de", "source": "en", "alternatives": 2, "align": True},
    {"target": "de", "source": "en", "split": "always"},
]


def expected(translator: Translator, text: str, variant: dict[str, Any]) -> dict[str, Any]:
    """What the server must answer."""
    num_best = 1 + variant.get("alternatives", 0)
    beam_size = max(variant.get("beam_size", translator.config.beam_size), num_best)
    found = translator.translate(
        [text],
        source_language=variant.get("source"),
        target_language=variant["target"],
        align=variant.get("align", False),
        split=variant.get("split", "long"),
        beam_size=beam_size,
        num_best=num_best,
    )[0]
    if "source" not in variant and found.source_language == variant["target"]:
        return {"text": text, "score": 0.0, "log_prob": 0.0}
    answer: dict[str, Any] = {"text": found.text, "score": found.score, "log_prob": found.log_prob}
    if num_best > 1:
        answer["alternatives"] = list(
            {one.text: one.log_prob for one in found.n_best if one.text != found.text}.items()
        )
    if found.word_alignment is not None:
        answer["alignment"] = [[list(source), list(target)] for source, target in found.word_alignment]
    return answer


def shape(body: dict[str, Any]) -> dict[str, Any]:
    """The part of an answer that `expected` has."""
    kept = {name: body[name] for name in ("text", "score", "log_prob", "alignment") if name in body}
    if "alternatives" in body:
        kept["alternatives"] = [(one["text"], one["log_prob"]) for one in body["alternatives"]]
    return kept


def test_translations_do_not_depend_on_what_else_is_translated(tmp_path: Path) -> None:
    translator = Translator.load()
    alone = {
        (text, number): expected(translator, text, variant) for text in TEXTS for number, variant in enumerate(VARIANTS)
    }
    compared = 0

    async def client(port: int, seed: int) -> None:
        nonlocal compared
        chance, connection = random.Random(seed), Connection(port)
        for _ in range(12):
            number = chance.randrange(len(VARIANTS))
            texts = chance.choices(TEXTS, k=chance.choice([1, 1, 1, 3, 10]))
            await asyncio.sleep(chance.random() * 0.02)
            answer = await connection.post("/api/v1/translate", {"text": texts, **VARIANTS[number]})
            assert answer.status == 200, answer.body
            for text, body in zip(texts, answer.json()["translations"], strict=True):
                assert shape(body) == alone[text, number]
                compared += 1
        connection.close()

    async def run(port: int) -> None:
        await asyncio.gather(*(client(port, seed) for seed in range(16)))

    with running_server(tmp_path, workers=2, request_seconds=60, log_requests=False) as server:
        asyncio.run(run(server.port))
        assert compared > 300
        batches = server.metric("batch_texts_count")
        assert server.metric("batch_texts_sum") > 1.5 * batches  # texts did share batches
        assert server.log() == ""
