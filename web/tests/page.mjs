// Drives the page of `heedful see` in Chromium as a reader would, and reports what it shows.
// Standard input: {address, executablePath, folder, sentence, to, scenarios: [name, …]}. Output: {results: {name: …}, errors, outside}.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

import { chromium } from "playwright-core";

const request = JSON.parse(readFileSync(0, "utf8"));
const { address, executablePath, folder, sentence, to } = request;
const VIEWS = ["decoding", "attention", "head", "beam", "positions", "norms", "residual", "feed_forward", "what_if", "explanation", "over_time"];
const QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

const browser = await chromium.launch({ executablePath, args: QUIET });
const errors = [];
const outside = [];

function watch(context) {
  context.on("console", (message) => ["error", "warning"].includes(message.type()) && errors.push(message.text()));
  context.on("weberror", (error) => errors.push(String(error.error())));
  context.on("request", (sent) => {
    const url = sent.url();
    if (!url.startsWith(address) && !url.startsWith("data:") && !url.startsWith("blob:")) outside.push(url);
  });
  return context;
}

const context = watch(await browser.newContext({ viewport: { width: 1440, height: 900 }, acceptDownloads: true, reducedMotion: "reduce", locale: "en-US" }));
const page = await context.newPage();

function link(state = {}) {
  return `${address}#${new URLSearchParams({ text: sentence, to, language: "en", ...state })}`;
}

async function open(state = {}, on = page) {
  await on.goto("about:blank");
  await on.goto(link(state));
  await ready(on);
}

/** The translation is there, and all that the view asked for was computed. */
async function ready(on = page) {
  await on.waitForSelector(".token.target", { timeout: 120_000 });
  for (let time = 0; time < 2; ++time) { // a view asks for its tensors after it was drawn
    await on.waitForTimeout(150);
    await on.waitForFunction(() => !document.querySelector(".computing, [role=status] progress"), null, { timeout: 120_000 });
  }
}

const output = (on = page) => on.getAttribute("[data-output]", "data-output");
const chips = (side, on = page) => on.$$eval(`.sentence .token.${side}:not(.hidden)`, (nodes) => nodes.map((node) => node.textContent));
const field = (name) => page.evaluate((key) => new URLSearchParams(location.hash.slice(1)).get(key), name);

async function exported(format) {
  if (!(await page.getAttribute(".share", "open"))) await page.click(".share summary");
  const [download] = await Promise.all([page.waitForEvent("download", { timeout: 120_000 }), page.click(`[data-format=${format}]`)]);
  const file = path.join(folder, `${Date.now()}.${format}`);
  await download.saveAs(file);
  return file;
}

async function candidates() {
  return page.$$eval("#view li[data-token][data-probability]", (rows) =>
    rows.map(({ dataset }) => ({ token: Number(dataset.token), probability: Number(dataset.probability) })));
}

