"""Translation speed of Heedful, Hugging Face Marian, CTranslate2, OpenVINO, Bergamot and a naive loop.

    python benchmarks/speed/translate_speed.py --write 2026-11-15
    python benchmarks/speed/translate_speed.py --steps      # microseconds of a CUDA graph step, kernel by kernel

All systems have the same shape (that of the preset, with random weights) and translate the same sentences of 28 tokens
into exactly 32, so that all do the same work. A call translates one batch; the systems are interleaved
for several rounds.

On a GPU (bf16, Heedful's CUDA graph search in float32 too) all run in this process. Start-up is the first call of a
task, including compilation and graph capture.

On a CPU (under Linux) every system that is installed runs in a separate process (`translate_cpu_systems.py`), with the
number of threads that torch uses (`OMP_NUM_THREADS`). `translate_cpu_models.py` creates all models,
those of CTranslate2 by our own export; `--keep` keeps them for the next run. The names of the systems contain their
precision.
Ratios are against our native engine in int8, with a shortlist if the other has a vocabulary map. The first
translation is timed from the start of a new process, with the model files in the page cache and the packages compiled
to bytecode, as the median of five starts; memory is the peak of a process that has also translated 32 sentences. Other
systems run with their fastest settings: both thread layouts of CTranslate2 with its best batch size, one worker per
thread for Bergamot. Calls that would take too long are skipped and listed on the page. Marian's export for
OpenVINO needs transformers below 5; Bergamot's package needs Python 3.10 or older: `--bergamot PYTHON`.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.nn.functional as F

from benchmarks.speed.train_speed import TorchTransformer, marian
from benchmarks.speed.translate_cpu_systems import SOURCE, TARGET, Task
from heedful.build_model import build_model, resolve_device
from heedful.config import Config, DecodingConfig
from heedful.config_loading import build_config
from heedful.decoding.cuda_graph.search import CudaGraphSearch, Scheduler
from heedful.decoding.cuda_graph.search_state import Capacity
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.model.transformer import Transformer
from heedful.model_card import versions
from heedful.paper.experiment_io import processor
from heedful.search_types import DecodeRequest, SpecialTokens

ROOT = Path(__file__).resolve().parents[2]
SPECIAL = SpecialTokens(bos_id=2, eos_id=3, pad_id=0, forbidden=(1,))
VOCABULARY = 32_000
Sources = list[tuple[int, ...]]
Run = Callable[[Sources, int], int]
"""(sources, beam size) -> number of target tokens."""


ON_GPU = [Task(1, 1), Task(1, 4), Task(64, 1), Task(64, 4), Task(512, 1), Task(512, 4)]


@dataclass
class System:
    """A system to measure."""

    name: str
    run: Run
    device: torch.device
    most_beams: int = 16
    seconds: dict[Task, list[float]] = field(default_factory=dict)
    first: dict[Task, float] = field(default_factory=dict)
    memory: dict[Task, int] = field(default_factory=dict)

    def call(self, sources: Sources, task: Task) -> float:
        """Seconds of one call."""
        wait(self.device)
        start = time.perf_counter()
        made = self.run(sources, task.beam)
        wait(self.device)
        spent = time.perf_counter() - start
        assert made == task.batch * TARGET, f"{self.name} made {made} tokens for {task}"
        return spent


# ---------------------------------------------------------------------- systems


def settings(beam: int) -> DecodingConfig:
    """Exactly TARGET tokens, including the end token."""
    return DecodingConfig(
        method="greedy" if beam == 1 else "beam", beam_size=beam, min_length=TARGET - 1, tokens_per_batch=1 << 20
    )


def heedful(config: Config, device: torch.device, dtype: torch.dtype, *, use_cuda_graph: bool) -> System:
    """The torch engine: CUDA graph search or the reference search."""
    torch.manual_seed(1)
    model: Any = build_model(config.model).to(device, dtype).eval()
    engine = TorchEngine(model, SPECIAL, device=device, use_cuda_graph=use_cuda_graph)
    kind = "cuda-graph" if use_cuda_graph else "readable"

    def run(sources: Sources, beam: int) -> int:
        jobs = [DecodeRequest(source, (), str(number), TARGET - 1) for number, source in enumerate(sources)]
        outcomes = engine.decode(jobs, settings(beam), align=False, constraint_factory=None)
        return sum(len(outcome.hypotheses[0].tokens) for outcome in outcomes.values())

    return System(f"Heedful torch, {kind}, {short(dtype)}", run, device)


def hugging_face(config: Config, device: torch.device, dtype: torch.dtype, *, cache: str | None) -> System:
    """Marian's `generate`, with a dynamic cache or a static one, which is compiled."""
    torch.manual_seed(1)
    model: Any = marian(config, SPECIAL.pad_id).to(device, dtype).eval()
    model.generation_config.forced_eos_token_id = None
    more = {} if cache is None else {"cache_implementation": cache}

    @torch.inference_mode()
    def run(sources: Sources, beam: int) -> int:
        found = model.generate(
            input_ids=torch.tensor(sources, device=device),
            num_beams=beam,
            do_sample=False,
            min_new_tokens=TARGET,
            max_new_tokens=TARGET,
            eos_token_id=SPECIAL.eos_id,
            **more,
        )
        return sum(len(row) - 1 for row in found.tolist())

    return System(f"Hugging Face Marian, {short(dtype)}" + (f", {cache} cache" if cache else ""), run, device)


