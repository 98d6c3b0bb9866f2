"""One run of Table 3 in a process of its own: train, then perplexity and BLEU of the last weights.

`python -m heedful.paper.table3_run DIRECTORY` reads `run.json` there and leaves `result.json` when all is done.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.config import Config
from heedful.config_loading import settle
from heedful.errors import HeedfulError, TrainingError
from heedful.paper.experiment_io import write_json
from heedful.training_pipeline import complete, open_run, set_up
from heedful.validation_bleu import translate_pairs

if TYPE_CHECKING:
    from heedful.data.prepare import Prepared
    from heedful.text.preflight import TrainingPair
    from heedful.training.loop import TrainingLoop

RUN, RESULT, LOG, MODEL = "run.json", "result.json", "log.txt", "model"
INTERRUPTED = 130


def run(directory: Path) -> int:
    """Do what `run.json` says, or go on with it, and return the exit code."""
    from heedful.build_model import num_parameters
    from heedful.data.prepare import Prepared

    began = time.perf_counter()
    order = json.loads((directory / RUN).read_text("utf-8"))
    request = order["request"]
    asked = settle(request, "base")
    prepared = Prepared.open(asked.data.prepared or "")
    config = complete(request, asked, prepared)
    loop = train(config, prepared)
    if loop.stopped_by not in (None, "early stopping"):
        return INTERRUPTED
    loss = loop.best.published_loss
    if loss is None or not math.isfinite(loss):
        raise TrainingError(f"the loss on valid is {loss}, which is no number to compare.")
    result = {
        "perplexity": math.exp(min(loss, 50.0)),
        "valid_loss": loss,
        "scores": scores_of(config, prepared, loop, order["sentences"]),
        "parameters": num_parameters(loop.model),
        "steps": loop.spent.steps,
        "tokens": loop.spent.tokens,
        "minutes": loop.spent.seconds / 60,
        "seconds": time.perf_counter() - began,
        "settings": order["settings"],
    }
    write_json(directory / RESULT, result)
    shutil.rmtree(directory / MODEL / "training" / "states", ignore_errors=True)  # nothing is left to go on with
    return 0


def train(config: Config, prepared: Prepared) -> TrainingLoop:
    """Train, from the state of an interrupted run if there is one, and publish the weights."""
    from heedful.training.logging import ConsoleReporter

    console = ConsoleReporter()
    state, reporter = open_run(config, prepared, console, resume=True)
    try:
        loop = set_up(config, prepared, state, reporter)
        loop.run()
        if loop.stopped_by in (None, "early stopping"):
            loop.choose()
    finally:
        reporter.close()
    return loop


def scores_of(config: Config, prepared: Prepared, loop: TrainingLoop, sentences: int | None) -> list[dict[str, Any]]:
    """BLEU of the published model on valid and on each test corpus, by target language."""
    from heedful.evaluation.score import score
    from heedful.model_dir import load_model

    model = load_model(config.output, device=loop.device).model
    scores = []
    for name, role, pairs in scored(prepared, sentences):
        tag = pairs[0].target_language
        texts = translate_pairs(model, prepared.tokenizer, pairs, config.decoding, loop.device)
        language, references = tag or config.data.target_language, [pair.target for pair in pairs]
        [bleu] = score(texts, references, metrics=("bleu",), target_language=language, bootstrap=0)
        scores.append({**bleu.to_dict(), "role": role, "data": name, "num_sentences": len(pairs)})
    return scores


def scored(prepared: Prepared, sentences: int | None) -> list[tuple[str, str, list[TrainingPair]]]:
    """Name, role and pairs of all that is scored: valid as one, test by corpus; at most so many, evenly spaced."""
    names = [corpus["name"] for corpus in prepared.report["corpora"] if corpus["role"] == "test"]
    found: dict[tuple[str, str], list[TrainingPair]] = {}
    for role, pairs in (("valid", prepared.valid_pairs), ("test", prepared.test_pairs)):
        for pair in pairs:
            name = role if role == "valid" else names[pair.corpus_index]
            into = f" into {pair.target_language}" if pair.target_language else ""
            found.setdefault((f"{name}{into}", role), []).append(pair)
    return [(name, role, evenly(pairs, sentences)) for (name, role), pairs in found.items()]


def evenly(pairs: Sequence[TrainingPair], limit: int | None) -> list[TrainingPair]:
    """At most so many of the pairs, from the first to the last at equal distances."""
    if limit is None or len(pairs) <= limit:
        return list(pairs)
    return [pairs[index * len(pairs) // limit] for index in range(limit)]


def stop_with_parent() -> None:
    """Save and stop when the sweep is gone, so that no run goes on unseen."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def main(arguments: Sequence[str]) -> int:
    """Run, and tell what a user can put right in one line."""
    stop_with_parent()
    try:
        return run(Path(arguments[0]))
    except HeedfulError as error:
        sys.stderr.write(f"heedful: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
