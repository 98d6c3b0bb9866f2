// Opens the views of one head, positions, norms, the residual stream and the feed-forward units in Chromium, and reports the numbers that they show.
// Standard input: {address, executablePath, sentence, to}. Output: {head, positions, norms, residual, feed_forward, errors}.

import { readFileSync } from "node:fs";

import { openViews } from "./open_views.mjs";

const { browser, page, errors, open, data, all, field } = await openViews(JSON.parse(readFileSync(0, "utf8")), "#view .computing");

async function headView() {
  await open({ view: "head", attention: "encoder", layer: "2", head: "1", "head.cell": "query-3-5" });
  const found = { query: await data(".computation"), few: (await all(".computation tr[data-term]")).length };
  await page.click(".computation [data-action=all-terms]");
  found.terms = await all(".computation tr[data-term]");
  found.sum = { ...(await data(".computation tr[data-bias]")), ...(await data(".computation tr[data-sum]")) };
  await page.click("[data-action=unscaled]");
  await page.locator(".stage[data-stage=weights] canvas").click({ position: { x: 20, y: 70 } });
  found.entropies = (await all(".softmax-row li")).map(({ entropy }) => Number(entropy));
  found.weight = await data(".computation");
  await page.keyboard.press("ArrowRight");
  await page.waitForTimeout(100);
  found.moved = await data(".computation");
  found.address = [await field("head.cell"), await field("head.unscaled"), await field("query"), await field("key")];
  await page.click(".bands button[data-band='4']");
  found.band = await field("head");
  return found;
}

async function positionsView() {
  await open({ view: "positions", "positions.p": "2", "positions.k": "5", "positions.cell": "7-11" });
  const found = {
    cell: await data("#view p[data-column]"), difference: (await data("[data-difference]")).difference, error: (await data("[data-shift-error]")).shiftError,
    clocks: await all(".clock"), marks: await all(".line-chart .mark"),
  };
  await page.click("[data-action=no-positions]");
  await page.waitForSelector(".translations[data-state=changed]", { timeout: 120_000 });
  found.outputs = await page.$$eval("[data-translation]", (nodes) => nodes.map(({ textContent }) => textContent));
  found.change = await field("change");
  await page.click("[data-action=no-positions]");
  await page.waitForSelector(".translations", { state: "detached" });
  found.after = [await field("change"), await field("run")];
  return found;
}

async function normsView() {
  await open({ view: "norms", layer: "1", key: "3", "norms.place": "encoder.feed_forward", "norms.feature": "9" });
  return {
    parts: await all("tr[data-part]"), settings: await all("tr[data-setting]"), batch: await data("section[data-places]"), changes: await data("[data-change-by-others]"),
    sentences: await page.$$eval("#view ol li", (nodes) => nodes.map(({ firstChild }) => firstChild.textContent.trim())),
  };
}

async function residualView() {
  await open({ view: "residual", step: "2", "residual.stack": "decoder" });
  const sublayers = await all("tr[data-sublayer]");
  const layers = await page.$$eval("table.layers tbody tr", (rows) => rows.map((row) => [...row.querySelectorAll("td[data-token]")].map(({ dataset, className }) => ({ ...dataset, agrees: className === "agrees" }))));
  const shares = page.locator(".stage[data-stage=shares] canvas");
  const box = await shares.boundingBox();
  await shares.click({ position: { x: box.width - 4, y: 4 } });
  return { sublayers, layers, chosen: [await field("step"), (await all("tr.chosen"))[0].sublayer] };
}

async function feedForwardView() {
  await open({ view: "feed_forward", layer: "3", key: "2" });
  const found = { counts: await data("section[data-silent]"), unit: await data("p[data-unit]"), top: await all("tr[data-unit]"), tokens: await all("tr[data-token]"), bars: await all(".bars rect") };
  await page.click("details.sum summary");
  found.sum = (await data("details.sum")).sum;
  await page.click("tr[data-unit] >> nth=3 >> button");
  found.address = await field("feed_forward.unit");
  return found;
}

const report = { head: await headView(), positions: await positionsView(), norms: await normsView(), residual: await residualView(), feed_forward: await feedForwardView(), errors };
await browser.close();
process.stdout.write(JSON.stringify(report));