def naive(config: Config, device: torch.device, dtype: torch.dtype) -> System:
    """`nn.Transformer` as in tutorials: greedy search that recomputes the whole target for every token."""
    torch.manual_seed(1)
    model = TorchTransformer(config).to(device, dtype).eval()

    @torch.inference_mode()
    def run(sources: Sources, beam: int) -> int:
        memory = model.transformer.encoder(model.embed(torch.tensor(sources, device=device)))
        tokens = torch.full((len(sources), 1), SPECIAL.bos_id, device=device)
        for _ in range(TARGET):
            causal = torch.ones(tokens.shape[1], tokens.shape[1], device=device).triu(1).bool()
            x = model.transformer.decoder(model.embed(tokens), memory, tgt_mask=causal)
            newest = F.linear(x[:, -1], model.table.weight).argmax(dim=1, keepdim=True)
            tokens = torch.cat([tokens, newest], dim=1)
        return sum(len(row) - 1 for row in tokens.tolist())

    return System(f"nn.Transformer loop, {short(dtype)}", run, device, most_beams=1)


def systems_for(config: Config, device: torch.device, names: set[str]) -> Iterator[System]:
    """All requested systems that are installed, ours first."""
    dtype = torch.bfloat16
    if "cuda-graph" in names:
        yield heedful(config, device, dtype, use_cuda_graph=True)
    if "cuda-graph-float32" in names:
        yield heedful(config, device, torch.float32, use_cuda_graph=True)
    if "readable" in names:
        yield heedful(config, device, dtype, use_cuda_graph=False)
    if "marian" in names and find_spec("transformers"):
        yield hugging_face(config, device, dtype, cache=None)
    if "marian-static" in names and find_spec("transformers"):
        yield hugging_face(config, device, dtype, cache="static")
    if "naive" in names:
        yield naive(config, device, dtype)


# ---------------------------------------------------------------------- measuring


