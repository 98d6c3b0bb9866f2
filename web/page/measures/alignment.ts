/** Word alignment from cross-attention, as heedful/model_dir/save_load.py reads it: one row a target token, one column a source token. */

/** Which attention an alignment is read from. */
export interface AlignmentSource {
  /** Of the decoder, from 0. */
  layer: number;
  /** 0: the step that predicts a token attends to its source; 1: the step that reads it does. */
  offset: number;
  /** From 0; null: the mean over all heads of the layer. */
  head: number | null;
}

/** Weights of target tokens and source tokens, without special tokens. */
export interface Alignment {
  weights: Float32Array;
  numTargets: number;
  numSources: number;
}

/**
 * The rows of the target tokens and the columns of the source tokens.
 *
 * `weights`: of shape (steps, keys); step 0 reads the start token. `numTags`: source tokens before the sentence; the last is the end token.
 */
export function alignmentOf(weights: Float32Array, numSteps: number, numKeys: number, offset: number, numTags: number): Alignment {
  const [numTargets, numSources] = [Math.max(0, numSteps - 1), Math.max(0, numKeys - 1 - numTags)];
  const found = new Float32Array(numTargets * numSources);
  for (let row = 0; row < numTargets; ++row) {
    const start = (row + offset) * numKeys + numTags;
    found.set(weights.subarray(start, start + numSources), row * numSources);
  }
  return { weights: found, numTargets, numSources };
}

/** The source with the largest weight of each target, as pairs [source, target]; the first of equal ones. */
export function hardLinks({ weights, numTargets, numSources }: Alignment): [number, number][] {
  const links: [number, number][] = [];
  for (let target = 0; target < numTargets && numSources > 0; ++target) {
    const row = weights.subarray(target * numSources, (target + 1) * numSources);
    let best = 0;
    for (const [source, weight] of row.entries()) if (weight > (row[best] ?? 0)) best = source;
    links.push([best, target]);
  }
  return links;
}

/** Pairs source-target, counted from 0, as fast_align and `heedful translate --align` write them. */
export function pharaoh(links: readonly (readonly [number, number])[]): string {
  return links.map(([source, target]) => `${source}-${target}`).join(" ");
}
