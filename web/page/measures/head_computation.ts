/** One attention head: its matrices from a trace, and how each of their numbers is computed (section 3.2). */

import type { Tensor } from "../../engine/src/engine.js";
import { rotary } from "./sinusoids.js";
import { softmaxRow, type SoftmaxRow } from "./softmax.js";
import { dotProduct, type DotProduct } from "./terms.js";

export const STAGES = [
  "input", "memory", "query", "key", "value", "scores", "scaled_scores", "mask", "weights", "head_outputs", "concatenation", "output",
] as const;
export type Stage = (typeof STAGES)[number];

export interface Matrix {
  values: Float32Array;
  numRows: number;
  numColumns: number;
}

/** What the trace has of a head. Cross-attention has a memory; the others take queries, keys and values from one input. */
export interface Head {
  stages: Partial<Record<Stage, Matrix>>;
  head: number;
  headDim: number;
  /** What scores are divided by. */
  divisor: number;
  rotary: boolean;
  additive: boolean;
  /** How the input and the memory were computed, where the trace has it. */
  origins: Partial<Record<"input" | "memory", Origin>>;
  /** (H·Dh, D) and (H·Dh), where the trace has them. */
  parameters: Partial<Record<"query" | "key" | "value" | "output", { weight: Matrix; bias: Float32Array | undefined }>>;
}

/** The input is the output of a norm, or the sum of two tensors, such as embedding and positions. */
export type Origin =
  | { kind: "norm"; input: Matrix; mean: Float32Array; deviation: Float32Array; gain: Float32Array; bias: Float32Array | undefined }
  | { kind: "sum"; parts: [Matrix, Matrix] };

/** The names of what a tensor comes from: of a norm, or of the two tensors that are added. */
export type OriginNames = { norm: string } | { parts: [string, string] };

export interface HeadOptions {
  name: string;
  head: number;
  /** The name of the tensor that queries come from; with cross-attention, keys and values come from `memory`. */
  input: string;
  inputOrigin?: OriginNames;
  memory?: string | undefined;
  memoryOrigin?: OriginNames;
  rotary: boolean;
  additive: boolean;
  isScaled: boolean;
}

/** The names of the tensors that `readHead` uses. */
export function headTensors({ name, input, memory, inputOrigin, memoryOrigin }: HeadOptions): string[] {
  const parts = ["query", "key", "value", "scores", "scaled_scores", "mask", "weights", "head_outputs", "output"];
  const parameters = ["query", "key", "value", "output"].flatMap((one) => [`${one}_weight`, `${one}_bias`]);
  const origins = [inputOrigin, ...(memory === undefined ? [] : [memoryOrigin])].flatMap((origin) => (origin === undefined ? [] : originTensors(origin)));
  return [input, ...(memory === undefined ? [] : [memory]), ...origins, ...[...parts, ...parameters].map((part) => `${name}.${part}`)];
}

function originTensors(origin: OriginNames): string[] {
  return "norm" in origin ? ["input", "mean", "deviation", "weight", "bias"].map((part) => `${origin.norm}.${part}`) : origin.parts;
}

function readOrigin(tensors: ReadonlyMap<string, Tensor>, origin: OriginNames): Origin | undefined {
  if ("parts" in origin) {
    const [first, second] = origin.parts.map((name) => tensors.get(name));
    return first && second && { kind: "sum", parts: [matrixOf(first, 0), matrixOf(second, 0)] };
  }
  const [input, mean, deviation, gain, bias] = originTensors(origin).map((name) => tensors.get(name));
  return input && mean && deviation && gain && { kind: "norm", input: matrixOf(input, 0), mean: mean.values, deviation: deviation.values, gain: gain.values, bias: bias?.values };
}

