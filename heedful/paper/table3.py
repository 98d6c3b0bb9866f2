"""Table 3 of the paper as one sweep: every row, several seeds, many runs at once; it can be stopped and resumed.

DIRECTORY/data/                  the corpora, prepared once for all
DIRECTORY/runs/A-heads-1-seed-1/ a run: its order, log and model, and its result when it is finished
DIRECTORY/results.json           every number, with machine, command and seeds
DIRECTORY/table3.md              the table, the paper's numbers beside ours; and table3.png and .svg
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.config import Config
from heedful.config_loading import settle
from heedful.errors import ConfigError
from heedful.paper.experiment_io import (
    RESULTS,
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
from heedful.paper.sweep import Ended, Job, Sweep, tail, usual_jobs
from heedful.paper.systems import num_parameters_of
from heedful.paper.table3_analysis import summary
from heedful.paper.table3_report import check_report, markdown, write_plot
from heedful.paper.table3_rows import Row, base_request, base_values, choose_rows, row_request
from heedful.paper.table3_run import LOG, MODEL, RESULT, RUN
from heedful.training_pipeline import Request, as_mapping, complete

if TYPE_CHECKING:
    import torch

    from heedful.console import Console
    from heedful.data.prepare import Prepared

FORMAT, FORMAT_VERSION = "heedful table 3", 1
MODULE = "heedful.paper.table3_run"
CHEAP_SENTENCES = 1000
"""So many of valid, and of each test corpus, are translated at the cheap scale."""


@dataclass(frozen=True)
class Plan:
    """What the sweep is going to do."""

    base: Mapping[str, Any]
    scale: str
    rows: Sequence[Row]
    seeds: Sequence[int]
    sentences: int | None
    output: Path
    device: torch.device
    at_once: int


@dataclass(frozen=True)
class Run:
    """One row with one seed."""

    row: Row
    seed: int
    directory: Path
    order: Mapping[str, Any]
    """What stands in its `run.json`: request, settings, how many sentences to score on."""

    @property
    def label(self) -> str:
        """How it is told of."""
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
    """Check all that can be checked before the corpora are read."""
    from heedful.build_model import resolve_device

    for flag, value in (("--seeds", num_seeds), ("--jobs", jobs), ("--sentences", sentences)):
        if value is not None and value < 1:
            raise ConfigError(f"{flag} must be at least 1, not {value}.")
    plain = as_mapping(request)
    base = base_request({**plain, "output": str(plain.get("output") or "table3")}, scale)
    asked, chosen = settle(base, "base"), choose_rows(rows)
    refuse_start(asked)
    seeds = range(asked.training.seed, asked.training.seed + num_seeds)
    for row in chosen:
        settle(row_request(row, base, seed=seeds[0]), "base")
    device = resolve_device(asked.training.device)
    limit = sentences or (CHEAP_SENTENCES if scale == "cheap" else None)
    return Plan(base, scale, chosen, seeds, limit, Path(asked.output), device, jobs or usual_jobs(device.type))


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
    """Train every row with every seed, write table and plot; returns the results.

    `resume` takes finished runs over and goes on with interrupted ones; if they were begun with other settings, that
    is an error, or with `overwrite` too they are trained anew. A run that fails is noted, and the others go on. Of an
    interrupted sweep `complete` is False.
    """
    from heedful.console import Console

    check_report(language, plots=plots)
    asked = settle(plan.base, "base")
    earlier = open_output(plan.output, FORMAT, "sweep", data=asked.data, resume=resume, overwrite=overwrite)
    if overwrite and not resume:
        shutil.rmtree(plan.output / "runs", ignore_errors=True)
    console, began = Console(quiet=quiet), time.monotonic()
    prepared = shared_data(asked, plan.output / "data", console, resume=resume)
    runs = runs_of(plan, prepared)
    if not overwrite:
        refuse_other_settings(runs)
    results = heading(plan, prepared, runs, command)
    found = {run.directory: result for run in runs if (result := taken_over(run)) is not None}
    failed: dict[Path, dict[str, Any]] = {}
    left = [run for run in runs if run.directory not in found]
    console.note(told_at_the_start(plan, runs, len(left)))
    for run in left:
        give_order(run)
    before = float(earlier.get("seconds") or 0.0)

    def write() -> None:
        results.update(summary(plan.rows, base_values(plan.base), collected(runs, found)))
        results["failed"] = list(failed.values())
        results["seconds"] = before + time.monotonic() - began
        write_json(plan.output / RESULTS, results)
        (plan.output / "table3.md").write_text(markdown(results, language), encoding="utf-8")

    def finished(ended: Ended, number: int) -> None:
        run = next(run for run in left if run.directory == ended.job.directory)
        result = read_result(run)
        heading = f"run {number} of {len(runs)}: {run.label}"
        if ended.code == 0 and result is not None:
            found[run.directory] = result
            console.note(f"{heading}: {told_of(result)} ({ended.seconds:.0f} s)")
        else:
            failed[run.directory] = failure(run, ended)
            console.note(f"{heading}: failed (exit code {ended.code}); its log ends:\n{tail(run.directory / LOG)}")
        write()

    write()
    sweep = Sweep([job_of(run) for run in left], plan.at_once, console, num_before=len(found))
    sweep.run(finished)
    results["complete"] = sweep.stopped_by is None
    write()
    close(plan, results, sweep, console, language=language, plots=plots)
    return results


def close(plan: Plan, results: dict[str, Any], sweep: Sweep, console: Console, *, language: str, plots: bool) -> None:
    """Draw the plot and say how it ended."""
    if sweep.stopped_by is not None:
        console.note(f"The sweep was stopped by {sweep.stopped_by}; the same command with --resume goes on.")
    if plots and any(row["perplexity_difference"] for row in results["rows"] if row["name"] != "base"):
        write_plot(results, plan.output, language)
    if results["failed"]:
        names = ", ".join(f"{one['row']} (seed {one['seed']})" for one in results["failed"])
        console.note(f"{len(results['failed'])} runs failed: {names}; --resume tries them again.")
    console.note(f"Wrote {plan.output / 'table3.md'} and {plan.output / RESULTS}.")


# ---------------------------------------------------------------------- runs


def runs_of(plan: Plan, prepared: Prepared) -> list[Run]:
    """Every run, seed by seed, so that a part of them already makes a table; the longest of a seed first."""
    from heedful.data.prepare import read_manifest

    manifest = read_manifest(prepared.directory)
    base, runs = from_prepared(plan.base, prepared), []
    for seed in plan.seeds:
        for row in sorted(plan.rows, key=lambda row: -row.budget):
            directory = plan.output / "runs" / f"{row.name}-seed-{seed}"
            request = {**row_request(row, base, seed=seed), "output": str(directory / MODEL)}
            config = complete(request, settle(request, "base"), prepared)
            settings = {
                **settings_of(config),
                "data": None if manifest is None else manifest["fingerprint"],
                "sentences": plan.sentences,
            }
            settings["training"]["device"] = plan.device.type  # "auto" and the device it finds are the same
            order = {"request": request, "settings": settings, "sentences": plan.sentences}
            runs.append(Run(row, seed, directory, order))
    return runs


def taken_over(run: Run) -> dict[str, Any] | None:
    """The result of a run that was finished with the same settings."""
    result = read_result(run)
    return result if result is not None and result.get("settings") == run.order["settings"] else None


def read_result(run: Run) -> dict[str, Any] | None:
    """What a run left, if it is finished."""
    return _read(run.directory / RESULT)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def refuse_other_settings(runs: Sequence[Run]) -> None:
    """Tell of a run that was begun with other settings, before its work is thrown away."""
    for run in runs:
        earlier = _read(run.directory / RUN)
        changed = None if earlier is None else first_change(earlier.get("settings"), run.order["settings"])
        if changed is not None:
            raise ConfigError(
                f"--resume: {run.label} was begun with {changed}; give what was given then, choose another directory "
                f"with -o, or add --overwrite to train such runs anew."
            )


def first_change(earlier: Any, now: Any, name: str = "") -> str | None:
    """The first setting that differs, as `training.steps = 4, not 6`; None where all are the same."""
    if not (isinstance(earlier, Mapping) and isinstance(now, Mapping)):
        return None if earlier == now else f"{name or 'settings'} = {json.dumps(earlier)}, not {json.dumps(now)}"
    changes = (first_change(earlier.get(key), now.get(key), f"{name}.{key}".lstrip(".")) for key in {**now, **earlier})
    return next((change for change in changes if change is not None), None)


def give_order(run: Run) -> None:
    """Write what a worker is to do; what an earlier one left stays only if it did the same."""
    earlier = _read(run.directory / RUN)
    if earlier is None or earlier.get("settings") != run.order["settings"]:
        shutil.rmtree(run.directory, ignore_errors=True)
    run.directory.mkdir(parents=True, exist_ok=True)
    (run.directory / RESULT).unlink(missing_ok=True)
    write_json(run.directory / RUN, run.order)


def job_of(run: Run) -> Job:
    """The run as a worker process."""
    directory = run.directory
    events = directory / MODEL / "training" / "log.jsonl"
    return Job(run.label, directory, MODULE, events, directory / LOG)


def collected(runs: Sequence[Run], found: Mapping[Path, Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The finished runs of each row, by seed."""
    by_row: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        result = found.get(run.directory)
        if result is not None:
            numbers = {key: value for key, value in result.items() if key != "settings"}
            by_row.setdefault(run.row.name, []).append({"seed": run.seed, **numbers})
    return by_row


