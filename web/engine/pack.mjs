// Fills dist/ for `npm pack`: the built files of heedful/web and the type declarations.

import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const [dist, built] = [join(here, "dist"), join(here, "..", "..", "heedful", "web")];
rmSync(dist, { recursive: true, force: true });
mkdirSync(dist);
for (const name of ["engine.js", "worker.js", "engine.wasm", "engine_threads.wasm", "tokenizer.wasm"]) copyFileSync(join(built, name), join(dist, name));
execFileSync(join(here, "..", "node_modules", ".bin", "tsc"), ["-p", here]);
