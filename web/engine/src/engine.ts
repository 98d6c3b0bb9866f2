/** The native engine, compiled to WebAssembly: translation and traces of token ids. One sentence at a time, on the calling thread. */

import { Memory, sharedMemory, type Exports } from "./memory.js";
import { useRelaxedDot } from "./relaxed.js";
import { startHelpers } from "./threads.js";

/** The hyperparameters in the header of a weight file (heedful/native/src/weight_file.h). */
export interface Shape {
  d_model: number;
  d_ff: number;
  num_heads: number;
  head_dim: number;
  num_encoder_layers: number;
  num_decoder_layers: number;
  source_vocab_size: number;
  target_vocab_size: number;
  max_length: number;
  norm_before: boolean;
  only_scale: boolean;
  has_final_norm: boolean;
  rotary: boolean;
  activation: "relu" | "gelu" | "swiglu";
  int8: boolean;
  tied_embedding: boolean;
}

/** Target ids that the search treats specially. */
export interface SpecialTokens {
  bos_id: number;
  eos_id: number;
  /** Ids that no translation contains, ascending. */
  forbidden: number[];
  /** The ids of the 256 byte tokens; empty if the vocabulary has none. */
  byte_ids: number[];
}

export interface SearchOptions {
  /** 1 is greedy search. */
  beam_size?: number;
  num_best?: number;
  length_penalty?: "none" | "paper" | "average";
  length_penalty_alpha?: number;
  /** Maximum number of target tokens without the end token. */
  max_length: number;
  /** Minimum number of target tokens without the end token. */
  min_length?: number;
  /** No n-gram of this size occurs twice; 0: no limit. */
  no_repeat_ngram_size?: number;
  /** Target ids that the translation begins with. */
  prefix?: number[];
}

export interface Hypothesis {
  /** Target ids; the end token is last if the model ended the translation. */
  tokens: number[];
  log_probs: number[];
  log_prob: number;
  /** `log_prob` divided by the length penalty. */
  score: number;
}

/** A token that may continue a hypothesis. */
export interface SearchNode {
  /** The node that it continues; -1: the start of the sentence. */
  parent: number;
  /** The number of tokens before it. */
  step: number;
  token: number;
  /** Of the token, given those before it. */
  log_prob: number;
  /** The sum of the log-probabilities up to this token. */
  total: number;
  /** kept: the hypothesis stayed in the beam. finished: its end token was among the best `beam_size` continuations. pruned: it was dropped. */
  state: "kept" | "finished" | "pruned";
  /** Of a finished hypothesis: `total` divided by the length penalty of its `step + 1` tokens. */
  score: number | null;
}

export interface SearchTree {
  /** The best `2 * beam_size` continuations of each step, best first. */
  nodes: SearchNode[];
  /** The nodes of the end tokens of the best hypotheses, best first. */
  best: number[];
  hypotheses: Hypothesis[];
}

/** A change to a traced pass; `Intervention` in heedful/inspection/trace.py has the meaning of each kind. */
export interface Intervention {
  kind: "remove" | "uniform" | "set_weight" | "unscaled" | "no_positions";
  stack: "encoder" | "decoder";
  sublayer?: "self_attention" | "cross_attention" | "feed_forward";
  layer?: number;
  head?: number;
  query?: number;
  key?: number;
  value?: number;
}

export interface Tensor {
  shape: number[];
  values: Float32Array;
}

export interface TraceRequest {
  /** Number of target tokens up to which the most probable tokens are appended; 0: none. */
  max_length?: number;
  /** Patterns of tensor names, in which * stands for any text. */
  wanted?: string[];
  interventions?: Intervention[];
  /** Names of tensors that `visit` gets, in the engine's memory; without `wanted` they are not copied. */
  visited?: string[];
  visit?: (name: string, tensor: Tensor, target: number[]) => void;
}

export interface Trace {
  /** The decoder's input: the start token, then the translation without the end token. */
  target: number[];
  /** The tensors by name; heedful/inspection/trace.py lists the names and shapes. */
  tensors: Map<string, Tensor>;
}

const INTERFACE_VERSION = 16;
const PENALTIES = ["none", "paper", "average"];
const KINDS = ["remove", "uniform", "set_weight", "unscaled", "no_positions"];
const SUBLAYERS = ["self_attention", "cross_attention", "feed_forward"];
const STATES = ["kept", "finished", "pruned"] as const;
const NODE_SIZE = 32;
const ACTIVATIONS = ["", "relu", "gelu", "swiglu"] as const;
const SHAPE_OFFSET = 96;
/** Memory that an instance keeps for later calls, in bytes; an instance cannot give memory back. */
const LARGEST_KEPT = 2 ** 29;

