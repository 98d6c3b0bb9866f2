/** The most probable next tokens of each step of a trace. */

import type { Tensor } from "./engine.js";

/** A token that may come next. Its probability is the softmax over the whole vocabulary. */
export interface Candidate {
  token: number;
  piece: string;
  probability: number;
  log_prob: number;
}

/** What follows target token t. */
export interface StepCandidates {
  /** The most probable tokens, best first; of two with the same logit the lower id is first. */
  best: Candidate[];
  /** The next token of the target, or the end token after the last; rank 1 is the most probable token. */
  next: Candidate & { rank: number };
}

/** The rows of a tensor of shape (T, V). */
export function rows({ shape, values }: Tensor): Float32Array[] {
  const [count = 0, width = 0] = shape;
  return Array.from({ length: count }, (_, row) => values.subarray(row * width, (row + 1) * width));
}

/** The `count` tokens with the largest logits. */
export function bestCandidates(logits: Float32Array, count: number, piece: (token: number) => string): Candidate[] {
  const total = logSumExp(logits);
  return largest(logits, count).map((token) => candidate(logits, token, total, piece));
}

export function stepCandidates(logits: Float32Array, next: number, count: number, piece: (token: number) => string): StepCandidates {
  const best = bestCandidates(logits, count, piece);
  return { best, next: { ...candidate(logits, next, logSumExp(logits), piece), rank: rankOf(logits, next) } };
}

function candidate(logits: Float32Array, token: number, total: number, piece: (token: number) => string): Candidate {
  const log_prob = (logits[token] ?? NaN) - total;
  return { token, piece: piece(token), probability: Math.exp(log_prob), log_prob };
}

function logSumExp(logits: Float32Array): number {
  let most = -Infinity;
  for (const logit of logits) most = Math.max(most, logit);
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - most);
  return most + Math.log(sum);
}

/** The indices of the largest values, largest first. */
function largest(values: Float32Array, count: number): number[] {
  const best: number[] = [];
  const value = (index: number | undefined): number => values[index ?? -1] ?? NaN;
  for (let index = 0; index < values.length; ++index) {
    if (best.length === count && !(value(index) > value(best[count - 1]))) continue;
    let place = best.length;
    while (place > 0 && value(index) > value(best[place - 1])) --place;
    best.splice(place, 0, index);
    if (best.length > count) best.pop();
  }
  return best;
}

function rankOf(logits: Float32Array, token: number): number {
  const own = logits[token] ?? NaN;
  let rank = 1;
  for (const [other, logit] of logits.entries()) if (logit > own || (logit === own && other < token)) ++rank;
  return rank;
}
