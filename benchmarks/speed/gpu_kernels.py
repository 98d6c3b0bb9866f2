"""Speed of the Triton kernels against compiled torch code, at the shapes of the base model.

    python benchmarks/speed/gpu_kernels.py --write 2026-11-15

Forward and backward are measured separately, each replayed as a CUDA graph to exclude launch overhead; medians. The
last column is the fraction of the memory bandwidth: the bytes that must be read and written, over time and 4.3 TB/s.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.fused.train_attention import row_attention
from heedful.fused.train_ops import DropoutSeed, Gradients, Segments, add_norm, scaled_loss
from heedful.model_card import versions

ROOT = Path(__file__).resolve().parents[2]
ROWS, WIDTH, D_MODEL, HEADS, VOCABULARY = 200, 128, 512, 8, 32_000
BANDWIDTH = 4.3e12
GRADIENTS = Gradients()


class Case(NamedTuple):
    """Two implementations of the same computation, and the bytes that must be read and written in each direction."""

    name: str
    ours: Callable[..., Tensor]
    plain: Callable[..., Tensor]
    inputs: list[Any]
    forward_bytes: int
    backward_bytes: int


def cases() -> list[Case]:
    """Sum and norm, self-attention, loss."""
    torch.manual_seed(1)
    rows: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16, "requires_grad": True}
    x, h = (torch.randn(ROWS, WIDTH, D_MODEL, **rows) for _ in range(2))
    bias, weight, shift = (torch.randn(D_MODEL, **rows) for _ in range(3))
    seeds = torch.tensor([3], device="cuda")
    packed = torch.randn(ROWS, WIDTH, 3, HEADS, D_MODEL // HEADS, **rows)
    segments = (1 + torch.arange(WIDTH, device="cuda") // 28).expand(ROWS, WIDTH).contiguous()
    mask = segments[:, None, :, None] == segments[:, None, None]
    logits = torch.randn(ROWS * WIDTH, VOCABULARY, **rows)
    labels = torch.randint(0, VOCABULARY, (ROWS * WIDTH,), device="cuda")
    counted, scale = torch.ones_like(labels, dtype=torch.bool), torch.tensor(1e-4, device="cuda")

    def plain_norm(x: Tensor, h: Tensor, bias: Tensor, weight: Tensor, shift: Tensor) -> Tensor:
        return F.layer_norm(x + F.dropout(h + bias, 0.1), (D_MODEL,), weight, shift)

    def plain_attention(packed: Tensor) -> Tensor:
        q, k, v = packed.permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)

    def plain_loss(logits: Tensor) -> Tensor:
        return scale * F.cross_entropy(logits.float(), labels, label_smoothing=0.1, reduction="sum")

    stream, scores = x.numel() * 2, logits.numel() * 2
    return [
        Case(
            "sum, dropout, norm",
            lambda *given: add_norm(*given, DropoutSeed(seeds, 0, 0.1), 1e-5, GRADIENTS)[1],
            plain_norm,
            [x, h, bias, weight, shift],
            4 * stream,
            4 * stream,
        ),
        Case(
            "self-attention",
            lambda x: row_attention(
                x, None, Segments(segments, segments, False), (D_MODEL // HEADS) ** -0.5, GRADIENTS
            ),
            plain_attention,
            [packed],
            4 * stream,
            8 * stream,
        ),
        Case(
            "loss (with its gradient)",
            lambda given: scaled_loss(given, labels, counted, scale, 0.1)[0],
            plain_loss,
            [logits],
            2 * scores,
            0,
        ),
    ]


def microseconds(run: Callable[[], object]) -> float:
    """Median time of a run, replayed as a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        run()
    times = []
    for _ in range(20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(5):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / 5)
    return statistics.median(times)


def measured(compute: Callable[..., Tensor], inputs: list[Any]) -> tuple[float, float]:
    """Microseconds of forward, and of forward with backward."""
    gradient = torch.randn_like(compute(*inputs))

    def both() -> None:
        torch.autograd.grad(compute(*inputs), inputs, gradient, allow_unused=True)
        GRADIENTS.collected.clear()

    return microseconds(lambda: compute(*inputs)), microseconds(both)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", metavar="DATE", help="write benchmarks/results/gpu_kernels_DATE_<device>.md")
    arguments = parser.parse_args()
    lines = [
        "# Kernels",
        "",
        f"- machine: {torch.cuda.get_device_name()}; {platform.system()} {platform.machine()}",
        f"- versions: {', '.join(f'{key} {value}' for key, value in versions().items())}",
        f"- command: `python {' '.join(sys.argv)}`",
        f"- {ROWS} rows of {WIDTH} tokens, d_model {D_MODEL}, {HEADS} heads, {VOCABULARY:,} subwords, bf16",
        "",
        "| | Heedful, µs forward | with backward | compiled, µs forward | with backward | speed-up "
        "| share of memory bandwidth |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for case in cases():
        ours = measured(case.ours, case.inputs)
        plain = measured(torch.compile(case.plain, dynamic=False), case.inputs)
        share = (case.forward_bytes + case.backward_bytes) / (ours[1] * 1e-6) / BANDWIDTH
        lines.append(
            f"| {case.name} | {ours[0]:.0f} | {ours[1]:.0f} | {plain[0]:.0f} | {plain[1]:.0f} "
            f"| {plain[1] / ours[1]:.2f}× | {share:.0%} |"
        )
    page = "\n".join(lines) + "\n"
    sys.stdout.write(page)
    if arguments.write:
        kind = torch.cuda.get_device_name().split()[-1].lower()
        folder = Path(os.environ.get("OUT") or ROOT / "benchmarks" / "results")
        (folder / f"gpu_kernels_{arguments.write}_{kind}.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
