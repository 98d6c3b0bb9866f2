/** Which units of a feed-forward sublayer fire. */

/** At or below this absolute value a unit of GELU or SwiGLU counts as near zero; one of ReLU is exactly zero or not. */
export const NEAR_ZERO = 0.01;

export function isSilent(value: number, activation: "relu" | "gelu" | "swiglu"): boolean {
  return activation === "relu" ? value === 0 : Math.abs(value) <= NEAR_ZERO;
}

/** The share of silent units of each token. */
export function silentShares(values: Float32Array, numUnits: number, activation: "relu" | "gelu" | "swiglu"): Float32Array {
  const found = new Float32Array(values.length / numUnits);
  for (let token = 0; token < found.length; ++token) {
    let count = 0;
    for (let index = token * numUnits; index < (token + 1) * numUnits; ++index) if (isSilent(values[index] ?? 0, activation)) ++count;
    found[token] = count / numUnits;
  }
  return found;
}

/** The units with the largest absolute values, largest first; of two that are equal the lower comes first. */
export function topUnits(values: Float32Array, count: number): number[] {
  const size = (unit: number): number => Math.abs(values[unit] ?? 0);
  return Array.from(values.keys()).sort((a, b) => size(b) - size(a) || a - b).slice(0, count);
}

export interface Histogram {
  start: number;
  /** Width of a bin. */
  width: number;
  counts: number[];
}

/** Bins of equal width between the smallest and the largest value. One edge is at 0 if both signs occur. */
export function histogram(values: Float32Array, numBins: number): Histogram {
  let [least, most] = [Infinity, -Infinity];
  for (const value of values) [least, most] = [Math.min(least, value), Math.max(most, value)];
  if (!(most > least)) return { start: Number.isFinite(least) ? least : 0, width: 1, counts: [values.length] };
  const width = (most - least) / numBins;
  const start = least < 0 && most > 0 ? -Math.ceil(-least / width) * width : least;
  const counts = new Array<number>(Math.max(1, Math.ceil((most - start) / width))).fill(0);
  for (const value of values) {
    const bin = Math.min(counts.length - 1, Math.floor((value - start) / width));
    counts[bin] = (counts[bin] ?? 0) + 1;
  }
  return { start, width, counts };
}
