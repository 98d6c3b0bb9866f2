"""Training speed of Heedful, `nn.Transformer`, Hugging Face Marian and x-transformers on the same sentences.

    heedful prepare --source train.en --target train.de --vocab-size 32000 -o prepared
    python benchmarks/speed/train_speed.py prepared --preset base --write 2026-11-15

All systems have the same shape (that of the preset), vocabulary, label smoothing of 0.1, dropout of the preset,
optimizer (Adam) and precision: bf16 on a GPU, fp32 on a CPU. Heedful reads packed rows through its data pipeline; the
others get batches of sentences of similar length (bucketed, padded to a multiple of 8, with the same number of padded
tokens per step), which are prepared and copied to the device in advance. x-transformers has no dropout on the residual
stream and does not tie its output matrix. Every shape is run once before the measurement. The systems are interleaved
for several rounds; the medians of real target tokens per second are compared. On a CPU, core seconds of the process
are reported too: they are more reliable when other programs share the cores.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.build_model import build_model, num_parameters, resolve_device
from heedful.config import Config
from heedful.config_loading import build_config
from heedful.data.batch_stream import BatchStream, prefetch, worst_batch
from heedful.data.prepare import Prepared
from heedful.model_card import versions
from heedful.paper.experiment_io import processor
from heedful.training.step import TrainingStep

ROOT = Path(__file__).resolve().parents[2]
FLOOR_TFLOPS = {"NVIDIA H200": 800}
"""Measured bf16 matrix throughput of a device, the reference for utilization."""


@dataclass
class Padded:
    """A padded batch of sentences of similar length, as in other toolkits."""

    source: Tensor
    target_input: Tensor
    target_output: Tensor
    num_tokens: int


@dataclass
class System:
    """A system to measure: `advance(n)` runs n updates and returns their real target tokens."""

    name: str
    advance: Callable[[int], int]
    parameters: int
    rates: list[float] = field(default_factory=list)
    core_rates: list[float] = field(default_factory=list)
    """Tokens per second of CPU time of one core."""
    memory: int = 0


# ---------------------------------------------------------------------- Heedful


def heedful_system(config: Config, prepared: Prepared, device: torch.device) -> System:
    """The training step of `heedful train`, with its data pipeline."""
    model = build_model(config.model).to(device)
    step = TrainingStep(model, config.training, device)
    width = prepared.row_width
    rows = max(1, (config.training.tokens_per_step or 25_600) // width)
    special = {"bos_id": prepared.tokenizer.bos_id, "pad_id": prepared.tokenizer.pad_id}
    stream = BatchStream(prepared.train, width=width, rows_per_step=rows, seed=1, **special)
    step.try_largest_batch(worst_batch(rows, width, config.model.source_vocab_size, config.model.target_vocab_size))
    batches = prefetch(stream.batches(), pin_memory=device.type == "cuda")

    def advance(count: int) -> int:
        total = 0
        for _ in range(count):
            _, batch = next(batches)
            num_tokens = batch.num_tokens
            step(batch, num_tokens, 1e-4)
            total += num_tokens
        return total

    return System("heedful", advance, num_parameters(model))


# ---------------------------------------------------------------------- the others


def bucketed(prepared: Prepared, tokens_per_step: int, device: torch.device, *, seed: int = 1) -> list[Padded]:
    """Batches of similar lengths from the whole corpus: sorted, padded to multiples of 8, shuffled."""
    store, tokenizer = prepared.train, prepared.tokenizer
    pairs = np.arange(len(store))
    lengths = np.maximum(store.source.lengths(pairs), store.target.lengths(pairs))
    order = np.lexsort((store.target.lengths(pairs), lengths))
    batches: list[Padded] = []
    start = 0
    while start < order.size:
        width = int(-(-lengths[order[start]] // 8) * 8)
        count = max(1, tokens_per_step // width)
        while start + count <= order.size and -(-lengths[order[start + count - 1]] // 8) * 8 > width:
            width += 8  # the longest sentence of the batch
            count = max(1, tokens_per_step // width)
        chosen = order[start : start + count]
        start += count
        if chosen.size == count:  # a smaller last batch would have another shape
            batches.append(padded([store.pair(int(i)) for i in chosen], width, tokenizer.bos_id, tokenizer.pad_id))
    np.random.default_rng(seed).shuffle(batches)  # type: ignore[arg-type]
    for batch in batches:
        batch.source = batch.source.to(device)
        batch.target_input, batch.target_output = batch.target_input.to(device), batch.target_output.to(device)
    return batches


def padded(pairs: list[tuple[list[int], list[int]]], width: int, bos_id: int, pad_id: int) -> Padded:
    source = torch.full((len(pairs), width), pad_id)
    target_input, target_output = torch.full_like(source, pad_id), torch.full_like(source, pad_id)
    for row, (one, other) in enumerate(pairs):
        source[row, : len(one)] = torch.tensor(one)
        target_input[row, : len(other)] = torch.tensor([bos_id, *other[:-1]])
        target_output[row, : len(other)] = torch.tensor(other)
    return Padded(source, target_input, target_output, sum(len(other) for _, other in pairs))


def padded_system(
    name: str,
    model: nn.Module,
    logits: Callable[[nn.Module, Padded], Tensor],
    batches: list[Padded],
    device: torch.device,
    pad_id: int,
) -> System:
    """A system on padded batches: forward, loss, backward, fused Adam, in bf16 autocast on a GPU."""
    model.to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    position = 0

    def update(batch: Padded) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            scores = logits(model, batch)
        loss = F.cross_entropy(
            scores.flatten(0, 1).float(), batch.target_output.flatten(), ignore_index=pad_id, label_smoothing=0.1
        )
        loss.backward()
        optimizer.step()

    seen: set[tuple[int, int]] = set()
    for batch in batches:  # warm up every shape
        if batch.source.shape not in seen:
            seen.add(tuple(batch.source.shape))  # type: ignore[arg-type]
            update(batch)

    def advance(count: int) -> int:
        nonlocal position
        total = 0
        for _ in range(count):
            batch = batches[position % len(batches)]
            position += 1
            update(batch)
            total += batch.num_tokens
        return total

    return System(name, advance, sum(parameter.numel() for parameter in model.parameters()))


class TorchTransformer(nn.Module):
    """`nn.Transformer` as in PyTorch's translation tutorial, with tied embeddings like the others."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        shape = config.model
        self.d_model = shape.d_model
        self.table = nn.Embedding(shape.source_vocab_size, shape.d_model)
        self.transformer = nn.Transformer(
            d_model=shape.d_model,
            nhead=shape.num_heads,
            num_encoder_layers=shape.num_encoder_layers,
            num_decoder_layers=shape.num_decoder_layers,
            dim_feedforward=shape.d_ff,
            dropout=shape.dropout,
            batch_first=True,
        )
        position = torch.arange(1024)[:, None] * torch.exp(
            torch.arange(0, shape.d_model, 2) * (-math.log(10_000) / shape.d_model)
        )
        self.positions: Tensor
        self.register_buffer("positions", torch.stack((position.sin(), position.cos()), dim=-1).flatten(1))
        self.dropout = nn.Dropout(shape.dropout)

    def embed(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens) * math.sqrt(self.d_model) + self.positions[: tokens.shape[1]]
        embedded: Tensor = self.dropout(x)
        return embedded

    def forward(self, batch: Padded, pad_id: int) -> Tensor:
        no_source, no_target = batch.source == pad_id, batch.target_output == pad_id
        causal = torch.ones(batch.target_input.shape[1], batch.target_input.shape[1], device=batch.source.device)
        x = self.transformer(
            self.embed(batch.source),
            self.embed(batch.target_input),
            tgt_mask=causal.triu(1).bool(),
            src_key_padding_mask=no_source,
            tgt_key_padding_mask=no_target,
            memory_key_padding_mask=no_source,
        )
        return F.linear(x, self.table.weight)


