"""Train several systems on the same data with the same budget and compare their scores, speed and memory.

DIRECTORY/data/             the prepared corpora, shared by all systems
DIRECTORY/transformer/ …    one model directory per system
DIRECTORY/translations/     the translations of the test sets by each system, one line per sentence
DIRECTORY/results.json      all results, with machine, command and seed
DIRECTORY/report.html       the report; the plots are PNG files next to it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from heedful.config import Config, DataConfig
from heedful.config_loading import build_config
from heedful.errors import ConfigError
from heedful.paper.compare_quality import (
    LENGTH_BOUNDS,
    analyse,
    check_bounds,
    read_translations,
    scored_sets,
    write_translations,
)
from heedful.paper.compare_report import LANGUAGES, write_report
from heedful.paper.experiment_io import (
    RESULTS,
    check_choice,
    corpora_of,
    from_prepared,
    machine,
    open_output,
    refuse_init_from,
    results_header,
    settings_of,
    shared_data,
    write_json,
)
from heedful.paper.profiling import (
    DecodingResult,
    MemoryUsage,
    decode,
    measure_cpu_share,
    measure_memory,
    read_training_curves,
)
from heedful.paper.systems import (
    DEFAULT_SYSTEMS,
    System,
    differences,
    matching_width,
    num_parameters_of,
    parse_systems,
    system_names,
)
from heedful.run_plan import resolve_config
from heedful.training_pipeline import (
    Request,
    TrainingResult,
    as_mapping,
    build_loop,
    open_run,
    train,
)

if TYPE_CHECKING:
    import torch

    from heedful.data.prepare import Prepared

FORMAT = "heedful comparison"
FORMAT_VERSION = 1
EQUAL = ("parameters", "minutes")
BUDGETS = ("steps", "epochs", "tokens", "minutes")
WARM_UP_SENTENCES = 8
LOG_LINES = 50
"""Approximate number of points of a loss curve when the number of steps is known."""


@dataclass(frozen=True)
class Plan:
    """The validated settings of a comparison."""

    shared: Mapping[str, Any]
    systems: Sequence[System]
    equal: str
    output: Path
    device: torch.device


@dataclass(frozen=True)
class Run:
    """A trained system and its translations of the test sets."""

    training: TrainingResult
    decoded: DecodingResult
    cpu_share: float | None
    """CPU time divided by wall time; None on a GPU, where the processor may rest."""


def compare(
    request: Request,
    *,
    systems: Sequence[str] | None = None,
    equal: str | None = None,
    length_bounds: Sequence[int] = LENGTH_BOUNDS,
    language: str = "en",
    plots: bool = True,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    command: str | None = None,
) -> dict[str, Any]:
    """Train `systems` on the corpora and budget of `request`, measure them and write the report; returns the results.

    `systems` are names; the default is the section `systems` of the request, which may hold settings for each system.
    `equal` is "parameters" (the width of each other system is chosen to match the parameters of the first; the default
    unless minutes are the only budget) or "minutes" (presets unchanged). `length_bounds` are the upper bounds of the
    buckets of quality by length, in source tokens. `resume` keeps finished systems and continues an interrupted one. If
    the comparison is interrupted, `complete` is False in the results and no report is written.
    """
    from heedful.console import Console

    check_choice("--lang", language, LANGUAGES)
    check_bounds(length_bounds)
    if plots and find_spec("matplotlib") is None:
        raise ConfigError("PNG plots need matplotlib: pip install 'heedful[plots]', or pass --no-plots.")
    plan = make_plan(as_mapping(request), systems, equal)
    requested = build_config(plan.systems[0].request(plan.shared), "base")
    refuse_init_from(requested)
    earlier = open_comparison(plan.output, requested.data, resume=resume, overwrite=overwrite)
    console = Console(quiet=quiet)
    prepared = shared_data(requested, plan.output / "data", console, resume=resume)
    requests, configs = system_requests(plan, prepared)
    results = comparison_header(plan, prepared, configs[0], command)
    for number, (system, one, config) in enumerate(zip(plan.systems, requests, configs, strict=True), start=1):
        label = f"System {number}/{len(requests)}, {system.name}"
        result = reusable_result(earlier, system.name, config, plan.output, prepared)
        if result is None:
            write_json(plan.output / RESULTS, results)
            parameters = num_parameters_of(config.model)
            console.note(f"{label}: width {config.model.d_model}, {parameters:,} parameters.")
            if plan.device.type == "cpu":
                warm_up(config, prepared)

            def run(one: Mapping[str, Any] = one, config: Config = config, label: str = label) -> Run | None:
                with measure_cpu_share() as share:
                    ended = train(one, resume=resume, overwrite=overwrite, quiet=quiet, score_test=False)
                    if ended.stopped_by not in (None, "early stopping"):
                        return None
                    console.note(f"{label}: translating.")
                    decoded = translate_sets(config, prepared, plan)
                return Run(ended, decoded, share.value if plan.device.type == "cpu" else None)

            finished, memory = run_measured(run, plan, results, earlier.get(system.name), system.name)
            if finished is None:
                console.note(f"The comparison was interrupted in {system.name}; repeat the command with --resume.")
                return results
            numbers = measure(config, finished, prepared, memory)
            result = {"name": system.name, "parameters": parameters, **numbers}
        else:
            console.note(f"{label}: already finished.")
        results["systems"].append({**result, "differs": differences(config, configs[0])})
    console.note("Analysing the translations: quality by length, significance, samples.")
    names, target = [system.name for system in plan.systems], requested.data.target_language
    results["quality"] = analyse(plan.output, prepared, names, target_language=target, bounds=length_bounds)
    results["complete"] = True
    write_json(plan.output / RESULTS, results)
    for path in write_report(results, plan.output, language=language, plots=plots, report=console.note):
        console.note(f"Wrote {path}.")
    return results


def run_measured(
    run: Callable[[], Run | None],
    plan: Plan,
    results: Mapping[str, Any],
    earlier: Mapping[str, Any] | None,
    name: str,
) -> tuple[Run | None, MemoryUsage]:
    """Train and translate with one system, and measure the memory.

    The memory is saved even if the run is interrupted, since a resumed run does not measure the part before.
    """
    memory = MemoryUsage()
    try:
        with measure_memory(plan.device) as memory:
            finished = run()
    finally:
        memory = larger_memory(memory, earlier)
        unfinished = {"name": name, "memory_bytes": memory.num_bytes, "memory_kind": memory.kind}
        write_json(plan.output / RESULTS, {**results, "unfinished": unfinished})
    return finished, memory


# ---------------------------------------------------------------------- before any work


def make_plan(plain: Mapping[str, Any], names: Sequence[str] | None, equal: str | None) -> Plan:
    """Validate everything that does not depend on the corpora."""
    from heedful.build_model import resolve_device

    overrides = plain.get("systems")
    named = system_names(overrides) if overrides is not None else list(DEFAULT_SYSTEMS)
    systems = parse_systems(named if names is None else names, overrides)
    plain = {key: value for key, value in plain.items() if key != "systems"}
    build_config(plain, "base")  # report errors of the shared settings before those of one system
    if (plain.get("model") or {}).get("architecture") is not None:
        raise ConfigError("model.architecture: compare sets it for each system; choose the systems with --systems.")
    shared = {**plain, "output": str(plain.get("output") or "comparison")}
    first, *_ = [resolve_system_config(system, shared) for system in systems]  # reports errors early
    given = [name for name in BUDGETS if getattr(first.training, name)]
    if not given:
        raise ConfigError("compare needs a budget: give --steps, --epochs, --tokens or --minutes.")
    equal = equal or ("minutes" if given == ["minutes"] else "parameters")
    check_choice("--equal", equal, EQUAL)
    if equal == "minutes" and given != ["minutes"]:
        raise ConfigError(f"--equal minutes needs --minutes as the only budget, not {' and '.join(given)}.")
    for system in systems[1:] if equal == "parameters" else ():
        if "d_model" in system.overrides.get("model", {}):
            raise ConfigError(f"systems.{system.name}.model.d_model: set by --equal parameters; remove this key.")
    # Only the Transformer has a fused step; for a fair comparison all systems use the compiled step.
    training = {"fused_step": False, **(shared.get("training") or {})}
    if first.training.steps and "log_every" not in training:
        training["log_every"] = min(first.training.log_every, max(1, first.training.steps // LOG_LINES))
    shared["training"] = training
    return Plan(shared, systems, equal, Path(first.output), resolve_device(first.training.device))


def resolve_system_config(system: System, shared: Mapping[str, Any]) -> Config:
    """The configuration of one system before the corpora are read; errors name the system."""
    try:
        return build_config(system.request(shared), "base")
    except ConfigError as error:
        raise ConfigError(f"{system.name}: {error}") from None


def open_comparison(output: Path, data: DataConfig, *, resume: bool, overwrite: bool) -> dict[str, Any]:
    """Create or check the output directory; returns the earlier results by system if the comparison is resumed.

    For the interrupted system this is only its memory: the resumed run does not measure the part before it.
    """
    earlier = open_output(output, FORMAT, "comparison", data=data, resume=resume, overwrite=overwrite)
    begun = [earlier["unfinished"]] if "unfinished" in earlier else []
    try:
        return {system["name"]: system for system in (*begun, *earlier.get("systems", []))}
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"{output / RESULTS}: damaged ({error}); remove it, or add --overwrite to start over."
        ) from None


def system_requests(plan: Plan, prepared: Prepared) -> tuple[list[dict[str, Any]], list[Config]]:
    """The request and the full configuration of each system, with widths that match the number of parameters."""
    requests: list[dict[str, Any]] = []
    configs: list[Config] = []
    for system in plan.systems:
        one = system.request(from_prepared(plan.shared, prepared))
        one["output"] = str(plan.output / system.name)
        config = resolve_config(one, build_config(one, "base"), prepared)
        if configs and plan.equal == "parameters":
            width = matching_width(config.model, num_parameters_of(configs[0].model), system.name)
            one["model"]["d_model"] = width
            config = replace(config, model=replace(config.model, d_model=width))
        requests.append(one)
        configs.append(config)
    return requests, configs


def reusable_result(
    earlier: Mapping[str, Mapping[str, Any]], name: str, config: Config, output: Path, prepared: Prepared
) -> dict[str, Any] | None:
    """The earlier result of a system with the same settings whose model and translations still exist."""
    result = earlier.get(name)
    num_sentences = len(prepared.test_pairs or prepared.valid_pairs)
    if result is None or not (output / name / "config.json").exists():
        return None
    if read_translations(output, name, num_sentences) is None:
        return None
    return dict(result) if settings_of(config) == result.get("settings") else None


def larger_memory(memory: MemoryUsage, earlier: Mapping[str, Any] | None) -> MemoryUsage:
    """The larger of two measurements: a resumed run may have had little or nothing left to do."""
    before = earlier or {}
    if before.get("memory_kind") != memory.kind or memory.num_bytes is None:
        return memory
    return MemoryUsage(max(memory.num_bytes, before.get("memory_bytes") or 0), memory.kind)


# ---------------------------------------------------------------------- the numbers


def warm_up(config: Config, prepared: Prepared) -> None:
    """Run one update and one validation, so that libraries loaded on first use do not count as a system's memory."""
    from heedful.training.logging import ConsoleReporter

    no_budget = dict.fromkeys(BUDGETS)
    sentences = min(config.training.num_bleu_sentences, WARM_UP_SENTENCES)
    changes: dict[str, Any] = {**no_budget, "steps": 1, "num_bleu_sentences": sentences, "num_samples": 0}
    with TemporaryDirectory() as folder:
        short = replace(config, output=folder, training=replace(config.training, **changes))
        _, reporter = open_run(short, prepared, ConsoleReporter(quiet=True), resume=False)
        try:
            loop = build_loop(short, prepared, None, reporter)
            loop.run()
        finally:
            reporter.close()
    if loop.stopped_by is not None and loop.stopped_by.startswith("SIG"):
        raise KeyboardInterrupt


