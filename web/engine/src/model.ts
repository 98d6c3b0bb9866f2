/** A model as `heedful see --site` writes it: the engine, the tokenizer and what is known of the languages. */

import { bestCandidates, rows, stepCandidates, type Candidate, type StepCandidates } from "./candidates.js";
import { Engine, type Hypothesis, type Intervention, type SearchNode, type SearchOptions, type SpecialTokens, type Tensor } from "./engine.js";
import { usableThreads } from "./threads.js";
import { Pieces } from "./tokenizer.js";

interface File {
  bytes: number;
  sha256: string;
}

/** The options of a model, and the number of parameters of each part; `describe_architecture` in heedful/interop/web.py. */
export interface Architecture {
  architecture: "transformer" | "recurrent" | "convolutional";
  d_model: number;
  d_ff: number;
  num_heads: number;
  num_encoder_layers: number;
  num_decoder_layers: number;
  norm_placement: "pre" | "post";
  norm: "layer" | "rms" | "batch";
  norm_epsilon: number;
  positions: "sinusoidal" | "learned" | "rotary";
  activation: "relu" | "gelu" | "swiglu";
  attention_scoring: "scaled_dot" | "dot" | "additive";
  self_attention: "global" | "local" | "hard";
  cross_attention: "global" | "local_monotonic" | "local_predictive" | "hard";
  attention_window: number;
  tying: "three_way" | "target" | "none";
  bias: boolean;
  cell: "gru" | "lstm";
  kernel_size: number;
  source_vocab_size: number;
  target_vocab_size: number;
  max_length: number;
  head_dim: number;
  key_dim: number;
  final_norm: boolean;
  num_parameters: number;
  parameters: Record<string, number>;
}

/** model.json, which lies beside the files that it names. */
export interface Manifest {
  format_version: 1;
  name: string;
  title: string;
  /** Language pairs; null where a language is not known. */
  directions: { source: string | null; target: string | null }[];
  /** The names of the languages in English and in Chinese, by code. */
  languages: Record<string, { en?: string; zh?: string }>;
  /** Target languages that a tag before the source selects; empty in a model with one. */
  tags: string[];
  /** The source id of each tag. */
  tag_ids: number[];
  special: SpecialTokens;
  decoding: {
    beam_size: number;
    length_penalty: "none" | "paper" | "average";
    length_penalty_alpha: number;
    min_length: number;
    no_repeat_ngram_size: number;
    /** Null: `max_extra_length` more than the source. */
    max_length: number | null;
    max_extra_length: number;
  };
  /** The cross-attention that alignments are read from; a null head stands for the mean over all heads of the layer. */
  alignment: { layer: number; offset: number; head: number | null };
  model: Architecture;
  weights: string;
  /** One tokenizer, or one for each side. */
  tokenizers: string[];
  files: Record<string, File>;
}

/** A weight file beside model.json, with its size and checksum. */
export interface WeightFile extends File {
  path: string;
}

export interface LoadOptions {
  /** Weights of the same model at another time, such as a checkpoint of its training. */
  weights?: WeightFile;
  /** Called with the numbers of bytes that were received and that are expected. */
  onProgress?: (received: number, total: number) => void;
  /** Whether to use relaxed SIMD where the browser has it; it changes only the speed. Default: true. */
  relaxed?: boolean;
  /** Number of threads; more than one needs a page that is isolated from other origins. Default there: one per core, at most four. */
  threads?: number;
}

export interface TranslateOptions {
  /** Required in a model with several target languages. */
  targetLanguage?: string;
  /** 1 is greedy search; default: the model's setting. */
  beamSize?: number;
  numBest?: number;
  /** What the translation begins with, as target ids. */
  prefix?: number[];
}

export interface Translation extends Hypothesis {
  text: string;
}

export interface BeamTreeOptions extends TranslateOptions {
  /** The source ids to read instead of the text: with the language tag, if the model has tags, and the end token. */
  source?: number[];
}

