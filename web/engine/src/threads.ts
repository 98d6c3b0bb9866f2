/** Helpers of an engine: workers that share its memory and compute with it. */

import { instantiate, type Exports } from "./memory.js";
import { knowRelaxedDot } from "./relaxed.js";

const MAX_THREADS = 4;
const STACK_SIZE = 2 ** 20;

/** What a helper needs. */
export interface HelperTask {
  module: WebAssembly.Module;
  memory: WebAssembly.Memory;
  pool: number;
  thread: number;
  stackEnd: number;
  threadLocals: number;
  isRelaxed: boolean;
}

/** The number of threads that this page may use: one per core, at most four, in pages that are isolated from other origins. */
export function usableThreads(): number {
  if (!globalThis.crossOriginIsolated || !("Worker" in globalThis)) return 1;
  return Math.max(1, Math.min(navigator.hardwareConcurrency, MAX_THREADS));
}

/** Start the helpers of an engine, from the script of this worker. */
export function startHelpers(module: WebAssembly.Module, exports: Exports, pool: number, count: number, isRelaxed: boolean): Worker[] {
  return Array.from({ length: count }, (_, index) => {
    const allocate = (size: number): number => {
      const pointer = exports.malloc(size + 64);
      if (pointer === 0) throw new Error("there is not enough memory for the engine's threads");
      return Math.ceil(pointer / 64) * 64;
    };
    const task: HelperTask = {
      module,
      memory: exports.memory,
      pool,
      thread: index + 1,
      stackEnd: allocate(STACK_SIZE) + STACK_SIZE,
      threadLocals: allocate(exports.__tls_size.value),
      isRelaxed,
    };
    const worker = new Worker(self.location.href, { type: "module" });
    worker.postMessage({ helper: task });
    return worker;
  });
}

/** In a helper: work until the worker is terminated. */
export function help({ module, memory, pool, thread, stackEnd, threadLocals, isRelaxed }: HelperTask): void {
  const exports = instantiate(module, memory);
  exports.__stack_pointer.value = stackEnd;
  exports.__wasm_init_tls(threadLocals);
  if (isRelaxed) knowRelaxedDot(exports);
  try {
    exports.heedful_help(pool, thread);
  } catch (error) {
    exports.heedful_help_failed(pool);
    throw error;
  }
}
