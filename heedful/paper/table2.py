"""Table 2 of the paper, run again: the published recipe from corpus to BLEU, with the published figures beside ours.

DIRECTORY/model/              the model directory, with the data and the log of its training
DIRECTORY/translations/       what was scored, one text file a test corpus
DIRECTORY/results.json        every number, with machine, command and seed
DIRECTORY/table2.md           the table for people
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.atomic_files import replace_file
from heedful.config import Config
from heedful.config_loading import merge, read_request, settle, to_mapping
from heedful.errors import ConfigError
from heedful.paper.compare import scored_sets
from heedful.paper.experiment_io import (
    RESULTS,
    check_choice,
    corpora_of,
    heading_of,
    machine,
    open_output,
    refuse_start,
    write_json,
)
from heedful.paper.profiling import read_course
from heedful.paper.table2_report import LANGUAGES, markdown
from heedful.training_pipeline import Request, TrainingResult, as_mapping, train
from heedful.validation_bleu import translate_pairs

if TYPE_CHECKING:
    import torch

    from heedful.console import Console
    from heedful.data.prepare import Prepared

FORMAT = "heedful table 2"
FORMAT_VERSION = 1
RECIPES = ("base", "big")
TABLE = "table2.md"
RECIPE_SECTIONS = ("tokenizer", "model", "training", "decoding")
NOT_THE_RECIPE = {
    *("tokenizer.path", "tokenizer.vocab_size"),  # the size that came out is told apart from the one asked for
    *("model.source_vocab_size", "model.target_vocab_size", "model.max_length"),
    *("training.steps", "training.epochs", "training.tokens", "training.minutes"),  # told as a share of the recipe
    *("training.seed", "training.device", "training.precision", "training.compile", "training.tokens_per_microbatch"),
    *("training.num_bleu_sentences", "training.num_samples", "training.save_every", "training.log_every"),
    *("training.tensorboard", "training.max_skipped_steps", "decoding.tokens_per_batch"),
}
"""Keys that follow from the corpus or the machine, or that change nothing in the result."""


def read_recipe(name: str) -> dict[str, Any]:
    """The paper's recipe of that name as a request, without its placeholders for corpora."""
    check_choice("--recipe", name, RECIPES)
    with as_file(files("heedful.paper") / "recipes" / f"{name}.yaml") as path:
        recipe = read_request(path)
    recipe["data"] = {key: value for key, value in recipe["data"].items() if key != "train"}
    return recipe


def run_table2(
    request: Request,
    *,
    recipe: str = "base",
    output: Path,
    language: str = "en",
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    command: str | None = None,
) -> dict[str, Any]:
    """Train by the recipe on the corpora of `request`, translate, score, write all down; returns the results.

    Whatever else the request says is laid over the recipe and told as a change of it. Of a run that was interrupted
    `complete` is False; `resume` goes on with it.
    """
    from heedful.console import Console

    check_choice("--lang", language, LANGUAGES)
    given = as_mapping(request)
    plain = planned(given, recipe, output)
    asked = settle(plain)
    refuse_start(asked)
    open_output(output, FORMAT, "run of Table 2", data=asked.data, resume=resume, overwrite=overwrite)
    console = Console(quiet=quiet)
    ended = train(plain, resume=resume, overwrite=overwrite, quiet=quiet)
    if ended.stopped_by not in (None, "early stopping"):
        console.note("The run was stopped; the same command with --resume goes on.")
        return {"format": FORMAT, "complete": False}
    results = heading_of(FORMAT, FORMAT_VERSION, command) | measured(recipe, asked, ended, output, console)
    results |= {"recipe": recipe, "complete": True}
    write_json(output / RESULTS, results)
    replace_file(output / TABLE, markdown(results, language))
    console.note(f"Wrote {output / RESULTS} and {output / TABLE}.")
    return results


# ---------------------------------------------------------------------- before any work


def planned(given: Mapping[str, Any], recipe: str, output: Path) -> dict[str, Any]:
    """The recipe with the request laid over it, checked as far as that goes without the corpora."""
    if given.get("preset") not in (None, "auto", recipe):
        raise ConfigError(f"preset: table2 has recipes instead; choose with --recipe {' or '.join(RECIPES)}.")
    plain = merge(read_recipe(recipe), {**given, "preset": recipe, "output": str(output / "model")})
    if settle(plain).model.architecture != "transformer":
        raise ConfigError("model.architecture: Table 2's recipe is the Transformer's; for its rivals: heedful compare.")
    return plain


# ---------------------------------------------------------------------- the numbers


