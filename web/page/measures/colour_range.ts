/** The value that gets the full colour: without it, a few large numbers would make all others pale. */

const NUM_BINS = 1000;
const SHARE = 0.995;
const known = new WeakMap<Float32Array, number>();

/** The largest absolute value, or that of all but the largest half percent if they are more than three times as large. */
export function typicalLargest(values: Float32Array): number {
  const found = known.get(values) ?? measure(values);
  known.set(values, found);
  return found;
}

function measure(values: Float32Array): number {
  let most = 0;
  let count = 0;
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    most = Math.max(most, Math.abs(value));
    ++count;
  }
  if (most === 0) return 0;
  const bins = new Uint32Array(NUM_BINS + 1);
  for (const value of values) if (Number.isFinite(value)) ++bins[Math.ceil((Math.abs(value) / most) * NUM_BINS)]!;
  let seen = 0;
  for (const [bin, number] of bins.entries()) {
    seen += number;
    if (seen >= SHARE * count) return bin * 3 < NUM_BINS ? Math.max(1, bin) * (most / NUM_BINS) : most;
  }
  return most;
}
