/** The title and the switches of the whole page: history, code, theme, language, help. */

import "./title_bar.css";

import { PreferenceButtons } from "../../components/preferences.js";
import { useStore } from "../../components/store.js";
import { texts, useTexts } from "../../components/text.js";
import type { Session } from "../session.js";
import type { Panel } from "../state.js";

const TEXTS = texts({
  en: { subtitle: "Translation", history: "History", code: "API", help: "Keyboard help" },
  zh: { subtitle: "翻译", history: "历史记录", code: "API", help: "键盘操作说明" },
});

export function TitleBar({ session: { store } }: { session: Session }) {
  const text = useTexts(store, TEXTS);
  const panel = useStore(store, () => store.state.panel);
  const theme = useStore(store, () => store.state.theme);
  const { language } = store.state;
  const toggle = (name: Panel): void => store.update({ panel: panel === name ? null : name });
  return (
    <header class="bar">
      <h1>Heedful<span class="subtitle">{text.subtitle}</span></h1>
      <button type="button" class="open-history" aria-pressed={panel === "history"} onClick={() => toggle("history")}>{text.history}</button>
      <button type="button" class="open-code" aria-pressed={panel === "code"} onClick={() => toggle("code")}>{text.code}</button>
      <PreferenceButtons language={language} theme={theme} onChange={(change) => store.update(change)} />
      <button type="button" class="help" aria-label={text.help} title={text.help} onClick={() => store.update({ panel: "keys" })}>?</button>
    </header>
  );
}