def measured(recipe: str, asked: Config, ended: TrainingResult, output: Path, console: Console) -> dict[str, Any]:
    """All numbers of the finished run; `asked` is its configuration before it met the corpora."""
    from heedful.build_model import num_parameters, resolve_device
    from heedful.data.prepare import Prepared
    from heedful.model_dir import describe, load_model

    directory = output / "model"
    device = resolve_device(describe(directory)["config"]["training"]["device"])
    loaded = load_model(directory, device=device)
    config, published = loaded.config, settle(read_recipe(recipe))
    prepared = Prepared.open(config.data.prepared or directory / "training" / "data")
    spent = loaded.details["training"]
    return {
        "scored_on": "test" if prepared.test_pairs else "valid",
        "scores": scores_of(loaded.model, config, prepared, device, output, console),
        "languages": [config.data.source_language, config.data.target_language],
        "num_train_pairs": len(prepared.train),
        "corpora": corpora_of(prepared),
        "parameters": num_parameters(loaded.model),
        "vocab_size": config.model.target_vocab_size,
        "vocab_size_asked": vocab_size_asked(asked),
        "vocab_size_of_recipe": published.tokenizer.vocab_size,
        "valid_loss": ended.valid_loss,
        "weights": spent["weights"],
        "num_averaged": num_averaged(config, ended.steps) if spent["weights"] == "average" else None,
        "num_averaged_of_recipe": published.training.average_last,
        "steps": ended.steps,
        "steps_of_recipe": published.training.steps,
        "warmup_steps": config.training.warmup_steps,
        "stopped_by": ended.stopped_by,
        "epochs": spent["epochs"],
        "target_tokens": spent["tokens"],
        **cost_of(config, published, ended.steps, directory, spent),
        "changed": changed(published, config, vocab_size_asked(asked)),
        "seed": config.training.seed,
        "machine": machine(device),
        "settings": to_mapping(config),
    }


def cost_of(config: Config, published: Config, steps: int, directory: Path, spent: Mapping[str, Any]) -> dict[str, Any]:
    """What training took: hours of the device, and the operations of its matrix products."""
    from heedful.build_model import resolve_device
    from heedful.paper.training_flops import step_flops
    from heedful.training.step import uses_bf16

    course = read_course(directory / "training" / "log.jsonl")
    seconds = course.train[-1].seconds if course.train else 60 * spent["minutes"]
    products = step_flops(config)
    return {
        "precision": "bf16" if uses_bf16(config.training, resolve_device(config.training.device)) else "fp32",
        "hours": seconds / 3600,
        "training_tokens_per_second": course.tokens_per_second,
        "flops_of_a_step": products,
        "flops": products * steps,
        "flops_of_all_steps": products * (published.training.steps or 0),
    }


def scores_of(
    model: Any, config: Config, prepared: Prepared, device: torch.device, output: Path, console: Console
) -> list[dict[str, Any]]:
    """Both kinds of BLEU and chrF on each test corpus (on valid where there is none); keeps the translations."""
    from heedful.evaluation.compound_split_bleu import compound_split_bleu
    from heedful.evaluation.score import base_language, score

    pairs, sets = scored_sets(prepared)
    folder = output / "translations"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("[0-9]*-*.txt"):  # of an earlier run, which may have had other test sets
        old.unlink()
    found = []
    for number, part in enumerate(sets, start=1):
        chosen = [pairs[place] for place in part.places]
        console.note(f"Translating the {len(chosen):,} sentences of {part.name} …")
        texts = translate_pairs(model, prepared.tokenizer, chosen, config.decoding, device)
        path = folder / f"{number}-{re.sub(r'[^0-9A-Za-z._-]+', '_', Path(part.name).name)}.txt"
        replace_file(path, "".join(" ".join(text.splitlines()) + "\n" for text in texts))
        references, language = [pair.target for pair in chosen], part.language or config.data.target_language
        bleu, chrf = score(texts, references, metrics=("bleu", "chrf"), target_language=language)
        has_spaces = base_language(language) is None  # 13a finds no words where no spaces part them
        split = compound_split_bleu(texts, references).to_dict() if has_spaces else None
        found.append(
            {
                "data": part.name,
                "num_sentences": len(texts),
                "translations": str(path.relative_to(output)),
                "bleu": bleu.to_dict(),
                "compound_split_bleu": split,
                "chrf": chrf.to_dict(),
            }
        )
    return found


def num_averaged(config: Config, steps: int) -> int:
    """How many checkpoints the average is made of: one each `validate_every` steps and one at the end, at most n."""
    every = config.training.validate_every or steps
    return min(config.training.average_last, max(1, -(-steps // every)))


def vocab_size_asked(asked: Config) -> int | None:
    """How many subwords were asked for; None where they come with the tokenizer or the prepared data."""
    is_given = asked.data.prepared is not None or asked.tokenizer.path is not None
    return None if is_given else asked.tokenizer.vocab_size


def changed(published: Config, config: Config, vocab_size: int | None = None) -> list[dict[str, Any]]:
    """Where the run left the recipe: key, the recipe's value, the run's (of the vocabulary the size asked for)."""
    recipe, run = to_mapping(published), to_mapping(config)
    wanted = published.tokenizer.vocab_size
    sizes = [{"key": "tokenizer.vocab_size", "recipe": wanted, "run": vocab_size}]
    return (sizes if vocab_size not in (None, wanted) else []) + [
        {"key": f"{section}.{name}", "recipe": value, "run": run[section][name]}
        for section in RECIPE_SECTIONS
        for name, value in recipe[section].items()
        if f"{section}.{name}" not in NOT_THE_RECIPE and run[section][name] != value
    ]
