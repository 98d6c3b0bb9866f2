/** Runs engine.wasm in Node: reads requests from standard input as JSON, writes the results to standard output. Used by tests/web. */

import { readFileSync } from "node:fs";
import { Engine, type Intervention, type SearchOptions, type SpecialTokens } from "../engine/src/engine.js";

interface Request {
  source: number[];
  search?: SearchOptions;
  tree?: SearchOptions;
  trace?: { target: number[]; max_length?: number; wanted?: string[]; interventions?: Intervention[] };
}

const { wasm, weights, special, requests } = JSON.parse(readFileSync(0, "utf8")) as {
  wasm: string;
  weights: string;
  special: SpecialTokens;
  requests: Request[];
};
const module = new WebAssembly.Module(readFileSync(wasm));
const file = readFileSync(weights);
const answers: unknown[] = [];
try {
  const engine = Engine.open(module, file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength) as ArrayBuffer);
  for (const { source, search, tree, trace } of requests) {
    try {
      if (search) answers.push(engine.translate(source, special, search));
      if (tree) answers.push(engine.beamTree(source, special, tree));
      if (trace) {
        const { target, tensors } = engine.trace(source, trace.target, special, trace);
        const encoded = [...tensors].map(([name, { shape, values }]) => [name, shape, Buffer.from(values.buffer).toString("base64")]);
        answers.push({ target, tensors: encoded });
      }
    } catch (error) {
      answers.push({ error: String(error) });
    }
  }
  process.stdout.write(JSON.stringify({ shape: engine.shape, answers }));
} catch (error) {
  process.stdout.write(JSON.stringify({ error: String(error) }));
}
