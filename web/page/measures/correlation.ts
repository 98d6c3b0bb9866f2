/** Spearman's rank correlation. */

/** The rank of each value, from 1; equal values share the mean of their ranks. */
export function ranks(values: ArrayLike<number>): number[] {
  const order = Array.from(values, (_, index) => index).sort((a, b) => (values[a] ?? 0) - (values[b] ?? 0));
  const found = new Array<number>(values.length).fill(0);
  for (let start = 0; start < order.length; ) {
    let end = start + 1;
    while (end < order.length && values[order[end] ?? 0] === values[order[start] ?? 0]) ++end;
    for (const index of order.slice(start, end)) found[index] = (start + 1 + end) / 2;
    start = end;
  }
  return found;
}

/** The correlation of the ranks, from -1 to 1; NaN if all values of one side are equal. */
export function spearman(first: ArrayLike<number>, second: ArrayLike<number>): number {
  return pearson(ranks(first), ranks(second));
}

function pearson(first: readonly number[], second: readonly number[]): number {
  const mean = (values: readonly number[]): number => values.reduce((sum, one) => sum + one, 0) / values.length;
  const [a, b] = [mean(first), mean(second)];
  let [product, square, other] = [0, 0, 0];
  for (const [index, value] of first.entries()) {
    const [x, y] = [value - a, (second[index] ?? 0) - b];
    product += x * y;
    square += x * x;
    other += y * y;
  }
  return square === 0 || other === 0 ? NaN : Math.max(-1, Math.min(1, product / Math.sqrt(square * other)));
}
