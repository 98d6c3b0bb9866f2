// Takes screenshots of the page. Standard input: {executablePath, shots: [{url, file, width, height, fullPage?, ready?, click?, clicked?}, …]}.
// `ready`: what the page shows when it is ready. `click`: a selector to click then, and `clicked` what that shows.

import { readFileSync } from "node:fs";

import { chromium } from "playwright-core";

const { executablePath, shots } = JSON.parse(readFileSync(0, "utf8"));
const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const browser = await chromium.launch({ executablePath, args });
const context = await browser.newContext({ reducedMotion: "reduce", deviceScaleFactor: 1 });
const page = await context.newPage();
for (const { url, file, width, height, fullPage = false, ready = ".token.target", click, clicked } of shots) {
  await page.setViewportSize({ width, height });
  await page.goto("about:blank");
  await page.goto(url);
  await page.waitForSelector(ready, { timeout: 120_000 });
  await page.waitForFunction(() => !document.querySelector(".computing, [role=status] progress"), null, { timeout: 120_000 });
  if (click) {
    await page.click(click);
    await page.waitForSelector(clicked);
  }
  await page.waitForTimeout(1200); // the pictures of matrices follow their numbers
  await page.screenshot({ path: file, fullPage });
}
await browser.close();
