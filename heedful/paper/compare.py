"""Several systems on one corpus with one budget: train each, translate the same sentences, put the numbers together.

DIRECTORY/data/             the corpora, prepared once for all
DIRECTORY/transformer/ …    a model directory for each system
DIRECTORY/results.json      every number, with machine, command and seed
DIRECTORY/report.html       the same to look at; and the plots as PNG files
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from heedful.config import Config, DataConfig
from heedful.config_loading import settle
from heedful.errors import ConfigError
from heedful.paper.compare_report import LANGUAGES, write_report
from heedful.paper.experiment_io import (
    RESULTS,
    check_choice,
    corpora_of,
    from_prepared,
    heading_of,
    machine,
    open_output,
    refuse_start,
    settings_of,
    shared_data,
    write_json,
)
from heedful.paper.profiling import Memory, decode, measured_memory, read_course
from heedful.paper.systems import (
    DEFAULT_SYSTEMS,
    System,
    differences,
    equal_width,
    names_of,
    num_parameters_of,
    parse_systems,
)
from heedful.training_pipeline import (
    Request,
    TrainingResult,
    as_mapping,
    complete,
    open_run,
    set_up,
    train,
)

if TYPE_CHECKING:
    import torch

    from heedful.data.prepare import Prepared
    from heedful.text.preflight import TrainingPair

FORMAT = "heedful comparison"
FORMAT_VERSION = 1
EQUAL = ("parameters", "minutes")
BUDGETS = ("steps", "epochs", "tokens", "minutes")
REHEARSED_SENTENCES = 8
LINES_OF_LOG = 50
"""About so many points has a loss curve when the number of steps is known."""


@dataclass(frozen=True)
class Plan:
    """What a comparison is going to do."""

    shared: Mapping[str, Any]
    systems: Sequence[System]
    equal: str
    output: Path
    device: torch.device


@dataclass(frozen=True)
class ScoredSet:
    """Sentences to score on, into one language."""

    name: str
    language: str | None
    places: list[int]


def compare(
    request: Request,
    *,
    systems: Sequence[str] | None = None,
    equal: str | None = None,
    language: str = "en",
    plots: bool = True,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    command: str | None = None,
) -> dict[str, Any]:
    """Train `systems` on the corpora and budget of `request`, measure them, write the report; returns the results.

    `systems` are names, by default those of the request's section `systems`, which may give each settings of its own.
    `equal` is "parameters" (each rival gets the width that gives it as many as the first system; the default unless the
    budget is minutes alone) or "minutes" (presets as they are). `resume` takes finished systems over and goes on with
    an interrupted one. Of an interrupted comparison `complete` is False, and there is no report yet.
    """
    from heedful.console import Console

    check_choice("--lang", language, LANGUAGES)
    if plots and find_spec("matplotlib") is None:
        raise ConfigError("PNG plots need matplotlib: pip install 'heedful[plots]', or leave them out with --no-plots.")
    plan = make_plan(as_mapping(request), systems, equal)
    asked = settle(plan.systems[0].request(plan.shared), "base")
    refuse_start(asked)
    earlier = open_comparison(plan.output, asked.data, resume=resume, overwrite=overwrite)
    console = Console(quiet=quiet)
    prepared = shared_data(asked, plan.output / "data", console, resume=resume)
    requests, configs = requests_of(plan, prepared)
    results = heading(plan, prepared, configs[0], command)
    for number, (system, one, config) in enumerate(zip(plan.systems, requests, configs, strict=True), start=1):
        label = f"{number} of {len(requests)}: {system.name}"
        found = taken_over(earlier, system.name, config, plan.output)
        if found is None:
            write_json(plan.output / RESULTS, results)
            parameters = num_parameters_of(config.model)
            console.note(f"{label}, width {config.model.d_model}, {parameters:,} parameters.")
            if plan.device.type == "cpu":
                rehearse(config, prepared)
            with measured_memory(plan.device) as memory:
                ended = train(one, resume=resume, overwrite=overwrite, quiet=quiet)
            memory = larger_of(memory, earlier.get(system.name))
            unfinished = {"name": system.name, "memory_bytes": memory.num_bytes, "memory_kind": memory.kind}
            write_json(plan.output / RESULTS, {**results, "unfinished": unfinished})
            if ended.stopped_by not in (None, "early stopping"):
                console.note(f"The comparison was stopped in {system.name}; the same command with --resume goes on.")
                return results
            console.note(f"{label} translates.")
            found = {"name": system.name, "parameters": parameters, **measure(config, ended, prepared, memory, plan)}
        else:
            console.note(f"{label} was finished before.")
        results["systems"].append({**found, "differs": differences(config, configs[0])})
    results["complete"] = True
    write_json(plan.output / RESULTS, results)
    for path in write_report(results, plan.output, language=language, plots=plots, tell=console.note):
        console.note(f"Wrote {path}.")
    return results


# ---------------------------------------------------------------------- before any work


def make_plan(plain: Mapping[str, Any], names: Sequence[str] | None, equal: str | None) -> Plan:
    """Check all that can be checked before the corpora are read."""
    from heedful.build_model import resolve_device

    own = plain.get("systems")
    named = names_of(own) if own is not None else list(DEFAULT_SYSTEMS)
    systems = parse_systems(named if names is None else names, own)
    plain = {key: value for key, value in plain.items() if key != "systems"}
    settle(plain, "base")  # what is wrong for all is told before what is wrong for one
    if (plain.get("model") or {}).get("architecture") is not None:
        raise ConfigError("model.architecture: compare sets it for each system; name them with --systems.")
    shared = {**plain, "output": str(plain.get("output") or "comparison")}
    asked, *_ = [settled(system, shared) for system in systems]  # what one system cannot take is told now
    given = [name for name in BUDGETS if getattr(asked.training, name)]
    if not given:
        raise ConfigError("compare needs one budget for all: give --steps, --epochs, --tokens or --minutes.")
    equal = equal or ("minutes" if given == ["minutes"] else "parameters")
    check_choice("--equal", equal, EQUAL)
    if equal == "minutes" and given != ["minutes"]:
        raise ConfigError(f"--equal minutes needs --minutes as the only budget, not {' and '.join(given)}.")
    for system in systems[1:] if equal == "parameters" else ():
        if "d_model" in system.own.get("model", {}):
            raise ConfigError(f"systems.{system.name}.model.d_model: --equal parameters sets the width; leave it out.")
    # Only the Transformer has kernels of its own; beside rivals without, the usual compiled step is the same for all.
    training = {"fused_step": False, **(shared.get("training") or {})}
    if asked.training.steps and "log_every" not in training:
        training["log_every"] = min(asked.training.log_every, max(1, asked.training.steps // LINES_OF_LOG))
    shared["training"] = training
    return Plan(shared, systems, equal, Path(asked.output), resolve_device(asked.training.device))


def settled(system: System, shared: Mapping[str, Any]) -> Config:
    """The configuration of one system as far as it is known before the corpora are read; errors name the system."""
    try:
        return settle(system.request(shared), "base")
    except ConfigError as error:
        raise ConfigError(f"{system.name}: {error}") from None


def open_comparison(output: Path, data: DataConfig, *, resume: bool, overwrite: bool) -> dict[str, Any]:
    """See that the directory may be used; returns the earlier results by system where the comparison goes on.

    Of the system in which it was interrupted there is the memory alone: what a second go measures lacks the first.
    """
    earlier = open_output(output, FORMAT, "comparison", data=data, resume=resume, overwrite=overwrite)
    begun = [earlier["unfinished"]] if "unfinished" in earlier else []
    try:
        return {system["name"]: system for system in (*begun, *earlier.get("systems", []))}
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"{output / RESULTS}: damaged ({error}); remove it, or add --overwrite to start anew."
        ) from None


def requests_of(plan: Plan, prepared: Prepared) -> tuple[list[dict[str, Any]], list[Config]]:
    """What each system is trained with, as a request and completed; rivals get the width that makes them equal."""
    requests: list[dict[str, Any]] = []
    configs: list[Config] = []
    for system in plan.systems:
        one = system.request(from_prepared(plan.shared, prepared))
        one["output"] = str(plan.output / system.name)
        config = complete(one, settle(one, "base"), prepared)
        if configs and plan.equal == "parameters":
            width = equal_width(config.model, num_parameters_of(configs[0].model), system.name)
            one["model"]["d_model"] = width
            config = replace(config, model=replace(config.model, d_model=width))
        requests.append(one)
        configs.append(config)
    return requests, configs


def taken_over(
    earlier: Mapping[str, Mapping[str, Any]], name: str, config: Config, output: Path
) -> dict[str, Any] | None:
    """The earlier result of a system, if it was finished with the same settings and its model is still there."""
    found = earlier.get(name)
    if found is None or not (output / name / "config.json").exists():
        return None
    return dict(found) if settings_of(config) == found.get("settings") else None


def larger_of(memory: Memory, earlier: Mapping[str, Any] | None) -> Memory:
    """The memory of a training that went on: a second go may have had little or nothing left to do."""
    before = earlier or {}
    if before.get("memory_kind") != memory.kind or memory.num_bytes is None:
        return memory
    return Memory(max(memory.num_bytes, before.get("memory_bytes") or 0), memory.kind)


# ---------------------------------------------------------------------- the numbers


def rehearse(config: Config, prepared: Prepared) -> None:
    """One update and one look at valid, then forgotten: what libraries load at first use is no system's memory."""
    from heedful.training.logging import ConsoleReporter

    no_budget = dict.fromkeys(BUDGETS)
    sentences = min(config.training.num_bleu_sentences, REHEARSED_SENTENCES)
    changes: dict[str, Any] = {**no_budget, "steps": 1, "num_bleu_sentences": sentences, "num_samples": 0}
    with TemporaryDirectory() as folder:
        short = replace(config, output=folder, training=replace(config.training, **changes))
        _, reporter = open_run(short, prepared, ConsoleReporter(quiet=True), resume=False)
        try:
            loop = set_up(short, prepared, None, reporter)
            loop.run()
        finally:
            reporter.close()
    if loop.stopped_by is not None and loop.stopped_by.startswith("SIG"):
        raise KeyboardInterrupt


