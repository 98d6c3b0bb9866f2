/** The dialog that lists the keys of a page. */

import "./key_list.css";

import { useEffect, useRef } from "preact/hooks";

import { type PageStore, texts, useTexts } from "./text.js";

const TEXTS = texts({ en: { title: "Keyboard", close: "Close" }, zh: { title: "键盘操作", close: "关闭" } });

/** Elements that use the keys themselves. */
export const TYPING = "textarea, select, input:not([type=checkbox], [type=radio], [type=range]), [contenteditable]";

export interface KeyEntry {
  /** "…" stands between the first and the last of a row of keys. */
  keys: readonly string[];
  text: string;
  note?: string | undefined;
}

export interface KeyListProps {
  store: PageStore;
  open: boolean;
  onClose: () => void;
  keys: readonly KeyEntry[];
}

export function KeyList({ store, open, onClose, keys }: KeyListProps) {
  const text = useTexts(store, TEXTS);
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (open) dialog.current?.showModal();
    else dialog.current?.close();
  }, [open]);
  return (
    <dialog ref={dialog} class="keyboard" aria-labelledby="keyboard-title" onClose={onClose}>
      <h2 id="keyboard-title">{text.title}</h2>
      <dl>
        {keys.map((entry) => (
          <div key={entry.text}>
            <dt>{entry.keys.map((key) => (key === "…" ? " … " : <kbd key={key}>{key}</kbd>))}</dt>
            <dd>{entry.text}{entry.note !== undefined && <span class="muted small"> {entry.note}</span>}</dd>
          </div>
        ))}
      </dl>
      <form method="dialog"><button>{text.close}</button></form>
    </dialog>
  );
}
