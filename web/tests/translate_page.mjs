// Drives the page of `heedful serve` in Chromium as a reader would, and reports what it shows.
// Standard input: {address, keyed, key, unnamed, executablePath, folder, long, scenarios: [name, …]};
// `keyed` is a server that needs `key`, the model of `unnamed` does not name its languages.
// Output: {results: {name: …}, errors, outside}.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

import { chromium } from "playwright-core";

const request = JSON.parse(readFileSync(0, "utf8"));
const { address, keyed, key, unnamed, executablePath, folder, long } = request;
const QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const COFFEE = "I would like a cup of coffee, please.";
const GARDEN = "Gestern haben die Kinder im Garten gespielt, bis es dunkel wurde.";

const browser = await chromium.launch({ executablePath, args: QUIET });
const errors = [];
const outside = [];

/** A new browser profile. `expected`: a pattern of console messages that the scenario provokes. */
async function fresh({ expected = /^$/, ...options } = {}) {
  const context = await browser.newContext({
    viewport: { width: 1440, height: 900 }, acceptDownloads: true, reducedMotion: "reduce", locale: "en-US", permissions: ["clipboard-read", "clipboard-write"], ...options,
  });
  context.on("console", (message) => ["error", "warning"].includes(message.type()) && !expected.test(message.text()) && errors.push(message.text()));
  context.on("weberror", (error) => errors.push(String(error.error())));
  context.on("request", (sent) => {
    const url = sent.url();
    if (![address, keyed, unnamed, "data:", "blob:"].some((start) => url.startsWith(start))) outside.push(url);
  });
  return context.newPage();
}

async function open(page, state = {}, server = address) {
  await page.goto("about:blank");
  await page.goto(`${server}#${new URLSearchParams({ language: "en", ...state })}`);
  if (state.text) await done(page);
  else await page.waitForSelector(".languages .to:enabled");
}

/** The translation of the present text is there. */
async function done(page) {
  await page.waitForSelector(".pane.target [data-done=true]", { timeout: 60_000 });
}

const output = (page) => page.getAttribute("[data-output]", "data-output");
const languages = (page) => page.$$eval(".languages select", (nodes) => nodes.map((node) => node.value));
const word = (page, text) => page.locator(".pane.target .word", { hasText: new RegExp(`^${text}$`) }).first();
const lit = (page, side) => page.$$eval(`.pane.${side} .word.lit`, (nodes) => nodes.map((node) => node.textContent));

async function changed(page, before) {
  await page.waitForFunction((old) => document.querySelector("[data-output]")?.dataset.output !== old, before);
  await done(page);
}