def measure(config: Config, ended: TrainingResult, prepared: Prepared, memory: Memory, plan: Plan) -> dict[str, Any]:
    """All numbers of a trained system; its model directory translates the same sentences as the others'."""
    from heedful.decoding.translator import Translator
    from heedful.evaluation.score import score
    from heedful.model_dir import load_model

    loaded = load_model(config.output, device=plan.device)
    pairs, sets = scored_sets(prepared)
    fast = replace(config.decoding, batch_invariant=False, shortlist=None, checks=False)
    translator = Translator(loaded.model, loaded.tokenizer, fast, device=plan.device)
    decoded = decode(translator, pairs)
    scores = []
    for part in sets:
        texts, references = [decoded.texts[i] for i in part.places], [pairs[i].target for i in part.places]
        [bleu] = score(
            texts, references, metrics=("bleu",), target_language=part.language or config.data.target_language
        )
        scores.append({**bleu.to_dict(), "data": part.name, "num_sentences": len(texts)})
    course = read_course(Path(config.output) / "training" / "log.jsonl")
    spent = loaded.details["training"]
    last = course.train[-1] if course.train else None
    return {
        "width": config.model.d_model,
        "scores": scores,
        "valid_loss": ended.valid_loss,
        "steps": ended.steps,
        "tokens": int(last.tokens) if last else spent["tokens"],
        "minutes": last.seconds / 60 if last else spent["minutes"],
        "stopped_by": ended.stopped_by,
        "training_tokens_per_second": course.tokens_per_second,
        "decoding_tokens_per_second": decoded.num_tokens / decoded.seconds,
        "decoding_sentences_per_second": decoded.num_sentences / decoded.seconds,
        "memory_bytes": memory.num_bytes,
        "memory_kind": memory.kind,
        "curves": {"train": [asdict(point) for point in course.train], "valid": [asdict(one) for one in course.valid]},
        "settings": settings_of(config),
    }


