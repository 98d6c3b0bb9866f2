/** The text: a text area over a copy of the text, which shows the words that correspond to the pointer's. */

import "./source_pane.css";

import { useRef } from "preact/hooks";

import { useStore } from "../../components/store.js";
import { texts, useTexts } from "../../components/text.js";
import { characters } from "../server.js";
import type { Session } from "../session.js";
import { END, placeOf, samePlace, Words } from "./words.js";

const TEXTS = texts({
  en: { label: "Text", placeholder: "Type or paste a text, or drop a file here", clear: "Clear", file: "Translate a file", characters: "Characters" },
  zh: { label: "原文", placeholder: "输入或粘贴文本，也可以把文件拖到这里", clear: "清空", file: "翻译文件", characters: "字符数" },
});

/** Longer texts are shown smaller. */
export const LONG = 400;

export function SourcePane({ session }: { session: Session }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const value = useStore(store, () => store.state.text);
  const settings = useStore(store, () => store.state.settings);
  const translation = useStore(store, () => store.state.translation);
  const input = useRef<HTMLInputElement>(null);
  const limit = settings?.max_stream_characters ?? 0;
  const count = characters(value);
  const { language } = store.state;
  const point = (event: PointerEvent): void => {
    const beneath = document.elementsFromPoint(event.clientX, event.clientY).find((one) => one.matches(".mirror .word"));
    const place = placeOf(beneath, "source");
    if (!samePlace(place, store.state.hover)) store.update({ hover: place });
  };
  return (
    <section class={`pane source ${value.length > LONG ? "long" : ""}`} aria-label={text.label}>
      <div class="field">
        <div class="body mirror" aria-hidden="true">
          {translation?.text === value ? <Words store={store} side="source" sentences={translation.isDone ? translation.sentences : []} text={value} /> : <p class="words">{value}{END}</p>}
        </div>
        <textarea
          id="text" class="body" aria-label={text.label} placeholder={text.placeholder} value={value} lang={translation?.from || undefined} autofocus spellcheck={false}
          onInput={(event) => session.setText(event.currentTarget.value)} onPointerMove={point} onPointerLeave={() => store.state.hover !== null && store.update({ hover: null })}
        />
      </div>
      <div class="tools">
        <span class={`counter small number ${limit > 0 && count > limit ? "over" : "muted"}`} data-count={count} title={text.characters}>
          <span class="visually-hidden">{text.characters} </span>{limit > 0 && `${count.toLocaleString(language)} / ${limit.toLocaleString(language)}`}
        </span>
        <button type="button" class="push choose-file" disabled={settings === null} onClick={() => input.current?.click()}>{text.file}</button>
        <input
          ref={input} type="file" hidden multiple accept={settings?.document_endings.join(",")} aria-label={text.file}
          onChange={(event) => {
            session.translateFiles(event.currentTarget.files ?? []);
            event.currentTarget.value = "";
          }}
        />
        <button type="button" class="clear" disabled={value === ""} onClick={() => session.clear()}>{text.clear}</button>
      </div>
    </section>
  );
}
