/** The model, the sentence and its traces. Components read a `Run`; tensors are computed when a view first asks for them. */

import { useEffect, useState } from "preact/hooks";

import type { Candidate, Intervention, StepCandidates, Tensor } from "../engine/src/index.js";
import { chooseModel, openModel, type PageModel, type Site, type SiteModel } from "./model/site.js";
import { Playback } from "./playback.js";
import { type State, type Store, useStore } from "./state.js";

const NUM_CANDIDATES = 10;
const MAX_BYTES = 400e6;

/** What a traced pass computed for one sentence pair. Row t of a target tensor belongs to target[t], which predicts chosen[t]. */
interface RunFields {
  /** What was asked for: model, sentence, language, beginning and interventions. */
  key: string;
  model: PageModel;
  text: string;
  /** The translation. */
  output: string;
  /** What the encoder reads: the language's tag if the model has tags, the subwords, the end token. */
  source: number[];
  sourcePieces: string[];
  /** What the decoder reads: the start token, then the translation without the end token. */
  target: number[];
  targetPieces: string[];
  /** What each step predicts: `target` shifted left, then the end token; without it if the length limit was reached. */
  chosen: number[];
  chosenPieces: string[];
  /** The most probable tokens of each step, and those that each decoder layer alone would choose. */
  candidates: StepCandidates[];
  layerCandidates: Candidate[][][];
  interventions: Intervention[];
}

export interface Run extends RunFields {}

export class Run {
  private readonly tensors = new Map<string, Tensor>();
  private readonly asked = new Set<string>();
  private readonly absent = new Set<string>();
  private bytes = 0;

  constructor(
    private readonly session: Session,
    fields: RunFields,
  ) {
    Object.assign(this, fields);
  }

  get numSteps(): number {
    return this.target.length;
  }

  get(name: string): Tensor | undefined {
    return this.tensors.get(name);
  }

  /** Whether the model has no tensor with this name, which is known once it was requested. */
  lacks(name: string): boolean {
    return this.absent.has(name);
  }

  /** Compute the tensors with these names, unless that was done or is under way. */
  request(names: readonly string[]): void {
    const missing = names.filter((name) => !this.asked.has(name));
    if (missing.length === 0) return;
    for (const name of missing) this.asked.add(name);
    const { source, interventions } = this;
    this.model.trace(this.text, { source, target: this.target.slice(1), wanted: missing, interventions }).then(
      ({ tensors }) => {
        for (const [name, tensor] of tensors) this.add(name, tensor);
        for (const name of missing) if (!tensors.has(name)) this.absent.add(name);
        this.session.notify();
      },
      (error: unknown) => this.session.fail(error),
    );
  }

  /** Keep a tensor; the oldest are dropped beyond a limit and computed again when a view asks for them. */
  private add(name: string, tensor: Tensor): void {
    this.tensors.set(name, tensor);
    this.bytes += tensor.values.byteLength;
    for (const [oldest, { values }] of this.tensors) {
      if (this.bytes <= MAX_BYTES || oldest === name) break;
      this.tensors.delete(oldest);
      this.asked.delete(oldest);
      this.bytes -= values.byteLength;
    }
  }
}

export type Status =
  | { kind: "loading"; received: number; total: number }
  | { kind: "translating" }
  | { kind: "ready" }
  | { kind: "error"; message: string };