def translate_sets(config: Config, prepared: Prepared, plan: Plan) -> DecodingResult:
    """Translate the test sets with a trained system, and save the translations."""
    from heedful.decoding.translator import Translator
    from heedful.model_dir import load_model

    loaded = load_model(config.output, device=plan.device)
    pairs, _ = scored_sets(prepared)
    fast = replace(config.decoding, batch_invariant=False, shortlist=None, checks=False)
    decoded = decode(Translator(loaded.model, loaded.tokenizer, fast, device=plan.device), pairs)
    write_translations(plan.output, Path(config.output).name, decoded.texts)
    return decoded


def measure(config: Config, run: Run, prepared: Prepared, memory: MemoryUsage) -> dict[str, Any]:
    """Score the translations of a trained system, and collect its numbers."""
    from heedful.evaluation.score import score
    from heedful.model_dir import describe

    pairs, sets = scored_sets(prepared)
    ended, decoded = run.training, run.decoded
    scores = []
    for part in sets:
        texts, references = [decoded.texts[i] for i in part.indices], [pairs[i].target for i in part.indices]
        [bleu] = score(
            texts, references, metrics=("bleu",), target_language=part.language or config.data.target_language
        )
        scores.append({**bleu.to_dict(), "data": part.name, "num_sentences": len(texts)})
    curves = read_training_curves(Path(config.output) / "training" / "log.jsonl")
    spent = describe(config.output)["details"]["training"]
    last = curves.train[-1] if curves.train else None
    return {
        "width": config.model.d_model,
        "scores": scores,
        "valid_loss": ended.valid_loss,
        "steps": ended.steps,
        "tokens": int(last.tokens) if last else spent["tokens"],
        "minutes": last.seconds / 60 if last else spent["minutes"],
        "stopped_by": ended.stopped_by,
        "training_tokens_per_second": curves.tokens_per_second,
        "decoding_tokens_per_second": decoded.num_tokens / decoded.seconds,
        "decoding_sentences_per_second": decoded.num_sentences / decoded.seconds,
        "memory_bytes": memory.num_bytes,
        "memory_kind": memory.kind,
        "cpu_share": run.cpu_share,
        "curves": {"train": [asdict(point) for point in curves.train], "valid": [asdict(one) for one in curves.valid]},
        "settings": settings_of(config),
    }


def comparison_header(plan: Plan, prepared: Prepared, config: Config, command: str | None) -> dict[str, Any]:
    """The results without the systems: settings, data and machine."""
    training, decoding = config.training, config.decoding
    return {
        **results_header(FORMAT, FORMAT_VERSION, command),
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
