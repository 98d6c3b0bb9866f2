/** A model that the server runs, because the engine does not support it. The server is `heedful see` (heedful/inspection/served_model.py). */

import type {
  Candidate, Hypothesis, Manifest, Shape, Side, StepCandidates, Tensor, TextTrace, TraceOptions, TranslateOptions, Translation,
} from "../../engine/src/index.js";

const MAGIC = "HEEDFULT";
const VERSION = 1;
const HEAD_BYTES = 16;

/** The header of a trace, as heedful/inspection/trace_format.py writes it. */
interface TraceHeader {
  text: string;
  source_ids: number[];
  target_ids: number[];
  source_tokens: string[];
  target_tokens: string[];
  tensors: { name: string; shape: number[]; offset: number }[];
  candidates?: StepCandidates[];
  layer_candidates?: Candidate[][][];
}

/** Offers what `RemoteModel` does; each call is a request to the server that sent the page. */
export class ServerModel {
  private readonly abort = new AbortController();

  private constructor(
    private readonly api: URL,
    readonly manifest: Manifest,
    readonly shape: Shape,
  ) {}

  /** Open the model at the address of its model.json. */
  static async load(url: URL): Promise<ServerModel> {
    const response = await fetch(url);
    if (!response.ok) throw new Error(`${url}: the server answered ${response.status} ${response.statusText}`);
    const manifest = (await response.json()) as Manifest;
    if (manifest.format_version !== 1) throw new Error(`${url} has a format that this version does not know`);
    return new ServerModel(new URL("../../api/", url), manifest, shapeOf(manifest));
  }

  /** Translate a text that the model reads at once; the best translations, best first. */
  async translate(text: string, { targetLanguage, beamSize, numBest, prefix }: TranslateOptions = {}): Promise<Translation[]> {
    const request = { text, target_language: targetLanguage, beam_size: beamSize, num_best: numBest, prefix };
    const { translations } = await this.callJson<{ translations: (Hypothesis & { text: string })[] }>("translate", request);
    return translations;
  }

  /** Trace the translation of a text: every intermediate result that this kind of model has. */
  async trace(text: string, options: TraceOptions = {}): Promise<TextTrace> {
    const { targetLanguage, source, target, prefix, wanted, interventions, candidates } = options;
    const request = { text, target_language: targetLanguage, source, target, prefix, wanted, interventions, candidates };
    const response = await this.call("trace", request);
    return readTrace(await response.arrayBuffer());
  }

  /** The readable pieces of ids of one side. */
  async pieces(ids: number[], side: Side): Promise<string[]> {
    return (await this.callJson<{ pieces: string[] }>("pieces", { ids, side })).pieces;
  }

  /** The source ids of a text: the language tag, if the model has tags, the subwords, and the end token. */
  async sourceIds(text: string, targetLanguage?: string): Promise<number[]> {
    const request = { text, side: "source", target_language: targetLanguage };
    return (await this.callJson<{ ids: number[] }>("encode", request)).ids;
  }

  /** The target ids of the beginning of a text. */
  async encodeTarget(text: string): Promise<number[]> {
    return (await this.callJson<{ ids: number[] }>("encode", { text, side: "target" })).ids;
  }

  /** End the calls in progress. */
  close(): void {
    this.abort.abort(new Error("the model was closed"));
  }

  private async callJson<Answer>(name: string, request: object): Promise<Answer> {
    return (await this.call(name, request)).json() as Promise<Answer>;
  }

  private async call(name: string, request: object): Promise<Response> {
    const response = await fetch(new URL(name, this.api), {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...request, model: this.manifest.name }),
      signal: this.abort.signal,
    });
    if (response.ok) return response;
    const { error } = (await response.json()) as { error: string };
    throw new Error(error);
  }
}

/** Read a trace from the bytes that the server sends. */
export function readTrace(data: ArrayBuffer): TextTrace {
  const bytes = new Uint8Array(data);
  const view = new DataView(data);
  const magic = new TextDecoder().decode(bytes.subarray(0, MAGIC.length));
  if (magic !== MAGIC || view.getUint32(8, true) !== VERSION) throw new Error("the server sent a trace of an unknown format");
  const start = HEAD_BYTES + view.getUint32(12, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(HEAD_BYTES, start))) as TraceHeader;
  const tensors = new Map<string, Tensor>();
  for (const { name, shape, offset } of header.tensors) {
    const count = shape.reduce((product, size) => product * size, 1);
    tensors.set(name, { shape, values: new Float32Array(data, start + offset, count) });
  }
  return {
    text: header.text,
    source: header.source_ids,
    target: header.target_ids,
    sourcePieces: header.source_tokens,
    targetPieces: header.target_tokens,
    tensors,
    ...(header.candidates ? { candidates: header.candidates } : {}),
    ...(header.layer_candidates ? { layerCandidates: header.layer_candidates } : {}),
  };
}

/** The bytes of a trace, for `readTrace`. */
export function writeTrace(trace: TextTrace): ArrayBuffer {
  const { text, source, target, sourcePieces, targetPieces, candidates, layerCandidates } = trace;
  const tensors: TraceHeader["tensors"] = [];
  let length = 0;
  for (const [name, { shape, values }] of trace.tensors) {
    tensors.push({ name, shape, offset: length });
    length += values.byteLength;
  }
  const header: TraceHeader = {
    text, source_ids: source, target_ids: target, source_tokens: sourcePieces, target_tokens: targetPieces, tensors,
    ...(candidates ? { candidates } : {}),
    ...(layerCandidates ? { layer_candidates: layerCandidates } : {}),
  };
  const json = new TextEncoder().encode(JSON.stringify(header));
  const start = Math.ceil((HEAD_BYTES + json.length) / 8) * 8;
  const bytes = new Uint8Array(start + length).fill(0x20, HEAD_BYTES + json.length, start);
  const view = new DataView(bytes.buffer);
  bytes.set(new TextEncoder().encode(MAGIC));
  view.setUint32(8, VERSION, true);
  view.setUint32(12, start - HEAD_BYTES, true);
  bytes.set(json, HEAD_BYTES);
  let offset = start;
  for (const { values } of trace.tensors.values()) {
    bytes.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength), offset);
    offset += values.byteLength;
  }
  return bytes.buffer;
}

function shapeOf({ model }: Manifest): Shape {
  return {
    d_model: model.d_model,
    d_ff: model.d_ff,
    num_heads: model.num_heads,
    head_dim: model.head_dim,
    num_encoder_layers: model.num_encoder_layers,
    num_decoder_layers: model.num_decoder_layers,
    source_vocab_size: model.source_vocab_size,
    target_vocab_size: model.target_vocab_size,
    max_length: model.max_length,
    norm_before: model.norm_placement === "pre",
    only_scale: model.norm === "rms",
    has_final_norm: model.final_norm,
    rotary: model.positions === "rotary",
    activation: model.activation,
    int8: false,
    tied_embedding: model.tying === "three_way",
  };
}