export interface BeamNode extends SearchNode {
  piece: string;
}

/** The tree of a search. */
export interface BeamTree {
  source: number[];
  sourcePieces: string[];
  /** The best `2 * beam_size` continuations of each step, best first; parents come before their children. */
  nodes: BeamNode[];
  /** The nodes of the end tokens of the best translations, best first. */
  best: number[];
  translations: Translation[];
  beam_size: number;
  length_penalty: "none" | "paper" | "average";
  length_penalty_alpha: number;
}

export type Side = "source" | "target";

export interface TraceOptions {
  targetLanguage?: string;
  /** The source ids to read instead of the text: with the language tag, if the model has tags, and the end token. */
  source?: number[];
  /** The target ids to explain, without start and end token. */
  target?: number[];
  /** Without `target`: what the translation begins with, as target ids. */
  prefix?: number[];
  /** Patterns of tensor names, in which * stands for any text; default: all. */
  wanted?: string[];
  interventions?: Intervention[];
  /** The number of candidates for each next token; default: the result has no candidates. */
  candidates?: number;
}

export interface TextTrace {
  text: string;
  /** What the encoder and the decoder read. */
  source: number[];
  target: number[];
  sourcePieces: string[];
  targetPieces: string[];
  tensors: Map<string, Tensor>;
  /** With the option `candidates`: the most probable tokens after each target token. */
  candidates?: StepCandidates[];
  /** With the option `candidates`: the three most probable tokens by each decoder layer's own logits, as [layer][target token]. */
  layerCandidates?: Candidate[][][];
}

const NUM_LAYER_CANDIDATES = 3;

export class Model {
  private constructor(
    readonly manifest: Manifest,
    readonly engine: Engine,
    private readonly sourceTokenizer: Pieces,
    private readonly targetTokenizer: Pieces,
  ) {}

  /** Load the model at the address of its model.json, with engine.wasm and tokenizer.wasm from the folder `binaries`. */
  static async load(url: URL, binaries: URL, { onProgress, weights: given, relaxed = true, threads = usableThreads() }: LoadOptions = {}): Promise<Model> {
    const manifest = JSON.parse(new TextDecoder().decode(await fetchBytes(url))) as Manifest;
    if (manifest.format_version !== 1) throw new Error(`${url} has a format that this version does not know`);
    const files = given === undefined ? manifest.files : { ...manifest.files, [manifest.weights]: given };
    const total = Object.values(files).reduce((sum, { bytes }) => sum + bytes, 0);
    let received = 0;
    const fetchFile = (name: string, path = name): Promise<ArrayBuffer> =>
      fetchVerified(new URL(path, url), files[name], (count) => onProgress?.((received += count), total));
    const [engine, tokenizerModule, weights, ...tokenizers] = await Promise.all([
      fetchEngine(binaries, threads),
      fetchBytes(new URL("tokenizer.wasm", binaries)).then((bytes) => WebAssembly.compile(bytes)),
      fetchFile(manifest.weights, given?.path),
      ...manifest.tokenizers.map((name) => fetchFile(name)),
    ]);
    return Model.open(manifest, engine.module, tokenizerModule, weights, tokenizers, { relaxed, threads: engine.threads });
  }

  /** The same from files in memory. */
  static open(
    manifest: Manifest,
    engine: WebAssembly.Module,
    tokenizer: WebAssembly.Module,
    weights: ArrayBuffer,
    models: ArrayBuffer[],
    options: { relaxed?: boolean; threads?: number } = {},
  ): Model {
    const [first, second] = models.map((model) => Pieces.load(tokenizer, model));
    if (first === undefined) throw new Error("the model has no tokenizer");
    return new Model(manifest, Engine.open(engine, weights, options), first, second ?? first);
  }