const scenarios = {
  async typing() {
    const page = await fresh();
    const sent = [];
    page.on("request", (one) => one.url().endsWith("/stream") && sent.push(JSON.parse(one.postData()).text));
    await open(page, { to: "de" });
    await page.click("#text");
    await page.keyboard.type(COFFEE, { delay: 15 });
    await done(page);
    const first = await output(page);
    const detected = await page.getAttribute(".languages .from", "data-detected");
    const title = await page.$eval(".languages .from", (node) => node.selectedOptions[0].textContent);
    await page.keyboard.type(" It is cold.", { delay: 15 });
    await done(page);
    const second = await output(page);
    const hash = new URL(page.url()).hash;
    await page.click(".clear");
    await page.waitForSelector(".pane.target .placeholder");
    return { first, second, detected, title, sent, hash, count: await page.getAttribute(".counter", "data-count"), text: await page.inputValue("#text") };
  },

  /** An answer to an earlier text never replaces that of a later one, even if it comes later. */
  async late_answers() {
    const page = await fresh({ expected: /net::ERR_/ });
    await open(page, { to: "de" });
    await page.route("**/api/v1/stream", async (route) => {
      if (route.request().postData().includes("coffee")) await new Promise((resolve) => setTimeout(resolve, 1500));
      await route.continue().catch(() => undefined);
    });
    await page.fill("#text", COFFEE);
    await page.waitForRequest("**/api/v1/stream");
    await page.fill("#text", "It is raining.");
    await done(page);
    const shown = [await output(page)];
    await page.waitForTimeout(1800);
    return [...shown, await output(page)];
  },

  /** Into the language of the text: the page chooses another one. */
  async redirected() {
    const page = await fresh();
    await open(page, { to: "zh" });
    await page.fill("#text", "今天天气很好。");
    await done(page);
    const chinese = { languages: await languages(page), output: await output(page) };
    await page.selectOption(".languages .to", "zh");
    await page.fill("#text", GARDEN); // no model translates German into Chinese
    await done(page);
    return { chinese, german: { languages: await languages(page), output: await output(page) } };
  },

  async swap() {
    const page = await fresh();
    await open(page, { text: COFFEE, to: "de" });
    const before = await output(page);
    await page.click(".swap");
    await changed(page, before);
    return { before, text: await page.inputValue("#text"), languages: await languages(page), output: await output(page) };
  },

  /** The words that are lit on both sides when the pointer is on a word. */
  async hover() {
    const page = await fresh();
    const found = {};
    await open(page, { text: `😀 ${COFFEE} ${COFFEE}`, from: "en", to: "de" });
    for (const one of ["Kaffee", "Tasse"]) {
      await word(page, one).hover();
      found[one] = { source: await lit(page, "source"), target: await lit(page, "target") };
    }
    const place = await page.$$eval(".mirror .word", (nodes) => nodes.map((node) => [node.textContent, node.getBoundingClientRect().toJSON()]));
    const [, box] = place.find(([text]) => text === "coffee");
    await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2); // over the text area, which is above the words
    found.coffee = { source: await lit(page, "source"), target: await lit(page, "target") };
    await page.mouse.move(5, 5);
    found.left = await lit(page, "source");
    // The words beneath the text area are where its own words are.
    found.sameHeight = await page.$eval(".pane.source", (pane) => Math.abs(pane.querySelector("textarea").scrollHeight - pane.querySelector(".mirror").getBoundingClientRect().height) < 2);
    return found;
  },

  async alternatives() {
    const page = await fresh();
    await open(page, { text: `${GARDEN} Danach lasen sie ein Buch.`, to: "en" });
    const before = await output(page);
    await word(page, "children").click();
    await page.waitForSelector(".alternatives[data-ready=true]");
    const options = await page.$$eval(".alternatives .next", (nodes) => nodes.map((node) => ({ word: node.dataset.wordOption, sentence: node.title })));
    const whole = await page.$$eval(".alternatives .whole", (nodes) => nodes.map((node) => node.textContent));
    await page.click(".alternatives .next");
    await page.waitForFunction((old) => document.querySelector("[data-output]")?.dataset.output !== old, before);
    const chosen = await output(page);
    await word(page, options[0].word).hover();
    await page.waitForSelector(".pane.source .word.lit"); // the corresponding words of the chosen sentence are known too
    const source = await lit(page, "source");
    await page.fill("#text", `${GARDEN} Danach lasen sie zwei Bücher.`); // the choice stays when another sentence changes
    await done(page);
    const kept = await output(page);
    await word(page, "played").click();
    await page.waitForSelector(".alternatives[data-ready=true]");
    await page.keyboard.press("Escape");
    const closed = (await page.$(".alternatives")) === null;
    return { before, options, whole, chosen, source, kept, closed };
  },

  async other_translations() {
    const page = await fresh();
    await open(page, { text: COFFEE, from: "en", to: "de" });
    const before = await output(page);
    const others = await page.$$eval(".others .option", (nodes) => nodes.map((node) => node.textContent));
    await page.click(".others .option");
    await page.waitForFunction((old) => document.querySelector("[data-output]")?.dataset.output !== old, before);
    return { before, others, output: await output(page), after: await page.$$eval(".others .option", (nodes) => nodes.map((node) => node.textContent)) };
  },

  /** A text of several requests' size, shown sentence by sentence. */
  async long_text() {
    const page = await fresh();
    await open(page, { from: "en", to: "de" });
    let requests = 0;
    page.on("request", (one) => one.url().endsWith("/stream") && ++requests);
    await page.fill("#text", long);
    await page.waitForSelector(".pane.target .word", { timeout: 60_000 });
    const early = (await output(page)).length;
    await page.waitForSelector(".pane.target [data-done=true]", { timeout: 300_000 });
    return { early, output: await output(page), requests, problem: await page.$(".problem") !== null };
  },

  async too_long() {
    const page = await fresh();
    await open(page, { from: "en", to: "de" });
    await page.fill("#text", "a ".repeat(50_001));
    await page.waitForSelector("[data-problem=too_long]");
    const message = await page.textContent("[data-problem]");
    await page.fill("#text", "It is raining.");
    await done(page);
    return { message, output: await output(page), gone: (await page.$("[data-problem]")) === null };
  },

  async files() {
    const page = await fresh();
    await open(page, { from: "en", to: "de" });
    const drop = async (name, content) => {
      const data = await page.evaluateHandle(([fileName, text]) => {
        const transfer = new DataTransfer();
        transfer.items.add(new File([text], fileName, { type: "text/plain" }));
        return transfer;
      }, [name, content]);
      await page.dispatchEvent("body", "dragover", { dataTransfer: data });
      const invited = await page.isVisible(".drop-area");
      await page.dispatchEvent("body", "drop", { dataTransfer: data });
      return invited;
    };
    const invited = await drop("notes.md", "# Weather\n\nIt is raining. `x = 1`\n");
    await page.waitForSelector(".documents [data-status=done]");
    const [download] = await Promise.all([page.waitForEvent("download"), page.click(".documents .download")]);
    const file = path.join(folder, "notes.md");
    await download.saveAs(file);
    await drop("picture.png", "no text");
    await page.waitForSelector(".documents [data-status=failed]");
    const refused = await page.textContent(".documents .failed");
    await page.setInputFiles("input[type=file]", { name: "a.txt", mimeType: "text/plain", buffer: Buffer.from("Good morning.") });
    await page.waitForFunction(() => document.querySelectorAll(".documents [data-status=done]").length === 2);
    for (let count = 3; count > 0; --count) await page.click(".documents li button");
    return { invited, name: download.suggestedFilename(), file, refused, empty: (await page.$(".documents")) === null };
  },

  async history() {
    const page = await fresh();
    await open(page, { from: "en", to: "de" });
    for (const text of ["It is raining.", COFFEE]) {
      await page.fill("#text", text);
      await done(page);
      await page.click(".copy");
      await page.waitForFunction((kept) => JSON.parse(localStorage.getItem("heedful.history") ?? "[]")[0]?.text === kept, text);
    }
    await page.waitForSelector(".copy:has-text('Copied')");
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    await page.fill("#text", "");
    await page.reload();
    await page.waitForSelector(".languages .to:enabled");
    await page.click(".open-history");
    const entries = () => page.$$eval(".history .entry > span:first-child", (nodes) => nodes.map((node) => node.textContent));
    const kept = await entries();
    await page.click(".history .entry >> nth=1");
    await done(page);
    const restored = { text: await page.inputValue("#text"), output: await output(page) };
    await page.click(".open-history");
    await page.click(".history li button >> nth=-1");
    const less = await entries();
    await page.uncheck(".history input");
    const off = await entries();
    await page.fill("#text", "Good morning.");
    await done(page);
    await page.click(".copy");
    const stored = await page.evaluate(() => JSON.stringify(localStorage));
    return { copied, kept, restored, less, off, leaks: stored.includes("Good morning") || stored.includes("raining") };
  },

  async key() {
    const page = await fresh({ expected: /status of 40[13]/ });
    await open(page, {}, keyed);
    await page.fill("#text", "It is raining.");
    await page.waitForSelector("[data-problem=key]");
    const missing = await page.textContent("[data-problem]");
    await page.fill("#key", "wrong");
    await page.click(".key-field button");
    await page.waitForFunction((old) => document.querySelector("[data-problem]")?.textContent !== old, missing);
    const wrong = await page.textContent("[data-problem]");
    await page.fill("#key", key);
    await page.click(".key-field button");
    await done(page);
    await page.reload();
    await done(page); // the text and the key are still there
    const stored = await page.evaluate(() => [JSON.stringify(localStorage), JSON.stringify(sessionStorage)]);
    await page.click(".open-code");
    const command = await page.getAttribute("[data-command]", "data-command");
    return { missing, wrong, to: (await languages(page))[1], output: await output(page), inLocal: stored[0].includes(key), inSession: stored[1].includes(key), command: command.includes(key) };
  },

  async language_and_theme() {
    const page = await fresh();
    await open(page, { text: COFFEE, to: "de", theme: "light" });
    const look = async () => ({ html: await page.getAttribute("html", "lang"), title: await page.textContent(".bar .subtitle"), background: await page.$eval("body", (node) => getComputedStyle(node).backgroundColor) });
    const english = await look();
    await page.click(".bar .language");
    await page.click(".bar .theme");
    const chinese = await look();
    await page.reload(); // the choices are kept
    await page.waitForSelector(".languages .to:enabled");
    const again = await look();
    const german = await fresh({ locale: "zh-CN" });
    await german.goto(address);
    await german.waitForSelector(".languages .to:enabled");
    return { english, chinese, again, accepted: { html: await german.getAttribute("html", "lang"), languages: await languages(german) } };
  },

  /** A link to the page, and the door to the page of `heedful see`. */
  async links() {
    const page = await fresh();
    await open(page, { text: GARDEN, from: "de", to: "en" });
    await page.click(".copy-link");
    await page.waitForSelector(".copy-link:has-text('Copied')");
    const link = await page.evaluate(() => navigator.clipboard.readText());
    const other = await fresh();
    await other.goto(link);
    await done(other);
    const opened = { text: await other.inputValue("#text"), languages: await languages(other), output: await output(other) };
    const [see] = await Promise.all([page.context().waitForEvent("page"), page.click(".pane.target .see-inside")]);
    await see.waitForSelector(".token.target", { timeout: 120_000 });
    const fields = new URLSearchParams(new URL(see.url()).hash.slice(1));
    return { link, opened, path: new URL(see.url()).pathname, text: fields.get("text"), to: fields.get("to"), seen: await see.getAttribute("[data-output]", "data-output"), output: await output(page) };
  },

  /** The page under another path, as behind a reverse proxy. */
  async below_a_path() {
    const page = await fresh();
    await page.route(`${address}mt/**`, (route) => route.continue({ url: route.request().url().replace("/mt/", "/") }));
    await open(page, { text: GARDEN, to: "en" }, `${address}mt/`);
    await page.setInputFiles("input[type=file]", { name: "a.txt", mimeType: "text/plain", buffer: Buffer.from("Guten Morgen.") });
    await page.waitForSelector(".documents [data-status=done]");
    return { output: await output(page), see: await page.$eval(".see-inside", (node) => new URL(node.href).pathname) };
  },

  async unnamed_languages() {
    const page = await fresh();
    await open(page, { text: "It is raining." }, unnamed);
    const see = new URLSearchParams(new URL(await page.$eval(".see-inside", (node) => node.href)).hash.slice(1));
    return { titles: await page.$$eval(".languages select", (nodes) => nodes.map((node) => node.selectedOptions[0].textContent)), output: await output(page), to: see.get("to"), model: see.get("model") };
  },

  async commands() {
    const page = await fresh();
    await open(page, { text: "It's raining.", from: "en", to: "de" });
    await page.click(".open-code");
    const found = {};
    for (const name of await page.$$eval(".code option", (nodes) => nodes.map((node) => node.value))) {
      await page.selectOption(".code select", name);
      found[name] = await page.getAttribute("[data-command]", "data-command");
    }
    return found;
  },

  async keyboard() {
    const page = await fresh();
    await open(page, { from: "en", to: "de" });
    await page.evaluate(() => document.activeElement?.blur());
    await page.keyboard.press("?");
    const dialog = await page.waitForSelector("dialog[open]").then(() => true);
    const sent = [];
    page.on("request", (one) => one.url().endsWith("/stream") && sent.push(one));
    await page.keyboard.press("Escape");
    await page.keyboard.press("/");
    const focused = await page.evaluate(() => document.activeElement.id);
    await page.fill("#text", "It is raining.");
    await page.keyboard.press("Control+Enter"); // in place of the request after the pause, not before it
    await done(page);
    await page.waitForTimeout(600);
    const requests = sent.length;
    await page.keyboard.press("Escape");
    const left = await page.evaluate(() => document.activeElement.id);
    await page.focus(".pane.target .word >> nth=0");
    await page.keyboard.press("ArrowRight");
    const second = await page.evaluate(() => document.activeElement.textContent);
    await page.keyboard.press("Enter");
    await page.waitForSelector(".alternatives[data-ready=true]");
    const inside = await page.evaluate(() => document.activeElement.closest(".alternatives") !== null);
    await page.keyboard.press("Escape");
    const back = await page.evaluate(() => document.activeElement.textContent);
    await page.keyboard.press("h");
    const history = await page.waitForSelector(".history").then(() => true);
    await page.keyboard.press("s");
    const swapped = await languages(page);
    return { dialog, focused, left, second, inside, back, history, swapped, requests };
  },

  /** The server is away or busy: the page says so and tries again by itself. */
  async problems() {
    const page = await fresh({ expected: /net::ERR_|status of 429/ });
    await open(page, { from: "en", to: "de" });
    await page.route("**/api/v1/stream", (route) => route.abort());
    await page.fill("#text", "It is raining.");
    await page.waitForSelector("[data-problem=offline]");
    const offline = await page.textContent("[data-problem]");
    await page.unroute("**/api/v1/stream");
    await done(page);
    const after = { output: await output(page), gone: (await page.$("[data-problem]")) === null };
    const busy = { status: 429, headers: { "Retry-After": "2" }, contentType: "application/json", body: '{"error": {"status": 429, "message": "busy"}}' };
    await page.route("**/api/v1/stream", (route) => route.fulfill(busy), { times: 1 });
    await page.fill("#text", "Good morning.");
    await page.waitForSelector("[data-problem=busy]");
    const message = await page.textContent("[data-problem]");
    await done(page);
    return { offline, after, busy: message, output: await output(page) };
  },

  async accessibility() {
    const page = await fresh({ bypassCSP: true }); // axe is added as a script
    const found = [];
    const check = async (name) => {
      await page.addScriptTag({ content: AXE });
      const { violations } = await page.evaluate(() => globalThis.axe.run(document));
      found.push(...violations.map(({ id, nodes }) => `${name}: ${id}: ${nodes[0].html.slice(0, 120)}`));
    };
    for (const theme of ["light", "dark"]) {
      await open(page, { text: `${GARDEN} Danach lasen sie ein Buch.`, to: "en", theme });
      await check(`${theme} translated`);
      await word(page, "children").click();
      await page.waitForSelector(".alternatives[data-ready=true]");
      await check(`${theme} alternatives`);
      await page.keyboard.press("Escape");
      await page.click(".copy");
      await page.click(".open-history");
      await check(`${theme} history`);
      await page.click(".open-code");
      await check(`${theme} code`);
      await page.click(".bar .help");
      await check(`${theme} keys`);
    }
    return found;
  },

  async phone() {
    const page = await fresh({ viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true });
    const found = [];
    const check = async (name) => {
      const width = await page.evaluate(() => document.documentElement.scrollWidth);
      if (width > 360) found.push(`${name}: ${width}`);
    };
    for (const language of ["en", "zh"]) {
      await open(page, { text: GARDEN, to: "en", language });
      await check(`${language} translated`);
      await word(page, "children").tap();
      await page.waitForSelector(".alternatives[data-ready=true]");
      await check(`${language} alternatives`);
      await page.tap(".alternatives .close");
      await page.tap(".copy");
      for (const panel of ["history", "code"]) {
        await page.tap(`.open-${panel}`);
        await check(`${language} ${panel}`);
      }
      const bar = await page.$eval(".bar", (node) => node.getBoundingClientRect().height);
      if (bar > 60) found.push(`${language} bar: ${bar}`);
    }
    return found;
  },
};

const results = {};
for (const name of request.scenarios) {
  try {
    results[name] = await scenarios[name]();
  } catch (error) {
    results[name] = { failed: String(error.stack ?? error) };
  }
}
await browser.close();
process.stdout.write(JSON.stringify({ results, errors, outside }));