export class Session {
  site: Site | null = null;
  siteModel: SiteModel | null = null;
  model: PageModel | null = null;
  /** The model as it is. */
  base: Run | null = null;
  /** The model with the interventions of the state, if there are any. */
  changed: Run | null = null;
  status: Status = { kind: "loading", received: 0, total: 0 };
  readonly playback: Playback;
  private listeners = new Set<() => void>();
  private wanted = "";
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly store: Store,
    site: Promise<Site>,
  ) {
    this.playback = new Playback(this);
    site.then(
      (found) => {
        this.site = found;
        if (store.state.text === "") {
          const { model, to, language } = store.state;
          const into = to || (language === "zh" ? "zh" : "");
          const example =
            found.examples.find((one) => one.model !== undefined && one.model === model) ?? found.examples.find((one) => one.to === into) ?? found.examples[0];
          if (example) store.update({ text: example.text, to: to || (example.to ?? "") });
        }
        store.subscribe(() => this.follow());
        this.follow();
      },
      (error: unknown) => this.fail(error),
    );
  }

  /** The run that the lens shows. */
  get shown(): Run | null {
    return this.store.state.run === "changed" && this.changed !== null ? this.changed : this.base;
  }

  /** Whether the page holds one translation and no model, so that nothing else can be translated. */
  get isRecorded(): boolean {
    return this.siteModel?.kind === "recorded";
  }

  /** Open another model of the site, with its own example if it has one. */
  choose(name: string): void {
    const { examples = [] } = this.site ?? {};
    const isExample = examples.some(({ text }) => text === this.store.state.text);
    const own = examples.find(({ model }) => model === name) ?? (isExample ? examples.find(({ model }) => model === undefined) : undefined);
    this.store.update({
      model: name, ...(own === undefined ? {} : { text: own.text }), to: own?.to ?? "", prefix: [], interventions: [], run: "base",
      step: -1, layer: -1, head: -1, query: -1, key: -1,
    });
  }

  /** The languages that the site's models translate into. */
  get languages(): string[] {
    const named = this.site?.models.find(({ name }) => name === this.store.state.model);
    const models = named ? [named] : (this.site?.models ?? []);
    const targets = models.flatMap(({ directions }) => directions.flatMap(({ target }) => (target === null ? [] : [target])));
    return [...new Set(targets)].sort();
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  notify(): void {
    for (const listener of [...this.listeners]) listener();
  }

  fail(error: unknown): void {
    this.setStatus({ kind: "error", message: error instanceof Error ? error.message : String(error) });
  }

  private setStatus(status: Status): void {
    this.status = status;
    this.notify();
  }

  /** Translate again if the state asks for another translation; typing is waited for. */
  private follow(): void {
    const { model, text, to, prefix, interventions } = this.store.state;
    const wanted = JSON.stringify([model, text, to, prefix, interventions]);
    if (wanted === this.wanted) return;
    const typing = this.base !== null && this.base.text !== text;
    this.wanted = wanted;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.work(wanted), typing ? 300 : 0);
  }

  private async work(wanted: string): Promise<void> {
    const { state } = this.store;
    try {
      const model = await this.open(state);
      if (wanted !== this.wanted) return;
      this.setStatus({ kind: "translating" });
      const base = this.base?.key === runKey(model, state, []) ? this.base : await this.trace(model, state, []);
      const changed = state.interventions.length > 0 ? await this.trace(model, state, state.interventions) : null;
      if (wanted !== this.wanted) return;
      this.base = base;
      this.changed = changed;
      this.setStatus({ kind: "ready" });
    } catch (error) {
      if (wanted === this.wanted) this.fail(error);
    }
  }

  private async open(state: State): Promise<PageModel> {
    if (this.site === null) throw new Error("the site is not loaded");
    const wanted = chooseModel(this.site, state);
    if (this.model !== null && this.siteModel === wanted) return this.model;
    this.model?.close();
    this.model = null;
    this.base = this.changed = null;
    this.siteModel = wanted;
    this.setStatus({ kind: "loading", received: 0, total: wanted.bytes });
    this.model = await openModel(wanted, { onProgress: (received, total) => this.setStatus({ kind: "loading", received, total }) });
    return this.model;
  }

  /** The greedy translation after `state.prefix`, with the most probable tokens of each step. */
  async trace(model: PageModel, state: Pick<State, "text" | "to" | "prefix">, interventions: Intervention[]): Promise<Run> {
    const { eos_id } = model.manifest.special;
    const text = state.text.trim();
    const { prefix } = state;
    const fixed = prefix.length > 0 && prefix[prefix.length - 1] === eos_id;
    const language = targetLanguage(model, state.to);
    const found = await model.trace(text, {
      ...(language === undefined ? {} : { targetLanguage: language }),
      ...(fixed ? { target: prefix.slice(0, -1) } : { prefix }),
      candidates: NUM_CANDIDATES,
      wanted: [],
      interventions,
    });
    const { target, candidates = [], layerCandidates = [] } = found;
    const ended = fixed || candidates[candidates.length - 1]?.best[0]?.token === eos_id;
    const chosen = [...target.slice(1), ...(ended ? [eos_id] : [])];
    return new Run(this, {
      key: runKey(model, state, interventions),
      model,
      text,
      output: found.text,
      source: found.source,
      sourcePieces: found.sourcePieces,
      target,
      targetPieces: found.targetPieces,
      chosen,
      chosenPieces: await model.pieces(chosen, "target"),
      candidates,
      layerCandidates,
      interventions,
    });
  }
}

function runKey(model: PageModel, { text, to, prefix }: Pick<State, "text" | "to" | "prefix">, interventions: Intervention[]): string {
  return JSON.stringify([model.manifest.name, text.trim(), to, prefix, interventions]);
}

/** The language to ask a model for: `to` if the model knows it, else its first tag; undefined for models without tags. */
export function targetLanguage(model: PageModel, to: string): string | undefined {
  const { tags } = model.manifest;
  return tags.includes(to) ? to : tags[0];
}

/** The step that is shown, between 0 and the last of the shown run: only what the decoder could see then is visible. */
export function currentStep({ shown, store }: Session): number {
  if (shown === null) return 0;
  const last = shown.numSteps - 1;
  const step = store.playedStep ?? store.state.step;
  return step < 0 ? last : Math.min(step, last);
}

/** Draws the component again when the session changes (status, model, runs, tensors), or the state, or the step that plays. */
export function useSession(session: Session): void {
  const { store } = session;
  const [, draw] = useState(0);
  useStore(store, () => store.state);
  useStore(store, () => store.playedStep);
  useEffect(() => session.subscribe(() => draw((count) => count + 1)), [session]);
}

/** Request tensors of a run; undefined until all names are there. `names` are exact names. */
export function useTensors(session: Session, run: Run | null, names: readonly string[]): Map<string, Tensor> | undefined {
  useStore(session, () => (run ? names.filter((name) => run.get(name) !== undefined).length : -1));
  const key = names.join("\n");
  useEffect(() => run?.request(names), [run, key]);
  if (run === null) return undefined;
  const found = new Map<string, Tensor>();
  for (const name of names) {
    const tensor = run.get(name);
    if (tensor === undefined) return undefined;
    found.set(name, tensor);
  }
  return found;
}

/** As `useTensors`, without the names that the model has no tensor for. */
export function usePresentTensors(session: Session, run: Run | null, names: readonly string[]): Map<string, Tensor> | undefined {
  useStore(session, () => (run ? names.filter((name) => run.get(name) !== undefined || run.lacks(name)).length : -1));
  const key = names.join("\n");
  useEffect(() => run?.request(names), [run, key]);
  if (run === null) return undefined;
  const found = new Map<string, Tensor>();
  for (const name of names) {
    const tensor = run.get(name);
    if (tensor !== undefined) found.set(name, tensor);
    else if (!run.lacks(name)) return undefined;
  }
  return found;
}
