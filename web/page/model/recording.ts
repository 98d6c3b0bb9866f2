/** A translation with its trace in one file: written by the export as HTML, and opened by the page in that file. */

import type { BeamTree, Manifest, Shape, Tensor, TextTrace, TraceOptions } from "../../engine/src/index.js";
import type { Run } from "../session.js";
import { readTrace, writeTrace } from "./server_model.js";
import type { PageModel } from "./site.js";

/** All tensors but those of the size of the vocabulary and the parameters. */
export const RECORDED = [
  "source_*", "target_*", "encoder.*", "memory", "decoder.input", "decoder.output", "decoder.norm*",
  "decoder.layers.*.self_attention*", "decoder.layers.*.cross_attention*", "decoder.layers.*.feed_forward*",
];

export interface Recording {
  manifest: Manifest;
  shape: Shape;
  title: string;
  /** The sentence as it was typed. */
  text: string;
  to: string;
  chosen: number[];
  chosenPieces: string[];
  beamTree: BeamTree | null;
  /** Base64 of the gzipped trace. */
  trace: string;
}

export async function record(run: Run, { title, to, beamTree }: Pick<Recording, "title" | "to" | "beamTree">): Promise<Recording> {
  const { model, source, target, interventions, text, chosen, chosenPieces } = run;
  const found = await model.trace(text, { source, target: target.slice(1), wanted: RECORDED, interventions });
  const complete: TextTrace = {
    text: run.output, source, target, sourcePieces: run.sourcePieces, targetPieces: run.targetPieces, tensors: found.tensors,
    candidates: run.candidates, layerCandidates: run.layerCandidates,
  };
  const trace = await toBase64(await transform(writeTrace(complete), new CompressionStream("gzip")));
  return { manifest: model.manifest, shape: model.shape, title, text, to, chosen, chosenPieces, beamTree, trace };
}

/** Answers what the recording holds; for anything else the page with the model is needed. */
export class RecordedModel implements PageModel {
  private constructor(
    private readonly recording: Recording,
    private readonly recorded: TextTrace,
  ) {}

  static async open(recording: Recording): Promise<RecordedModel> {
    const bytes = Uint8Array.from(atob(recording.trace), (character) => character.charCodeAt(0));
    return new RecordedModel(recording, readTrace(await transform(bytes.buffer, new DecompressionStream("gzip"))));
  }

  get manifest(): Manifest {
    return this.recording.manifest;
  }

  get shape(): Shape {
    return this.recording.shape;
  }

  async trace(text: string, { source, target, prefix = [], wanted = ["*"], interventions = [] }: TraceOptions = {}): Promise<TextTrace> {
    const { recorded } = this;
    const same = (one: number[], other: number[]): boolean => one.length === other.length && one.every((id, index) => id === other[index]);
    const isRecorded =
      (source === undefined ? text.trim() === this.recording.text.trim() : same(source, recorded.source)) &&
      (target === undefined || same(target, recorded.target.slice(1))) && prefix.length === 0 && interventions.length === 0;
    if (!isRecorded) throw new Error("this file holds one translation; open the page with the model for others");
    const patterns = wanted.map((pattern) => new RegExp(`^${pattern.split("*").map((part) => part.replace(/[.]/g, "\\.")).join(".*")}$`));
    const tensors = new Map<string, Tensor>();
    for (const [name, { shape, values }] of recorded.tensors) {
      if (patterns.some((pattern) => pattern.test(name))) tensors.set(name, { shape, values });
    }
    return { ...recorded, tensors };
  }

  async pieces(ids: number[], side: "source" | "target"): Promise<string[]> {
    const { recorded, recording } = this;
    const known = new Map<number, string>();
    const [all, named] = side === "source" ? [recorded.source, recorded.sourcePieces] : [recorded.target, recorded.targetPieces];
    for (const [index, id] of all.entries()) known.set(id, named[index] ?? "");
    if (side === "target") {
      for (const [index, id] of recording.chosen.entries()) known.set(id, recording.chosenPieces[index] ?? "");
      for (const { best } of recorded.candidates ?? []) for (const { token, piece } of best) known.set(token, piece);
    }
    return ids.map((id) => known.get(id) ?? `#${id}`);
  }

  async sourceIds(): Promise<number[]> {
    return this.recorded.source;
  }

  async beamTree(): Promise<BeamTree> {
    if (this.recording.beamTree === null) throw new Error("this file has no beam search");
    return this.recording.beamTree;
  }

  translate(): Promise<never> {
    return Promise.reject(new Error("this file holds one translation; open the page with the model for others"));
  }

  encodeTarget(): Promise<never> {
    return this.translate();
  }

  close(): void {}
}

async function transform(bytes: ArrayBuffer, stream: CompressionStream | DecompressionStream): Promise<ArrayBuffer> {
  return new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer();
}

async function toBase64(bytes: ArrayBuffer): Promise<string> {
  const view = new Uint8Array(bytes);
  let text = "";
  for (let start = 0; start < view.length; start += 0x8000) text += String.fromCharCode(...view.subarray(start, start + 0x8000));
  return btoa(text);
}
