/** Comparison of two token sequences. */

/** Which tokens of each sequence are not in a longest common subsequence. */
export function differences(first: readonly number[], second: readonly number[]): { first: boolean[]; second: boolean[] } {
  const width = second.length + 1;
  const lengths = new Uint16Array((first.length + 1) * width); // of the common subsequence from (i, j) on
  const at = (i: number, j: number): number => lengths[i * width + j] ?? 0;
  for (let i = first.length - 1; i >= 0; --i)
    for (let j = second.length - 1; j >= 0; --j)
      lengths[i * width + j] = first[i] === second[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
  const found = { first: first.map(() => true), second: second.map(() => true) };
  for (let i = 0, j = 0; i < first.length && j < second.length; ) {
    if (first[i] === second[j]) found.first[i++] = found.second[j++] = false;
    else if (at(i + 1, j) >= at(i, j + 1)) ++i;
    else ++j;
  }
  return found;
}

/** The first place at which two sequences differ; -1 if they are equal. */
export function firstDifference(first: readonly number[], second: readonly number[]): number {
  const length = Math.max(first.length, second.length);
  for (let index = 0; index < length; ++index) if (first[index] !== second[index]) return index;
  return -1;
}