def marian(config: Config, pad_id: int) -> nn.Module:
    """Hugging Face's MarianMT of the same shape, with torch's fused attention."""
    from transformers import MarianConfig, MarianMTModel

    shape = config.model
    return MarianMTModel._from_config(
        MarianConfig(
            vocab_size=shape.source_vocab_size,
            d_model=shape.d_model,
            encoder_layers=shape.num_encoder_layers,
            decoder_layers=shape.num_decoder_layers,
            encoder_attention_heads=shape.num_heads,
            decoder_attention_heads=shape.num_heads,
            encoder_ffn_dim=shape.d_ff,
            decoder_ffn_dim=shape.d_ff,
            dropout=shape.dropout,
            attention_dropout=0.0,
            activation_dropout=0.0,
            activation_function="relu",
            scale_embedding=True,
            max_position_embeddings=1024,
            pad_token_id=pad_id,
            decoder_start_token_id=pad_id,
        ),
        attn_implementation="sdpa",
    )


def x_transformers(config: Config, pad_id: int) -> nn.Module:
    """The encoder-decoder of x-transformers of the same shape."""
    from x_transformers import XTransformer

    shape = config.model
    sides = {}
    for side, depth in (("enc", shape.num_encoder_layers), ("dec", shape.num_decoder_layers)):
        sides |= {
            f"{side}_num_tokens": shape.source_vocab_size,
            f"{side}_depth": depth,
            f"{side}_heads": shape.num_heads,
            f"{side}_max_seq_len": 1024,
            f"{side}_attn_dim_head": shape.attention_head_dim,
            f"{side}_ff_mult": shape.d_ff // shape.d_model,
            f"{side}_attn_flash": True,
            f"{side}_layer_dropout": 0.0,
        }
    return XTransformer(dim=shape.d_model, tie_token_emb=True, pad_value=pad_id, ignore_index=pad_id, **sides)


