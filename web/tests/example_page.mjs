// Opens the example page in Chromium, translates, reloads, and reports what happened. Arguments: address, browser.

import { chromium } from "playwright-core";

const [address, executablePath] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const page = await browser.newPage();
const errors = [];
const outside = [];
page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
page.on("pageerror", (error) => errors.push(String(error)));
page.on("request", (request) => !request.url().startsWith(address) && outside.push(request.url()));

async function translate(language, text) {
  await page.fill("textarea", text);
  await page.selectOption("select", language);
  await page.evaluate(() => (document.querySelector("output").value = ""));
  await page.click("button");
  await page.waitForFunction(() => document.querySelector("output").value !== "", null, { timeout: 60_000 });
  return page.inputValue("output").catch(() => page.textContent("output"));
}

const translations = {};
let empty = "";
for (const language of ["de", "zh"]) {
  await page.goto(address); // the second time, files come from the cache
  await page.waitForSelector("button:not([disabled])", { timeout: 120_000 });
  translations[language] = await translate(language, "Where is the train station?");
  empty = await page.textContent("body");
}
await browser.close();
process.stdout.write(JSON.stringify({ translations, errors, outside: outside.filter((url) => !url.startsWith("data:")), empty }));
