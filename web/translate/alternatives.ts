/**
 * What else can stand in place of a word of a translation. The words before it are kept: the server translates again with
 * them as the prefix. Candidates are the next words of its best translations, and the translations that the corresponding
 * source words have on their own; each is completed to a sentence, and those that are improbable are left out.
 */

import { type Asker, type ServerSettings, translate, translateList } from "./server.js";
import { type Word, words } from "./spans.js";
import { correspondingSpans, type Sentence } from "./translation.js";

/** A sentence that has another word in that place. */
export interface Continuation {
  text: string;
  /** What stands in place of the word, and what follows. */
  word: string;
  rest: string;
  log_prob: number;
}

const MAX_CANDIDATES = 10;
/** How much less than the best the logarithm of a sentence's probability may be. */
const MARGIN = 6;
const MAX_SHOWN = 7;

export async function findContinuations(
  sentence: Sentence, index: number, { from, to }: { from: string; to: string }, settings: ServerSettings, asker: Asker,
): Promise<Continuation[]> {
  const word = sentence.words[index];
  if (word === undefined) return [];
  const [start] = word.span;
  const prefix = sentence.text.slice(0, start).trimEnd();
  const widest = { source: from, target: to, alternatives: settings.max_alternatives, beam_size: settings.max_beam_size };
  const sources = [...new Set(correspondingSpans(sentence, "target", index).source.map((span) => sentence.source.slice(...span)))];
  const [again, alone] = await Promise.all([
    translate({ ...widest, text: sentence.source, ...(prefix && { prefix }) }, asker),
    translateList({ ...widest, text: sources }, asker),
  ]);
  const sentences = [again, ...(again.alternatives ?? [])];
  const known = new Set([word.text, ...sentences.map(({ text }) => wordAt(text, start, to)?.text)]);
  const candidates = alone
    .flatMap((one) => [one, ...(one.alternatives ?? [])])
    .map(({ text }) => sameCase(text.replace(/[\s\p{P}]+$/u, ""), word.text))
    .filter((candidate) => candidate !== "" && !known.has(wordAt(candidate, 0, to)?.text));
  const prefixes = [...new Set(candidates)].slice(0, MAX_CANDIDATES).map((candidate) => sentence.text.slice(0, start) + candidate);
  const completed = await translateList({ source: from, target: to, text: prefixes.map(() => sentence.source), prefix: prefixes }, asker);
  const isWhole = completed.map(({ text }, at) => text.startsWith(prefixes[at] ?? "") && endsWord(text, (prefixes[at] ?? "").length, to));
  return distinctWords([...sentences, ...completed.filter((_, at) => isWhole[at])], sentence.text, start, to);
}

/** The most probable sentence for each next word, without those that have the old one. */
function distinctWords(sentences: readonly { text: string; log_prob: number }[], old: string, start: number, to: string): Continuation[] {
  const found = new Map<string, Continuation>();
  const before = old.slice(0, start);
  const oldWord = wordAt(old, start, to)?.text;
  const best = Math.max(...sentences.map(({ log_prob }) => log_prob));
  for (const { text, log_prob } of [...sentences].sort((one, other) => other.log_prob - one.log_prob)) {
    const next = wordAt(text, start, to);
    if (next === undefined || !text.startsWith(before) || next.text === oldWord || found.has(next.text) || log_prob < best - MARGIN) continue;
    found.set(next.text, { text, word: next.text, rest: text.slice(next.span[1]), log_prob });
  }
  return [...found.values()].slice(0, MAX_SHOWN);
}

/** The word that begins at a position. */
function wordAt(text: string, start: number, language: string): Word | undefined {
  return words(text, language).find(({ span, isWord }) => span[0] === start && isWord);
}

function endsWord(text: string, end: number, language: string): boolean {
  return words(text, language).every(({ span, isWord }) => !isWord || span[0] >= end || span[1] <= end);
}

/** A text that begins with a small letter if the other one does, and with a capital if that one does. */
function sameCase(text: string, model: string): string {
  const [first = ""] = text;
  const [other = ""] = model;
  if (other !== other.toUpperCase()) return first.toLowerCase() + text.slice(first.length);
  return other !== other.toLowerCase() ? first.toUpperCase() + text.slice(first.length) : text;
}
