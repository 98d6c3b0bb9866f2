/** The translation. A word under the pointer shows which words it comes from; a click shows what else can stand there. */

import "./target_pane.css";

import { useRef } from "preact/hooks";

import { useStore } from "../../components/store.js";
import { texts, useTexts } from "../../components/text.js";
import type { Session } from "../session.js";
import { translatedText } from "../translation.js";
import { Alternatives } from "./alternatives.js";
import { CopyButton } from "./copy_button.js";
import { SeeLink } from "./see_link.js";
import { LONG } from "./source_pane.js";
import { placeOf, samePlace, Words } from "./words.js";

const TEXTS = texts({
  en: {
    label: "Translation", placeholder: "Translation", copy: "Copy", copied: "Copied", link: "Copy link", translating: "Translating…",
    hint: "Arrow keys move between words, Enter shows alternatives.",
    numbers_differ: "Check the numbers: they differ from those of the text.", repetition: "The translation repeats itself.",
    untranslated: "A part could not be translated and was copied.", too_long: "A part is too long and was copied.",
  },
  zh: {
    label: "译文", placeholder: "译文", copy: "复制", copied: "已复制", link: "复制链接", translating: "正在翻译……",
    hint: "用方向键在词之间移动，按回车键查看其他译法。",
    numbers_differ: "请核对数字：译文中的数字与原文不同。", repetition: "译文有重复的内容。",
    untranslated: "有一部分无法翻译，已原样保留。", too_long: "有一部分过长，已原样保留。",
  },
});

const WARNINGS = ["numbers_differ", "repetition", "untranslated", "too_long"] as const;

export function TargetPane({ session }: { session: Session }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const translation = useStore(store, () => store.state.translation);
  const isTranslating = useStore(store, () => store.state.isTranslating);
  const value = useStore(store, () => store.state.text);
  const body = useRef<HTMLDivElement>(null);
  const output = translation === null ? "" : translatedText(translation);
  const isStale = translation !== null && (translation.text !== value || !translation.isDone);
  const found = new Set(translation?.sentences.flatMap(({ warnings }) => warnings));
  const hover = (event: Event): void => {
    const place = placeOf(event.target as Element, "target");
    if (!samePlace(place, store.state.hover)) store.update({ hover: place });
  };
  const leave = (): void => {
    if (store.state.hover !== null) store.update({ hover: null });
  };
  const open = (event: Event): void => {
    const place = placeOf(event.target as Element, "target");
    if (place === null || getSelection()?.isCollapsed === false) return;
    void session.openWord(place.sentence, place.word);
  };
  const onKey = (event: KeyboardEvent): void => {
    const target = event.target as HTMLElement;
    if (!target.matches("[data-word]")) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      open(event);
    } else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      event.preventDefault();
      const all = [...(body.current?.querySelectorAll<HTMLElement>("[data-word]") ?? [])];
      all[all.indexOf(target) + (event.key === "ArrowRight" ? 1 : -1)]?.focus();
    }
  };
  return (
    <section class={`pane target ${value.length > LONG ? "long" : ""} ${isStale ? "stale" : ""}`} aria-label={text.label} aria-busy={isTranslating}>
      {isTranslating && <div class="progress" role="progressbar" aria-label={text.translating} />}
      <div
        ref={body} class="body" lang={translation?.to} data-done={translation !== null && !isStale && !isTranslating}
        onPointerOver={hover} onPointerLeave={leave} onFocusIn={hover} onFocusOut={leave} onClick={open} onKeyDown={onKey}
      >
        {translation === null ? <p class="placeholder">{text.placeholder}</p> : <Words store={store} side="target" sentences={translation.sentences} />}
      </div>
      {!isStale && WARNINGS.filter((code) => found.has(code)).map((code) => <p key={code} class="warnings small">{text[code]}</p>)}
      <output class="visually-hidden" aria-live="polite" data-output={output}>{!isStale && output}</output>
      {output !== "" && <p class="visually-hidden">{text.hint}</p>}
      <div class="tools">
        <CopyButton class="copy" label={text.copy} copied={text.copied} disabled={output === ""} content={() => output} onCopy={() => session.keepInHistory()} />
        <CopyButton class="copy-link" label={text.link} copied={text.copied} disabled={value === ""} content={() => session.link()} />
        <SeeLink session={session} />
      </div>
      <Alternatives session={session} />
    </section>
  );
}
