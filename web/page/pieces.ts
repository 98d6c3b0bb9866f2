/** Subwords as people read them: spaces instead of ▁, characters instead of byte pieces, and whole words. */

/** The label of one subword. `control`: tags, start and end tokens. */
export interface Label {
  text: string;
  kind: "word" | "continuation" | "control" | "byte";
}

const BYTE = /^<0x([0-9A-F]{2})>$/;
const CONTROL = /^<[^>]+>$/;

/** Labels of subwords. The first byte of a character shows it, the others show ‥ (two dots). */
export function labels(pieces: readonly string[]): Label[] {
  const found: Label[] = [];
  for (let index = 0; index < pieces.length; ++index) {
    const piece = pieces[index] ?? "";
    const bytes = byteRun(pieces, index);
    if (bytes.length > 0) {
      const { text, length } = firstCharacter(bytes);
      found.push({ text, kind: "byte" });
      for (let rest = 1; rest < length; ++rest) found.push({ text: "‥", kind: "byte" });
      index += length - 1;
    } else if (CONTROL.test(piece)) {
      found.push({ text: piece, kind: "control" });
    } else if (piece === "▁") {
      found.push({ text: "␣", kind: "word" });
    } else {
      found.push(piece.startsWith("▁") ? { text: piece.slice(1), kind: "word" } : { text: piece, kind: "continuation" });
    }
  }
  return found;
}

function byteRun(pieces: readonly string[], start: number): number[] {
  const bytes: number[] = [];
  for (let index = start; index < Math.min(pieces.length, start + 4); ++index) {
    const match = BYTE.exec(pieces[index] ?? "");
    if (match === null) break;
    bytes.push(parseInt(match[1] ?? "0", 16));
  }
  return bytes;
}

function firstCharacter(bytes: number[]): { text: string; length: number } {
  const first = bytes[0] ?? 0;
  const length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
  if (bytes.length < length) return { text: `0x${first.toString(16).toUpperCase()}`, length: 1 };
  try {
    return { text: new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(bytes.slice(0, length))), length };
  } catch {
    return { text: `0x${first.toString(16).toUpperCase()}`, length: 1 };
  }
}

/** Subwords that belong together, as ranges [start, end): byte pieces of a character always, and with `words` the subwords of a word. */
export interface Group {
  start: number;
  end: number;
  text: string;
  kind: Label["kind"];
}

/** Han, kana and punctuation begin a word of their own. */
const ALONE = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{P}\p{S}]/u;

export function groups(pieces: readonly string[], { words }: { words: boolean }): Group[] {
  const found: Group[] = [];
  let afterSpace = false;
  for (const [index, { text, kind }] of labels(pieces).entries()) {
    const last = found[found.length - 1];
    const continuesCharacter = kind === "byte" && text === "‥";
    const continuesWord =
      words && !afterSpace && kind !== "control" && kind !== "word" && last?.kind !== "control" && !ALONE.test(text) && !ALONE.test(last?.text ?? "。");
    const joinsSpace = words && afterSpace && kind !== "control" && last !== undefined;
    if (last !== undefined && (continuesCharacter || continuesWord || joinsSpace)) {
      last.end = index + 1;
      last.text = last.text === "␣" ? text : continuesCharacter ? last.text : last.text + text;
    } else {
      found.push({ start: index, end: index + 1, text, kind });
    }
    afterSpace = text === "␣" && kind === "word";
  }
  return found;
}

/** Attention weights between groups: the sum over the keys of a group, the mean over its queries. */
export function groupWeights(weights: Float32Array, numKeys: number, queries: readonly Group[], keys: readonly Group[]): Float32Array {
  const found = new Float32Array(queries.length * keys.length);
  for (const [row, query] of queries.entries()) {
    for (const [column, key] of keys.entries()) {
      let sum = 0;
      for (let q = query.start; q < query.end; ++q) for (let k = key.start; k < key.end; ++k) sum += weights[q * numKeys + k] ?? 0;
      found[row * keys.length + column] = sum / (query.end - query.start);
    }
  }
  return found;
}
