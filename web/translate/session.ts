/** What the page does: translates while the reader types, looks for alternatives, translates documents. */

import { findContinuations } from "./alternatives.js";
import { setKeepsHistory, type Entry, withEntry, writeHistory } from "./history.js";
import { canTranslate, sources, targetFor, targets, UNDETERMINED } from "./languages.js";
import { type Asker, characters, Problem, readSettings, stream, translate, translateDocument, type TranslationResponse } from "./server.js";
import { Positions } from "./spans.js";
import { type DocumentJob, fragment, type Store } from "./state.js";
import { type Sentence, sentenceOf, translatedSentence, translatedText } from "./translation.js";

/** Milliseconds between the last key and the request. */
const PAUSE = 300;
/** Milliseconds after which a translation that stays is kept in the history. */
const SETTLED = 2500;
const NUM_ALTERNATIVES = 3;

export class Session {
  private request: AbortController | null = null;
  private wordRequest: AbortController | null = null;
  private timer = 0;
  private settled = 0;
  private retry = 0;
  private failures = 0;
  private numDocuments = 0;
  private readonly documentRequests = new Map<number, AbortController>();
  /** Sentences whose translation the reader chose, which later translations of the text keep. */
  private readonly chosen = new Map<string, Sentence>();

  constructor(readonly store: Store) {}

  /** Ask the server what it can do, until it answers. */
  async start(): Promise<void> {
    addEventListener("online", () => this.store.state.problem?.kind === "offline" && this.again());
    addEventListener("hashchange", () => this.followAddress());
    try {
      const settings = await readSettings(new AbortController().signal);
      const { text, from, to, language } = this.store.state;
      this.store.update({ settings, problem: null, retryIn: null });
      this.failures = 0;
      this.show(text, from, to || (language === "zh" ? "zh" : ""));
    } catch (error) {
      this.fail(error, () => void this.start());
    }
  }

  /** Translate a text from an address or from the history, with its languages as far as the server has them. */
  private show(text: string, from: string, to: string): void {
    const { settings } = this.store.state;
    if (settings === null) return;
    const source = sources(settings).includes(from) ? from : "";
    this.store.update({ text, from: source, to: targetFor(settings, source, to), opened: null, hover: null });
    this.translateNow();
  }

  setText(text: string): void {
    this.store.update({ text, opened: null, hover: null });
    this.translateSoon();
  }

  setFrom(from: string): void {
    const { settings, to } = this.store.state;
    if (settings === null) return;
    this.store.update({ from, to: targetFor(settings, from, to, [this.translatedFrom()]), opened: null });
    this.translateNow();
  }

  setTo(to: string): void {
    const { settings, from } = this.store.state;
    if (settings === null) return;
    const source = from === to ? [this.store.state.to, ...sources(settings)].find((code) => canTranslate(settings, code, to)) ?? "" : from;
    this.store.update({ to, from: source === "" || canTranslate(settings, source, to) ? source : "", opened: null });
    this.translateNow();
  }

  /** Whether the translation can become the text. */
  canSwap(): boolean {
    const { settings, from, to } = this.store.state;
    const source = from || this.translatedFrom();
    return settings !== null && source !== "" && canTranslate(settings, to, source);
  }

  swap(): void {
    const { from, to, text, translation } = this.store.state;
    if (!this.canSwap()) return;
    const source = from || this.translatedFrom();
    this.store.update({ from: to, to: source, text: translation?.text === text ? translatedText(translation) : text, opened: null, hover: null });
    this.translateNow();
  }

  clear(): void {
    this.keepInHistory();
    this.setText("");
    document.getElementById("text")?.focus();
  }

  restore({ text, from, isDetected, to }: Entry): void {
    this.store.update({ panel: null });
    this.show(text, isDetected ? "" : from, to);
  }

  setKey(key: string): void {
    this.store.update({ key });
    this.translateNow();
  }

  // ---- translating ---------------------------------------------------------------------------------------------------

  private translateSoon(): void {
    this.cancel();
    if (this.store.state.text.trim() === "") this.translateNow();
    else this.timer = window.setTimeout(() => this.translateNow(), PAUSE);
  }

  translateNow(): void {
    this.cancel();
    const { text, settings, from, to } = this.store.state;
    if (settings === null) return;
    if (text.trim() === "") {
      this.store.update({ translation: null, isTranslating: false, problem: null });
      return;
    }
    if (characters(text) > settings.max_stream_characters) {
      this.store.update({ isTranslating: false, problem: new Problem("too_long") });
      return;
    }
    if (settings.needs_key && this.store.state.key === "") {
      this.store.update({ isTranslating: false, problem: new Problem("key") });
      return;
    }
    this.request = new AbortController();
    void this.run(text, from, to, this.request);
  }