const scenarios = {
  /** All numbers of the head view, as exported, for each kind of attention. */
  async head() {
    const files = {};
    for (const attention of ["encoder", "decoder", "cross"]) {
      await open({ view: "head", attention, layer: "1", head: "2" });
      files[attention] = await exported("svg");
    }
    return files;
  },

  async cell() {
    await open({ view: "head", attention: "encoder", layer: "0", head: "0" });
    const found = {};
    for (const stage of await page.$$eval(".stage", (nodes) => nodes.map(({ dataset }) => dataset.stage))) {
      const canvas = page.locator(`.stage[data-stage="${stage}"] canvas`);
      if ((await canvas.count()) === 0) continue;
      await canvas.scrollIntoViewIfNeeded();
      const box = await canvas.boundingBox();
      await page.mouse.click(box.x + box.width / 3, box.y + box.height / 3);
      await page.waitForTimeout(150);
      found[stage] = await page.$eval(".computation", ({ dataset }) => ({ ...dataset }));
      found[stage].agrees = await page.$$eval(".computation [data-agrees]", (nodes) => nodes.map(({ dataset }) => dataset.agrees));
    }
    return found;
  },

  async decoding() {
    await open({ view: "decoding", step: "1" });
    const first = { output: await output(), source: await chips("source"), target: await chips("target"), candidates: await candidates() };
    await page.keyboard.press("ArrowRight");
    await page.waitForFunction(() => location.hash.includes("step=2"));
    first.step2 = await chips("target");
    return first;
  },

  async another_token() {
    await open({ view: "decoding", step: "1" });
    const [, second] = await candidates();
    const before = await output();
    await page.click(`#view li[data-token="${second.token}"] button`);
    await page.waitForFunction((old) => document.querySelector("[data-output]")?.dataset.output !== old, before);
    await ready();
    return { token: second.token, prefix: await field("prefix"), output: await output() };
  },

  async typing() {
    await open();
    await page.keyboard.press("/");
    const focused = await page.evaluate(() => document.activeElement.id);
    await page.fill("#text", "Where is the train station?");
    await page.waitForFunction((old) => document.querySelector("[data-output]")?.dataset.output !== old, await output());
    await ready();
    const found = { focused, output: await output(), text: await field("text") };
    await page.reload();
    await ready();
    return { ...found, reloaded: await output() };
  },

  async hover() {
    await open({ view: "attention" });
    await page.hover(".sentence .token.source[data-index='3']");
    return page.$$eval(".lit", (nodes) => nodes.length);
  },

  async intervention() {
    await open({ view: "what_if", change: "remove,decoder,cross_attention" });
    await page.waitForFunction(() => document.querySelectorAll("#view [data-output]").length > 0, null, { timeout: 60_000 }).catch(() => undefined);
    return { base: await output(), view: await page.textContent("#view"), outputs: await page.$$eval("[data-output]", (nodes) => nodes.map(({ dataset, textContent }) => dataset.output || textContent)) };
  },

  async language_and_theme() {
    await open();
    await page.click("header button[lang='zh-CN']");
    const chinese = await page.textContent("header");
    const lang = await page.getAttribute("html", "lang");
    for (let press = 0; press < 2; ++press) await page.click("header button.theme"); // from the system's theme to light and dark
    const background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    await page.reload();
    await ready();
    return { chinese, lang, background, kept: [await page.getAttribute("html", "lang"), await page.getAttribute("html", "data-theme")] };
  },

  async accept_language() {
    const other = watch(await browser.newContext({ locale: "zh-CN" }));
    const tab = await other.newPage();
    await tab.goto(`${address}#text=${encodeURIComponent(sentence)}&to=${to}`);
    await ready(tab);
    const lang = await tab.getAttribute("html", "lang");
    await other.close();
    return lang;
  },

  /** A state in a link is the state of the page, and the link of the page is that link. */
  async deep_links() {
    const states = [
      { view: "attention", attention: "decoder", layer: "1", head: "3", query: "4", key: "2" },
      { view: "head", attention: "cross", layer: "0", head: "1", step: "3", words: "1" },
      { view: "positions", theme: "light" },
      { view: "what_if", change: "uniform,encoder,self_attention,0,1~no_positions,decoder", run: "changed" },
    ];
    const found = [];
    for (const state of states) {
      await open(state);
      await page.evaluate(() => document.querySelector("h1").click());
      const fields = Object.fromEntries(new URLSearchParams(new URL(page.url()).hash.slice(1)));
      found.push({ state, fields, selected: await page.getAttribute("[role=tab][aria-selected=true]", "id") });
    }
    return found;
  },

  async walk() {
    await page.goto("about:blank");
    await page.goto(`${address}#stop=1`);
    await ready();
    const stops = [];
    for (let stop = 1; stop <= 14; ++stop) {
      stops.push({ title: await page.textContent(".walk h2"), view: await page.getAttribute("[role=tab][aria-selected=true]", "id"), stop: await field("stop") });
      if (stop < 14) await page.click(".walk button:nth-of-type(2)");
    }
    return { stops, isLast: await page.isDisabled(".walk button:nth-of-type(2)") };
  },

  async exports() {
    await open({ view: "attention" });
    const files = {};
    for (const format of ["svg", "png", "gif", "html", "json"]) files[format] = await exported(format);
    const offline = watch(await browser.newContext({ offline: true }));
    const tab = await offline.newPage();
    const requests = [];
    tab.on("request", (sent) => requests.push(sent.url()));
    outside.length = 0;
    await tab.goto(`file://${files.html}`);
    await ready(tab);
    files.opened = { output: await output(tab), tab: await tab.getAttribute("[role=tab][aria-selected=true]", "id"), arcs: await tab.$$eval("[data-weight]", (nodes) => nodes.length) };
    files.requests = requests.filter((url) => !url.startsWith("file:") && !url.startsWith("blob:") && !url.startsWith("data:"));
    outside.length = 0; // the file itself
    await offline.close();
    return files;
  },

  /** axe-core in every view, and in both themes for one of them. */
  async accessibility() {
    const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
    const bare = watch(await browser.newContext({ bypassCSP: true, viewport: { width: 1280, height: 900 }, reducedMotion: "reduce" }));
    const tab = await bare.newPage();
    const found = [];
    const states = [...VIEWS.map((view) => ({ view })), { view: "attention", theme: "dark", language: "zh" }, { view: "decoding", theme: "dark", stop: "13" }];
    for (const state of states) {
      await open(state, tab);
      await tab.evaluate(axe);
      const { violations } = await tab.evaluate(() => globalThis.axe.run());
      for (const { id, nodes } of violations) found.push(`${JSON.stringify(state)} ${id}: ${nodes.slice(0, 3).map(({ target }) => target.join(" ")).join("; ")}`);
    }
    await bare.close();
    return found;
  },

  /** No view is wider than a small phone, in either language. */
  async phone() {
    const small = watch(await browser.newContext({ viewport: { width: 360, height: 740 }, reducedMotion: "reduce" }));
    const tab = await small.newPage();
    const found = [];
    for (const language of ["en", "zh"]) {
      for (const view of VIEWS) {
        await open({ view, language }, tab);
        const width = await tab.evaluate(() => document.documentElement.scrollWidth);
        if (width > 360) found.push(`${view} ${language}: ${width}`);
      }
    }
    await small.close();
    return found;
  },

  /** Every control can be reached with Tab, and is visible when it is. */
  async keyboard() {
    await open({ view: "decoding" });
    await page.keyboard.press("?");
    const dialog = await page.isVisible("dialog[open]");
    await page.keyboard.press("Escape");
    await page.keyboard.press("3");
    await page.waitForFunction(() => location.hash.includes("view=head"));
    await page.keyboard.press("w");
    await page.waitForFunction(() => location.hash.includes("words=1"));
    const reached = new Set();
    for (let press = 0; press < 120; ++press) {
      await page.keyboard.press("Tab");
      reached.add(await page.evaluate(() => document.activeElement?.tagName));
    }
    return { dialog, reached: [...reached].sort() };
  },

  /** The longest source that the model reads. */
  async long_text() {
    const text = Array.from({ length: 126 }, () => "We see it.").join(" ");
    const found = {};
    await page.goto("about:blank");
    await page.goto(`${address}#${new URLSearchParams({ text, to, view: "attention", attention: "encoder", layer: "0" })}`);
    await ready();
    found.tokens = (await chips("source")).length;
    found.canvases = await page.$$eval("#view canvas", (nodes) => nodes.length);
    found.heads = {};
    for (const head of ["1", "2"]) {
      const before = Date.now();
      await page.evaluate((value) => (location.hash = location.hash.replace(/&head=\d+|$/, `&head=${value}`)), head);
      await ready();
      found.heads[head] = Date.now() - before;
    }
    for (const view of ["head", "residual", "feed_forward"]) {
      await page.evaluate((name) => (location.hash = location.hash.replace(/view=\w+/, `view=${name}`)), view);
      await ready();
    }
    found.problem = await page.$$eval(".problem[role=alert]", (nodes) => nodes.map((node) => node.textContent));
    return found;
  },
};

const results = {};
for (const name of request.scenarios) {
  try {
    results[name] = await scenarios[name]();
  } catch (error) {
    results[name] = { failed: String(error.stack ?? error), address: page.url(), status: await page.textContent(".sentence").catch(() => "") };
  }
}
await browser.close();
process.stdout.write(JSON.stringify({ results, errors, outside }));
