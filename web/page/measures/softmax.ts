/** The softmax of one row of scores, step by step. */

export interface SoftmaxTerm {
  score: number;
  /** exp(score − largest score). */
  exponential: number;
  weight: number;
}

export interface SoftmaxRow {
  largest: number;
  /** The sum of the exponentials. */
  sum: number;
  terms: SoftmaxTerm[];
}

/** softmax(scores + mask): masked places have a mask of −∞ and the weight 0. */
export function softmaxRow(scores: ArrayLike<number>, mask?: ArrayLike<number>): SoftmaxRow {
  const masked = Array.from({ length: scores.length }, (_, index) => (scores[index] ?? 0) + (mask?.[index] ?? 0));
  const largest = Math.max(...masked);
  const exponentials = masked.map((score) => (largest === -Infinity ? 0 : Math.exp(score - largest)));
  const sum = exponentials.reduce((total, one) => total + one, 0);
  return { largest, sum, terms: masked.map((score, index) => ({ score, exponential: exponentials[index] ?? 0, weight: sum > 0 ? (exponentials[index] ?? 0) / sum : 0 })) };
}

/** −Σ p·log₂ p, in bits: 0 if all weight is on one place, log₂ n if n places have the same. */
export function entropy(weights: ArrayLike<number>): number {
  let bits = 0;
  for (let index = 0; index < weights.length; ++index) {
    const weight = weights[index] ?? 0;
    if (weight > 0) bits -= weight * Math.log2(weight);
  }
  return bits;
}
