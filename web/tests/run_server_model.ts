// Opens models of a running `heedful see` as the page does, and writes what they answer to standard output.
// Reads {address, text, language, models, site} from standard input.

import { readFileSync } from "node:fs";

import { Model, type Manifest, type TextTrace } from "../engine/src/model.js";
import { ServerModel } from "../page/model/server_model.js";

const { address, text, language, models, site } = JSON.parse(readFileSync(0, "utf8")) as {
  address: string;
  text: string;
  language: string;
  models: string[];
  /** Address of a site whose model `native` runs in the page, and is traced by the engine too. */
  site: string;
};

const message = (error: unknown): string => (error instanceof Error ? error.message : String(error));

function bits(tensors: TextTrace["tensors"]): unknown {
  return Object.fromEntries(
    [...tensors].map(([name, { shape, values }]) => {
      const bytes = Buffer.from(values.buffer, values.byteOffset, values.byteLength);
      return [name, [shape, bytes.toString("hex")]];
    }),
  );
}

/** The same trace by the engine in WebAssembly. */
async function runEngine(): Promise<unknown> {
  const read = async (name: string): Promise<ArrayBuffer> => (await fetch(new URL(name, site))).arrayBuffer();
  const folder = "models/native/";
  const manifest = (await (await fetch(new URL(`${folder}model.json`, site))).json()) as Manifest;
  const [engine, tokenizer] = await Promise.all(["engine.wasm", "tokenizer.wasm"].map(read));
  if (engine === undefined || tokenizer === undefined) throw new Error("the site has no engine");
  const pieces = await Promise.all(manifest.tokenizers.map((name) => read(folder + name)));
  const weights = await read(folder + manifest.weights);
  const model = Model.open(manifest, new WebAssembly.Module(engine), new WebAssembly.Module(tokenizer), weights, pieces);
  const { tensors, ...trace } = model.trace(text, { targetLanguage: language, candidates: 4 });
  return { ...trace, tensors: bits(tensors) };
}

async function run(name: string): Promise<unknown> {
  const model = await ServerModel.load(new URL(`models/${name}/model.json`, address));
  const { tensors, ...trace } = await model.trace(text, { targetLanguage: language, candidates: 4 });
  const found = {
    ...trace,
    manifest: model.manifest,
    shape: model.shape,
    tensors: bits(tensors),
    translation: await model.translate(text, { targetLanguage: language }),
    sourceIds: await model.sourceIds(text, language),
    pieces: await model.pieces(trace.source, "source"),
    prefix: await model.encodeTarget("A dog"),
    error: await model.trace(text, { source: [] }).then(() => "", message),
  };
  const interrupted = model.trace(text, { targetLanguage: language }).then(() => "", message);
  model.close();
  return { ...found, closed: await interrupted };
}

const answers: unknown[] = [];
for (const name of models) answers.push(await run(name));
process.stdout.write(JSON.stringify({ answers, engine: await runEngine() }));
