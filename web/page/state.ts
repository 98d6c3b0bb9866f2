/** What the page shows: one value that lives in the address, so that a link opens the same view. */

import type { Listener } from "../components/store.js";
import type { Language } from "../components/text.js";
import type { Theme } from "../components/preferences.js";
import type { Intervention } from "../engine/src/index.js";

export const VIEWS = [
  "decoding", "attention", "head", "beam", "positions", "norms", "residual", "feed_forward", "what_if", "explanation", "over_time",
] as const;
export type ViewName = (typeof VIEWS)[number];

/** encoder: encoder self-attention; decoder: masked decoder self-attention; cross: cross-attention. */
export const ATTENTION_KINDS = ["encoder", "decoder", "cross"] as const;
export type AttentionKind = (typeof ATTENTION_KINDS)[number];

export type { Language, Theme };
export { useStore } from "../components/store.js";

export interface State {
  /** Name of a model of the site; empty: the first that translates into `to`. */
  model: string;
  text: string;
  /** Target language; empty: the model's only one, or chosen by the page. */
  to: string;
  /** Target ids that the translation is made to begin with; with the end token last, the whole translation. */
  prefix: number[];
  /** Changes to the model. */
  interventions: Intervention[];
  /** Which run the lens shows, if there are interventions. */
  run: "base" | "changed";
  view: ViewName;
  attention: AttentionKind;
  /** Layer, head and step count from 0; -1 stands for the last step, and for the layer and head of chosen.ts. */
  layer: number;
  head: number;
  step: number;
  /** The chosen cell of an attention matrix: the position that attends and the position attended to; -1: none. */
  query: number;
  key: number;
  /** Whole words instead of subwords. */
  words: boolean;
  language: Language;
  theme: Theme;
  /** The stop of the guided walk, from 1; 0: closed. */
  stop: number;
  /** Switches of single views, by names such as `head.unscaled`. */
  options: Record<string, string>;
}

export const DEFAULTS: State = {
  model: "", text: "", to: "", prefix: [], interventions: [], run: "base", view: "decoding", attention: "cross",
  layer: -1, head: -1, step: -1, query: -1, key: -1, words: false, language: "en", theme: "auto", stop: 0, options: {},
};

function isView(name: string | null): name is ViewName {
  return VIEWS.some((view) => view === name);
}

/** The state of an address's fragment; what is missing or malformed has its default. */
export function readState(hash: string, languages: readonly string[]): State {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const integer = (name: string, fallback: number): number => {
    const text = fields.get(name);
    return text !== null && /^-?\d{1,6}$/.test(text) ? Number(text) : fallback;
  };
  const among = <Value extends string>(name: string, values: readonly Value[], fallback: Value): Value =>
    values.find((value) => value === fields.get(name)) ?? fallback;
  const view = fields.get("view");
  const options: Record<string, string> = {};
  for (const [name, value] of fields) if (name.includes(".")) options[name] = value;
  return {
    model: fields.get("model") ?? "",
    text: fields.get("text") ?? "",
    to: fields.get("to") ?? "",
    prefix: (fields.get("prefix") ?? "").split("-").filter((id) => /^\d{1,7}$/.test(id)).map(Number),
    interventions: (fields.get("change") ?? "").split("~").flatMap(readIntervention),
    run: among("run", ["base", "changed"], "base"),
    view: isView(view) ? view : DEFAULTS.view,
    attention: among("attention", ATTENTION_KINDS, DEFAULTS.attention),
    layer: integer("layer", DEFAULTS.layer),
    head: integer("head", DEFAULTS.head),
    step: integer("step", DEFAULTS.step),
    query: integer("query", DEFAULTS.query),
    key: integer("key", DEFAULTS.key),
    words: fields.get("words") === "1",
    language: among("language", ["en", "zh"], languages[0]?.toLowerCase().startsWith("zh") ? "zh" : "en"),
    theme: among("theme", ["auto", "light", "dark"], "auto"),
    stop: integer("stop", 0),
    options,
  };
}

