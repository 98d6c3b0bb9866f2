/** Earlier translations, kept in this browser only. */

export interface Entry {
  /** Milliseconds since 1970. */
  time: number;
  from: string;
  isDetected: boolean;
  to: string;
  text: string;
  translation: string;
}

const ENTRIES = "heedful.history";
const OFF = "heedful.history.off";
const MAX_ENTRIES = 100;
const MAX_CHARACTERS = 2000;

export function readHistory(): Entry[] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(ENTRIES) ?? "[]");
    return Array.isArray(found) ? found.filter(isEntry) : [];
  } catch {
    return []; // no storage here, or something else wrote into it
  }
}

export function keepsHistory(): boolean {
  try {
    return localStorage.getItem(OFF) === null;
  } catch {
    return false;
  }
}

/** Switching off also forgets what was kept. */
export function setKeepsHistory(keeps: boolean): void {
  try {
    if (keeps) localStorage.removeItem(OFF);
    else localStorage.setItem(OFF, "1");
    if (!keeps) localStorage.removeItem(ENTRIES);
  } catch {
    // no storage here
  }
}

/** The entries with a new one first. It replaces the last one if that was an earlier state of the same text. */
export function withEntry(entries: readonly Entry[], entry: Entry): Entry[] {
  if (entry.text.length > MAX_CHARACTERS) return [...entries];
  const [last] = entries;
  const continues = last !== undefined && last.to === entry.to && (entry.text.startsWith(last.text) || last.text.startsWith(entry.text)) && entry.time - last.time < 120_000;
  const others = (continues ? entries.slice(1) : entries).filter(({ text, to }) => text !== entry.text || to !== entry.to);
  return [entry, ...others].slice(0, MAX_ENTRIES);
}

export function writeHistory(entries: readonly Entry[]): void {
  try {
    localStorage.setItem(ENTRIES, JSON.stringify(entries));
  } catch {
    // no storage here, or it is full
  }
}

function isEntry(value: unknown): value is Entry {
  const entry = value as Entry | null;
  return typeof entry?.time === "number" && typeof entry.isDetected === "boolean" && [entry.from, entry.to, entry.text, entry.translation].every((one) => typeof one === "string");
}