def failure(run: Run, ended: Ended) -> dict[str, Any]:
    """A failed run as it stands in the results."""
    return {"row": run.row.name, "seed": run.seed, "code": ended.code, "log": tail(run.directory / LOG)}


# ---------------------------------------------------------------------- words and numbers


def told_at_the_start(plan: Plan, runs: Sequence[Run], num_left: int) -> str:
    """One line about what is going to happen."""
    before = f", {len(runs) - num_left} finished before" if num_left < len(runs) else ""
    return (
        f"Table 3 at the {plan.scale} scale: {len(plan.rows)} rows, {len(plan.seeds)} seeds, {len(runs)} runs{before}, "
        f"{plan.at_once} at once. Ctrl-C saves; --resume goes on."
    )


def told_of(result: Mapping[str, Any]) -> str:
    """The numbers of a run in words."""
    scores = [one["value"] for one in result["scores"] if one["role"] == "valid"]
    bleu = f", BLEU {sum(scores) / len(scores):.1f}" if scores else ""
    return f"perplexity {result['perplexity']:.2f}{bleu}"


def heading(plan: Plan, prepared: Prepared, runs: Sequence[Run], command: str | None) -> dict[str, Any]:
    """All of the results but the rows: what is compared, where, with what."""
    config: Config = settle(runs[0].order["request"] if runs else plan.base, "base")
    decoding = config.decoding
    budgets = {
        name: getattr(settle(plan.base, "base").training, name) for name in ("steps", "epochs", "tokens", "minutes")
    }
    parameters = {}
    for run in runs[: len(plan.rows)]:
        request = run.order["request"]
        parameters[run.row.name] = num_parameters_of(complete(request, settle(request, "base"), prepared).model)
    return {
        **heading_of(FORMAT, FORMAT_VERSION, command),
        "scale": plan.scale,
        "seeds": list(plan.seeds),
        "jobs": plan.at_once,
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
