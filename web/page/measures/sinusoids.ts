/** Sinusoidal positions (section 3.5), and rotations of pairs of features: of the encoding by an offset, or of rotary queries and keys. */

/** 1 / 10000^(2i/width) for each pair i of features. */
export function frequencies(width: number): number[] {
  return Array.from({ length: Math.floor(width / 2) }, (_, pair) => 10000 ** ((-2 * pair) / width));
}

/** PE(position, 2i) = sin(position·ω_i) and PE(position, 2i + 1) = cos(position·ω_i), for positions 0 … count − 1 as rows. */
export function encodings(count: number, width: number): Float32Array {
  const found = new Float32Array(count * width);
  for (const [pair, frequency] of frequencies(width).entries()) {
    for (let position = 0; position < count; ++position) {
      found[position * width + 2 * pair] = Math.sin(position * frequency);
      found[position * width + 2 * pair + 1] = Math.cos(position * frequency);
    }
  }
  return found;
}

/** PE(p)·PE(p + distance) for distances 0 … count − 1: Σ cos(distance·ω_i), the same for every p. */
export function similarityByDistance(count: number, width: number): number[] {
  const all = frequencies(width);
  return Array.from({ length: count }, (_, distance) => all.reduce((sum, frequency) => sum + Math.cos(distance * frequency), 0));
}

/** The dot products of all pairs of rows, and their mean at each distance between the rows. */
export function dotsByDistance(rows: Float32Array, count: number, width: number): { dots: Float32Array; means: number[] } {
  const dots = new Float32Array(count * count);
  const sums = new Array<number>(count).fill(0);
  for (let i = 0; i < count; ++i) {
    for (let j = i; j < count; ++j) {
      let sum = 0;
      for (let feature = 0; feature < width; ++feature) sum += (rows[i * width + feature] ?? 0) * (rows[j * width + feature] ?? 0);
      dots[i * count + j] = dots[j * count + i] = sum;
      sums[j - i] = (sums[j - i] ?? 0) + sum;
    }
  }
  return { dots, means: sums.map((sum, distance) => sum / (count - distance)) };
}

/** The rotation that takes (sin, cos) of position p to those of p + offset: [[c, s], [−s, c]] with the angle offset·ω. */
export interface Rotation {
  pair: number;
  frequency: number;
  /** The number of positions after which the pair repeats. */
  wavelength: number;
  angle: number;
  cos: number;
  sin: number;
}

export function shiftRotations(offset: number, width: number): Rotation[] {
  return frequencies(width).map((frequency, pair) => {
    const angle = offset * frequency;
    return { pair, frequency, wavelength: (2 * Math.PI) / frequency, angle, cos: Math.cos(angle), sin: Math.sin(angle) };
  });
}

/** The encoding of position p, shifted by the rotations. */
export function shift(encoding: ArrayLike<number>, rotations: readonly Rotation[]): Float32Array {
  const found = new Float32Array(encoding.length);
  for (const { pair, cos, sin } of rotations) {
    const [a, b] = [encoding[2 * pair] ?? 0, encoding[2 * pair + 1] ?? 0];
    found[2 * pair] = a * cos + b * sin;
    found[2 * pair + 1] = b * cos - a * sin;
  }
  return found;
}

/** Rotary positions: each pair (even, odd) of a query or key is turned by position·ω_i; a negative position turns it back. */
export function rotary(vector: ArrayLike<number>, position: number): Float32Array {
  const found = new Float32Array(vector.length);
  for (const [pair, frequency] of frequencies(vector.length).entries()) {
    const [cos, sin] = [Math.cos(position * frequency), Math.sin(position * frequency)];
    const [even, odd] = [vector[2 * pair] ?? 0, vector[2 * pair + 1] ?? 0];
    found[2 * pair] = even * cos - odd * sin;
    found[2 * pair + 1] = even * sin + odd * cos;
  }
  return found;
}

export function largestDifference(left: ArrayLike<number>, right: ArrayLike<number>): number {
  let largest = 0;
  for (let index = 0; index < left.length; ++index) largest = Math.max(largest, Math.abs((left[index] ?? 0) - (right[index] ?? 0)));
  return largest;
}
