/** The guided walk: a panel with the text of a stop, next and back. A stop sets the view; its link is `#stop=N`. */

import "./walk.css";

import { useEffect, useRef } from "preact/hooks";

import type { Store } from "../state.js";
import { useStore } from "../state.js";
import { texts, useTexts } from "../text.js";
import { STOPS } from "./stops.js";

const TEXTS = texts({
  en: { walk: "Guided walk", next: "Next", back: "Back", close: "Close", section: "Section", of: "of" },
  zh: { walk: "导览", next: "下一站", back: "上一站", close: "关闭", section: "论文第", of: "/" },
});

/** Opens the walk at its first stop. */
export function WalkButton({ store }: { store: Store }) {
  const text = useTexts(store, TEXTS);
  const stop = useStore(store, () => store.state.stop);
  return <button type="button" aria-pressed={stop > 0} onClick={() => goTo(store, stop > 0 ? 0 : 1)}>{text.walk}</button>;
}

/** Go to a stop, from 1; 0 closes the walk. */
export function goTo(store: Store, stop: number): void {
  const { options } = store.state;
  const view = STOPS[stop - 1]?.view ?? {};
  const { "head.unscaled": _, ...others } = options;
  store.update({ ...view, stop, options: { ...others, ...view.options } });
}

export function Walk({ store }: { store: Store }) {
  const text = useTexts(store, TEXTS);
  const language = useStore(store, () => store.state.language);
  const number = useStore(store, () => store.state.stop);
  const panel = useRef<HTMLElement>(null);
  const stop = STOPS[number - 1];

  useEffect(() => {
    // A link that has only the stop gets its view; one that has more keeps what it has.
    if (stop !== undefined && !new URLSearchParams(location.hash.slice(1)).has("view") && store.state.view !== stop.view.view) goTo(store, number);
  }, [number]);

  if (stop === undefined) return null;
  const { title, body } = stop.text[language];
  const section = language === "zh" ? `${text.section} ${stop.section} 节` : `${text.section} ${stop.section}`;
  return (
    <section class="walk" ref={panel} aria-label={text.walk} onKeyDown={(event) => event.key === "Escape" && goTo(store, 0)}>
      <div aria-live="polite">
        <p class="small muted">{`${number} ${text.of} ${STOPS.length} · ${section}`}</p>
        <h2>{title}</h2>
        <p>{body}</p>
      </div>
      <div class="controls">
        <button type="button" disabled={number === 1} onClick={() => goTo(store, number - 1)}>{text.back}</button>
        <button type="button" disabled={number === STOPS.length} onClick={() => goTo(store, number + 1)}>{text.next}</button>
        <progress max={STOPS.length} value={number} aria-label={text.walk} />
        <button type="button" class="close" onClick={() => goTo(store, 0)}>{text.close}</button>
      </div>
    </section>
  );
}
