/** Positions in texts: the server counts characters, JavaScript counts UTF-16 units; and the words of a text. */

/** Start and end, in UTF-16 units. */
export type Span = readonly [start: number, end: number];

/** Translates positions in characters (code points) of a text to UTF-16 units. */
export class Positions {
  private readonly units: Uint32Array | null;

  constructor(text: string) {
    this.units = /[\ud800-\udbff]/.test(text) ? Uint32Array.from(unitsOf(text)) : null; // else both are the same
  }

  span([start, end]: Span): Span {
    return [this.unit(start), this.unit(end)];
  }

  private unit(character: number): number {
    return this.units === null ? character : (this.units[Math.min(character, this.units.length - 1)] ?? 0);
  }
}

function* unitsOf(text: string): Generator<number> {
  let unit = 0;
  for (const character of text) {
    yield unit;
    unit += character.length;
  }
  yield unit;
}

export interface Word {
  span: Span;
  text: string;
  /** False for spaces and punctuation. */
  isWord: boolean;
}

/** The words of a text and what is between them; they concatenate to the text. */
export function words(text: string, language: string): Word[] {
  return [...segmenter(language).segment(text)].map(({ segment, index, isWordLike }) => ({
    span: [index, index + segment.length],
    text: segment,
    isWord: isWordLike === true,
  }));
}

const segmenters = new Map<string, Intl.Segmenter>();

function segmenter(language: string): Intl.Segmenter {
  let found = segmenters.get(language);
  if (found === undefined) {
    try {
      found = new Intl.Segmenter(language, { granularity: "word" });
    } catch {
      found = new Intl.Segmenter(undefined, { granularity: "word" }); // a code that is no language tag
    }
    segmenters.set(language, found);
  }
  return found;
}

export function overlap([start, end]: Span, [otherStart, otherEnd]: Span): boolean {
  return start < otherEnd && otherStart < end;
}
