/**
 * Heedful's engine for web pages: translation and traces in a worker.
 *
 *     import { load } from "./engine.js";
 *     const model = await load("model/model.json");
 *     const [translation] = await model.translate("Good morning.", { targetLanguage: "de" });
 *
 * worker.js, engine.wasm and tokenizer.wasm lie beside engine.js.
 */

import type { Candidate, StepCandidates } from "./candidates.js";
import type { Hypothesis, Intervention, SearchOptions, Shape, SpecialTokens, Tensor, Trace } from "./engine.js";
import type {
  Architecture, BeamNode, BeamTree, BeamTreeOptions, LoadOptions, Manifest, Side, TextTrace, TraceOptions, TranslateOptions, Translation, WeightFile,
} from "./model.js";

export type {
  Architecture, BeamNode, BeamTree, BeamTreeOptions, Candidate, Hypothesis, Intervention, LoadOptions, Manifest, SearchOptions, Shape, Side,
  SpecialTokens, StepCandidates, Tensor, TextTrace, Trace, TraceOptions, TranslateOptions, Translation, WeightFile,
};

type Request =
  | { method: "load"; url: string; binaries: string; weights: WeightFile | undefined; relaxed: boolean; threads: number | undefined }
  | { method: "translate"; text: string; options: TranslateOptions }
  | { method: "beamTree"; text: string; options: BeamTreeOptions }
  | { method: "trace"; text: string; options: TraceOptions }
  | { method: "pieces"; ids: number[]; side: Side }
  | { method: "sourceIds"; text: string; targetLanguage: string | undefined }
  | { method: "encodeTarget"; text: string };

export type Call = Request & { id: number };
export type Answer = { id: number } & ({ result: unknown } | { error: string } | { progress: [number, number] });

interface Waiting {
  resolve(result: unknown): void;
  reject(error: Error): void;
  onProgress: LoadOptions["onProgress"];
}

/** A model in a worker. Calls are answered in their order. */
export class RemoteModel {
  private readonly waiting = new Map<number, Waiting>();
  private nextId = 0;
  manifest!: Manifest;
  shape!: Shape;
  /** Whether the engine uses relaxed SIMD, which changes only the speed. */
  isRelaxed!: boolean;
  numThreads!: number;

  private constructor(private readonly worker: Worker) {
    worker.addEventListener("message", (event: MessageEvent<Answer>) => this.receive(event.data));
    worker.addEventListener("error", (event) => this.fail(new Error(event.message || "the worker could not be started")));
  }

  /** Start a worker and load the model at the address of its model.json. */
  static async load(url: string | URL, { onProgress, weights, relaxed = true, threads }: LoadOptions = {}): Promise<RemoteModel> {
    const here = new URL(".", import.meta.url);
    const remote = new RemoteModel(new Worker(new URL("worker.js", here), { type: "module" }));
    const address = new URL(url, document.baseURI).href;
    try {
      const found = await remote.call({ method: "load", url: address, binaries: here.href, weights, relaxed, threads }, onProgress);
      Object.assign(remote, found as Pick<RemoteModel, "manifest" | "shape" | "isRelaxed" | "numThreads">);
      return remote;
    } catch (error) {
      remote.close();
      throw error;
    }
  }

  /** Translate a text that the model reads at once; the best translations, best first. */
  translate(text: string, options: TranslateOptions = {}): Promise<Translation[]> {
    return this.call({ method: "translate", text, options }) as Promise<Translation[]>;
  }

  /** Translate a text and return every continuation that the search considered. */
  beamTree(text: string, options: BeamTreeOptions = {}): Promise<BeamTree> {
    return this.call({ method: "beamTree", text, options }) as Promise<BeamTree>;
  }

  /** Trace the translation of a text: every intermediate result, in float32. */
  trace(text: string, options: TraceOptions = {}): Promise<TextTrace> {
    return this.call({ method: "trace", text, options }) as Promise<TextTrace>;
  }

  /** The readable pieces of ids of one side. */
  pieces(ids: number[], side: Side): Promise<string[]> {
    return this.call({ method: "pieces", ids, side }) as Promise<string[]>;
  }

  /** The readable pieces of target ids. */
  targetPieces(ids: number[]): Promise<string[]> {
    return this.pieces(ids, "target");
  }

  /** The source ids of a text: the language tag, if the model has tags, the subwords, and the end token. */
  sourceIds(text: string, targetLanguage?: string): Promise<number[]> {
    return this.call({ method: "sourceIds", text, targetLanguage }) as Promise<number[]>;
  }

  /** The target ids of the beginning of a text. */
  encodeTarget(text: string): Promise<number[]> {
    return this.call({ method: "encodeTarget", text }) as Promise<number[]>;
  }

  /** End the worker; calls in progress fail. */
  close(): void {
    this.worker.terminate();
    this.fail(new Error("the model was closed"));
  }

  private call(request: Request, onProgress?: LoadOptions["onProgress"]): Promise<unknown> {
    const id = this.nextId++;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject, onProgress });
      this.worker.postMessage({ ...request, id });
    });
  }

  private receive(answer: Answer): void {
    const waiting = this.waiting.get(answer.id);
    if (waiting === undefined) return;
    if ("progress" in answer) {
      waiting.onProgress?.(...answer.progress);
      return;
    }
    this.waiting.delete(answer.id);
    if ("error" in answer) waiting.reject(new Error(answer.error));
    else waiting.resolve(answer.result);
  }

  private fail(error: Error): void {
    for (const { reject } of this.waiting.values()) reject(error);
    this.waiting.clear();
  }
}

/** Start a worker and load the model at the address of its model.json. */
export function load(url: string | URL, options: LoadOptions = {}): Promise<RemoteModel> {
  return RemoteModel.load(url, options);
}