  private cancel(): void {
    clearTimeout(this.timer);
    clearTimeout(this.settled);
    clearInterval(this.retry);
    this.request?.abort();
    this.request = null;
    this.wordRequest?.abort();
    this.store.update({ retryIn: null });
  }

  private async run(text: string, from: string, to: string, controller: AbortController): Promise<void> {
    const { settings } = this.store.state;
    if (settings === null) return;
    this.store.update({ isTranslating: true });
    const before = this.store.state.translation;
    const old = before?.to === to ? before.sentences : [];
    const found: Sentence[] = [];
    const positions = new Positions(text);
    let source = from;
    const show = (isDone: boolean): void => {
      const sentences = isDone ? found : [...found, ...old.slice(found.length)];
      this.store.update({ translation: { text, from: source, isDetected: from === "", to, sentences, isDone } });
    };
    try {
      const alternatives = Math.min(NUM_ALTERNATIVES, settings.max_alternatives);
      for await (const response of stream({ text, source: from, target: to, alternatives }, settings, this.asker(controller))) {
        if (controller.signal.aborted) return;
        source ||= response.source ?? "";
        if (from === "" && found.length === 0 && source !== "" && this.redirect(source)) return;
        const sentence = sentenceOf(response, text, positions, source, to);
        found.push(this.withChoice(sentence, to));
        if (found.length === 1 || found.length % 8 === 0) show(false);
      }
      show(true);
      this.failures = 0;
      this.store.update({ isTranslating: false, problem: null });
      this.settled = window.setTimeout(() => this.keepInHistory(), SETTLED);
    } catch (error) {
      if (!controller.signal.aborted) this.fail(error, () => this.translateNow());
    }
  }

  /** Translate into another language if the text turns out to be in the target language, or in one that it cannot be translated from. */
  private redirect(source: string): boolean {
    const { settings, to, translation } = this.store.state;
    if (settings === null || canTranslate(settings, source, to) || !sources(settings).includes(source)) return false;
    const target = targetFor(settings, source, to, [translation?.from ?? "", this.store.state.language]);
    if (target === to || !targets(settings, source).includes(target)) return false;
    this.store.update({ to: target });
    this.translateNow();
    return true;
  }

  private withChoice(sentence: Sentence, to: string): Sentence {
    const choice = this.chosen.get(`${to}\n${sentence.source}`);
    if (choice === undefined) return sentence;
    const others = [sentence.text, ...sentence.others].filter((text) => text !== choice.text);
    return { ...choice, span: sentence.span, space: sentence.space, others };
  }

  private fail(error: unknown, again: () => void): void {
    const problem = error instanceof Problem ? error : new Problem("refused", error instanceof Error ? error.message : String(error));
    this.store.update({ isTranslating: false, problem });
    if (problem.kind !== "offline" && problem.kind !== "busy") return;
    let left = Math.ceil(problem.retryAfter ?? Math.min(2 ** ++this.failures, 30));
    this.store.update({ retryIn: left });
    clearInterval(this.retry);
    this.retry = window.setInterval(() => {
      left -= 1;
      this.store.update({ retryIn: Math.max(left, 0) });
      if (left > 0) return;
      clearInterval(this.retry);
      again();
    }, 1000);
  }

  /** Try again what failed. */
  again(): void {
    clearInterval(this.retry);
    if (this.store.state.settings === null) void this.start();
    else this.translateNow();
  }

  private asker(controller: AbortController): Asker {
    return { key: this.store.state.key, signal: controller.signal };
  }

  private translatedFrom(): string {
    return this.store.state.translation?.from ?? "";
  }

  private followAddress(): void {
    const fields = new URLSearchParams(location.hash.slice(1));
    const text = fields.get("text");
    if (text !== null) this.show(text, fields.get("from") ?? "", fields.get("to") ?? this.store.state.to);
  }

  // ---- alternatives --------------------------------------------------------------------------------------------------

  /** Show the alternatives of a word of the translation: what else can stand there, given the words before it. */
  async openWord(sentence: number, word: number): Promise<void> {
    const { translation, settings } = this.store.state;
    const one = translation?.sentences[sentence];
    if (!translation || !one || !settings) return;
    this.wordRequest?.abort();
    const controller = (this.wordRequest = new AbortController());
    this.store.update({ opened: { sentence, word, continuations: null } });
    try {
      const continuations = await findContinuations(one, word, translation, settings, this.asker(controller));
      if (!controller.signal.aborted) this.store.update({ opened: { sentence, word, continuations } });
    } catch (error) {
      if (controller.signal.aborted) return;
      this.store.update({ opened: null, problem: error instanceof Problem ? error : new Problem("refused", String(error)) });
    }
  }