/** Read the shape of a weight file without validation, which `Engine.open` does. */
export function readShape(weights: ArrayBuffer): Shape {
  const header = new Uint8Array(64);
  header.set(new Uint8Array(weights.slice(SHAPE_OFFSET, SHAPE_OFFSET + 64)));
  const numbers = new Int32Array(header.buffer);
  const at = (index: number): number => numbers[index] ?? 0;
  return {
    d_model: at(0),
    d_ff: at(1),
    num_heads: at(2),
    head_dim: at(3),
    num_encoder_layers: at(4),
    num_decoder_layers: at(5),
    source_vocab_size: at(6),
    target_vocab_size: at(7),
    max_length: at(8),
    norm_before: at(9) === 1,
    only_scale: at(10) === 1,
    has_final_norm: at(11) === 1,
    rotary: at(12) === 1,
    activation: ACTIVATIONS[at(13)] || "relu",
    int8: at(14) === 1,
    tied_embedding: at(15) === 1,
  };
}

export class Engine {
  private memory!: Memory;
  private handle = 0;
  private helpers: Worker[] = [];
  /** Whether products use relaxed SIMD, which changes only the speed. */
  isRelaxed = false;

  private constructor(
    private readonly module: WebAssembly.Module,
    private readonly weights: ArrayBuffer,
    readonly shape: Shape,
    private readonly mayRelax: boolean,
    readonly numThreads: number,
  ) {}

  /**
   * Open a weight file. `module` is engine.wasm, compiled, or with several `threads` engine_threads.wasm, in a worker.
   * `relaxed: false` avoids relaxed SIMD. Neither changes the results.
   */
  static open(module: WebAssembly.Module, weights: ArrayBuffer, { relaxed = true, threads = 1 } = {}): Engine {
    const engine = new Engine(module, weights, readShape(weights), relaxed, threads);
    engine.start();
    return engine;
  }

  /** Translate one sentence; the best hypotheses, best first. */
  translate(source: number[], special: SpecialTokens, options: SearchOptions): Hypothesis[] {
    return this.call((memory, exports) => {
      const { sentences, results, read } = this.search(memory, source, options);
      exports.heedful_translate(this.handle, this.settings(memory, special, options), sentences, results, 0, 0n);
      return read();
    });
  }

  /** Translate one sentence, and record the continuations that the search considers. */
  beamTree(source: number[], special: SpecialTokens, options: SearchOptions): SearchTree {
    return this.call((memory, exports) => {
      const { sentences, results, read } = this.search(memory, source, options);
      const tree = exports.heedful_translate_tree(this.handle, this.settings(memory, special, options), sentences, results, 0, 0n);
      try {
        const pointer = memory.allocate(8);
        const count = Number(exports.heedful_tree_nodes(tree, pointer));
        const first = memory.readPointer(pointer);
        const ranked: number[] = [];
        const nodes = Array.from({ length: count }, (_, index): SearchNode => {
          const at = first + NODE_SIZE * index;
          const [parent = -1, step = 0, token = 0, state = 0, rank = -1] = memory.readInt32s(at, 5);
          const [log_prob = 0, total = 0, score = 0] = memory.readFloats(at + 20, 3);
          if (rank >= 0) ranked[rank] = index;
          const name = STATES[state] ?? "pruned";
          return { parent, step, token, log_prob, total, state: name, score: name === "finished" ? score : null };
        });
        return { nodes, best: ranked, hypotheses: read() };
      } finally {
        exports.heedful_tree_free(tree);
      }
    });
  }

  /** A sentence, memory for its translations, and how they are read. */
  private search(memory: Memory, source: number[], options: SearchOptions): { sentences: number; results: number; read: () => Hypothesis[] } {
    const { max_length, prefix = [], num_best = 1 } = options;
    const capacity = max_length + 1;
    const sentences = memory.struct([
      ["int32", 1], ["int32", 0],
      ["pointer", memory.int32s(source)], ["pointer", memory.int64s([0, source.length])],
      ["pointer", memory.int32s(prefix)], ["pointer", memory.int64s([0, prefix.length])],
      ["pointer", memory.int32s([max_length])],
      ["pointer", memory.int32s([])], ["pointer", memory.int64s([0, 0])], ["pointer", 0],
    ]);
    const tokens = memory.allocate(4 * capacity * num_best);
    const logProbs = memory.allocate(4 * capacity * num_best);
    const lengths = memory.allocate(4 * num_best);
    const results = memory.struct([
      ["pointer", memory.int64s([0])], ["pointer", tokens], ["pointer", logProbs], ["pointer", lengths], ["pointer", 0], ["pointer", 0],
    ]);
    const read = (): Hypothesis[] => {
      const found: Hypothesis[] = [];
      for (const [index, length] of memory.readInt32s(lengths, num_best).entries()) {
        if (length === 0) continue;
        const ids = memory.readInt32s(tokens + 4 * capacity * index, length);
        const log_probs = Array.from(memory.readFloats(logProbs + 4 * capacity * index, length));
        const log_prob = log_probs.reduce((sum, one) => sum + one, 0);
        found.push({ tokens: ids, log_probs, log_prob, score: log_prob / lengthPenalty(length, options) });
      }
      return found;
    };
    return { sentences, results, read };
  }

