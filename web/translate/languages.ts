/** Which languages there are, and what they are called. */

import type { Language } from "../components/text.js";
import type { ServerSettings } from "./server.js";

export function sources({ directions }: ServerSettings): string[] {
  return distinct(directions.map(([source]) => source));
}

/** All target languages, or those for a source language that is known. */
export function targets({ directions }: ServerSettings, from = ""): string[] {
  const possible = distinct(directions.filter(([source]) => source === from).map(([, target]) => target));
  return possible.length > 0 ? possible : distinct(directions.map(([, target]) => target));
}

export function canTranslate({ directions }: ServerSettings, from: string, to: string): boolean {
  return directions.some(([source, target]) => source === from && target === to);
}

/** The target to use for a source language: the wanted one, if a model translates it. */
export function targetFor(settings: ServerSettings, from: string, wanted: string, others: readonly string[] = []): string {
  const possible = targets(settings, from);
  const found = [wanted, ...others].find((code) => code !== from && possible.includes(code));
  return found ?? possible.find((code) => code !== from) ?? possible[0] ?? wanted;
}

/** The code of the languages of a model that does not name them. */
export const UNDETERMINED = "und";
const UNNAMED: Record<Language, string> = { en: "Unnamed language", zh: "未注明的语言" };

export function languageName(settings: ServerSettings | null, code: string, language: Language): string {
  return settings?.names[code]?.[language] ?? (code === UNDETERMINED ? UNNAMED[language] : code);
}

function distinct(codes: readonly (string | null)[]): string[] {
  return [...new Set(codes.filter((code) => code !== null))];
}
