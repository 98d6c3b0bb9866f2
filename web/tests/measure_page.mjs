// Measures the engine in Chromium: the time from opening a page to its first translation, then translations and traces.
// Reads {address, executablePath, requests: [[text, language]], rounds} from standard input. Used by benchmarks/speed.

import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const { address, executablePath, requests, rounds } = JSON.parse(readFileSync(0, "utf8"));
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const page = await (await browser.newContext()).newPage();

// From the start of the navigation to the first translation of the first sentence.
async function open() {
  await page.goto(address);
  return page.evaluate(async ([text, targetLanguage]) => {
    const { load } = await import(new URL("engine.js", document.baseURI).href);
    globalThis.model = await load("model.json");
    await globalThis.model.translate(text, { targetLanguage });
    return performance.now();
  }, requests[0]);
}

const cold = await open();
const cached = await open();
const measured = await page.evaluate(
  async ([requests, rounds]) => {
    const model = globalThis.model;
    const seconds = async (call) => {
      const began = performance.now();
      await call();
      return performance.now() - began;
    };
    const found = [];
    for (let round = 0; round < rounds; ++round)
      for (const [text, targetLanguage] of requests)
        found.push({
          greedy: await seconds(() => model.translate(text, { targetLanguage, beamSize: 1 })),
          beam: await seconds(() => model.translate(text, { targetLanguage })),
          trace: await seconds(async () => {
            const [best] = await model.translate(text, { targetLanguage, beamSize: 1 });
            const { eos_id } = model.manifest.special;
            await model.trace(text, { targetLanguage, target: best.tokens.filter((id) => id !== eos_id) });
          }),
        });
    return found;
  },
  [requests, rounds],
);
const version = browser.version();
await browser.close();
process.stdout.write(JSON.stringify({ cold, cached, measured, version }));