def peers(config: Config, prepared: Prepared, device: torch.device, only: set[str]) -> Iterator[System]:
    """The other systems that are installed."""
    pad_id = prepared.tokenizer.pad_id
    batches = bucketed(prepared, config.training.tokens_per_step or 25_600, device)

    def marian_logits(model: nn.Module, batch: Padded) -> Tensor:
        scores: Tensor = model(
            input_ids=batch.source,
            attention_mask=batch.source != pad_id,
            decoder_input_ids=batch.target_input,
            use_cache=False,
        ).logits
        return scores

    def x_logits(model: nn.Module, batch: Padded) -> Tensor:
        mask = batch.source != pad_id
        memory = model.encoder(batch.source, mask=mask, return_embeddings=True)  # type: ignore[operator]
        scores: Tensor = model.decoder.net(batch.target_input, context=memory, context_mask=mask)  # type: ignore[union-attr, operator]
        return scores

    if "nn.Transformer" in only:
        model: nn.Module = TorchTransformer(config)
        yield padded_system("nn.Transformer", model, lambda m, b: m(b, pad_id), batches, device, pad_id)
    if "marian" in only and find_spec("transformers"):
        yield padded_system("Hugging Face Marian", marian(config, pad_id), marian_logits, batches, device, pad_id)
    if "x-transformers" in only and find_spec("x_transformers"):
        yield padded_system("x-transformers", x_transformers(config, pad_id), x_logits, batches, device, pad_id)


# ---------------------------------------------------------------------- measuring


def flops_per_token(config: Config, prepared: Prepared) -> float:
    """Matrix operations of forward and backward for one real target token and its share of the source, by formula."""
    m = config.model
    share = prepared.train.source.num_tokens / prepared.train.target.num_tokens
    inner = m.num_heads * m.attention_head_dim
    attention, feed_forward = 4 * m.d_model * inner, (3 if m.activation == "swiglu" else 2) * m.d_model * m.d_ff
    encoder = m.num_encoder_layers * (attention + feed_forward)
    half = 2 * m.d_model * inner  # cross-attention: keys and values of the source, query and output of the target
    decoder = m.num_decoder_layers * (attention + half + feed_forward) + m.d_model * m.target_vocab_size
    return 6 * (
        share * (encoder + m.num_decoder_layers * half) + decoder
    )  # two per multiply-add; forward once, backward twice


