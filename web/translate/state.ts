/** What the page shows: one immutable value, and where parts of it are kept. */

import type { Preferences } from "../components/preferences.js";
import type { Listener, Observable } from "../components/store.js";
import type { Continuation } from "./alternatives.js";
import { type Entry, keepsHistory, readHistory } from "./history.js";
import type { Problem, ServerSettings } from "./server.js";
import type { Place, Translation } from "./translation.js";

export type Panel = "history" | "code" | "keys";

/** The word whose alternatives are shown. */
export interface Opened {
  sentence: number;
  word: number;
  /** null: not there yet. */
  continuations: readonly Continuation[] | null;
}

export interface DocumentJob {
  id: number;
  name: string;
  to: string;
  status: "translating" | "done" | "failed";
  url: string;
  problem: Problem | null;
}

export interface State extends Preferences {
  settings: ServerSettings | null;
  text: string;
  /** Source language; empty: detect. */
  from: string;
  /** Target language; empty until the settings are there. */
  to: string;
  translation: Translation | null;
  isTranslating: boolean;
  problem: Problem | null;
  /** Seconds until the page tries again. */
  retryIn: number | null;
  hover: Place | null;
  opened: Opened | null;
  panel: Panel | null;
  history: readonly Entry[];
  keepsHistory: boolean;
  key: string;
  documents: readonly DocumentJob[];
}

const PREFERENCES = "heedful.preferences";
const TEXT = "heedful.text";
const KEY = "heedful.key";
/** What is kept between visits; text and key only as long as the tab is open. */
const KEPT = ["language", "theme", "from", "to"] as const;

/** The state of an address such as #text=…&from=…&to=…&language=…&theme=…; what it lacks is as at the last visit. */
export function firstState(hash: string, languages: readonly string[]): State {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const kept = read(() => JSON.parse(localStorage.getItem(PREFERENCES) ?? "{}") as Record<string, unknown>) ?? {};
  const field = (name: string): string => {
    const value = fields.get(name) ?? kept[name];
    return typeof value === "string" ? value : "";
  };
  const among = <Value extends string>(name: string, values: readonly Value[], fallback: Value): Value => values.find((value) => value === field(name)) ?? fallback;
  return {
    settings: null,
    text: fields.get("text") ?? read(() => sessionStorage.getItem(TEXT)) ?? "",
    from: fields.has("text") ? (fields.get("from") ?? "") : field("from"),
    to: field("to"),
    language: among("language", ["en", "zh"], languages[0]?.toLowerCase().startsWith("zh") ? "zh" : "en"),
    theme: among("theme", ["auto", "light", "dark"], "auto"),
    translation: null, isTranslating: false, problem: null, retryIn: null, hover: null, opened: null, panel: null,
    history: readHistory(), keepsHistory: keepsHistory(),
    key: read(() => sessionStorage.getItem(KEY)) ?? "",
    documents: [],
  };
}

function read<Value>(one: () => Value): Value | null {
  try {
    return one();
  } catch {
    return null; // no storage here
  }
}

/** The fragment of a link to this text and these languages. */
export function fragment({ text, from, to }: Pick<State, "text" | "from" | "to">, more: Record<string, string> = {}): string {
  return `#${new URLSearchParams({ text, ...(from && { from }), to, ...more })}`;
}

export class Store implements Observable {
  private listeners = new Set<Listener>();

  constructor(private current: State) {}

  get state(): State {
    return this.current;
  }

  update(change: Partial<State>): void {
    const before = this.current;
    this.current = { ...before, ...change };
    this.keep(before);
    for (const listener of [...this.listeners]) listener();
  }

  subscribe(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  private keep(before: State): void {
    const now = this.current;
    read(() => {
      if (KEPT.some((name) => before[name] !== now[name])) {
        localStorage.setItem(PREFERENCES, JSON.stringify(Object.fromEntries(KEPT.map((name) => [name, now[name]]))));
      }
      if (before.text !== now.text) sessionStorage.setItem(TEXT, now.text);
      if (before.key !== now.key) sessionStorage.setItem(KEY, now.key);
    });
    const isOther = (["text", ...KEPT] as const).some((name) => before[name] !== now[name]);
    if (isOther && location.hash !== "") history.replaceState(null, "", location.pathname + location.search); // the link is no longer what is shown
  }
}
