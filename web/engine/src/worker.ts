/** The worker: runs the model, so that the page never waits. Messages are defined in index.ts. */

import { Model } from "./model.js";
import { help, type HelperTask } from "./threads.js";
import type { Answer, Call } from "./index.js";

let model: Model | undefined;

async function run(call: Call): Promise<unknown> {
  if (call.method === "load") {
    const onProgress = (received: number, total: number): void => post({ id: call.id, progress: [received, total] });
    const weights = call.weights === undefined ? {} : { weights: call.weights };
    const threads = call.threads === undefined ? {} : { threads: call.threads };
    model = await Model.load(new URL(call.url), new URL(call.binaries), { onProgress, relaxed: call.relaxed, ...threads, ...weights });
    const { shape, isRelaxed, numThreads } = model.engine;
    return { manifest: model.manifest, shape, isRelaxed, numThreads };
  }
  if (model === undefined) throw new Error("no model is loaded");
  switch (call.method) {
    case "translate":
      return model.translate(call.text, call.options);
    case "beamTree":
      return model.beamTree(call.text, call.options);
    case "trace":
      return model.trace(call.text, call.options);
    case "pieces":
      return model.pieces(call.ids, call.side);
    case "sourceIds":
      return model.encodeSource(call.text, call.targetLanguage);
    case "encodeTarget":
      return model.encodeTarget(call.text);
  }
}

function post(answer: Answer, transfer: Transferable[] = []): void {
  (self as unknown as Worker).postMessage(answer, transfer);
}

let queue = Promise.resolve();
self.addEventListener("message", (event: MessageEvent<Call | { helper: HelperTask }>) => {
  const call = event.data;
  if ("helper" in call) return help(call.helper);
  queue = queue.then(() =>
    run(call).then(
      (result) => post({ id: call.id, result }, call.method === "trace" ? buffersOf(result) : []),
      (error: unknown) => post({ id: call.id, error: error instanceof Error ? error.message : String(error) }),
    ),
  );
});

/** The memory of a trace's tensors, which is handed over instead of copied. */
function buffersOf(result: unknown): Transferable[] {
  const { tensors } = result as { tensors: Map<string, { values: Float32Array }> };
  return Array.from(tensors.values(), ({ values }) => values.buffer as ArrayBuffer);
}