def measure(systems: list[System], device: torch.device, *, rounds: int, seconds: float) -> None:
    """Interleave the systems; a round is as many updates as fit into `seconds`."""
    counts = []
    for system in systems:
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        system.advance(5)  # the first updates are not yet replayed from a graph
        _wait(device)
        system.memory = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
        began = time.perf_counter()
        system.advance(5)
        _wait(device)
        counts.append(max(5, round(5 * seconds / (time.perf_counter() - began))))
    for _ in range(rounds):
        for system, count in zip(systems, counts, strict=True):
            _wait(device)
            began, used = time.perf_counter(), time.process_time()
            tokens = system.advance(count)
            _wait(device)
            system.rates.append(tokens / (time.perf_counter() - began))
            system.core_rates.append(tokens / (time.process_time() - used))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def profile(system: System, device: torch.device, *, steps: int = 5) -> list[tuple[str, float, int]]:
    """Profile of one update on the GPU: kernel, milliseconds, calls."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    with profiler(activities=[ProfilerActivity.CUDA]) as found:
        system.advance(steps)
        _wait(device)
    rows = [(row.key, row.self_device_time_total / 1e3 / steps, row.count // steps) for row in found.key_averages()]
    return sorted(rows, key=lambda row: -row[1])


def matrix_rate(device: torch.device, *, size: int = 8192, count: int = 20) -> float:
    """TFLOP/s of large bf16 matrix products on this device, right after the run."""
    one, other = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    torch.mm(one, other)
    _wait(device)
    began = time.perf_counter()
    for _ in range(count):
        torch.mm(one, other)
    _wait(device)
    return 2 * size**3 * count / (time.perf_counter() - began) / 1e12


def report(
    systems: list[System],
    config: Config,
    prepared: Prepared,
    device: torch.device,
    kernels: list[tuple[str, float, int]],
) -> str:
    """The results page."""
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"{processor()}, {os.cpu_count()} cores"
    cost = flops_per_token(config, prepared)
    limit = FLOOR_TFLOPS.get(name)
    ours = statistics.median(systems[0].rates)
    lines = [
        "# Training speed",
        "",
        f"- machine: {name}; {platform.system()} {platform.machine()}; {torch.get_num_threads()} threads",
        f"- versions: {', '.join(f'{key} {value}' for key, value in versions().items())}",
        f"- command: `{' '.join(['python', *sys.argv])}`",
        f"- model: {config.preset}, {config.model.target_vocab_size:,} subwords; {config.training.tokens_per_step:,} "
        f"tokens per step; {'bf16' if device.type == 'cuda' else 'fp32'}; {cost / 1e6:.0f} MFLOP per target token"
        + (f"; floor {limit * 1e6 / (cost / 1e6):,.0f} tokens/s at {limit} TFLOP/s" if limit else ""),
        "",
        "| system | parameters | real target tokens/s (lowest–highest) | share of the floor | Heedful is | memory |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for system in systems:
        median = statistics.median(system.rates)
        share = f"{median * cost / (limit * 1e12):.0%}" if limit else "–"
        memory = f"{system.memory / 2**30:.1f} GiB" if system.memory else "–"
        lines.append(
            f"| {system.name} | {system.parameters:,} "
            f"| {median:,.0f} ({min(system.rates):,.0f}–{max(system.rates):,.0f}) | {share} "
            f"| {ours / median:.2f}× | {memory} |"
        )
    if device.type == "cpu":
        own = statistics.median(systems[0].core_rates)
        heading = "| system | real target tokens per CPU second (lowest–highest) | Heedful is |"
        lines += ["", heading, "|---|---:|---:|"]
        for system in systems:
            rates = system.core_rates
            median = statistics.median(rates)
            lines.append(
                f"| {system.name} | {median:,.0f} ({min(rates):,.0f}–{max(rates):,.0f}) | {own / median:.2f}× |"
            )
        lines += ["", f"Load averages of the last minute and the last fifteen: {_load()}."]
    if device.type == "cuda":
        rate = matrix_rate(device)
        lines += [
            "",
            f"Devices of one type differ: on this one, large bf16 matrix products ran at {rate:.0f} TFLOP/s right "
            f"after the run; Heedful's training reaches {ours * cost / (rate * 1e12):.0%} of that.",
        ]
    if kernels:
        total = sum(row[1] for row in kernels)
        lines += ["", f"## Profile of an update ({total:.1f} ms)", "", "| ms | calls | kernel |", "|---:|---:|---|"]
        lines += [f"| {ms:.2f} | {count} | `{key[:90]}` |" for key, ms, count in kernels[:25]]
    return "\n".join(lines) + "\n"


def _load() -> str:
    one, _, fifteen = os.getloadavg()
    return f"{one:.1f} and {fifteen:.1f}, this benchmark included"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path, help="directory written by heedful prepare")
    parser.add_argument("--preset", default="base")
    parser.add_argument("--tokens", type=int, help="tokens per step; default: that of the preset")
    parser.add_argument(
        "--peers", default="nn.Transformer,marian,x-transformers", help="other systems to measure, if installed"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="seconds per system and round")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="change Heedful's settings")
    parser.add_argument("--write", metavar="DATE", help="write benchmarks/results/train_speed_DATE_<device>.md")
    arguments = parser.parse_args()
    device = resolve_device(arguments.device)
    prepared = Prepared.open(arguments.prepared)
    from heedful.config_loading import set_key

    request: dict[str, object] = {"preset": arguments.preset, "training": {"steps": 100_000}}
    for change in arguments.set:
        key, _, value = change.partition("=")
        set_key(request, key, value)
    config = build_config(request)
    sizes = {f"{side}_vocab_size": getattr(prepared.tokenizer, f"{side}_vocab_size") for side in ("source", "target")}
    training = replace(config.training, tokens_per_step=arguments.tokens or config.training.tokens_per_step)
    config = replace(config, model=replace(config.model, **sizes), training=training)
    torch.manual_seed(1)
    systems = [heedful_system(config, prepared, device)]
    systems += peers(config, prepared, device, set(arguments.peers.split(",")))
    gc.collect()
    measure(systems, device, rounds=arguments.rounds, seconds=arguments.seconds)
    page = report(systems, config, prepared, device, profile(systems[0], device) if device.type == "cuda" else [])
    sys.stdout.write(page)
    if arguments.write:
        kind = torch.cuda.get_device_name().split()[-1].lower() if device.type == "cuda" else "cpu"
        folder = Path(os.environ.get("OUT") or ROOT / "benchmarks" / "results")
        (folder / f"train_speed_{arguments.write}_{kind}.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
