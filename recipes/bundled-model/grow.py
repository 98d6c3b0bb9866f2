"""Grow a model: a larger one with the same translations, as a start for further training.

    python3 recipes/bundled-model/grow.py MODEL OUT --layers 14 --feed-forward 2048

New encoder layers are inserted between the existing ones. Their outputs to the residual stream, and those of the new
feed-forward units, start at zero, so the model computes the same until it is trained. It must be pre-norm.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from heedful.build_model import build_model
from heedful.model_dir.save_load import load_model, save_model


def places_of(old: int, new: int) -> list[int | None]:
    """For each layer of the new stack the old layer, or None for a new one; new layers are spread evenly."""
    added = new - old
    after = [max(0, (number + 1) * old // (added + 1) - 1) for number in range(added)]
    places: list[int | None] = []
    for layer in range(old):
        places += [layer, *[None] * after.count(layer)]
    return places


def widened(name: str, values: Tensor, fresh: Tensor) -> Tensor:
    """The old values in the new shape: new feed-forward units have random inputs and zero outputs."""
    grown = fresh.clone()
    if name.endswith("feed_forward.output.weight"):
        grown.zero_()
    grown[tuple(slice(size) for size in values.shape)] = values
    return grown


def grow(model: Path, out: Path, *, layers: int, feed_forward: int) -> None:
    """Write the larger model."""
    torch.manual_seed(1)
    found = load_model(model)
    old = found.config.model
    shape = replace(old, num_encoder_layers=layers, d_ff=feed_forward)
    fresh = build_model(shape).state_dict()
    places = places_of(old.num_encoder_layers, layers)
    had = found.model.state_dict()
    grown: dict[str, Tensor] = {}
    for name, values in fresh.items():
        match = re.fullmatch(r"encoder\.layers\.(\d+)\.(.*)", name)
        source = name if match is None else f"encoder.layers.{places[int(match[1])]}.{match[2]}"
        if match is not None and places[int(match[1])] is None:
            adds = match[2].endswith(("self_attention.output.weight", "feed_forward.output.weight"))
            grown[name] = torch.zeros_like(values) if adds else values
        else:
            grown[name] = widened(name, had[source].float(), values)
    config = replace(found.config, model=shape)
    save_model(out, weights=grown, config=config, tokenizer=found.tokenizer, details=found.details)
    sys.stderr.write(f"{sum(one.numel() for one in grown.values()):,} numbers in {out}\n")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--feed-forward", type=int, required=True)
    given = parser.parse_args()
    grow(given.model, given.out, layers=given.layers, feed_forward=given.feed_forward)


if __name__ == "__main__":
    main()
