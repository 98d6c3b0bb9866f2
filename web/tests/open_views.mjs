// Chromium with one page, for scripts that open views of the page of `heedful see` and read the numbers that they show.

import { chromium } from "playwright-core";

/** `request`: {address, executablePath, sentence, to}; `computing`: what the views show while they compute. */
export async function openViews({ address, executablePath, sentence, to }, computing) {
  const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
  const browser = await chromium.launch({ executablePath, args });
  const page = await browser.newPage({ viewport: { width: 1440, height: 1000 }, reducedMotion: "reduce", locale: "en-US" });
  const errors = [];
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && errors.push(message.text()));
  page.on("pageerror", (error) => errors.push(String(error)));

  async function computed() {
    await page.waitForFunction((selector) => !document.querySelector(selector), computing, { timeout: 120_000 });
    await page.waitForTimeout(150);
  }

  async function open(state) {
    await page.goto("about:blank");
    await page.goto(`${address}#${new URLSearchParams({ text: sentence, to, language: "en", ...state })}`);
    await page.waitForSelector(".token.target", { timeout: 120_000 });
    await computed();
  }

  const data = (selector) => page.$eval(selector, ({ dataset }) => ({ ...dataset }));
  const all = (selector) => page.$$eval(selector, (nodes) => nodes.map(({ dataset }) => ({ ...dataset })));
  const field = (name) => page.evaluate((key) => new URLSearchParams(location.hash.slice(1)).get(key), name);
  return { browser, page, errors, open, computed, data, all, field };
}
