/** What else can stand in place of a word of the translation, and other translations of its sentence. */

import "./alternatives.css";

import { useEffect, useLayoutEffect, useRef } from "preact/hooks";

import { useStore } from "../../components/store.js";
import { texts, useTexts } from "../../components/text.js";
import type { Session } from "../session.js";
import { SeeLink } from "./see_link.js";

const TEXTS = texts({
  en: { title: (word: string) => `Instead of “${word}”`, sentence: "The whole sentence", searching: "Searching…", none: "No other word is likely here.", close: "Close" },
  zh: { title: (word: string) => `“${word}”的其他译法`, sentence: "整句的其他译法", searching: "正在查找……", none: "此处没有其他可能的词。", close: "关闭" },
});

export function Alternatives({ session }: { session: Session }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const opened = useStore(store, () => store.state.opened);
  const translation = useStore(store, () => store.state.translation);
  const box = useRef<HTMLDivElement>(null);
  const sentence = opened && translation?.sentences[opened.sentence];
  const place = `${opened?.sentence}:${opened?.word}`;
  const wordElement = (): HTMLElement | null => document.querySelector(`.pane.target [data-sentence="${opened?.sentence}"][data-word="${opened?.word}"]`);
  useLayoutEffect(() => {
    const [word, pane] = [wordElement(), box.current?.parentElement];
    if (!word || !pane || !box.current) return;
    const [at, outer] = [word.getClientRects()[0] ?? word.getBoundingClientRect(), pane.getBoundingClientRect()];
    box.current.style.top = `${at.bottom - outer.top + 6}px`;
    box.current.style.left = `${Math.max(8, Math.min(at.left - outer.left - 8, outer.width - box.current.offsetWidth - 8))}px`;
  }, [place]);
  useEffect(() => {
    if (!opened) return;
    const word = wordElement();
    const close = (event: Event): void => {
      if (!(event.target instanceof Node && box.current?.contains(event.target)) && !word?.contains(event.target as Node)) session.closeWord();
    };
    addEventListener("pointerdown", close);
    return () => removeEventListener("pointerdown", close);
  }, [place]);
  const isReady = opened !== null && opened.continuations !== null;
  useEffect(() => {
    if (!isReady) return;
    box.current?.scrollIntoView({ block: "nearest" });
    box.current?.querySelector<HTMLElement>("button")?.focus({ preventScroll: true });
  }, [place, isReady]);
  if (!opened || !sentence) return null;

  const word = sentence.words[opened.word]?.text ?? "";
  const others = translation?.sentences.length === 1 ? [] : sentence.others; // those of a single sentence are below the panes
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === "Escape") {
      event.stopPropagation();
      const element = wordElement();
      session.closeWord();
      element?.focus();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const all = [...(box.current?.querySelectorAll<HTMLElement>("button, a") ?? [])];
      all[(all.indexOf(event.target as HTMLElement) + (event.key === "ArrowDown" ? 1 : all.length - 1)) % all.length]?.focus();
    }
  };
  return (
    <div ref={box} class="alternatives" role="dialog" aria-label={text.title(word)} data-ready={isReady} onKeyDown={onKey}>
      <h2>{text.title(word)}</h2>
      {opened.continuations === null && <p class="muted small" role="status">{text.searching}</p>}
      {opened.continuations?.length === 0 && <p class="muted small">{text.none}</p>}
      {opened.continuations?.map((one) => (
        <button key={one.word} type="button" class="option next" lang={translation?.to} data-word-option={one.word} title={one.text} onClick={() => void session.choose(opened.sentence, one.text)}>
          <b>{one.word}</b><span class="muted">{one.rest}</span>
        </button>
      ))}
      {others.length > 0 && <h2>{text.sentence}</h2>}
      {others.map((other) => (
        <button key={other} type="button" class="option whole" lang={translation?.to} onClick={() => void session.choose(opened.sentence, other)}>{other}</button>
      ))}
      <div class="foot">
        <SeeLink session={session} sentence={opened.sentence} />
        <button type="button" class="close" onClick={() => session.closeWord()}>{text.close}</button>
      </div>
    </div>
  );
}
