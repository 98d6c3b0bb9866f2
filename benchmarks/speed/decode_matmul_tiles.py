"""The fastest tile for each matrix product of decoding, and whether all tiles give the same bits.

    python benchmarks/speed/decode_matmul_tiles.py            # bf16; --float32

The base model's products for several numbers of rows, each replayed as a CUDA graph over matrices of all six layers, so
that they are read from memory as in a step. A tile whose bits differ from the first is marked: it must not be
used in the table of `heedful.fused.kernels.decode_layers`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from benchmarks.speed.gpu_kernels import microseconds
from heedful.fused.kernels import decode_layers
from heedful.fused.kernels.decode_layers import Tile, matmul
from heedful.fused.kernels.sizes import num_splits

PRODUCTS = {"queries, keys, values": (512, 1536), "output": (512, 512), "inner": (512, 2048), "outer": (2048, 512)}
LOGITS = {"logits": (512, 32_000)}
COPIES = 6
CANDIDATES = {
    64: [Tile(16, 32, 64, 4, 6), Tile(16, 32, 128, 4, 4), Tile(16, 16, 128, 2, 4), Tile(16, 64, 64, 4, 6)],
    512: [
        Tile(16, 64, 64, 4, 5), Tile(32, 64, 64, 4, 4), Tile(32, 32, 64, 4, 5), Tile(64, 64, 64, 2, 4),
        Tile(64, 32, 64, 4, 5), Tile(64, 64, 64, 4, 5), Tile(64, 128, 64, 4, 4),
    ],
    1 << 30: [
        Tile(32, 128, 64, 4, 4), Tile(64, 128, 64, 2, 3), Tile(64, 128, 64, 4, 4), Tile(64, 256, 64, 4, 3),
        Tile(128, 128, 64, 4, 4), Tile(128, 128, 64, 8, 4), Tile(64, 64, 64, 4, 5), Tile(128, 256, 64, 8, 3),
    ],
}  # fmt: skip
IN_FLOAT32 = {
    64: [Tile(16, 32, 32, 4, 3), Tile(16, 64, 32, 4, 3), Tile(16, 32, 64, 4, 4), Tile(16, 32, 64, 2, 3)],
    512: [
        Tile(32, 64, 32, 4, 3), Tile(32, 32, 32, 4, 3), Tile(32, 32, 64, 4, 3), Tile(64, 64, 32, 4, 3),
        Tile(64, 32, 32, 2, 3),
    ],
    1 << 30: [
        Tile(64, 64, 16, 8, 3), Tile(64, 64, 32, 4, 3), Tile(128, 64, 16, 8, 3), Tile(64, 64, 32, 2, 3),
        Tile(64, 128, 32, 4, 3), Tile(128, 64, 32, 8, 3), Tile(128, 128, 32, 8, 3), Tile(64, 128, 32, 8, 3),
    ],
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1,64,256,2048")
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--precision", default="tf32x3", help="how float32 is multiplied: ieee, tf32x3 or tf32")
    chosen = parser.parse_args()
    decode_layers.PRECISION = chosen.precision
    dtype = torch.float32 if chosen.float32 else torch.bfloat16
    print("| rows | product | " + "tile (rows, columns, depth, warps, stages): µs, fastest first |\n|---:|---|---|")
    for rows in (int(number) for number in chosen.rows.split(",")):
        tables = IN_FLOAT32 if chosen.float32 else CANDIDATES
        tiles = next(tiles for max_rows, tiles in tables.items() if rows <= max_rows)
        for name, (depth, width) in (PRODUCTS | LOGITS).items():
            found = compare(rows, depth, width, tiles, dtype, split_k=name in ("output", "outer"))
            shown = "; ".join(
                f"{tuple(tile)}: {spent:.1f}{'' if same else ' OTHER BITS'}" for spent, tile, same in found
            )
            print(f"| {rows} | {name} | {shown} |", flush=True)


def compare(
    rows: int, depth: int, width: int, tiles: list[Tile], dtype: torch.dtype, *, split_k: bool
) -> list[tuple[float, Tile, bool]]:
    """Microseconds of one product with each tile, fastest first, and whether its bits equal those of the first tile."""
    copies = 1 if width > 4096 else COPIES
    x = torch.randn(rows, depth, device="cuda").to(dtype)
    weights = [torch.randn(width, depth, device="cuda").to(dtype) for _ in range(copies)]
    parts = num_splits(rows, depth) if split_k else 1
    output = torch.empty(parts, rows, width, device="cuda")
    found, first = [], None
    for tile in tiles:

        def run(tile: Tile = tile) -> None:
            for weight in weights:
                matmul(x, weight, None, output, tile=tile)

        try:
            spent = microseconds(run) / copies
        except Exception as error:  # such as too much shared memory
            print(f"{tile}: {type(error).__name__} {str(error)[:80]}", file=sys.stderr)
            continue
        first = output.clone() if first is None else first
        found.append((spent, tile, torch.equal(first, output)))
    return sorted(found, key=lambda one: one[0])


if __name__ == "__main__":
    main()
