/** A dot product written out: its terms, which of them to show, and their sum. */

export interface Term {
  index: number;
  left: number;
  right: number;
  product: number;
}

export interface DotProduct {
  terms: Term[];
  /** What is added to the products. */
  bias: number;
  sum: number;
}

/** Σ left[i]·right[i] + bias. `right` may be a column of a matrix: `stride` apart, from `start`. */
export function dotProduct(left: ArrayLike<number>, right: ArrayLike<number>, { bias = 0, start = 0, stride = 1 } = {}): DotProduct {
  const terms: Term[] = [];
  let sum = bias;
  for (let index = 0; index < left.length; ++index) {
    const [a, b] = [left[index] ?? 0, right[start + index * stride] ?? 0];
    terms.push({ index, left: a, right: b, product: a * b });
    sum += a * b;
  }
  return { terms, bias, sum };
}

/** The first `ends` and last `ends` terms and the `top` largest products, in their order; and the sum of the others. */
export function importantTerms(terms: readonly Term[], { ends = 3, top = 6 } = {}): { shown: Term[]; rest: number; numRest: number } {
  const bySize = [...terms].sort((a, b) => Math.abs(b.product) - Math.abs(a.product));
  const kept = new Set([...terms.slice(0, ends), ...terms.slice(-ends), ...bySize.slice(0, top)]);
  let rest = 0;
  for (const term of terms) if (!kept.has(term)) rest += term.product;
  return { shown: terms.filter((term) => kept.has(term)), rest, numRest: terms.length - kept.size };
}
