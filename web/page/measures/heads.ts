/** What an attention head does in one sentence, in numbers and in words. */

import { spearman } from "./correlation.js";
import { entropy } from "./softmax.js";

/** What is known of a head's rows and columns. */
export interface HeadPlaces {
  kind: "encoder" | "decoder" | "cross";
  numQueries: number;
  numKeys: number;
  /** Whether each key is a punctuation mark. */
  punctuation: readonly boolean[];
  /** Column of the end token; -1 if there is none. */
  end: number;
  /** Columns before the sentence: the language's tag or the start token. */
  numFirst: number;
}

/**
 * Means over the rows that can see at least two keys. A share is the part of a row's weights on those keys, so that all
 * shares are from 0 to 1. Shares on the own, previous and next token and distances exist in self-attention only; they are
 * means over the rows that have such a token.
 */
export interface HeadSummary {
  /** −Σ w log₂ w, in bits. */
  entropy: number;
  /** Entropy divided by its maximum, log₂ of the number of visible keys; 1: all weights of a row are equal. */
  spread: number;
  /** Σ w |query − key|, in tokens. */
  distance: number;
  self: number;
  previous: number;
  next: number;
  /** On the keys at most two places away, the own one included. */
  near: number;
  /** On the end token, on punctuation marks, and on what stands before the sentence. */
  end: number;
  punctuation: number;
  first: number;
  /** Cross-attention: Spearman's correlation of the row and the centre Σ w · key of its weights; 1: from left to right. */
  monotonicity: number;
  label: HeadLabel;
  /** How much of its weights a head that is named after a share has there. */
  strength: "mostly" | "partly" | null;
}

export type HeadLabel =
  | "self" | "previous" | "next" | "end" | "punctuation" | "first" | "near" | "in_order" | "spread" | "content";

/** The label is the first that applies. */
export const THRESHOLDS = {
  /** `self`, `previous`, `next`, `end`, `punctuation`, `first`, mostly: the largest of these shares is at least this. */
  mostly: 0.5,
  /** `spread`: the spread is at least this. */
  spread: 0.85,
  /** `near`: the share on the keys at most two places away is at least this. */
  near: 0.7,
  /** `in_order`: the monotonicity is at least this. */
  monotonicity: 0.8,
  /** The same shares, partly. */
  partly: 0.3,
} as const;

export function summariseHead(weights: Float32Array, places: HeadPlaces): HeadSummary {
  const { kind, numQueries, numKeys, punctuation, end, numFirst } = places;
  const isSelf = kind !== "cross";
  const means = {
    entropy: new Mean(), spread: new Mean(), distance: new Mean(), self: new Mean(), previous: new Mean(), next: new Mean(),
    near: new Mean(), end: new Mean(), punctuation: new Mean(), first: new Mean(),
  };
  const centres: number[] = [];
  for (let query = 0; query < numQueries; ++query) {
    const visible = kind === "decoder" ? Math.min(query + 1, numKeys) : numKeys;
    const row = weights.subarray(query * numKeys, query * numKeys + visible);
    let [distance, near, marks, first, centre] = [0, 0, 0, 0, 0];
    for (let key = 0; key < visible; ++key) {
      const weight = row[key] ?? 0;
      distance += weight * Math.abs(query - key);
      centre += weight * key;
      if (Math.abs(query - key) <= 2) near += weight;
      if (punctuation[key]) marks += weight;
      if (key < numFirst) first += weight;
    }
    centres.push(centre);
    if (visible < 2) continue;
    const bits = entropy(row);
    means.entropy.add(bits);
    means.spread.add(bits / Math.log2(visible));
    means.punctuation.add(marks);
    means.first.add(first);
    if (end >= 0) means.end.add(row[end] ?? 0);
    if (!isSelf) continue;
    means.distance.add(distance);
    means.near.add(near);
    means.self.add(row[query] ?? 0);
    if (query > 0) means.previous.add(row[query - 1] ?? 0);
    if (kind === "encoder" && query + 1 < visible) means.next.add(row[query + 1] ?? 0);
  }
  const numbers = Object.fromEntries(Object.entries(means).map(([name, mean]) => [name, mean.value])) as Omit<HeadSummary, "monotonicity" | "label" | "strength">;
  const monotonicity = isSelf ? NaN : spearman(centres, centres.map((_, row) => row));
  const summary = { ...numbers, monotonicity };
  return { ...summary, ...labelOf(summary) };
}

const SHARES = ["self", "previous", "next", "end", "punctuation", "first"] as const;

function labelOf(summary: Omit<HeadSummary, "label" | "strength">): Pick<HeadSummary, "label" | "strength"> {
  const share = (name: (typeof SHARES)[number]): number => (Number.isNaN(summary[name]) ? 0 : summary[name]);
  const largest = SHARES.reduce((best, name) => (share(name) > share(best) ? name : best));
  if (share(largest) >= THRESHOLDS.mostly) return { label: largest, strength: "mostly" };
  if (summary.spread >= THRESHOLDS.spread) return { label: "spread", strength: null };
  if (summary.near >= THRESHOLDS.near) return { label: "near", strength: null };
  if (summary.monotonicity >= THRESHOLDS.monotonicity) return { label: "in_order", strength: null };
  if (share(largest) >= THRESHOLDS.partly) return { label: largest, strength: "partly" };
  return { label: "content", strength: null };
}

/** A mean over what is added; NaN if that is nothing. */
class Mean {
  private sum = 0;
  private count = 0;

  add(value: number): void {
    this.sum += value;
    this.count += 1;
  }

  get value(): number {
    return this.count === 0 ? NaN : this.sum / this.count;
  }
}

/** The mean over heads of weights of shape (H, Q, K). */
export function meanOverHeads(weights: Float32Array, numHeads: number): Float32Array {
  const size = weights.length / numHeads;
  const mean = new Float32Array(size);
  for (let index = 0; index < size; ++index) {
    let sum = 0;
    for (let head = 0; head < numHeads; ++head) sum += weights[head * size + index] ?? 0;
    mean[index] = sum / numHeads;
  }
  return mean;
}

/** Beyond this number of tokens most weights are small, and the full colour stands for the largest weight instead of 1. */
const LONG = 64;

/** The weight that has the full colour. */
export function fullColour(weights: Float32Array, numQueries: number, numKeys: number): number {
  if (Math.max(numQueries, numKeys) <= LONG) return 1;
  let most = 0;
  for (const weight of weights) if (weight > most) most = weight;
  return most || 1;
}