export function readHead(tensors: ReadonlyMap<string, Tensor>, options: HeadOptions): Head {
  const { name, head, input, memory } = options;
  const matrix = (from: string): Matrix | undefined => {
    const tensor = tensors.get(from);
    return tensor && matrixOf(tensor, tensor.shape.length === 3 ? head : 0);
  };
  const stages: Head["stages"] = {};
  const set = (stage: Stage, found: Matrix | undefined): void => {
    if (found !== undefined) stages[stage] = found;
  };
  set("input", matrix(input));
  if (memory !== undefined) set("memory", matrix(memory));
  for (const stage of ["query", "key", "value", "scores", "scaled_scores", "mask", "weights", "head_outputs", "output"] as const) set(stage, matrix(`${name}.${stage}`));
  const outputs = tensors.get(`${name}.head_outputs`);
  if (outputs) stages.concatenation = concatenate(outputs);
  const parameters: Head["parameters"] = {};
  for (const part of ["query", "key", "value", "output"] as const) {
    const weight = tensors.get(`${name}.${part}_weight`);
    const width = weight?.shape.at(-1) ?? 0;
    if (weight === undefined || width === 0) continue;
    parameters[part] = {
      weight: { values: weight.values, numRows: weight.values.length / width, numColumns: width },
      bias: tensors.get(`${name}.${part}_bias`)?.values,
    };
  }
  const origins: Head["origins"] = {};
  for (const part of ["input", "memory"] as const) {
    const names = options[`${part}Origin`];
    const origin = names && stages[part] && readOrigin(tensors, names);
    if (origin) origins[part] = origin;
  }
  const headDim = stages.value?.numColumns ?? 0;
  const divisor = options.isScaled ? Math.sqrt(stages.query?.numColumns ?? 1) : 1;
  return { stages, head, headDim, divisor, rotary: options.rotary, additive: options.additive, origins, parameters };
}

function matrixOf({ shape, values }: Tensor, index: number): Matrix {
  const [numRows = 0, numColumns = 0] = shape.slice(-2);
  const size = numRows * numColumns;
  return { values: values.subarray(index * size, (index + 1) * size), numRows, numColumns };
}

/** (H, n, Dh) → (n, H·Dh): the heads' outputs side by side. */
function concatenate({ shape, values }: Tensor): Matrix {
  const [numHeads = 0, numRows = 0, width = 0] = shape;
  const found = new Float32Array(values.length);
  for (let head = 0; head < numHeads; ++head) {
    for (let row = 0; row < numRows; ++row) found.set(values.subarray((head * numRows + row) * width, (head * numRows + row + 1) * width), (row * numHeads + head) * width);
  }
  return { values: found, numRows, numColumns: numHeads * width };
}

export function rowOf({ values, numColumns }: Matrix, row: number): Float32Array {
  return values.subarray(row * numColumns, (row + 1) * numColumns);
}

/** How one number was computed. `computed` is the result of the written terms, `value` the number of the trace. */
export type Computation = { value: number } & (
  | { kind: "given" }
  | { kind: "norm"; input: number; mean: number; deviation: number; gain: number; bias: number; computed: number }
  | { kind: "sum"; parts: [number, number]; computed: number }
  | { kind: "dot"; left: string; right: string; dot: DotProduct; computed: number; rotation?: RotationOfPair }
  | { kind: "scale"; score: number; divisor: number; computed: number }
  | { kind: "mask"; scaled: number }
  | { kind: "softmax"; row: SoftmaxRow; unscaled: SoftmaxRow; column: number; computed: number }
  | { kind: "copy"; head: number; feature: number; computed: number }
);

/** A rotary query or key: the feature and its partner before the rotation. */
export interface RotationOfPair {
  angle: number;
  even: number;
  odd: number;
  isOdd: boolean;
}

export function computation(head: Head, stage: Stage, row: number, column: number): Computation {
  const { stages } = head;
  const matrix = stages[stage];
  const value = matrix?.values[row * matrix.numColumns + column] ?? NaN;
  const dot = (left: string, right: string, found: DotProduct): Computation => ({ kind: "dot", left, right, dot: found, computed: found.sum, value });
  switch (stage) {
    case "input":
    case "memory": {
      const origin = head.origins[stage];
      return origin === undefined ? { kind: "given", value } : { ...fromOrigin(origin, row, column), value };
    }
    case "query":
    case "key":
    case "value": {
      const projected = projection(head, stage, row, column);
      return projected === undefined ? { kind: "given", value } : { ...projected, value };
    }
    case "scores":
      if (head.additive || !stages.query || !stages.key) return { kind: "given", value };
      return dot("q", "k", dotProduct(rowOf(stages.query, row), rowOf(stages.key, column)));
    case "scaled_scores": {
      const score = stages.scores ? (rowOf(stages.scores, row)[column] ?? NaN) : NaN;
      return { kind: "scale", score, divisor: head.divisor, computed: score / head.divisor, value };
    }
    case "mask":
      return { kind: "mask", scaled: stages.scaled_scores ? (rowOf(stages.scaled_scores, row)[column] ?? NaN) : NaN, value };
    case "weights": {
      if (!stages.scaled_scores || !stages.scores) return { kind: "given", value };
      const mask = stages.mask && rowOf(stages.mask, row);
      const softmax = softmaxRow(rowOf(stages.scaled_scores, row), mask);
      const unscaled = softmaxRow(rowOf(stages.scores, row), mask);
      return { kind: "softmax", row: softmax, unscaled, column, computed: softmax.terms[column]?.weight ?? NaN, value };
    }
    case "head_outputs":
      if (!stages.weights || !stages.value) return { kind: "given", value };
      return dot("a", "v", dotProduct(rowOf(stages.weights, row), stages.value.values, { start: column, stride: stages.value.numColumns }));
    case "concatenation": {
      const [source, feature] = [Math.floor(column / head.headDim), column % head.headDim];
      return { kind: "copy", head: source, feature, computed: value, value };
    }
    case "output": {
      const { output } = head.parameters;
      if (output === undefined || !stages.concatenation) return { kind: "given", value };
      const { weight, bias } = output;
      return dot("z", "w", dotProduct(rowOf(stages.concatenation, row), rowOf(weight, column), { bias: bias?.[column] ?? 0 }));
    }
    default:
      return { kind: "given", value };
  }
}