def measure(systems: list[System], tasks: list[Task], *, rounds: int, seconds: float) -> None:
    """Run every task with every system, interleaved; a round is as many calls as fit into the given time."""
    generator = torch.Generator().manual_seed(1)
    for task in tasks:
        rows = torch.randint(4, VOCABULARY, (task.batch, SOURCE - 1), generator=generator).tolist()
        sources: Sources = [(*row, SPECIAL.eos_id) for row in rows]
        present = [system for system in systems if task.beam <= system.most_beams]
        for system in list(present):
            gc.collect()
            reset_peak(system.device)
            try:
                system.first[task] = system.call(sources, task)
                system.call(sources, task)
            except Exception as error:  # a system that fails must not stop the others
                if system.name.startswith("Heedful"):
                    raise
                present.remove(system)
                sys.stderr.write(f"{system.name}, {task}: {type(error).__name__}: {str(error)[:200]}\n")
                continue
            system.memory[task] = peak(system.device)
        for _ in range(rounds):
            for system in present:
                end = time.perf_counter() + seconds
                while True:
                    system.seconds.setdefault(task, []).append(system.call(sources, task))
                    if time.perf_counter() > end:
                        break


def steps_alone(config: Config, device: torch.device, tasks: list[Task], dtype: torch.dtype) -> str:
    """Microseconds of a step of the CUDA graph search while no sentence has ended, with a profile."""
    torch.manual_seed(1)
    model = build_model(config.model).to(device, dtype).eval()
    assert isinstance(model, Transformer)
    search = CudaGraphSearch(model, SPECIAL)
    lines = [f"| step, {short(dtype)} | µs per step | µs to encode the sources |", "|---|---:|---:|"]
    tables = []
    for task in tasks:
        with torch.inference_mode():
            session = Scheduler(search.weights, Capacity(task.batch, task.beam, 128, 64, 1), SPECIAL)
            jobs = [DecodeRequest((*range(4, 3 + SOURCE), SPECIAL.eos_id), (), "", 120)] * task.batch
            chosen = replace(settings(task.beam), min_length=120)
            session._admit(jobs, list(range(task.batch)), chosen)
            reading = timed(lambda s=session, j=jobs, c=chosen: s._admit(j, list(range(len(j))), c), 4, device)  # type: ignore[misc]
            for _ in range(4):
                session.step()
            spent = timed(session.step, TARGET - 4, device)
            lines.append(f"| {task} | {spent:.0f} | {reading:.0f} |")
            tables.append(f"\n### {task}\n\n" + profile(session.step))
        del session
        gc.collect()
    return "\n".join([*lines, *tables])


def timed(work: Callable[[], None], count: int, device: torch.device) -> float:
    """Microseconds per call of `count` consecutive calls."""
    wait(device)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        work()
    end.record()
    wait(device)
    return start.elapsed_time(end) * 1e3 / count


