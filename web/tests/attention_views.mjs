// Opens the attention views, the comparison with leaving tokens out, and the experiments in Chromium, and reports the numbers that they show.
// Standard input: {address, executablePath, sentence, to}. Output: {attention, steps, alignment, explanation, experiment, ranking, hand, beginning, errors}.

import { readFileSync } from "node:fs";

import { openViews } from "./open_views.mjs";

const { browser, page, errors, open, computed, data, all, field } = await openViews(JSON.parse(readFileSync(0, "utf8")), "#view .computing, .thumbnails .muted[colspan]");

const CURVES = ".attention-view > .attention-pair .curves:first-of-type path"; // not those of the alignment
const attention = {};
for (const [kind, layer, head] of [["encoder", 4, 3], ["decoder", 1, 2], ["cross", 0, 4]]) {
  await open({ view: "attention", attention: kind, layer, head, query: 3, key: 2 });
  await page.waitForSelector(".cell-panel[data-score]");
  const shown = {
    layer, head, cell: await data(".cell-panel"), heads: await all(".thumbnail"),
    curves: await all(CURVES), hidden: await data(".arcs"),
  };
  await page.locator(".attention-pair .matrix canvas").first().press("ArrowLeft");
  await page.waitForTimeout(150);
  shown.moved = [await field("query"), await field("key")];
  await page.click('.thumbnail[data-layer="1"][data-head="-1"]');
  await computed();
  shown.mean = (await data(".cell-panel")).weight;
  attention[kind] = shown;
}

await open({ view: "attention", attention: "decoder", step: 3 });
const steps = { rows: await page.getAttribute(".attention-pair canvas", "data-visible-rows"), curves: await all(CURVES) };

const alignment = {};
for (const words of ["", "1"]) {
  await open({ view: "attention", attention: "cross", words });
  alignment[words ? "words" : "subwords"] = await page.getAttribute("#pharaoh", "data-pharaoh");
}
const [download] = await Promise.all([page.waitForEvent("download"), page.click(".pharaoh a")]);
alignment.downloaded = readFileSync(await download.path(), "utf8");

await open({ view: "explanation" });
const explanation = { overall: await data(".finding [data-rho]"), rows: await all(".comparisons tbody tr") };

const change = "remove,decoder,cross_attention,0,4~uniform,encoder,self_attention,1";
await open({ view: "what_if", change });
const experiment = {
  outputs: await all(".compared-tokens"), first: (await data(".compared[data-first-difference]")).firstDifference,
  tables: await page.$$eval(".probabilities", (nodes) => nodes.map((node) => [...node.querySelectorAll("tbody tr")].map(({ dataset }) => ({ ...dataset })))),
  switches: (await all(".switch")).filter(({ state }) => state !== "normal"),
};
await page.click('.changed-banner button >> text="the changed model"');
experiment.shown = await page.$$eval(".sentence .token.target", (nodes) => nodes.map(({ textContent }) => textContent));
await page.click("#tab-attention");
experiment.banner = await page.getAttribute(".changed-banner", "data-run");
await page.click("#tab-what_if");
await page.click(".changes .remove >> nth=0");
experiment.left = await field("change");
await page.click(".changes .reset");
experiment.reset = await field("change");

await page.click(".head-ranking .start");
await page.waitForSelector(".head-ranking ol", { timeout: 120_000 });
const ranking = await all(".head-ranking li button");

await open({ view: "what_if", attention: "cross", layer: 0, head: 4, query: 2, key: 1, "what_if.weight": "1" });
await page.locator(".weight-panel input[type=range]").fill("0.75");
await page.waitForSelector(".compared-tokens >> nth=1");
await computed();
const hand = { change: await field("change"), rows: await all(".probabilities:first-of-type tbody tr") };

await open({ view: "what_if" });
await page.fill(".text-field", "Ja");
await page.click(".beginning button[type=submit]");
await page.waitForSelector(".compared-tokens >> nth=1");
const beginning = { prefix: await field("prefix"), outputs: await all(".compared-tokens") };

process.stdout.write(JSON.stringify({ attention, steps, alignment, explanation, experiment, ranking, hand, beginning, errors }));
await browser.close();
