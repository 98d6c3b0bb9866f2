/** Distributions over the vocabulary, given as logits. */

/** The logarithm of the softmax. */
export function logSoftmax(logits: Float32Array): Float64Array {
  let most = -Infinity;
  for (const logit of logits) if (logit > most) most = logit;
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - most);
  const total = most + Math.log(sum);
  return Float64Array.from(logits, (logit) => logit - total);
}

/** The Kullback–Leibler divergence Σ p (log p − log q) of the softmaxes p and q, in nats. */
export function divergence(first: Float32Array, second: Float32Array): number {
  const [p, q] = [logSoftmax(first), logSoftmax(second)];
  let sum = 0;
  for (let index = 0; index < p.length; ++index) {
    const log = p[index] ?? -Infinity;
    if (log > -Infinity) sum += Math.exp(log) * (log - (q[index] ?? -Infinity));
  }
  return Math.max(0, sum);
}

/** The index of the largest value; the first of equal ones. */
export function argmax(values: ArrayLike<number>): number {
  let best = 0;
  for (let index = 1; index < values.length; ++index) if ((values[index] ?? -Infinity) > (values[best] ?? -Infinity)) best = index;
  return best;
}