  /** Run a sentence pair through the model in float32. `target` begins with the start token. */
  trace(source: number[], target: number[], special: SpecialTokens, given: TraceRequest = {}): Trace {
    const { max_length = 0, wanted = ["*"], interventions = [], visited = [] } = given;
    return this.call((memory, exports) => {
      const changes = memory.structs(interventions.map((one) => [
        ["int32", KINDS.indexOf(one.kind) + 1],
        ["int32", one.stack === "encoder" ? 0 : 1],
        ["int32", one.sublayer === undefined ? -1 : SUBLAYERS.indexOf(one.sublayer)],
        ["int32", one.layer ?? -1], ["int32", one.head ?? -1], ["int32", one.query ?? 0], ["int32", one.key ?? 0],
        ["float", one.value ?? 0],
      ]));
      const request = memory.struct([
        ["pointer", memory.int32s(source)], ["int64", source.length],
        ["pointer", memory.int32s(target)], ["int64", target.length], ["int64", max_length],
        ["pointer", memory.text([...wanted, ...visited].join("\n"))], ["pointer", changes],
        ["int32", interventions.length], ["int32", 0],
      ]);
      const trace = exports.heedful_trace(this.handle, this.settings(memory, special, { max_length }), request, 0, 0n);
      try {
        return this.readTrace(memory, exports, trace, { ...given, wanted });
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        throw new Error("there is not enough memory for the tensors of this trace; name those that are needed (wanted)");
      } finally {
        exports.heedful_trace_free(trace);
      }
    });
  }

  private readTrace(memory: Memory, exports: Exports, trace: number, { wanted = [], visited = [], visit }: TraceRequest): Trace {
    const pointer = memory.allocate(8);
    const length = Number(exports.heedful_trace_target(trace, pointer));
    const target = memory.readInt32s(memory.readPointer(pointer), length);
    const tensors = new Map<string, Tensor>();
    const tensor = memory.allocate(48);
    for (let index = 0; index < Number(exports.heedful_trace_count(trace)); ++index) {
      exports.heedful_trace_tensor(trace, BigInt(index), tensor);
      const name = memory.readText(memory.readPointer(tensor));
      const shape = memory.readInt64s(tensor + 8, 3).slice(0, memory.readInt32s(tensor + 32, 1)[0]);
      const size = shape.reduce((product, one) => product * one, 1);
      const values = memory.viewFloats(memory.readPointer(tensor + 4), size);
      if (visited.includes(name)) visit?.(name, { shape, values }, target);
      if (!visited.includes(name) || wanted.some((pattern) => matches(pattern, name))) tensors.set(name, { shape, values: values.slice() });
    }
    return { target, tensors };
  }

  private settings(memory: Memory, special: SpecialTokens, options: SearchOptions): number {
    return memory.struct([
      ["int32", options.beam_size ?? 1], ["int32", options.num_best ?? 1],
      ["int32", PENALTIES.indexOf(options.length_penalty ?? "paper")],
      ["int32", options.min_length ?? 0], ["int32", options.no_repeat_ngram_size ?? 0],
      ["int32", special.bos_id], ["int32", special.eos_id], ["int32", special.forbidden.length],
      ["double", options.length_penalty_alpha ?? 0.6],
      ["pointer", memory.int32s(special.forbidden)], ["int32", 0], ["int32", 0],
      ["pointer", special.byte_ids.length ? memory.int32s(special.byte_ids) : 0],
    ]);
  }

  /** Call the engine; what `work` allocates is freed. After an error, or a call that needed much memory, the engine is opened again. */
  private call<Result>(work: (memory: Memory, exports: Exports) => Result): Result {
    const memory = this.memory;
    try {
      const result = work(memory, memory.exports);
      if (memory.size > LARGEST_KEPT) this.start();
      else memory.free();
      return result;
    } catch (error) {
      this.start();
      throw error;
    }
  }

  private start(): void {
    for (const helper of this.helpers) helper.terminate();
    this.memory = Memory.instantiate(this.module, this.numThreads > 1 ? sharedMemory() : undefined);
    const { exports } = this.memory;
    if (exports.heedful_interface_version() !== INTERFACE_VERSION) throw new Error("engine.wasm belongs to another version");
    this.isRelaxed = this.mayRelax && useRelaxedDot(exports);
    this.handle = exports.heedful_open_memory(this.memory.bytes(new Uint8Array(this.weights)), BigInt(this.weights.byteLength), this.numThreads, 0, 0, 0n);
    this.memory.free();
    if (this.numThreads === 1) return;
    this.helpers = startHelpers(this.module, exports, exports.heedful_pool(this.handle), this.numThreads - 1, this.isRelaxed);
  }
}

/** Whether a name matches a pattern, in which * stands for any text. */
function matches(pattern: string, name: string): boolean {
  const parts = pattern.split("*").map((part) => part.replace(/[^\w]/g, "\\$&"));
  return new RegExp(`^${parts.join(".*")}$`).test(name);
}

/** The divisor of a log-probability, as in heedful/search_types.py. */
export function lengthPenalty(length: number, { length_penalty = "paper", length_penalty_alpha = 0.6 }: Partial<SearchOptions>): number {
  if (length_penalty === "paper") return ((length + 5) / 6) ** length_penalty_alpha;
  return length_penalty === "average" ? length ** length_penalty_alpha : 1;
}