def scored_sets(prepared: Prepared) -> tuple[list[TrainingPair], list[ScoredSet]]:
    """The sentences to translate, and how they fall into sets: the test corpora, or valid where there are none."""
    role = "test" if prepared.test_pairs else "valid"
    pairs = prepared.test_pairs or prepared.valid_pairs
    names = [corpus["name"] for corpus in prepared.report["corpora"] if corpus["role"] == role]
    places: dict[tuple[int, str | None], list[int]] = {}
    for place, pair in enumerate(pairs):
        places.setdefault((pair.corpus_index if role == "test" else -1, pair.target_language), []).append(place)
    return pairs, [
        ScoredSet((names[index] if role == "test" else "valid") + (f" into {tag}" if tag else ""), tag, found)
        for (index, tag), found in places.items()
    ]


def heading(plan: Plan, prepared: Prepared, config: Config, command: str | None) -> dict[str, Any]:
    """All of the results but the systems: what was compared, where, with what."""
    training, decoding = config.training, config.decoding
    return {
        **heading_of(FORMAT, FORMAT_VERSION, command),
        "equal": plan.equal,
        "reference": plan.systems[0].name,
        "budget": {name: getattr(training, name) for name in BUDGETS if getattr(training, name)},
        "preset": config.preset,
        "seed": training.seed,
        "num_train_pairs": len(prepared.train),
        "scored_on": "test" if prepared.test_pairs else "valid",
        "corpora": corpora_of(prepared),
        "search": {"method": decoding.method, "beam_size": decoding.beam_size if decoding.method == "beam" else None},
        "machine": machine(plan.device),
        "systems": [],
    }
