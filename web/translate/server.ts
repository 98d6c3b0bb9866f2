/** The server: its settings, translations as they arrive, n-best lists for a prefix, and documents. */

import type { Span } from "./spans.js";

export interface ServerSettings {
  directions: readonly (readonly [source: string | null, target: string | null])[];
  names: Record<string, { en?: string; zh?: string }>;
  needs_key: boolean;
  max_characters: number;
  max_stream_characters: number;
  max_body_bytes: number;
  max_document_bytes: number;
  max_alternatives: number;
  max_beam_size: number;
  document_endings: readonly string[];
  /** Directions that the page of `heedful see` shows, and the model of each. */
  see: readonly (readonly [source: string | null, target: string | null, model: string])[];
}

/** offline: no answer; busy: try again later; key: no API key, a wrong one, or one that is used up; format: a file of no supported format; refused: anything else. */
export type ProblemKind = "offline" | "busy" | "key" | "too_long" | "format" | "refused";

export class Problem extends Error {
  constructor(
    readonly kind: ProblemKind,
    message = "",
    /** Seconds. */
    readonly retryAfter: number | null = null,
  ) {
    super(message);
  }
}

export interface TranslationRequest {
  text: string;
  /** Empty: detect. */
  source: string;
  target: string;
  alternatives?: number;
  beam_size?: number;
  prefix?: string;
}

/** Several texts, and what the translation of each begins with. */
export interface ListRequest extends Omit<TranslationRequest, "text" | "prefix"> {
  text: readonly string[];
  prefix?: readonly string[];
}

/** Spans count characters. */
export interface TranslationResponse {
  text: string;
  source: string | null;
  log_prob: number;
  alternatives?: readonly { text: string; log_prob: number }[];
  alignment?: readonly (readonly [source: Span, target: Span])[];
  source_span?: Span;
  warnings?: readonly string[];
}

export interface Asker {
  key: string;
  signal: AbortSignal;
}

export async function readSettings(signal: AbortSignal): Promise<ServerSettings> {
  return (await ask("page.json", { signal })).json() as Promise<ServerSettings>;
}

export async function translate(request: TranslationRequest, asker: Asker): Promise<TranslationResponse> {
  return (await post("api/v1/translate", request, asker)).json() as Promise<TranslationResponse>;
}

export async function translateList(request: ListRequest, asker: Asker): Promise<readonly TranslationResponse[]> {
  if (request.text.length === 0) return [];
  return ((await (await post("api/v1/translate", request, asker)).json()) as { translations: TranslationResponse[] }).translations;
}

/** The sentences of a text, each as soon as it is translated. Texts over the limit of a request are sent in pieces. */
export async function* stream(request: TranslationRequest, settings: ServerSettings, asker: Asker): AsyncGenerator<TranslationResponse> {
  let start = 0;
  let source = request.source;
  for (const piece of pieces(request.text, settings)) {
    let gap = start > 0;
    const before = characters(request.text.slice(0, start));
    for await (const [name, data] of events(await post("api/v1/stream", { ...request, text: piece, source }, asker))) {
      if (name === "error") throw problemOf(statusOf(data as ErrorBody), data as ErrorBody, null);
      if (name !== "sentence") continue;
      const result = data as TranslationResponse;
      const [from, to] = result.source_span ?? [0, 0];
      const space = gap ? (/\s*$/.exec(request.text.slice(0, start))?.[0] ?? "") + (/^\s*/.exec(piece)?.[0] ?? "") : "";
      const shift = ([a, b]: Span): Span => [a + space.length, b + space.length];
      yield {
        ...result,
        text: space + result.text,
        source_span: [from + before, to + before],
        ...(result.alignment && { alignment: result.alignment.map(([one, other]) => [one, shift(other)] as const) }),
      };
      gap = false;
      source ||= result.source ?? ""; // the whole text is in the language of its beginning
    }
    start += piece.length;
  }
}

