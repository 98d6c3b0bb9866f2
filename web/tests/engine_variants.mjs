// Translates and traces in Chromium, once for each of several options of `load`. Reads {address, executablePath, variants,
// translations, traces} from standard input; writes the results of each variant.

import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const { executablePath, ...request } = JSON.parse(readFileSync(0, "utf8"));
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const page = await browser.newPage();
await page.goto(`${request.address}example.css`); // a page that loads nothing by itself
const found = await page.evaluate(async ({ address, variants, translations, traces }) => {
  const { load } = await import(`${address}engine.js`);
  const results = [];
  for (const options of variants) {
    const model = await load(`${address}model.json`, options);
    const run = async () => {
      const found = { translations: [], traces: [] };
      for (const [text, options] of translations) found.translations.push(await model.translate(text, options));
      for (const [text, options] of traces) {
        const { text: translation, tensors } = await model.trace(text, options);
        const values = await new Blob(Array.from(tensors.values(), ({ values }) => values)).arrayBuffer();
        const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", values));
        found.traces.push([translation, tensors.size, digest.join()]);
      }
      return found;
    };
    const { isRelaxed, numThreads } = model;
    const first = await run();
    const error = await model.trace("", { source: [-1] }).catch(({ message }) => message);
    results.push({ isRelaxed, numThreads, first, error, again: await run() });
    model.close();
  }
  return { isolated: crossOriginIsolated, results };
}, request);
await browser.close();
process.stdout.write(JSON.stringify(found));
