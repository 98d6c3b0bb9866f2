"""Table 3 of the paper as a resumable sweep: every row with several seeds, several runs in parallel.

DIRECTORY/data/                  the prepared corpora, shared by all runs
DIRECTORY/runs/A-heads-1-seed-1/ one run: run.json (request), log.txt, model and, when finished, result.json
DIRECTORY/results.json           all results, with machine, command and seeds
DIRECTORY/table3.md              the report; the plot is table3.png and .svg

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.config import Config
from heedful.config_loading import build_config
from heedful.errors import ConfigError, HeedfulError, TrainingError
from heedful.paper.experiment_io import (
    RESULTS,
    corpora_of,
    evenly_spaced,
    from_prepared,
    machine,
    open_output,
    refuse_init_from,
    results_header,
    settings_of,
    shared_data,
    write_json,
)
from heedful.paper.sweep import Ended, Job, Sweep, default_jobs, tail
from heedful.paper.systems import num_parameters_of
from heedful.paper.table3_report import check_report, markdown, summary, write_plot
from heedful.paper.table3_rows import Row, base_request, base_values, choose_rows, row_request
from heedful.run_plan import resolve_config
from heedful.training_pipeline import Request, as_mapping, build_loop, open_run
from heedful.validation_bleu import translate_pairs

if TYPE_CHECKING:
    import torch

    from heedful.console import Console
    from heedful.data.prepare import Prepared
    from heedful.text.preflight import TrainingPair
    from heedful.training.loop import TrainingLoop

FORMAT, FORMAT_VERSION = "heedful table 3", 1
MODULE = "heedful.paper.table3"
CHEAP_SENTENCES = 1000
"""Number of sentences of valid and of each test corpus to translate at the cheap scale."""


@dataclass(frozen=True)
class Plan:
    """The validated settings of a sweep."""

    base: Mapping[str, Any]
    scale: str
    rows: Sequence[Row]
    seeds: Sequence[int]
    sentences: int | None
    output: Path
    device: torch.device
    num_parallel: int


@dataclass(frozen=True)
class Run:
    """One row with one seed."""

    row: Row
    seed: int
    directory: Path
    spec: Mapping[str, Any]
    """The content of `run.json`: request, settings, number of sentences to score."""

    @property
    def label(self) -> str:
        """The name of the run in messages."""
        return f"{self.row.name}, seed {self.seed}"


def make_plan(
    request: Request,
    *,
    scale: str = "cheap",
    rows: Sequence[str] = (),
    num_seeds: int = 3,
    jobs: int | None = None,
    sentences: int | None = None,
) -> Plan:
    """Validate everything that does not depend on the corpora."""
    from heedful.build_model import resolve_device

    for flag, value in (("--seeds", num_seeds), ("--jobs", jobs), ("--sentences", sentences)):
        if value is not None and value < 1:
            raise ConfigError(f"{flag} must be at least 1, not {value}.")
    plain = as_mapping(request)
    base = base_request({**plain, "output": str(plain.get("output") or "table3")}, scale)
    requested, chosen = build_config(base, "base"), choose_rows(rows)
    refuse_init_from(requested)
    seeds = range(requested.training.seed, requested.training.seed + num_seeds)
    for row in chosen:
        build_config(row_request(row, base, seed=seeds[0]), "base")
    device = resolve_device(requested.training.device)
    limit = sentences or (CHEAP_SENTENCES if scale == "cheap" else None)
    return Plan(base, scale, chosen, seeds, limit, Path(requested.output), device, jobs or default_jobs(device.type))


def run_table3(
    plan: Plan,
    *,
    language: str = "en",
    plots: bool = True,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    command: str | None = None,
) -> dict[str, Any]:
    """Train every row with every seed and write the report; returns the results.

    `resume` keeps finished runs and continues interrupted ones. Runs started with other settings are an error or, with
    `overwrite`, trained again. A failed run does not stop the others. If the sweep is interrupted, `complete` is False
    in the results.
    """
    from heedful.console import Console

    check_report(language, plots=plots)
    requested = build_config(plan.base, "base")
    earlier = open_output(plan.output, FORMAT, "sweep", data=requested.data, resume=resume, overwrite=overwrite)
    if overwrite and not resume:
        shutil.rmtree(plan.output / "runs", ignore_errors=True)
    console, began = Console(quiet=quiet), time.monotonic()
    prepared = shared_data(requested, plan.output / "data", console, resume=resume)
    runs = make_runs(plan, prepared)
    if not overwrite:
        refuse_other_settings(runs)
    results = sweep_header(plan, prepared, runs, command)
    finished_results = {run.directory: result for run in runs if (result := reusable_result(run)) is not None}
    failed: dict[Path, dict[str, Any]] = {}
    left = [run for run in runs if run.directory not in finished_results]
    console.note(start_message(plan, runs, len(left)))
    for run in left:
        write_run_file(run)
    before = float(earlier.get("seconds") or 0.0)

    def write() -> None:
        results.update(summary(plan.rows, base_values(plan.base), results_by_row(runs, finished_results)))
        results["failed"] = list(failed.values())
        results["seconds"] = before + time.monotonic() - began
        write_json(plan.output / RESULTS, results)
        (plan.output / "table3.md").write_text(markdown(results, language), encoding="utf-8")

    def finished(ended: Ended, number: int) -> None:
        run = next(run for run in left if run.directory == ended.job.directory)
        result = read_result(run)
        label = f"run {number} of {len(runs)}: {run.label}"
        if ended.code == 0 and result is not None:
            finished_results[run.directory] = result
            console.note(f"{label}: {result_text(result)} ({ended.seconds:.0f} s)")
        else:
            failed[run.directory] = failure(run, ended)
            console.note(f"{label}: failed (exit code {ended.code}); end of its log:\n{tail(run.directory / LOG_FILE)}")
        write()

    write()
    sweep = Sweep([make_job(run) for run in left], plan.num_parallel, console, num_before=len(finished_results))
    sweep.run(finished)
    results["complete"] = sweep.stopped_by is None
    write()
    finish(plan, results, sweep, console, language=language, plots=plots)
    return results


def finish(plan: Plan, results: dict[str, Any], sweep: Sweep, console: Console, *, language: str, plots: bool) -> None:
    """Draw the plot and report the outcome."""
    if sweep.stopped_by is not None:
        console.note(f"The sweep was stopped by {sweep.stopped_by}; repeat the command with --resume to continue.")
    if plots and any(row["perplexity_difference"] for row in results["rows"] if row["name"] != "base"):
        write_plot(results, plan.output, language)
    if results["failed"]:
        names = ", ".join(f"{one['row']} (seed {one['seed']})" for one in results["failed"])
        console.note(f"{len(results['failed'])} runs failed: {names}; --resume runs them again.")
    console.note(f"Wrote {plan.output / 'table3.md'} and {plan.output / RESULTS}.")


# ---------------------------------------------------------------------- runs


def make_runs(plan: Plan, prepared: Prepared) -> list[Run]:
    """All runs, seed by seed, so that an unfinished sweep has complete tables; the longest runs of a seed first."""
    from heedful.data.prepare import read_manifest

    manifest = read_manifest(prepared.directory)
    base, runs = from_prepared(plan.base, prepared), []
    for seed in plan.seeds:
        for row in sorted(plan.rows, key=lambda row: -row.budget):
            directory = plan.output / "runs" / f"{row.name}-seed-{seed}"
            request = {**row_request(row, base, seed=seed), "output": str(directory / MODEL)}
            config = resolve_config(request, build_config(request, "base"), prepared)
            settings = {
                **settings_of(config),
                "data": None if manifest is None else manifest["fingerprint"],
                "sentences": plan.sentences,
            }
            settings["training"]["device"] = plan.device.type  # so that "auto" equals the device it selects
            spec = {"request": request, "settings": settings, "sentences": plan.sentences}
            runs.append(Run(row, seed, directory, spec))
    return runs


def reusable_result(run: Run) -> dict[str, Any] | None:
    """The result of a run if it was finished with the same settings."""
    result = read_result(run)
    return result if result is not None and result.get("settings") == run.spec["settings"] else None


def read_result(run: Run) -> dict[str, Any] | None:
    """The result of a run, or None if it is not finished."""
    return _read(run.directory / RESULT_FILE)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def refuse_other_settings(runs: Sequence[Run]) -> None:
    """Refuse to resume runs that were started with other settings."""
    for run in runs:
        earlier = _read(run.directory / RUN_FILE)
        changed = None if earlier is None else first_change(earlier.get("settings"), run.spec["settings"])
        if changed is not None:
            raise ConfigError(
                f"--resume: {run.label} was started with {changed}; use the same settings, choose another directory "
                f"with -o, or add --overwrite to train such runs again."
            )


def first_change(earlier: Any, now: Any, name: str = "") -> str | None:
    """The first setting that differs, such as `training.steps = 4, not 6`; None if all are equal."""
    if not (isinstance(earlier, Mapping) and isinstance(now, Mapping)):
        return None if earlier == now else f"{name or 'settings'} = {json.dumps(earlier)}, not {json.dumps(now)}"
    changes = (first_change(earlier.get(key), now.get(key), f"{name}.{key}".lstrip(".")) for key in {**now, **earlier})
    return next((change for change in changes if change is not None), None)


def write_run_file(run: Run) -> None:
    """Write `run.json` for the worker; files of an earlier run are kept only if its settings were the same."""
    earlier = _read(run.directory / RUN_FILE)
    if earlier is None or earlier.get("settings") != run.spec["settings"]:
        shutil.rmtree(run.directory, ignore_errors=True)
    run.directory.mkdir(parents=True, exist_ok=True)
    (run.directory / RESULT_FILE).unlink(missing_ok=True)
    write_json(run.directory / RUN_FILE, run.spec)


def make_job(run: Run) -> Job:
    """The worker process of a run."""
    directory = run.directory
    events = directory / MODEL / "training" / "log.jsonl"
    return Job(run.label, directory, MODULE, events, directory / LOG_FILE)


def results_by_row(
    runs: Sequence[Run], finished_results: Mapping[Path, Mapping[str, Any]]
) -> dict[str, list[dict[str, Any]]]:
    """The results of each row, by seed."""
    by_row: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        result = finished_results.get(run.directory)
        if result is not None:
            numbers = {key: value for key, value in result.items() if key != "settings"}
            by_row.setdefault(run.row.name, []).append({"seed": run.seed, **numbers})
    return by_row


def failure(run: Run, ended: Ended) -> dict[str, Any]:
    """A failed run in the results."""
    return {"row": run.row.name, "seed": run.seed, "code": ended.code, "log": tail(run.directory / LOG_FILE)}


# ---------------------------------------------------------------------- messages and results


def start_message(plan: Plan, runs: Sequence[Run], num_left: int) -> str:
    """The message at the start of the sweep."""
    before = f", {len(runs) - num_left} finished before" if num_left < len(runs) else ""
    return (
        f"Table 3 at the {plan.scale} scale: {len(plan.rows)} rows, {len(plan.seeds)} seeds, {len(runs)} runs{before}, "
        f"{plan.num_parallel} in parallel. Ctrl-C saves and stops; --resume continues."
    )


def result_text(result: Mapping[str, Any]) -> str:
    """The result of a run as text."""
    scores = [one["value"] for one in result["scores"] if one["role"] == "valid"]
    bleu = f", BLEU {sum(scores) / len(scores):.1f}" if scores else ""
    return f"perplexity {result['perplexity']:.2f}{bleu}"


def sweep_header(plan: Plan, prepared: Prepared, runs: Sequence[Run], command: str | None) -> dict[str, Any]:
    """The results without the rows: settings, data and machine."""
    config: Config = build_config(runs[0].spec["request"] if runs else plan.base, "base")
    decoding = config.decoding
    budgets = {
        name: getattr(build_config(plan.base, "base").training, name)
        for name in ("steps", "epochs", "tokens", "minutes")
    }
    parameters = {}
    for run in runs[: len(plan.rows)]:
        request = run.spec["request"]
        parameters[run.row.name] = num_parameters_of(
            resolve_config(request, build_config(request, "base"), prepared).model
        )
    return {
        **results_header(FORMAT, FORMAT_VERSION, command),
        "scale": plan.scale,
        "seeds": list(plan.seeds),
        "jobs": plan.num_parallel,
        "budget": {name: value for name, value in budgets.items() if value},
        "tokens_per_step": config.training.tokens_per_step,
        "vocab_size": prepared.tokenizer.target_vocab_size,
        "parameters": parameters,
        "num_train_pairs": len(prepared.train),
        "corpora": corpora_of(prepared),
        "search": {"method": decoding.method, "beam_size": decoding.beam_size if decoding.method == "beam" else None},
        "sentences": plan.sentences,
        "machine": machine(plan.device),
        "rows": [],
        "failed": [],
    }


RUN_FILE, RESULT_FILE, LOG_FILE, MODEL = "run.json", "result.json", "log.txt", "model"
INTERRUPTED = 130


def run(directory: Path) -> int:
    """Run or resume `run.json` in this process; returns the exit code."""
    from heedful.build_model import num_parameters
    from heedful.data.prepare import Prepared

    began = time.perf_counter()
    spec = json.loads((directory / RUN_FILE).read_text("utf-8"))
    request = spec["request"]
    requested = build_config(request, "base")
    prepared = Prepared.open(requested.data.prepared or "")
    config = resolve_config(request, requested, prepared)
    loop = train(config, prepared)
    if loop.stopped_by not in (None, "early stopping"):
        return INTERRUPTED
    loss = loop.best.published_loss
    if loss is None or not math.isfinite(loss):
        raise TrainingError(f"the loss on valid is {loss}; the run has diverged.")
    result = {
        "perplexity": math.exp(min(loss, 50.0)),
        "valid_loss": loss,
        "scores": scores_of(config, prepared, loop, spec["sentences"]),
        "parameters": num_parameters(loop.model),
        "steps": loop.progress.steps,
        "tokens": loop.progress.tokens,
        "minutes": loop.progress.seconds / 60,
        "seconds": time.perf_counter() - began,
        "settings": spec["settings"],
    }
    write_json(directory / RESULT_FILE, result)
    shutil.rmtree(directory / MODEL / "training" / "states", ignore_errors=True)  # not needed after the run
    return 0


def train(config: Config, prepared: Prepared) -> TrainingLoop:
    """Train, resuming an interrupted run if there is one, and save the final weights."""
    from heedful.training.logging import ConsoleReporter

    console = ConsoleReporter()
    state, reporter = open_run(config, prepared, console, resume=True)
    try:
        loop = build_loop(config, prepared, state, reporter)
        loop.run()
        if loop.stopped_by in (None, "early stopping"):
            loop.publish_final_weights()
    finally:
        reporter.close()
    return loop


def scores_of(config: Config, prepared: Prepared, loop: TrainingLoop, sentences: int | None) -> list[dict[str, Any]]:
    """BLEU of the final weights on valid and on each test corpus, by target language."""
    from heedful.evaluation.score import score
    from heedful.model_dir import load_model

    model = load_model(config.output, device=loop.device).model
    scores = []
    for name, role, pairs in scored_sets(prepared, sentences):
        tag = pairs[0].target_language
        texts = translate_pairs(model, prepared.tokenizer, pairs, config.decoding, loop.device)
        language, references = tag or config.data.target_language, [pair.target for pair in pairs]
        [bleu] = score(texts, references, metrics=("bleu",), target_language=language, bootstrap=0)
        scores.append({**bleu.to_dict(), "role": role, "data": name, "num_sentences": len(pairs)})
    return scores


def scored_sets(prepared: Prepared, sentences: int | None) -> list[tuple[str, str, list[TrainingPair]]]:
    """Name, role and pairs of each scored set: valid, and each test corpus; at most `sentences` of each."""
    names = [corpus["name"] for corpus in prepared.report["corpora"] if corpus["role"] == "test"]
    finished_results: dict[tuple[str, str], list[TrainingPair]] = {}
    for role, pairs in (("valid", prepared.valid_pairs), ("test", prepared.test_pairs)):
        for pair in pairs:
            name = role if role == "valid" else names[pair.corpus_index]
            into = f" into {pair.target_language}" if pair.target_language else ""
            finished_results.setdefault((f"{name}{into}", role), []).append(pair)
    return [(name, role, evenly_spaced(pairs, sentences)) for (name, role), pairs in finished_results.items()]


def stop_with_parent() -> None:
    """Save and stop when the parent process ends, so that no run continues in the background."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def main(arguments: Sequence[str]) -> int:
    """Run the worker; errors of the user are reported in one line."""
    stop_with_parent()
    try:
        return run(Path(arguments[0]))
    except HeedfulError as error:
        sys.stderr.write(f"heedful: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
