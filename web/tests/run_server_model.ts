// Opens models of a running `heedful see` as the page does, and writes what they answer to standard output.
// Reads {address, text, language, models} from standard input.

import { readFileSync } from "node:fs";

import { ServerModel } from "../page/model/server_model.js";

const { address, text, language, models } = JSON.parse(readFileSync(0, "utf8")) as {
  address: string;
  text: string;
  language: string;
  models: string[];
};

const message = (error: unknown): string => (error instanceof Error ? error.message : String(error));

async function run(name: string): Promise<unknown> {
  const model = await ServerModel.load(new URL(`models/${name}/model.json`, address));
  const { tensors, ...trace } = await model.trace(text, { targetLanguage: language, candidates: 4 });
  const found = {
    ...trace,
    manifest: model.manifest,
    shape: model.shape,
    tensors: Object.fromEntries(
      [...tensors].map(([tensor, { shape, values }]) => {
        const bytes = Buffer.from(values.buffer, values.byteOffset, values.byteLength);
        return [tensor, [shape, bytes.toString("hex")]];
      }),
    ),
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
process.stdout.write(JSON.stringify(answers));