function fromOrigin(origin: Origin, row: number, column: number): Omit<Extract<Computation, { kind: "norm" }>, "value"> | Omit<Extract<Computation, { kind: "sum" }>, "value"> {
  const at = (matrix: Matrix): number => matrix.values[row * matrix.numColumns + column] ?? NaN;
  if (origin.kind === "sum") {
    const parts: [number, number] = [at(origin.parts[0]), at(origin.parts[1])];
    return { kind: "sum", parts, computed: parts[0] + parts[1] };
  }
  const [input, mean, deviation, gain, bias] = [at(origin.input), origin.mean[row] ?? NaN, origin.deviation[row] ?? NaN, origin.gain[column] ?? NaN, origin.bias?.[column] ?? 0];
  return { kind: "norm", input, mean, deviation, gain, bias, computed: ((input - mean) / deviation) * gain + bias };
}

/** A number of Q, K or V: Σ x·w + b, and with rotary positions the rotation of its pair. */
function projection(head: Head, stage: "query" | "key" | "value", row: number, column: number): Omit<Extract<Computation, { kind: "dot" }>, "value"> | undefined {
  const parameters = head.parameters[stage];
  const { memory, input } = head.stages;
  const source = stage === "query" ? input : (memory ?? input);
  const width = head.stages[stage]?.numColumns ?? 0;
  if (parameters === undefined || source === undefined) return undefined;
  const { weight, bias } = parameters;
  const before = (feature: number): DotProduct => {
    const place = head.head * width + feature;
    return dotProduct(rowOf(source, row), rowOf(weight, place), { bias: bias?.[place] ?? 0 });
  };
  const dot = before(column);
  const found = { kind: "dot" as const, left: "x", right: "w", dot, computed: dot.sum };
  if (!head.rotary || stage === "value") return found;
  const isOdd = column % 2 === 1;
  const pair = column - (isOdd ? 1 : 0);
  const [even, odd] = isOdd ? [before(pair).sum, dot.sum] : [dot.sum, before(pair + 1).sum];
  const vector = new Float32Array(width);
  vector[pair] = even;
  vector[pair + 1] = odd;
  return { ...found, rotation: { angle: row * 10000 ** (-pair / width), even, odd, isOdd }, computed: rotary(vector, row)[column] ?? NaN };
}

/** Which rows and columns of other matrices a number is computed from. */
export function operands(head: Head, stage: Stage, row: number, column: number): Partial<Record<Stage, { row?: number; column?: number }>> {
  const source: Stage = head.stages.memory ? "memory" : "input";
  switch (stage) {
    case "query":
      return { input: { row } };
    case "key":
    case "value":
      return { [source]: { row } };
    case "scores":
      return { query: { row }, key: { row: column } };
    case "scaled_scores":
      return { scores: { row, column } };
    case "mask":
      return { scaled_scores: { row, column } };
    case "weights":
      return { scaled_scores: { row }, mask: { row } };
    case "head_outputs":
      return { weights: { row }, value: { column } };
    case "concatenation":
      return Math.floor(column / head.headDim) === head.head ? { head_outputs: { row, column: column % head.headDim } } : {};
    case "output":
      return { concatenation: { row } };
    default:
      return {};
  }
}