  /** The source ids of a text: the tag if the model has tags, the subwords, the end token. */
  encodeSource(text: string, targetLanguage?: string): number[] {
    const { tags, tag_ids, special } = this.manifest;
    const language = targetLanguage ?? (tags.length === 1 ? tags[0] : undefined);
    const index = language === undefined ? -1 : tags.indexOf(language);
    if (tags.length > 0 && index < 0) {
      const problem = targetLanguage === undefined ? "no target language was given" : `not into ${targetLanguage}`;
      throw new Error(`this model translates into ${tags.join(", ")}; ${problem}`);
    }
    const ids = [...tag_ids.slice(index, index + 1), ...this.sourceTokenizer.encode(text), special.eos_id];
    const { max_length } = this.engine.shape;
    if (ids.length > max_length) throw new Error(`this text has ${ids.length} tokens, and the model takes at most ${max_length}; shorten it`);
    return ids;
  }

  /** The target ids of the beginning of a text. */
  encodeTarget(text: string): number[] {
    return this.targetTokenizer.encode(text);
  }

  /** Translate a text that the model reads at once; the best translations, best first. */
  translate(text: string, options: TranslateOptions = {}): Translation[] {
    const source = this.encodeSource(text, options.targetLanguage);
    return this.withTexts(this.engine.translate(source, this.manifest.special, this.searchOptions(source, options)));
  }

  /** Translate a text and return every continuation that the search considered. */
  beamTree(text: string, options: BeamTreeOptions = {}): BeamTree {
    const source = options.source ?? this.encodeSource(text, options.targetLanguage);
    const search = this.searchOptions(source, options);
    const { nodes, best, hypotheses } = this.engine.beamTree(source, this.manifest.special, search);
    return {
      source,
      sourcePieces: this.pieces(source, "source"),
      nodes: nodes.map((node) => ({ ...node, piece: this.targetTokenizer.piece(node.token) })),
      best,
      translations: this.withTexts(hypotheses),
      beam_size: search.beam_size,
      length_penalty: search.length_penalty,
      length_penalty_alpha: search.length_penalty_alpha,
    };
  }

  private withTexts(hypotheses: Hypothesis[]): Translation[] {
    return hypotheses.map((one) => ({ ...one, text: this.targetTokenizer.decode(one.tokens) }));
  }

  private searchOptions(source: number[], { beamSize, numBest = 1, prefix = [] }: TranslateOptions): Required<SearchOptions> {
    const { decoding } = this.manifest;
    return {
      beam_size: Math.max(beamSize ?? decoding.beam_size, numBest),
      num_best: numBest,
      length_penalty: decoding.length_penalty,
      length_penalty_alpha: decoding.length_penalty_alpha,
      min_length: decoding.min_length,
      no_repeat_ngram_size: decoding.no_repeat_ngram_size,
      max_length: this.maxTargetLength(source),
      prefix,
    };
  }

  /** Trace the translation of a text: every intermediate result, in float32. */
  trace(text: string, options: TraceOptions = {}): TextTrace {
    const { targetLanguage, target, prefix = [], wanted = ["*"], interventions = [] } = options;
    const { special } = this.manifest;
    const source = options.source ?? this.encodeSource(text, targetLanguage);
    const max_length = target === undefined ? this.maxTargetLength(source) : 0;
    const { visited, visit, candidates } = this.collectCandidates(options.candidates ?? 0);
    const request = { max_length, wanted, interventions, visited, visit };
    const found = this.engine.trace(source, [special.bos_id, ...(target ?? prefix)], special, request);
    return {
      text: this.targetTokenizer.decode(found.target),
      source,
      target: found.target,
      sourcePieces: this.pieces(source, "source"),
      targetPieces: this.pieces(found.target, "target"),
      tensors: found.tensors,
      ...(options.candidates === undefined ? {} : candidates),
    };
  }