/** The fragment of a state, without what has its default. The language is always there, so that a link keeps it. */
export function writeState(state: State): string {
  const fields = new URLSearchParams();
  const set = (name: keyof State, value: string | number): void => {
    if (value !== DEFAULTS[name]) fields.set(name, String(value));
  };
  for (const name of ["model", "text", "to", "view", "run", "attention", "layer", "head", "step", "query", "key", "theme", "stop"] as const) {
    set(name, state[name]);
  }
  if (state.prefix.length > 0) fields.set("prefix", state.prefix.join("-"));
  if (state.interventions.length > 0) fields.set("change", state.interventions.map(writeIntervention).join("~"));
  if (state.words) fields.set("words", "1");
  fields.set("language", state.language);
  for (const [name, value] of Object.entries(state.options)) fields.set(name, value);
  return `#${fields.toString()}`;
}

/** kind.stack.sublayer.layer.head.query.key.value; what is not given is empty. */
export function writeIntervention(one: Intervention): string {
  const cell = one.kind === "set_weight" ? [one.query, one.key, one.value] : [];
  return [one.kind, one.stack, one.sublayer ?? "", one.layer ?? "", one.head ?? "", ...cell].join(",").replace(/,+$/, "");
}

function readIntervention(text: string): Intervention[] {
  const [kind, stack, sublayer, layer, head, query, key, value] = text.split(",");
  const kinds = ["remove", "uniform", "set_weight", "unscaled", "no_positions"] as const;
  const sublayers = ["self_attention", "cross_attention", "feed_forward"] as const;
  const found = kinds.find((one) => one === kind);
  if (found === undefined || (stack !== "encoder" && stack !== "decoder")) return [];
  const intervention: Intervention = { kind: found, stack };
  const named = sublayers.find((one) => one === sublayer);
  if (named !== undefined) intervention.sublayer = named;
  const numbers = { layer, head, query, key, value };
  for (const name of ["layer", "head", "query", "key", "value"] as const) {
    const number = Number(numbers[name]);
    if (numbers[name] && Number.isFinite(number)) intervention[name] = number;
  }
  return [intervention];
}

/** The token or cell that the pointer or the keyboard is on, lit everywhere; it is not part of the address. */
export interface Hover {
  side: "source" | "target";
  /** Index of the subword among the source ids, or among the target ids with the start token at 0. */
  index: number;
}

export class Store {
  private listeners = new Set<Listener>();
  private hovered: Hover | null = null;
  private played: number | null = null;

  constructor(private current: State) {}

  get state(): State {
    return this.current;
  }

  get hover(): Hover | null {
    return this.hovered;
  }

  setHover(hover: Hover | null): void {
    if (hover?.side === this.hovered?.side && hover?.index === this.hovered?.index) return;
    this.hovered = hover;
    this.notify();
  }

  /** The step that is shown while the decoding plays; it is not part of the address. */
  get playedStep(): number | null {
    return this.played;
  }

  setPlayedStep(step: number | null): void {
    if (step === this.played) return;
    this.played = step;
    this.notify();
  }

  /** Change the state and the address. A new view or stop is an entry of the browser's history. */
  update(change: Partial<State>): void {
    const before = this.current;
    this.current = { ...before, ...change };
    const address = writeState(this.current);
    const step = before.view !== this.current.view || before.stop !== this.current.stop;
    if (address !== location.hash) history[step ? "pushState" : "replaceState"](null, "", address);
    this.notify();
  }

  /** Change one switch of a view; undefined removes it. */
  setOption(name: `${string}.${string}`, value: string | undefined): void {
    const { [name]: _, ...others } = this.current.options;
    this.update({ options: value === undefined ? others : { ...others, [name]: value } });
  }

  /** Take the state from the address when the reader goes back or opens a link to this page. */
  followAddress(): void {
    const read = (): void => {
      this.current = readState(location.hash, [this.current.language]);
      this.notify();
    };
    addEventListener("popstate", read);
    addEventListener("hashchange", read);
  }

  subscribe(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  private notify(): void {
    for (const listener of [...this.listeners]) listener();
  }
}
