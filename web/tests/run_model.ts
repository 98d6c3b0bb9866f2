/** Opens an exported model in Node: reads requests from standard input as JSON, writes the results. Used by tests/web. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Model, type BeamTreeOptions, type Manifest, type Side, type TraceOptions, type TranslateOptions } from "../engine/src/model.js";
import { Pieces } from "../engine/src/tokenizer.js";

const { folder, lines, translate, beamTree, trace, sourceIds, pieces } = JSON.parse(readFileSync(0, "utf8")) as {
  folder: string;
  lines?: string[];
  translate?: [string, TranslateOptions][];
  beamTree?: [string, BeamTreeOptions][];
  trace?: [string, TraceOptions][];
  sourceIds?: [string, string?][];
  pieces?: [number[], Side][];
};

function bytes(name: string): ArrayBuffer {
  const file = readFileSync(join(folder, name));
  return file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength) as ArrayBuffer;
}

const manifest = JSON.parse(readFileSync(join(folder, "model.json"), "utf8")) as Manifest;
const [engine, tokenizer] = [new WebAssembly.Module(bytes("engine.wasm")), new WebAssembly.Module(bytes("tokenizer.wasm"))];
const result: Record<string, unknown> = {};
if (lines) {
  const model = Pieces.load(tokenizer, bytes(manifest.tokenizers[0] ?? ""));
  const ids = lines.map((line) => model.encode(line));
  result["ids"] = ids;
  result["decoded"] = ids.map((one) => model.decode(one));
  result["pieces"] = (ids[0] ?? []).map((id) => model.piece(id));
}
if (translate || beamTree || trace || sourceIds || pieces) {
  const model = Model.open(manifest, engine, tokenizer, bytes(manifest.weights), manifest.tokenizers.map(bytes));
  const attempt = <Given, Found>(call: (given: Given) => Found) => (given: Given): Found | { error: string } => {
    try {
      return call(given);
    } catch (error) {
      return { error: (error as Error).message };
    }
  };
  result["translations"] = (translate ?? []).map(attempt(([text, options]) => model.translate(text, options)));
  result["beamTrees"] = (beamTree ?? []).map(attempt(([text, options]) => model.beamTree(text, options)));
  result["sourceIds"] = (sourceIds ?? []).map(attempt(([text, language]) => model.encodeSource(text, language)));
  result["pieces"] ??= (pieces ?? []).map(attempt(([ids, side]) => model.pieces(ids, side)));
  result["traces"] = (trace ?? []).map(
    attempt(([text, options]) => {
      const { tensors, ...rest } = model.trace(text, options);
      return { ...rest, shapes: Object.fromEntries(Array.from(tensors, ([name, { shape }]) => [name, shape])) };
    }),
  );
}
process.stdout.write(JSON.stringify(result));
