// Opens the page of a running `heedful see` in Chromium, alone and in the frame of another page, and reports what it shows.
// Standard input: {addresses, frames, known, executablePath}; requests to other servers than those are outside. Output: {shown, framed, errors, outside, isolated}.

import { readFileSync } from "node:fs";

import { chromium } from "playwright-core";

const { addresses, frames, known, executablePath } = JSON.parse(readFileSync(0, "utf8"));
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"] });
const context = await browser.newContext();
const errors = [];
const outside = [];
const hosts = new Set([...addresses, ...frames, ...known].map((address) => new URL(address).host));
context.on("console", (message) => ["error", "warning"].includes(message.type()) && errors.push(message.text()));
context.on("weberror", (error) => errors.push(String(error.error())));
context.on("request", (sent) => {
  const url = new URL(sent.url());
  if (!["data:", "blob:"].includes(url.protocol) && !hosts.has(url.host)) outside.push(url.href);
});
const page = await context.newPage();

async function output(frame) {
  await frame.locator("[data-output]:not([data-output=''])").first().waitFor({ state: "attached", timeout: 120_000 });
  return frame.locator("[data-output]").first().getAttribute("data-output");
}

const shown = [];
for (const address of addresses) {
  await page.goto("about:blank");
  await page.goto(address);
  shown.push(await output(page));
}
const isolated = await page.evaluate(() => crossOriginIsolated);
const before = errors.length;
const framed = [];
for (const address of frames) {
  const refused = page.waitForEvent("console", { predicate: (message) => message.text().includes("frame-ancestors"), timeout: 120_000 });
  await page.goto(address);
  framed.push(await Promise.any([output(page.frameLocator("iframe")), refused.then(() => null)]));
}
await browser.close();
process.stdout.write(JSON.stringify({ shown, framed, errors: errors.slice(0, before), outside, isolated }));
