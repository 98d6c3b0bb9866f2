/** The field for the API key, if the server wants one. The key is kept until the tab is closed. */

import "./key_field.css";

import { useState } from "preact/hooks";

import { useStore } from "../../components/store.js";
import { texts, useTexts } from "../../components/text.js";
import type { Session } from "../session.js";

const TEXTS = texts({
  en: { label: "API key", use: "Use", note: "Kept until this tab is closed." },
  zh: { label: "API 密钥", use: "使用", note: "关闭此标签页后不再保留。" },
});

export function KeyField({ session }: { session: Session }) {
  const { store } = session;
  const text = useTexts(store, TEXTS);
  const isNeeded = useStore(store, () => store.state.settings?.needs_key === true || store.state.problem?.kind === "key");
  const [value, setValue] = useState(store.state.key);
  if (!isNeeded) return null;
  const use = (event: Event): void => {
    event.preventDefault();
    session.setKey(value.trim());
  };
  return (
    <form class="key-field" onSubmit={use}>
      <label for="key">{text.label}</label>
      <input id="key" type="password" autocomplete="off" spellcheck={false} value={value} onInput={(event) => setValue(event.currentTarget.value)} />
      <button>{text.use}</button>
      <span class="muted small">{text.note}</span>
    </form>
  );
}
