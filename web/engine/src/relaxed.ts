/** Products with relaxed SIMD, for browsers that have it: relaxed_dot.cpp, linked into an instance of engine.wasm. */

import type { Exports } from "./memory.js";
import { RELAXED_DOT, SHARED_RELAXED_DOT } from "./relaxed_dot.js";

type Dot = (bytes: number, stride: number, rows: number, weights: number, groups: number, sums: number) => void;

const [ROWS, TILE, GROUPS] = [3, 32, 16];

/** Use relaxed SIMD if it is supported and exact; returns whether it is. The results are the same without it. */
export function useRelaxedDot(exports: Exports): boolean {
  const dot = compileDot(exports);
  if (dot === undefined || !isExact(dot, exports)) return false;
  exports.heedful_use_dot(addToTable(dot, exports));
  return true;
}

/** Make the function known in a helper's instance, which shares the memory of an instance that uses it. */
export function knowRelaxedDot(exports: Exports): void {
  const dot = compileDot(exports);
  if (dot !== undefined) addToTable(dot, exports);
}

function compileDot({ memory }: Exports): Dot | undefined {
  const isShared = !(memory.buffer instanceof ArrayBuffer);
  const binary = Uint8Array.from(atob(isShared ? SHARED_RELAXED_DOT : RELAXED_DOT), (character) => character.charCodeAt(0));
  if (!WebAssembly.validate(binary)) return undefined;
  return new WebAssembly.Instance(new WebAssembly.Module(binary), { env: { memory } }).exports["dot"] as Dot;
}

function addToTable(dot: Dot, { __indirect_function_table: table }: Exports): number {
  const place = table.grow(1);
  table.set(place, dot);
  return place;
}

/** Compare products of all kinds of bytes and weights: V8 11.3 computes wrong ones behind its flag for relaxed SIMD. */
function isExact(dot: Dot, { memory, malloc, free }: Exports): boolean {
  const width = 4 * GROUPS;
  const [bytes, weights, sums] = [malloc(ROWS * width), malloc(TILE * width), malloc(4 * ROWS * TILE)];
  const inputs = new Uint8Array(memory.buffer, bytes, ROWS * width).map((_, index) => (index * index * 7 + index * 31) % 256);
  const matrix = new Int8Array(memory.buffer, weights, TILE * width).map((_, index) => ((index * index * 13 + index * 5) % 255) - 127);
  new Uint8Array(memory.buffer, bytes).set(inputs);
  new Int8Array(memory.buffer, weights).set(matrix);
  dot(bytes, width, ROWS, weights, GROUPS, sums);
  const found = new Int32Array(memory.buffer, sums, ROWS * TILE).slice();
  for (const pointer of [bytes, weights, sums]) free(pointer);
  return found.every((sum, index) => {
    const [row, output] = [Math.floor(index / TILE), index % TILE];
    let expected = 0;
    for (let input = 0; input < width; ++input) {
      const group = Math.floor(input / 4);
      expected += (inputs[row * width + input] ?? 0) * (matrix[(group * TILE + output) * 4 + (input % 4)] ?? 0);
    }
    return sum === expected;
  });
}
