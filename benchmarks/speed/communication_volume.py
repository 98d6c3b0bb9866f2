"""How many bytes a rank sends in a step, and, from a measured step, what efficiency that lets one expect.

    python benchmarks/speed/communication_volume.py configs/paper-base.yaml --ranks 8 64 \\
        --step-ms 25 --gigabytes-per-second 50

Nothing is measured here. `--step-ms` is a measured step of one GPU on the share of rows that each rank will have,
`--gigabytes-per-second` what one rank can send; what is printed from them is a projection, and says so.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from heedful.config_loading import read_request, settle

BYTES_PER_NUMBER = 4  # gradients and weights travel in fp32
ROUNDS = {"none": 2, "full": 3}
"""DDP reduces and spreads every gradient; FSDP2 collects every weight twice and reduces every gradient."""


def count_parameters(config_path: str, vocab_size: int | None) -> int:
    """Parameters of the model that a configuration describes, without making their values."""
    import torch

    from heedful.build_model import build_model, num_parameters

    request = read_request(config_path)
    if vocab_size is not None:
        sizes = {"source_vocab_size": vocab_size, "target_vocab_size": vocab_size}
        request["model"] = {**(request.get("model") or {}), **sizes}
    with torch.device("meta"):
        return num_parameters(build_model(settle(request, "base").model))


def bytes_per_step(num_parameters: int, num_ranks: int, sharding: str) -> float:
    """What one rank sends in a step: rounds x parameters x 4 bytes x (n - 1) / n."""
    return ROUNDS[sharding] * num_parameters * BYTES_PER_NUMBER * (num_ranks - 1) / num_ranks


def efficiency(step_seconds: float, sending_seconds: float) -> tuple[float, float]:
    """The share of time that computes: if sending only begins after computing, and if it hides behind it entirely."""
    return step_seconds / (step_seconds + sending_seconds), step_seconds / max(step_seconds, sending_seconds)


def main() -> None:
    """Print a table: ranks, bytes, and the projection if there are a step and a bandwidth to make it from."""
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
    print("| ranks | sharding | MB sent by a rank in a step |" + (" ms of sending | efficiency |" if projects else ""))
    print("|---|---|---|" + ("---|---|" if projects else ""))
    for num_ranks in given.ranks:
        for sharding in ROUNDS:
            volume = bytes_per_step(parameters, num_ranks, sharding)
            line = f"| {num_ranks} | {sharding} | {volume / 1e6:,.0f} |"
            if projects:
                seconds = volume / (given.gigabytes_per_second * 1e9)
                low, high = efficiency(given.step_ms / 1e3, seconds)
                line += f" {seconds * 1e3:.1f} | {low:.0%} (one after the other) to {high:.0%} (hidden) |"
            print(line)


if __name__ == "__main__":
    main()
