/** Runs the page's arithmetic in Node: reads requests from standard input as JSON, writes the results. Used by tests/web. */

import { readFileSync } from "node:fs";

import { typicalLargest } from "../page/measures/colour_range.js";
import { computation, readHead, STAGES, type HeadOptions, type Stage } from "../page/measures/head_computation.js";
import { featureStatistics, padBatch, standardise, tokenStatistics } from "../page/measures/norm_statistics.js";
import { dotsByDistance, encodings, rotary, shift, shiftRotations, similarityByDistance } from "../page/measures/sinusoids.js";
import { entropy, softmaxRow } from "../page/measures/softmax.js";
import { asColumns, rowCosines, rowNorms } from "../page/measures/stream.js";
import { dotProduct, importantTerms } from "../page/measures/terms.js";
import { histogram, silentShares, topUnits } from "../page/measures/units.js";

interface Tensor {
  shape: number[];
  values: number[];
}

type Request =
  | { kind: "terms"; left: number[]; right: number[]; bias: number }
  | { kind: "softmax"; scores: (number | null)[] }
  | { kind: "positions"; count: number; width: number; offset: number; vector: number[] }
  | { kind: "norms"; sentences: number[][]; width: number; epsilon: number }
  | { kind: "stream"; left: number[]; right: number[]; width: number }
  | { kind: "units"; values: number[]; width: number; activation: "relu" | "gelu" | "swiglu" }
  | { kind: "head"; tensors: Record<string, Tensor>; options: HeadOptions; cells: [Stage, number, number][] };

function answer(request: Request): unknown {
  switch (request.kind) {
    case "terms": {
      const { terms, sum } = dotProduct(request.left, request.right, { bias: request.bias });
      const { shown, rest, numRest } = importantTerms(terms);
      return { sum, products: terms.map(({ product }) => product), shown: shown.map(({ index }) => index), rest, numRest };
    }
    case "softmax": {
      const { terms, sum } = softmaxRow(request.scores.map((score) => score ?? -Infinity));
      const weights = terms.map(({ weight }) => weight);
      return { weights, sum, exponentials: terms.map(({ exponential }) => exponential), entropy: entropy(weights) };
    }
    case "positions": {
      const { count, width, offset, vector } = request;
      const table = encodings(count, width);
      const rotations = shiftRotations(offset, width);
      const shifted = Array.from({ length: count }, (_, position) => Array.from(shift(table.subarray(position * width, (position + 1) * width), rotations)));
      return { table: Array.from(table), shifted, similarity: similarityByDistance(count, width), means: dotsByDistance(table, count, width).means, rotated: Array.from(rotary(vector, offset)) };
    }
    case "norms": {
      const { sentences, width, epsilon } = request;
      const batch = padBatch(sentences.map((values) => Float32Array.from(values)), width);
      const found = {
        layer: tokenStatistics(batch.values, width, epsilon), rms: tokenStatistics(batch.values, width, epsilon, { centred: false }),
        real: featureStatistics(batch, epsilon, { padding: false }), padded: featureStatistics(batch, epsilon, { padding: true }),
      };
      return {
        statistics: Object.fromEntries(Object.entries(found).map(([name, { mean, deviation, count }]) => [name, { mean: Array.from(mean), deviation: Array.from(deviation), count }])),
        layer: Array.from(standardise(batch.values, width, found.layer, "token")), batch: Array.from(standardise(batch.values, width, found.real, "feature")),
        lengths: batch.lengths,
      };
    }
    case "stream": {
      const [left, right] = [Float32Array.from(request.left), Float32Array.from(request.right)];
      const columns = [rowNorms(left, request.width), rowCosines(left, right, request.width)];
      return { columns: columns.map((column) => Array.from(column)), together: Array.from(asColumns(columns)) };
    }
    case "units": {
      const values = Float32Array.from(request.values);
      return { shares: Array.from(silentShares(values, request.width, request.activation)), top: topUnits(values.subarray(0, request.width), 5), histogram: histogram(values, 10), colour: typicalLargest(values) };
    }
    case "head": {
      const tensors = new Map(Object.entries(request.tensors).map(([name, { shape, values }]) => [name, { shape, values: Float32Array.from(values) }]));
      const head = readHead(tensors, request.options);
      const present = STAGES.filter((stage) => head.stages[stage] !== undefined);
      return { present, cells: request.cells.map(([stage, row, column]) => computation(head, stage, row, column)) };
    }
  }
}

const requests = JSON.parse(readFileSync(0, "utf8")) as Request[];
process.stdout.write(JSON.stringify(requests.map(answer)));