  /** What a trace needs in order to collect `count` candidates for each step: rows of the vocabulary's size stay in the worker. */
  private collectCandidates(count: number): {
    visited: string[];
    visit: (name: string, tensor: Tensor, target: number[]) => void;
    candidates: { candidates: StepCandidates[]; layerCandidates: Candidate[][][] };
  } {
    const layers = Array.from({ length: this.engine.shape.num_decoder_layers }, (_, layer) => `decoder.layers.${layer}.logits`);
    const found = { candidates: [] as StepCandidates[], layerCandidates: [] as Candidate[][][] };
    const piece = (token: number): string => this.targetTokenizer.piece(token);
    const visit = (name: string, tensor: Tensor, target: number[]): void => {
      if (name === "logits") {
        const next = [...target.slice(1), this.manifest.special.eos_id];
        found.candidates = rows(tensor).map((logits, step) => stepCandidates(logits, next[step] ?? 0, count, piece));
      } else found.layerCandidates[layers.indexOf(name)] = rows(tensor).map((logits) => bestCandidates(logits, NUM_LAYER_CANDIDATES, piece));
    };
    return { visited: count > 0 ? ["logits", ...layers] : [], visit, candidates: found };
  }

  /** The readable pieces of ids of one side. */
  pieces(ids: number[], side: Side): string[] {
    const tokenizer = side === "source" ? this.sourceTokenizer : this.targetTokenizer;
    return ids.map((id) => tokenizer.piece(id));
  }

  /** As `Translator.max_target_length`. */
  private maxTargetLength(source: number[]): number {
    const subwords = source.length - 1 - (this.manifest.tags.length > 0 ? 1 : 0);
    const { max_length, max_extra_length } = this.manifest.decoding;
    return Math.min(max_length ?? subwords + max_extra_length, this.engine.shape.max_length - 1);
  }
}

/** The engine for this number of threads, or for one if the folder has only that. */
async function fetchEngine(binaries: URL, threads: number): Promise<{ module: WebAssembly.Module; threads: number }> {
  const compile = async (name: string): Promise<WebAssembly.Module> => WebAssembly.compile(await fetchBytes(new URL(name, binaries)));
  const module = threads > 1 ? await compile("engine_threads.wasm").catch(() => undefined) : undefined;
  return module === undefined ? { module: await compile("engine.wasm"), threads: 1 } : { module, threads };
}

/** Fetch a file, from the browser's cache if it is there, and compare it with its size and checksum. */
async function fetchVerified(url: URL, file: File | undefined, onBytes: (count: number) => void): Promise<ArrayBuffer> {
  if (file === undefined) throw new Error(`model.json does not list ${url}`);
  const cache = "caches" in globalThis ? await caches.open("heedful").catch(() => undefined) : undefined;
  const key = new URL(`?sha256=${file.sha256}`, url).href;
  const cached = await cache?.match(key);
  if (cached) {
    const bytes = await cached.arrayBuffer();
    if (await isIntact(bytes, file)) {
      onBytes(bytes.byteLength);
      return bytes;
    }
    await cache?.delete(key);
  }
  const bytes = await fetchBytes(url, onBytes);
  if (!(await isIntact(bytes, file))) throw new Error(`${url} is damaged or belongs to another model; load the page again`);
  await cache?.put(key, new Response(bytes)).catch(() => undefined); // the cache may be full or forbidden
  return bytes;
}

async function isIntact(bytes: ArrayBuffer, { bytes: size, sha256 }: File): Promise<boolean> {
  if (bytes.byteLength !== size) return false;
  if (!("crypto" in globalThis) || !crypto.subtle) return true; // only on secure origins
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("") === sha256;
}

async function fetchBytes(url: URL, onBytes?: (count: number) => void): Promise<ArrayBuffer> {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: the server answered ${response.status} ${response.statusText}`);
  if (!onBytes || !response.body) {
    const bytes = await response.arrayBuffer();
    onBytes?.(bytes.byteLength);
    return bytes;
  }
  const chunks: Uint8Array[] = [];
  const reader = response.body.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    chunks.push(part.value);
    onBytes(part.value.length);
  }
  return new Blob(chunks as BlobPart[]).arrayBuffer();
}
