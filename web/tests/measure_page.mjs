// Measures the engine in Chromium: the time from opening a page to its first translation, then translations and traces.
// The engine runs with each of several options of `load`. Reads {address, executablePath, variants, requests: [[text, language]], rounds} from standard input. Used by benchmarks/speed.

import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const { address, executablePath, variants, requests, rounds } = JSON.parse(readFileSync(0, "utf8"));
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const page = await (await browser.newContext()).newPage();

// From the start of the navigation to the first translation of the first sentence.
async function open(options) {
  await page.goto(address);
  return page.evaluate(
    async ([[text, targetLanguage], options]) => {
      const { load } = await import(new URL("engine.js", document.baseURI).href);
      globalThis.model = await load("model.json", options);
      await globalThis.model.translate(text, { targetLanguage });
      return performance.now();
    },
    [requests[0], options],
  );
}

async function measure([requests, rounds]) {
  const model = globalThis.model;
  const long = Array.from({ length: 512 }, (_, index) => 1000 + ((index * 7919) % 20000));
  const milliseconds = async (call) => {
    const began = performance.now();
    await call();
    return performance.now() - began;
  };
  const found = [];
  for (let round = 0; round < rounds; ++round)
    for (const [text, targetLanguage] of requests)
      found.push({
        greedy: await milliseconds(() => model.translate(text, { targetLanguage, beamSize: 1 })),
        beam: await milliseconds(() => model.translate(text, { targetLanguage })),
        trace: await milliseconds(async () => {
          const [best] = await model.translate(text, { targetLanguage, beamSize: 1 });
          const { eos_id } = model.manifest.special;
          await model.trace(text, { targetLanguage, target: best.tokens.filter((id) => id !== eos_id) });
        }),
        long: await milliseconds(() => model.trace("", { source: long, target: long.slice(1), wanted: ["*.cross_attention.weights"] })),
      });
  const { isRelaxed: relaxed, numThreads: threads } = model;
  model.close();
  return { found, relaxed, threads };
}

const cold = await open({});
const cached = await open({});
const measured = [];
for (const options of variants) {
  await open(options);
  measured.push(await page.evaluate(measure, [requests, rounds]));
}
const version = browser.version();
await browser.close();
process.stdout.write(JSON.stringify({ cold, cached, measured, version }));