/** The number of characters (code points). */
export function characters(text: string): number {
  let count = 0;
  for (const _ of text) ++count;
  return count;
}

/** Pieces of a text that fit into one request, cut after a line, a sentence or a word. */
export function pieces(text: string, { max_stream_characters, max_body_bytes }: ServerSettings): string[] {
  const limit = Math.min(max_stream_characters, Math.floor((max_body_bytes - 2048) / 6)); // a unit has at most 6 bytes as JSON
  const found: string[] = [];
  let rest = text;
  while (rest.length > limit) {
    const part = rest.slice(0, limit);
    const ends = [part.lastIndexOf("\n") + 1, lastMatch(part, /[.!?]\s|[。！？]/g), part.lastIndexOf(" ") + 1];
    const end = ends.find((one) => one > limit / 2) ?? (/[\ud800-\udbff]$/.test(part) ? limit - 1 : limit);
    found.push(rest.slice(0, end));
    rest = rest.slice(end);
  }
  return [...found, rest];
}

function lastMatch(text: string, pattern: RegExp): number {
  let end = 0;
  for (const match of text.matchAll(pattern)) end = match.index + match[0].length;
  return end;
}

/** Translate a document; the result is of the same format. */
export async function translateDocument(file: File, source: string, target: string, { key, signal }: Asker): Promise<Blob> {
  const form = new FormData();
  form.set("file", file);
  form.set("source", source || "auto");
  form.set("target", target);
  const answer = (await (await ask("translate_file", { method: "POST", body: form, headers: credentials(key), signal })).json()) as { translatedFileUrl: string };
  const name = new URL(answer.translatedFileUrl, document.baseURI).pathname.split("/").pop() ?? "";
  return (await ask(`download_file/${name}`, { headers: credentials(key), signal })).blob();
}

function post(path: string, { source, ...request }: TranslationRequest | ListRequest, { key, signal }: Asker): Promise<Response> {
  const body = JSON.stringify({ ...request, ...(source && { source }), align: true });
  return ask(path, { method: "POST", body, headers: { "Content-Type": "application/json", ...credentials(key) }, signal });
}

function credentials(key: string): Record<string, string> {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

interface ErrorBody {
  error?: { status?: number; message?: string } | string;
}

async function ask(path: string, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(new URL(path, document.baseURI), { ...init, cache: "no-store" });
  } catch (error) {
    throw init.signal?.aborted ? error : new Problem("offline");
  }
  if (response.ok) return response;
  const body = (await response.json().catch(() => ({}))) as ErrorBody;
  throw problemOf(response.status, body, response.headers.get("Retry-After"));
}

function statusOf({ error }: ErrorBody): number {
  return typeof error === "object" ? (error.status ?? 500) : 500;
}

function problemOf(status: number, body: ErrorBody, retryAfter: string | null): Problem {
  const message = typeof body.error === "string" ? body.error : (body.error?.message ?? `status ${status}`);
  if (status === 429 || status === 503) return new Problem("busy", message, Number(retryAfter) || 2);
  if (status === 401 || status === 403) return new Problem("key", message);
  if (status === 413) return new Problem("too_long", message);
  return new Problem("refused", message);
}

/** The server-sent events of a response: name and data. */
async function* events(response: Response): AsyncGenerator<[name: string, data: unknown]> {
  if (response.body === null) return;
  let buffer = "";
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error: unknown) => {
        throw error instanceof DOMException && error.name === "AbortError" ? error : new Problem("offline");
      });
      if (done) return;
      buffer += value;
      for (let end = buffer.indexOf("\n\n"); end >= 0; end = buffer.indexOf("\n\n")) {
        const lines = buffer.slice(0, end).split("\n");
        buffer = buffer.slice(end + 2);
        const name = lines.find((line) => line.startsWith("event: "))?.slice(7) ?? "message";
        const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
        yield [name, JSON.parse(data)];
      }
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}
