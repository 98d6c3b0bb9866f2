// Translates in Chromium with relaxed SIMD and without. Reads {address, executablePath, requests: [[text, options]]} from
// standard input; writes the results of both.

import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const { address, executablePath, requests } = JSON.parse(readFileSync(0, "utf8"));
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const page = await browser.newPage();
await page.goto(`${address}example.css`); // a page that loads nothing by itself
const found = await page.evaluate(
  async ([address, requests]) => {
    const { load } = await import(`${address}engine.js`);
    const results = [];
    for (const relaxed of [true, false]) {
      const model = await load(`${address}model.json`, { relaxed });
      const translations = [];
      for (const [text, options] of requests) translations.push(await model.translate(text, options));
      results.push({ isRelaxed: model.isRelaxed, translations });
      model.close();
    }
    return results;
  },
  [address, requests],
);
await browser.close();
process.stdout.write(JSON.stringify(found));
