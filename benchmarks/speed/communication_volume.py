"""Bytes that a rank sends per step, and the expected efficiency from a measured step.

    python benchmarks/speed/communication_volume.py configs/paper-base.yaml --ranks 8 64 \\
        --step-ms 25 --gigabytes-per-second 50

Nothing is measured here. `--step-ms` is a measured step of one GPU on the rows of one rank, `--gigabytes-per-second`
the bandwidth of one rank; the result is labelled as a projection.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from heedful.config_loading import build_config, read_request

BYTES_PER_NUMBER = 4  # gradients and weights are sent in fp32
ROUNDS = {"none": 2, "full": 3}
"""DDP all-reduces every gradient; FSDP2 all-gathers every weight twice and reduce-scatters every gradient."""


def count_parameters(config_path: str, vocab_size: int | None) -> int:
    """The number of parameters of a configuration's model, without allocating them."""
    import torch

    from heedful.build_model import build_model, num_parameters

    request = read_request(config_path)
    if vocab_size is not None:
        sizes = {"source_vocab_size": vocab_size, "target_vocab_size": vocab_size}
        request["model"] = {**(request.get("model") or {}), **sizes}
    with torch.device("meta"):
        return num_parameters(build_model(build_config(request, "base").model))


def bytes_per_step(num_parameters: int, num_ranks: int, sharding: str) -> float:
    """Bytes that one rank sends per step: rounds x parameters x 4 bytes x (n - 1) / n."""
    return ROUNDS[sharding] * num_parameters * BYTES_PER_NUMBER * (num_ranks - 1) / num_ranks


def efficiency(step_seconds: float, sending_seconds: float) -> tuple[float, float]:
    """The share of time spent computing: without and with complete overlap of communication."""
    return step_seconds / (step_seconds + sending_seconds), step_seconds / max(step_seconds, sending_seconds)


def main() -> None:
    """Print a table: ranks, bytes, and the projection if a step time and a bandwidth are given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--vocab-size", type=int)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 8, 16, 64])
    parser.add_argument("--step-ms", type=float)
    parser.add_argument("--gigabytes-per-second", type=float)
    given = parser.parse_args()
    parameters = count_parameters(given.config, given.vocab_size)
    projects = given.step_ms is not None and given.gigabytes_per_second is not None
    print(f"{parameters:,} parameters" + ("; times and efficiency are projections" if projects else ""))
    print("| ranks | sharding | MB sent per rank and step |" + (" ms of sending | efficiency |" if projects else ""))
    print("|---|---|---|" + ("---|---|" if projects else ""))
    for num_ranks in given.ranks:
        for sharding in ROUNDS:
            volume = bytes_per_step(parameters, num_ranks, sharding)
            line = f"| {num_ranks} | {sharding} | {volume / 1e6:,.0f} |"
            if projects:
                seconds = volume / (given.gigabytes_per_second * 1e9)
                low, high = efficiency(given.step_ms / 1e3, seconds)
                line += f" {seconds * 1e3:.1f} | {low:.0%} (no overlap) to {high:.0%} (full overlap) |"
            print(line)


if __name__ == "__main__":
    main()