def profile(step: Callable[[], None], *, steps: int = 4) -> str:
    """Profile of a step: kernel, µs, calls, µs per call."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    with profiler(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    rows = sorted(found.key_averages(), key=lambda row: -row.self_device_time_total)
    lines = ["| µs | calls | µs per call | kernel |", "|---:|---:|---:|---|"]
    for row in rows[:16]:
        spent = row.self_device_time_total
        lines.append(f"| {spent / steps:.1f} | {row.count // steps} | {spent / row.count:.1f} | `{row.key[:60]}` |")
    return "\n".join(lines)


# ---------------------------------------------------------------------- reporting


def table(systems: list[System], tasks: list[Task]) -> str:
    """One row per task and system, the ratio last."""
    lines = [
        "| task | system | tokens/s | ms per call, median | 99th percentile | µs per step | first call, s "
        "| memory, GiB | Heedful is |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for task in tasks:
        ours = next((statistics.median(s.seconds[task]) for s in systems if s.seconds.get(task)), 1.0)
        for system in (system for system in systems if system.seconds.get(task)):
            times = sorted(system.seconds[task])
            median = statistics.median(times)
            slow = times[min(len(times) - 1, int(0.99 * len(times)))]
            memory = f"{system.memory[task] / 2**30:.2f}" if system.memory.get(task) else "–"
            lines.append(
                f"| {task} | {system.name} | {task.batch * TARGET / median:,.0f} | {median * 1e3:.2f} "
                f"| {slow * 1e3:.2f} | {median / TARGET * 1e6:,.0f} | {system.first[task]:.1f} | {memory} "
                f"| {median / ours:.2f}× |"
            )
    return "\n".join(lines)


def short(dtype: torch.dtype) -> str:
    return "bf16" if dtype == torch.bfloat16 else "float32"


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()


def peak(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated() if device.type == "cuda" else 0


def on_gpu(config: Config, device: torch.device, chosen: argparse.Namespace) -> str:
    """Measure all systems in this process."""
    tasks = read_tasks(chosen.tasks) or ON_GPU
    if chosen.steps:
        return steps_alone(config, device, tasks, torch.float32 if chosen.float32 else torch.bfloat16)
    names = set((chosen.systems or "cuda-graph,cuda-graph-float32,readable,marian,naive").split(","))
    systems = list(systems_for(config, device, names))
    measure(systems, tasks, rounds=chosen.rounds, seconds=chosen.seconds)
    return table(systems, tasks)


def on_cores(config: Config, chosen: argparse.Namespace) -> str:
    """Measure all systems in separate processes, interleaved."""
    from benchmarks.speed import translate_cpu

    limits = translate_cpu.Limits(chosen.rounds, chosen.seconds, chosen.longest)
    tasks = read_tasks(chosen.tasks) or translate_cpu.TASKS
    compared = translate_cpu.Chosen((chosen.systems or "all").split(","), torch.get_num_threads(), chosen.bergamot)
    with tempfile.TemporaryDirectory() as folder:
        directory = chosen.keep or Path(folder)
        return translate_cpu.page(directory, config, tasks, compared, limits)


def read_tasks(text: str | None) -> list[Task]:
    """Parse tasks such as `1x4,64x1`."""
    return [Task(*(int(number) for number in one.split("x"))) for one in text.split(",")] if text else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="base")
    parser.add_argument(
        "--systems", help="names of systems, separated by commas; for a CPU see translate_cpu_systems.py"
    )
    parser.add_argument("--tasks", help="sentences × beams, such as 1x1,64x4")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=0.5, help="seconds per system and round")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--steps", action="store_true", help="on a GPU: only the CUDA graph step, kernel by kernel")
    parser.add_argument("--float32", action="store_true", help="with --steps: in float32")
    parser.add_argument("--longest", type=float, default=12, help="on a CPU: skip calls that would take more seconds")
    parser.add_argument("--keep", type=Path, help="on a CPU: folder in which models are kept between runs")
    parser.add_argument(
        "--bergamot", metavar="PYTHON", help="on a CPU: a Python interpreter with bergamot, if not this one"
    )
    parser.add_argument("--write", metavar="DATE", help="write benchmarks/results/translate_speed_DATE_<device>.md")
    chosen = parser.parse_args()
    device = resolve_device(chosen.device)
    if chosen.steps and device.type != "cuda":
        parser.error("--steps needs a GPU")
    config = build_config({"preset": chosen.preset})
    config = replace(
        config, model=replace(config.model, source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY, dropout=0.0)
    )
    body = on_gpu(config, device, chosen) if device.type == "cuda" else on_cores(config, chosen)
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"{processor()}, {os.cpu_count()} cores"
    page = (
        f"# Translation speed\n\n- machine: {name}; {platform.system()} {platform.machine()}; "
        f"{torch.get_num_threads()} threads\n- versions: {', '.join(f'{k} {v}' for k, v in versions().items())}\n"
        f"- command: `{' '.join(['python', *sys.argv])}`\n- {chosen.preset} model, {VOCABULARY:,} subwords, random "
        f"weights, {SOURCE} source tokens, {TARGET} target tokens\n\n{body}\n"
    )
    sys.stdout.write(page)
    if chosen.write:
        kind = torch.cuda.get_device_name().split()[-1].lower() if device.type == "cuda" else "cpu"
        folder_of_results = Path(os.environ.get("OUT") or ROOT / "benchmarks" / "results")
        what = "translate_steps" if chosen.steps else "translate_speed"
        (folder_of_results / f"{what}_{chosen.write}_{kind}.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
