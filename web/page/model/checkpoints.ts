/** The checkpoints of a model's training, and what each of them makes of a sentence. */

import { load, type RemoteModel, type StepCandidates, type Tensor } from "../../engine/src/index.js";
import type { Run } from "../session.js";
import type { SiteModel } from "./site.js";

export interface Checkpoint {
  /** The number of updates before it. */
  step: number;
  weights: string;
  bytes: number;
  sha256: string;
  train_loss: number | null;
  valid_loss: number | null;
}

export interface CurvePoint {
  step: number;
  train_loss?: number;
  valid_loss?: number;
}

/** checkpoints/checkpoints.json; heedful/interop/web_checkpoints.py writes it. */
export interface Checkpoints {
  format_version: 1;
  checkpoints: Checkpoint[];
  curve: CurvePoint[];
}

export async function loadCheckpoints(model: SiteModel): Promise<Checkpoints> {
  const url = new URL(`${model.directory}checkpoints/checkpoints.json`, document.baseURI);
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: the server answered ${response.status} ${response.statusText}`);
  const found = (await response.json()) as Checkpoints;
  if (found.format_version !== 1) throw new Error(`${url} has a format that this page does not know`);
  return found;
}

/** What a checkpoint computes for a sentence. */
export interface CheckpointRun {
  /** Its own translation. */
  text: string;
  pieces: string[];
  /** The tokens that it finds most probable in the translation by the finished model, and the sum of the log-probabilities of that translation. */
  candidates: StepCandidates[];
  log_prob: number;
  /** The attention weights of a layer, (H, queries, keys), for the translation by the finished model. */
  weights: Tensor | undefined;
}

const MAX_OPEN_BYTES = 64e6;

/** The models of the checkpoints. They stay open if all together are small; else each is loaded again when it is needed. */
export class CheckpointModels {
  private readonly models = new Map<number, Promise<RemoteModel>>();
  private readonly keep: boolean;

  constructor(
    private readonly model: SiteModel,
    checkpoints: readonly Checkpoint[],
  ) {
    this.keep = checkpoints.reduce((sum, { bytes }) => sum + bytes, 0) <= MAX_OPEN_BYTES;
  }

  async run(checkpoint: Checkpoint, run: Run, tensor: string): Promise<CheckpointRun> {
    const opened = this.models.get(checkpoint.step) ?? this.open(checkpoint);
    this.models.set(checkpoint.step, opened);
    try {
      const model = await opened;
      const { source } = run;
      const own = await model.trace(run.text, { source, wanted: [] });
      const forced = await model.trace(run.text, { source, target: run.target.slice(1), candidates: 5, wanted: [tensor] });
      const pieces = await model.pieces(own.target.slice(1), "target");
      const candidates = forced.candidates ?? [];
      const log_prob = candidates.slice(0, run.chosen.length).reduce((sum, { next }) => sum + next.log_prob, 0);
      return { text: own.text, pieces, candidates, log_prob, weights: forced.tensors.get(tensor) };
    } finally {
      if (!this.keep) this.closeOne(checkpoint.step);
    }
  }

  close(): void {
    for (const step of this.models.keys()) this.closeOne(step);
  }

  private open({ weights, bytes, sha256 }: Checkpoint): Promise<RemoteModel> {
    const url = new URL(`${this.model.directory}model.json`, document.baseURI);
    return load(url, { weights: { path: `checkpoints/${weights}`, bytes, sha256 } });
  }

  private closeOne(step: number): void {
    this.models.get(step)?.then((model) => model.close(), () => undefined);
    this.models.delete(step);
  }
}
