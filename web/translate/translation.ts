/** The translation of a text: its sentences, their words, and which words correspond. */

import type { TranslationResponse } from "./server.js";
import { overlap, Positions, type Span, type Word, words } from "./spans.js";

export interface Sentence {
  /** Where it is in the source text. */
  span: Span;
  source: string;
  sourceWords: readonly Word[];
  /** White space before the translation. */
  space: string;
  text: string;
  words: readonly Word[];
  /** Corresponding words, as spans of `source` and of `text`. */
  links: readonly (readonly [source: Span, target: Span])[];
  /** Other translations of the whole sentence. */
  others: readonly string[];
  warnings: readonly string[];
  /** True if the reader chose this translation among others. */
  isChosen: boolean;
}

export interface Translation {
  /** The source text. */
  text: string;
  /** The given or detected source language; empty: unknown. */
  from: string;
  isDetected: boolean;
  to: string;
  sentences: readonly Sentence[];
  /** False while sentences are still translated. */
  isDone: boolean;
}

export function translatedText({ sentences }: Translation): string {
  return sentences.map(({ space, text }) => space + text).join("");
}

/** A sentence of a streamed translation of `text`. */
export function sentenceOf(response: TranslationResponse, text: string, positions: Positions, from: string, to: string): Sentence {
  const span = positions.span(response.source_span ?? [0, 0]);
  const space = /^\s*/.exec(response.text)?.[0] ?? "";
  return { ...translatedSentence(text.slice(...span), response, from, to, space.length), span, space };
}

/** A translation of `source`; `skipped`: the number of spaces before the translation. */
export function translatedSentence(source: string, response: TranslationResponse, from: string, to: string, skipped = 0): Sentence {
  const text = response.text.slice(skipped);
  const [inSource, inText] = [new Positions(source), new Positions(text)];
  const links = (response.alignment ?? []).map(([one, [start, end]]) => [inSource.span(one), inText.span([start - skipped, end - skipped])] as const);
  return {
    span: [0, source.length],
    source,
    sourceWords: words(source, from),
    space: "",
    text,
    words: words(text, to),
    links,
    others: (response.alternatives ?? []).map((one) => one.text),
    warnings: response.warnings ?? [],
    isChosen: false,
  };
}

export type Side = "source" | "target";

/** The word that the pointer or the keyboard is on. */
export interface Place {
  side: Side;
  sentence: number;
  word: number;
}

/** The words that correspond to a word: it itself and all that are aligned with it, as spans of both sides. */
export function correspondingSpans(sentence: Sentence, side: Side, word: number): Record<Side, Span[]> {
  const own = (side === "source" ? sentence.sourceWords : sentence.words)[word]?.span;
  if (own === undefined) return { source: [], target: [] };
  const linked = sentence.links.filter(([source, target]) => overlap(side === "source" ? source : target, own));
  return {
    source: side === "source" ? [own] : linked.map(([source]) => source),
    target: side === "target" ? [own] : linked.map(([, target]) => target),
  };
}