  closeWord(): void {
    this.wordRequest?.abort();
    if (this.store.state.opened !== null) this.store.update({ opened: null });
  }

  /** Make a text the translation of a sentence; then find out which words correspond. */
  async choose(index: number, text: string): Promise<void> {
    const { translation } = this.store.state;
    const sentence = translation?.sentences[index];
    if (!translation || !sentence) return;
    const others = [sentence.text, ...sentence.others].filter((one) => one !== text);
    const { from, to } = translation;
    const replaceWith = (response: TranslationResponse): void => {
      const now = this.store.state.translation;
      if (now === null || now.sentences[index]?.source !== sentence.source || now.to !== to) return;
      const made = { ...translatedSentence(sentence.source, response, from, to), span: sentence.span, space: sentence.space, others, isChosen: true };
      this.chosen.set(`${to}\n${sentence.source}`, made);
      this.store.update({ translation: { ...now, sentences: now.sentences.map((one, at) => (at === index ? made : one)) } });
    };
    this.store.update({ opened: null });
    replaceWith({ text, source: from, log_prob: 0 });
    try {
      const response = await translate({ text: sentence.source, source: from, target: to, prefix: text }, this.asker(new AbortController()));
      if (response.text.startsWith(text)) replaceWith({ ...response, text });
    } catch {
      // the text is there; only the corresponding words are missing
    }
    this.keepInHistory();
  }

  // ---- links ---------------------------------------------------------------------------------------------------------

  /** A link that opens this page with the text and the languages. */
  link(): string {
    return new URL(fragment(this.store.state), document.baseURI).href;
  }

  /** The page of `heedful see` with a sentence of the translation and the model that translated it; null if it does not show the model. */
  seeAddress(index = this.store.state.hover?.sentence ?? this.store.state.opened?.sentence ?? 0): string | null {
    const { settings, translation, language, theme } = this.store.state;
    const sentence = translation?.sentences[index] ?? translation?.sentences[0];
    const [, , model] = settings?.see.find(([source, target]) => target === translation?.to && (source === translation?.from || !translation?.from)) ?? [];
    if (model === undefined || !translation || !sentence) return null;
    return `see/${fragment({ text: sentence.source, from: "", to: translation.to === UNDETERMINED ? "" : translation.to }, { model, language, ...(theme !== "auto" && { theme }) })}`;
  }

  // ---- history -------------------------------------------------------------------------------------------------------

  keepInHistory(): void {
    const { translation, keepsHistory, history, text } = this.store.state;
    if (!keepsHistory || translation === null || !translation.isDone || translation.text !== text) return;
    const { from, isDetected, to } = translation;
    const entry = { time: Date.now(), from, isDetected, to, text, translation: translatedText(translation) };
    this.setHistory(withEntry(history, entry));
  }

  setHistory(history: readonly Entry[]): void {
    this.store.update({ history });
    writeHistory(history);
  }

  setKeepsHistory(keeps: boolean): void {
    setKeepsHistory(keeps);
    this.store.update({ keepsHistory: keeps, ...(!keeps && { history: [] }) });
  }

  // ---- documents -----------------------------------------------------------------------------------------------------

  translateFiles(files: Iterable<File>): void {
    for (const file of files) void this.translateFile(file);
  }

  private async translateFile(file: File): Promise<void> {
    const { from, to, settings } = this.store.state;
    if (settings === null) return;
    const id = ++this.numDocuments;
    const controller = new AbortController();
    this.documentRequests.set(id, controller);
    const set = (change: Partial<DocumentJob>): void =>
      this.store.update({ documents: this.store.state.documents.map((job) => (job.id === id ? { ...job, ...change } : job)) });
    this.store.update({ documents: [...this.store.state.documents, { id, name: file.name, to, status: "translating", url: "", problem: null }] });
    try {
      if (file.size > settings.max_document_bytes) throw new Problem("too_long");
      if (!settings.document_endings.some((ending) => file.name.toLowerCase().endsWith(ending))) throw new Problem("format", settings.document_endings.join(" "));
      const blob = await translateDocument(file, from, to, this.asker(controller));
      set({ status: "done", url: URL.createObjectURL(blob) });
    } catch (error) {
      if (!controller.signal.aborted) set({ status: "failed", problem: error instanceof Problem ? error : new Problem("refused", String(error)) });
    }
  }

  removeDocument(id: number): void {
    this.documentRequests.get(id)?.abort();
    const job = this.store.state.documents.find((one) => one.id === id);
    if (job?.url) URL.revokeObjectURL(job.url);
    this.store.update({ documents: this.store.state.documents.filter((one) => one.id !== id) });
  }
}
